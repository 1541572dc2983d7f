"""What a fitted classifier can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from mnemosphere.estimators.base import SphereEstimator, as_numpy, check_whole, draw_seed
from mnemosphere.estimators.calibration import best_temperature, rejection_threshold
from mnemosphere.estimators.explanation import Explanation
from mnemosphere.estimators.labels import Encoded, label_index
from mnemosphere.estimators.preparation import (
    Floats,
    check_finite,
    check_table,
)
from mnemosphere.model import kernel, retrieval
from mnemosphere.model.merge import merge
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.prior import with_class_prior
from mnemosphere.model.recall import Recall, recall
from mnemosphere.theory import stationarity


@dataclass(frozen=True)
class RecallPath:
    """The way of n rows down the energy, S steps at most; a row that has stopped stays."""

    rows: Floats  # (S+1, n, N) from the rows as given to those recalled
    energies: Floats  # (S+1, n) −log P(x|y), or −log P(x), relative to the uniform law
    steps: NDArray[np.intp]  # (n,) steps taken
    converged: NDArray[np.bool_]  # (n,)


class FittedModel(SphereEstimator):
    """Predictions, explanations, recall, sampling, certificates: all that knows of classes."""

    classes_: NDArray[Any]
    beta: float | str
    temperature_: float  # of predict_proba; 1 unless `calibrate` found another
    novelty_threshold_: float | None  # of novelty_score, set by `calibrate_novelty`

    if TYPE_CHECKING:

        def _encode(self, X: Floats, y: Any, classes: NDArray[Any] | None) -> Encoded: ...
        def _weights(
            self, X: Floats, index: NDArray[np.intp], sample_weight: ArrayLike | None
        ) -> Floats | None: ...
        def _rule(self) -> LabelRule: ...

    def _keep(self, params: Parameters) -> None:
        """Set the fitted attributes; what was calibrated on other parameters holds no more."""
        super()._keep(params)
        self.temperature_ = 1.0
        self.novelty_threshold_ = None

    def decision_function(self, X: ArrayLike) -> Floats:
        """Log-odds of the second class (n,) for two classes, else log P(y|x) (n, C)."""
        scores = self.predict_log_proba(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def _log_proba(self, X: ArrayLike) -> Floats:
        """Log P(y|x) of the model itself, before any temperature."""
        scores = kernel.log_joint(self.params_, self._on_sphere(X))[:, :-1]
        log_proba: Floats = scores.double().log_softmax(1).cpu().numpy()
        return log_proba

    def predict_log_proba(self, X: ArrayLike) -> Floats:
        """Log of `predict_proba`, (n, C)."""
        check_is_fitted(self, "params_")
        log_proba = self._log_proba(X)
        if self.temperature_ == 1.0:
            return log_proba
        tempered: Floats = log_softmax(log_proba / self.temperature_, axis=1)
        return tempered

    def predict_proba(self, X: ArrayLike) -> Floats:
        """P(y | x, y is one of the C classes), (n, C); at the temperature of `calibrate`.

        For ς = 1 these are the probabilities of the model. For ς < 1 the effective density is no
        law, and its ratios are scores that sum to 1: `calibrate` makes them probabilities as well
        as one number can, and held-out rows tell how well that is.
        """
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row."""
        check_is_fitted(self, "params_")
        # Before any temperature, so that rounding cannot make calibration change a prediction.
        best: NDArray[Any] = self.classes_[self._log_proba(X).argmax(axis=1)]
        return best

    def calibrate(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Set `temperature_` to the T with the least log-loss of softmax(log P(y|x)/T) on (X, y).

        Pass labelled rows that were not trained on. Predictions never change, `predict_proba` and
        what is built on it do. Further training, shrinking and the like start again at T = 1.
        """
        check_is_fitted(self, "params_")
        log_proba, index = self._log_proba(X), self._class_index(y)
        if index.shape[0] != log_proba.shape[0]:
            raise ValueError(
                f"X has {log_proba.shape[0]} rows but y has {index.shape[0]}: pass one label a row"
            )
        weight: Floats | None = None
        if sample_weight is not None:
            weight = _check_sample_weight(
                sample_weight, log_proba, dtype=np.float64, ensure_non_negative=True
            )
        self.temperature_ = best_temperature(log_proba, index, weight)
        return self

    def novelty_score(self, X: ArrayLike) -> Floats:
        """How far a row is from all memories, (n,): minus the log of their part of the density.

        It ranks rows as `novelty` and `score_samples` do, and unlike them it saturates at neither
        end: `novelty` is p⁰/(p⁰ + exp(−score)), p⁰ the weight of the uniform component.
        """
        scores = retrieval.novelty_score(self.params_, self._on_sphere(X))
        values: Floats = scores.double().cpu().numpy()
        return values

    def calibrate_novelty(self, X: ArrayLike, rate: float = 0.01) -> Self:
        """Set `novelty_threshold_` so that a share `rate` of new rows like X counts as novel.

        Pass rows that were not trained on; labels are not needed. The promise is for the average
        over draws of X: with n rows, a new one of their kind is rejected with probability at most
        `rate`, and at least `rate` − 1/(n+1).
        """
        self.novelty_threshold_ = rejection_threshold(self.novelty_score(X), rate)
        return self

    def is_novel(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Which rows have a `novelty_score` above the threshold of `calibrate_novelty`, (n,)."""
        scores = self.novelty_score(X)
        if self.novelty_threshold_ is None:
            raise ValueError(
                "no threshold yet: call calibrate_novelty(X, rate=0.01) with held-out rows first"
            )
        return np.asarray(scores > self.novelty_threshold_)

    def predict_or_reject(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row, None where the row is novel; an array of objects."""
        answer = self.predict(X).astype(object)
        answer[self.is_novel(X)] = None
        return answer

    def with_class_prior(
        self, prior: Mapping[Any, float] | ArrayLike, *, memory_weights: str = "follow"
    ) -> Self:
        """A fitted classifier with other class frequencies and the same memories, not retrained.

        prior: {label: weight} with every class, or weights (C,) in the order of `classes_`; they
        are scaled to sum to 1. The class "none of them" keeps its share.

        memory_weights: "follow", Bayes' rule: probabilities are reweighted by new over old prior,
        and the weights of memories follow. "hold" keeps the weights of memories: p is scaled to
        its new column sums within the polytope of the old row sums, so memories take other soft
        labels. See the user guide for when that is wanted.
        """
        check_is_fitted(self, "params_")
        weights = self._prior_weights(prior)
        p_q = self.params_.p_q.double()
        new = torch.from_numpy(weights / weights.sum()).to(p_q) * p_q[:-1].sum()
        p_q = torch.cat([new, p_q[-1:]])
        return self._with(with_class_prior(self.params_, p_q, memory_weights))

    def _prior_weights(self, prior: Mapping[Any, float] | ArrayLike) -> NDArray[np.float64]:
        names = self.classes_.tolist()
        if isinstance(prior, Mapping):
            if sorted(map(str, prior)) != sorted(map(str, names)):
                raise ValueError(
                    f"prior must name every class once, {names}, got {list(prior)}: "
                    "weights are relative, so pass all of them"
                )
            index = self._class_index(np.array(list(prior)))
            weights = np.empty(len(names))
            weights[index] = np.array(list(prior.values()), dtype=np.float64)
        else:
            weights = np.asarray(as_numpy(prior), dtype=np.float64)
        if weights.shape != (len(names),) or not (
            np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0
        ):
            raise ValueError(
                f"prior must be {len(names)} finite weights >= 0, not all 0, got {weights.tolist()}"
            )
        return weights

    def explain(self, X: ArrayLike, n_nearest: int = 5) -> Explanation:
        """Why each row got its class: the memories that decided it, their shares, soft labels."""
        x = self._on_sphere(X)
        check_whole(n_nearest, "n_nearest", 1)
        log_proba = kernel.log_joint(self.params_, x)[:, :-1].double().log_softmax(1)
        winner = log_proba.argmax(1)
        tempered = (log_proba / self.temperature_).log_softmax(1)  # as predict_proba
        k = min(n_nearest, self.n_memories_)
        top = retrieval.shares(self.params_, x, None, k)  # P(memory | x)
        soft = self.params_.p[1:] / self.params_.p_h[1:, None]
        return Explanation(
            rows=self._normalizer.restore(x.cpu().numpy()),
            classes=self.classes_,
            verdict=self.classes_[winner.cpu().numpy()],
            probability=tempered.amax(1).exp().cpu().numpy(),
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
        method: str = "fixed-point",
        rate: float = 1.0,
    ) -> Floats:
        """Complete patterns: descend the energy −log P(x|y) from each row, (n, N).

        X: where to start, such as damaged patterns or noise. A feature that is NaN is not known:
        it is found, and the other features of X stay as given (up to one factor a row, since
        length means nothing). known: (n, N) booleans, True for the features that are to stay, in
        place of all that are not NaN. y: the class of each row, or None for any class. method:
        "fixed-point" takes the longest strides; "gradient" follows the slope on the sphere, in
        steps of rate/β_eff, rate in (0, 2]. Neither ever raises the energy.
        """
        found = self._recall(X, y, known, steps, method, rate, "nothing")
        return self._normalizer.restore(found.x.cpu().numpy())

    def recall_path(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        known: ArrayLike | None = None,
        steps: int = 50,
        method: str = "fixed-point",
        rate: float = 1.0,
    ) -> RecallPath:
        """As `recall`, with the rows and energies after every step."""
        found = self._recall(X, y, known, steps, method, rate, "rows")
        assert found.path is not None
        assert found.energies is not None
        path = found.path.cpu().numpy()
        flat = self._normalizer.restore(path.reshape(-1, path.shape[2]))
        return RecallPath(
            rows=flat.reshape(*path.shape[:2], -1),
            energies=found.energies.cpu().numpy(),
            steps=found.steps.cpu().numpy(),
            converged=found.converged.cpu().numpy(),
        )

    def _recall(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        known: ArrayLike | None,
        steps: int,
        method: str,
        rate: float,
        record: str,
    ) -> Recall:
        check_is_fitted(self, "params_")
        x, held = self._with_gaps(X, known)
        index = None if y is None else torch.from_numpy(self._class_index(y)).to(x.device)
        if index is not None and index.shape[0] != x.shape[0]:
            raise ValueError(f"y has {index.shape[0]} labels for {x.shape[0]} rows: pass one a row")
        return recall(
            self.params_, x, class_index=index, known=held, steps=steps, method=method, rate=rate,
            record=record,
        )  # fmt: skip

    def _with_gaps(
        self, X: ArrayLike, known: ArrayLike | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Unit rows, NaN filled in neutrally, and the mask of the coordinates that are known."""
        if isinstance(X, (torch.Tensor, list, tuple)):
            X = as_numpy(X)
        check_table(X)
        rows: Floats = validate_data(
            self, X, reset=False, dtype=[np.float64, np.float32], ensure_all_finite=False
        )
        gaps = np.isnan(rows)
        mask: NDArray[Any] | None = None
        if known is not None:
            mask = np.asarray(known)
            if mask.dtype != bool:
                raise ValueError(f"known must be booleans, True to keep, got {mask.dtype}")
            if mask.shape != rows.shape:
                raise ValueError(f"known must be {rows.shape} like X, got {mask.shape}")
            gaps &= ~mask
        elif gaps.any():
            mask = ~gaps
        rows = np.asarray(self._normalizer.fill(rows, gaps))
        check_finite(rows, getattr(self, "feature_names_in_", None))
        x = torch.from_numpy(np.ascontiguousarray(self._normalizer(rows))).to(self.params_.w)
        if mask is not None and self._normalizer.extra:
            mask = np.hstack([mask, np.ones((mask.shape[0], 1), dtype=bool)])
        held = None if mask is None else torch.from_numpy(mask).to(x.device)
        return x / x.norm(dim=1, keepdim=True), held

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
        coded = self._encode(X, y, self.classes_)
        weight = self._weights(X, coded.index, sample_weight)
        data = self._tensors(self._normalizer(X), coded.targets, weight)
        return stationarity.certify(
            self.params_, data.x, data.targets, self._rule(),
            sample_weight=data.sample_weight, learn_beta=self.beta == "learn", **options,
        )  # fmt: skip

    def shrink(self, X: ArrayLike, y: ArrayLike, n_memories: int) -> Self:
        """A smaller fitted classifier: the memories that the loss misses least are merged away."""
        check_is_fitted(self, "params_")
        X, y = self._validate_rows(X, reset=False), as_numpy(y)
        coded = self._encode(X, y, self.classes_)
        check_whole(n_memories, "n_memories")
        data = self._tensors(self._normalizer(X), coded.targets, None)
        merged = merge(self.params_, data.x, data.targets, n_memories=n_memories)
        return self._with(merged.params)
