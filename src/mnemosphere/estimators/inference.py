"""What a fitted classifier can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, column_or_1d

from mnemosphere.estimators.base import SphereEstimator, as_numpy, check_whole, draw_seed
from mnemosphere.estimators.explanation import Explanation
from mnemosphere.estimators.preparation import Floats, label_index
from mnemosphere.model import kernel, retrieval
from mnemosphere.model.merge import merge
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.recall import recall
from mnemosphere.theory import stationarity


class FittedModel(SphereEstimator):
    """Predictions, explanations, recall, sampling, certificates: all that knows of classes."""

    classes_: NDArray[Any]
    beta: float | str

    if TYPE_CHECKING:

        def _encode(
            self, X: Floats, y: Any, classes: NDArray[Any] | None
        ) -> tuple[NDArray[np.intp], Floats]: ...
        def _weights(
            self, X: Floats, index: NDArray[np.intp], sample_weight: ArrayLike | None
        ) -> Floats | None: ...
        def _rule(self) -> LabelRule: ...

    def decision_function(self, X: ArrayLike) -> Floats:
        """Log-odds of the second class (n,) for two classes, else log P(y|x) (n, C)."""
        scores = self.predict_log_proba(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _log_proba(self, X: ArrayLike) -> Floats:
        scores = kernel.log_joint(self.params_, self._on_sphere(X))[:, :-1]
        log_proba: Floats = scores.double().log_softmax(1).cpu().numpy()
        return log_proba

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Log P(y|x), (n, C)."""
        check_is_fitted(self, "params_")
        return self._log_proba(X)

    def predict_proba(self, X: ArrayLike) -> Floats:
        """P(y | x, y is one of the C classes), (n, C)."""
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row."""
        winner = self.predict_log_proba(X).argmax(axis=1)
        best: NDArray[Any] = self.classes_[winner]
        return best

    def explain(self, X: ArrayLike, n_nearest: int = 5) -> Explanation:
        """Why each row got its class: the memories that decided it, their shares, soft labels."""
        x = self._on_sphere(X)
        check_whole(n_nearest, "n_nearest", 1)
        log_proba = kernel.log_joint(self.params_, x)[:, :-1].double().log_softmax(1)
        winner = log_proba.argmax(1)
        k = min(n_nearest, self.n_memories_)
        top = retrieval.shares(self.params_, x, None, k)  # P(memory | x)
        soft = self.params_.p[1:] / self.params_.p_h[1:, None]
        return Explanation(
            rows=self._normalizer.restore(x.cpu().numpy()),
            classes=self.classes_,
            verdict=self.classes_[winner.cpu().numpy()],
            probability=log_proba.amax(1).exp().cpu().numpy(),
            memory=top.indices.cpu().numpy(),
            share=top.shares.cpu().numpy(),
            overlap=top.overlaps.cpu().numpy(),
            uniform_share=top.uniform.cpu().numpy(),
            soft_label=soft[top.indices].cpu().numpy(),
            memories=self.memories_[top.indices.cpu().numpy()],
        )

    def recall(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        known: ArrayLike | None = None,
        steps: int = 50,
    ) -> Floats:
        """Complete patterns: descend the energy −log P(x|y) from each row, (n, N).

        y: the class of each row, or None for any class. known: (n, N) booleans, True for the
        features that are to stay as given (up to one factor a row, since length means nothing).
        """
        x = self._on_sphere(X)
        index = None if y is None else torch.from_numpy(self._class_index(y)).to(x.device)
        if index is not None and index.shape[0] != x.shape[0]:
            raise ValueError(f"y has {index.shape[0]} labels for {x.shape[0]} rows: pass one a row")
        held: torch.Tensor | None = None
        if known is not None:
            mask = np.asarray(known)
            if mask.dtype != bool:
                raise ValueError(f"known must be booleans, True to keep, got {mask.dtype}")
            if mask.shape != (x.shape[0], self.n_features_in_):
                raise ValueError(
                    f"known must be {(x.shape[0], self.n_features_in_)} like X, got {mask.shape}"
                )
            if self._normalizer.extra:
                mask = np.hstack([mask, np.ones((mask.shape[0], 1), dtype=bool)])
            held = torch.from_numpy(mask).to(x.device)
        found = recall(self.params_, x, class_index=index, known=held, steps=steps)
        return self._normalizer.restore(found.x.cpu().numpy())

    def sample(
        self, n: int, y: object = None, *, random_state: int | None = None
    ) -> tuple[Floats, NDArray[Any]]:
        """Draw n patterns and their labels from the model; y: one class to draw from, or None.

        A pattern of the class "none of them" is labelled None, in an array of objects.
        """
        check_is_fitted(self, "params_")
        check_whole(n, "n", 1)
        generator = torch.Generator().manual_seed(draw_seed(random_state))
        index = None if y is None else int(self._class_index(np.asarray([y]))[0])
        x, drawn = retrieval.sample(
            self.params_.to(device="cpu"), int(n), class_index=index, generator=generator
        )
        names = np.array([*self.classes_.tolist(), None], dtype=object)[drawn.numpy()]
        labels = names if None in names.tolist() else names.astype(self.classes_.dtype)
        return self._normalizer.restore(x.numpy()), labels

    def _class_index(self, y: ArrayLike) -> NDArray[np.intp]:
        return label_index(column_or_1d(as_numpy(y)), self.classes_)[1]

    def certify(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, **options: Any
    ) -> stationarity.Certificate:
        """Is each memory a minimum, a saddle, or not converged, on these rows? See the docs."""
        check_is_fitted(self, "params_")
        X, y = self._validate_rows(X, reset=False), as_numpy(y)
        index, targets = self._encode(X, y, classes=self.classes_)
        weight = self._weights(X, index, sample_weight)
        data = self._tensors(self._normalizer(X), targets, weight)
        return stationarity.certify(
            self.params_, data.x, data.targets, self._rule(),
            sample_weight=data.sample_weight, learn_beta=self.beta == "learn", **options,
        )  # fmt: skip

    def shrink(self, X: ArrayLike, y: ArrayLike, n_memories: int) -> Self:
        """A smaller fitted classifier: the memories that the loss misses least are merged away."""
        check_is_fitted(self, "params_")
        X, y = self._validate_rows(X, reset=False), as_numpy(y)
        _, targets = self._encode(X, y, classes=self.classes_)
        check_whole(n_memories, "n_memories")
        data = self._tensors(self._normalizer(X), targets, None)
        merged = merge(self.params_, data.x, data.targets, n_memories=n_memories)
        return self._with(merged.params)
