"""What a fitted model can do without labels: density, novelty, recall, samples, certificates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset, StreamedBatch
from mnemosphere.data.encoding import COLUMNS, Encoding
from mnemosphere.data.normalize import NORMALIZATIONS, Normalizer
from mnemosphere.data.prepare import on_sphere
from mnemosphere.data.source import Dataset
from mnemosphere.estimators.base import (
    Floats,
    SphereEstimator,
    as_numpy,
    check_whole,
    draw_seed,
    like,
)
from mnemosphere.estimators.calibration import rejection_threshold
from mnemosphere.estimators.from_files import gathered
from mnemosphere.estimators.persistence import LABELS, labels_from_json, labels_to_json
from mnemosphere.files import as_tensors, join_prefixes, plain, strip_prefix
from mnemosphere.model import certificates, kernel, retrieval
from mnemosphere.model.batch import Batch
from mnemosphere.model.class_reading import precise
from mnemosphere.model.merge import merge
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.recall import Recall, recall
from mnemosphere.numerics.bessel import log_omega
from mnemosphere.schema import Array, Check, check_tensors, one_of
from mnemosphere.training.distributed import together
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.lineage import Lineage


@dataclass(frozen=True)
class RecallPath:
    """The way of n rows down the energy, S steps at most; a row that has stopped stays."""

    rows: Floats  # (S+1, n, N) from the rows as given to those recalled
    energies: Floats  # (S+1, n) −log P(x|y), or −log P(x), relative to the uniform law
    steps: NDArray[np.intp]  # (n,) steps taken
    converged: NDArray[np.bool_]  # (n,)


class MemoryModel(SphereEstimator, ABC):
    """All that reads a fitted model and needs no labels.

    A row without direction is like none of the memories: its class is that of the prior, its
    novelty 1.
    """

    novelty_threshold_: float | None  # of novelty_score, set by `calibrate_novelty`

    # What a model file holds besides parameters, normalizer and lineage.
    _HEADER: ClassVar[dict[str, Check]] = {
        "normalize": one_of(*NORMALIZATIONS), "classes": LABELS, "columns": COLUMNS
    }  # fmt: skip
    _OWN: ClassVar[dict[str, Array]]  # P memories, Q = P+1, C classes and "none of them"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _keep(self, params: Parameters) -> None:
        """Set the fitted attributes; what was calibrated on other parameters holds no more."""
        super()._keep(params)
        self.novelty_threshold_ = None

    @property
    def _class_params(self) -> Parameters:
        """Parameters whose log_joint gives the probabilities of classes."""
        return precise(self.params_)

    @property
    def _n_features_out(self) -> int:
        return int(self.n_memories_)

    @abstractmethod
    def _rows_to_judge(self, X: Any, y: Any, sample_weight: Any) -> ArrayDataset:
        """(X, y) as training would see them: label weights and all."""

    @property
    @abstractmethod
    def _rule(self) -> LabelRule:
        """The objective the model was trained by."""

    @abstractmethod
    def _class_index(self, y: Any) -> Tensor:
        """The columns of p that these classes have, (n,)."""

    @abstractmethod
    def _own(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What a model file holds of this estimator alone, as `_HEADER` and `_OWN` say."""

    @abstractmethod
    def _set_own(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Undo `_own`."""

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What was learned, for a model file."""
        own, own_tensors = self._own()
        tensors = join_prefixes({
            "params": self.params_.to_tensors(),
            "normalizer": self._normalizer.to_tensors(),
            "lineage": {} if self.lineage_ is None else self.lineage_.to_tensors(),
            "own": own_tensors,
        })  # fmt: skip
        header = {
            "normalize": self._normalizer.kind,
            "columns": [] if self._encoding is None else self._encoding.to_json(),
            "classes": labels_to_json(self.classes_),
            "own": plain(own),
        }
        return header, tensors

    def _set_state(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Undo `_state`."""
        self.normalize_ = header["normalize"]
        self._encoding = Encoding.from_json(header["columns"]) if header.get("columns") else None
        self.classes_ = labels_from_json(header["classes"])
        self._normalizer = Normalizer.from_arrays(
            self.normalize_, strip_prefix(arrays, "normalizer"), self._n_numbers
        )
        params = Parameters.from_file(arrays, "params")
        n_coordinates = self._normalizer.n_coordinates(self._n_numbers)
        shape = (n_coordinates, self.classes_.shape[0] + 1)
        lineage = as_tensors(strip_prefix(arrays, "lineage"))
        self.lineage_ = Lineage.from_tensors(lineage) if lineage else None
        levels = () if self.lineage_ is None else self.lineage_.models
        if (params.n_features, params.n_columns) != shape:
            raise ValueError(f"it has {params.n_features} features, {params.n_columns} classes")
        if any(level.n_features != params.n_features for level in levels):
            raise ValueError("a level of growth has another number of features")
        self._keep(params)
        own = strip_prefix(arrays, "own")
        check_tensors(own, self._OWN, {"Q": params.n_memories + 1, "C": params.n_columns})
        self._set_own(header["own"], own)

    def _log_joint(self, params: Parameters | None = None) -> Callable[[Tensor, Tensor], Tensor]:
        """log_joint of unit rows; that of the uniform component where there is no direction."""
        params = self.params_ if params is None else params
        tiny = torch.finfo(params.p.dtype).tiny
        prior = params.p_q.clamp_min(tiny).log() + params.p_h[0].clamp_min(tiny).log()

        def read(x: Tensor, lost: Tensor) -> Tensor:
            scores = kernel.log_joint(params, x)
            return torch.where(lost[:, None], prior, scores)

        return read

    def transform(self, X: ArrayLike) -> Floats:
        """How much each memory answers for each row: P(memory | x), (n, P)."""

        def read(x: Tensor, lost: Tensor) -> Tensor:
            scores = kernel.log_joint(self.params_, x)
            shares = kernel.responsibilities(self.params_, x, scores.softmax(1))[:, 1:]
            return torch.where(lost[:, None], 0.0, shares)

        out: Floats = self._over_rows(X, read)
        if isinstance(out, Tensor):
            return out
        same = getattr(X, "dtype", None) == np.float32
        return out.astype(np.float32 if same else np.float64, copy=False)

    def score_samples(self, X: ArrayLike) -> Floats:
        """Log of the effective density of each row on the sphere, labels summed out, (n,).

        For ς = 1 that is the model's log-density. For ς < 1 it is the log of
        𝒫_{β,ς}(x) of Eq. (effective_loss), which is not normalized: it ranks rows, but its
        exponential does not integrate to 1.
        """
        check_is_fitted(self, "params_")
        area = float(log_omega(0.0, self.params_.n_features))
        log_joint = self._log_joint()
        scores: Floats = self._over_rows(
            X, lambda x, lost: log_joint(x, lost).logsumexp(1).double() - area
        )
        return scores

    def novelty(self, X: ArrayLike) -> Floats:
        """Posterior weight of the uniform component, in [0, 1]: near 1, no memory answers."""

        def read(x: Tensor, lost: Tensor) -> Tensor:
            values = x.new_ones(x.shape[0])
            values[~lost] = retrieval.novelty(self.params_, x[~lost])
            return values

        values: Floats = self._over_rows(X, read)
        return values

    def novelty_score(self, X: ArrayLike) -> Floats:
        """How far a row is from all memories, (n,): minus the log of their part of the density.

        It ranks rows as `novelty` and `score_samples` do, and unlike them it saturates at neither
        end: `novelty` is p⁰/(p⁰ + exp(−score)), p⁰ the weight of the uniform component. Infinite
        for a row without direction.
        """

        def read(x: Tensor, lost: Tensor) -> Tensor:
            scores = torch.full_like(lost, torch.inf, dtype=torch.float64)
            scores[~lost] = retrieval.novelty_score(self.params_, x[~lost]).double()
            return scores

        values: Floats = self._over_rows(X, read)
        return values

    def calibrate_novelty(self, X: ArrayLike, rate: float = 0.01) -> Self:
        """Set `novelty_threshold_` so that a share `rate` of new rows like X counts as novel.

        Pass rows that were not trained on; labels are not needed. The promise is for the average
        over draws of X: with n rows, a new one of their kind is rejected with probability at most
        `rate`. Without repeated rows it is at least `rate` − 1/(n+1); copies of the row at the
        threshold are all kept, so with them it can be less.
        """
        if isinstance(X, Dataset):
            scores = gathered(self.novelty_score, X)
        else:
            scores = as_numpy(self.novelty_score(X))
        self.novelty_threshold_ = rejection_threshold(scores, rate)
        return self

    def is_novel(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Which rows have a `novelty_score` above the threshold of `calibrate_novelty`, (n,)."""
        scores = self.novelty_score(X)
        if self.novelty_threshold_ is None:
            raise ValueError(
                "no threshold yet: call calibrate_novelty(X, rate=0.01) with held-out rows first"
            )
        novel: NDArray[np.bool_] = scores > self.novelty_threshold_
        return novel

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
        it is found, and the other features of X stay as given (up to one factor per row, since
        length means nothing). known: (n, N) booleans, True for the features that are to stay, in
        place of all that are not NaN. y: the class of each row, or None for any class. method:
        "fixed-point" takes the longest strides; "gradient" follows the slope on the sphere, in
        steps of rate/β_eff, rate in (0, 2]. Neither ever raises the energy.
        """
        found = self._recall(X, y, known, steps, method, rate, "nothing")
        rows: Floats = like(X, self._normalizer.restore(found.x))
        return rows

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
        assert found.path is not None and found.energies is not None  # noqa: PT018
        return RecallPath(
            rows=self._normalizer.restore(found.path).cpu().numpy(),
            energies=found.energies.cpu().numpy(),
            steps=found.steps.cpu().numpy(),
            converged=found.converged.cpu().numpy(),
        )

    def _recall(
        self, X: Any, y: Any, known: Any, steps: int, method: str, rate: float, record: str
    ) -> Recall:
        check_is_fitted(self, "params_")
        x, held = self._with_gaps(X, known)
        index = None if y is None else self._class_index(y)
        if index is not None and index.shape[0] != x.shape[0]:
            raise ValueError(f"y has {index.shape[0]} labels for {x.shape[0]} rows: one per row")
        metric = self._normalizer.metric
        return recall(
            self.params_, x, class_index=index, known=held, steps=steps, method=method, rate=rate,
            record=record, metric=None if metric is None else metric.to(x.device),
        )  # fmt: skip

    def sample(
        self, n_samples: int = 1, y: object = None, *, random_state: int | None = None
    ) -> tuple[Floats, NDArray[Any]]:
        """Draw patterns and their labels from the model; y: one class to draw from, or None.

        A pattern of the class "none of them" is labeled None, in an array of objects.
        """
        check_is_fitted(self, "params_")
        check_whole(n_samples, "n_samples", 1)
        generator = torch.Generator().manual_seed(draw_seed(random_state))
        index = None if y is None else int(self._class_index(np.asarray([y]))[0])
        x, drawn = retrieval.sample(
            self.params_.to(device="cpu"), int(n_samples), class_index=index, generator=generator
        )
        names = np.array([*self.classes_.tolist(), None], dtype=object)[drawn.numpy()]
        labels = names if None in names.tolist() else names.astype(self.classes_.dtype)
        rows: Floats = self._normalizer.to("cpu").restore(x).numpy()
        return rows, labels

    def certify(
        self, X: ArrayLike, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None,
        *, tol: float = 1e-3, max_iter: int = 100,
    ) -> certificates.Certificate:  # fmt: skip
        """Is each memory a minimum, a saddle, or not converged, on the rows trained on?

        Training stops short of rest, so a copy first takes exact passes, max_iter at most, until
        nothing moves by more than tol: the certificate is of that copy. A conditional objective
        has no exact pass: there the model is judged as it is.
        """
        check_is_fitted(self, "params_")
        check_whole(max_iter, "max_iter", 0)
        rows = self._rows_to_judge(X, y, sample_weight).rows
        weights = self.params_.p_h[1:]
        found = partial(
            certificates.certify, self.params_, rows, self._rule, tol=tol, max_iter=int(max_iter),
            learn_beta=self.beta == "learn",
            hold_weights=torch.allclose(weights, weights.mean()),  # learned ones differ
        )  # fmt: skip
        if not isinstance(X, Dataset):
            return found()
        with together() as group:
            return group.once(found)

    def shrink(self, X: ArrayLike, y: ArrayLike | None = None, *, n_memories: int) -> Self:
        """A smaller fitted model: the memories that the loss misses least are merged away."""
        check_is_fitted(self, "params_")
        check_whole(n_memories, "n_memories")
        rows = self._rows_to_judge(X, y, None).rows
        return self._copy_with(merge(self.params_, rows, int(n_memories), self._rule).params)

    def at_level(self, level: int) -> Self:
        """The smaller model at the end of one level of growth, as a fitted estimator."""
        check_is_fitted(self, "params_")
        if self.lineage_ is None:
            raise ValueError("this model did not grow: fit with growth=16, say")
        check_whole(level, "level")
        return self._copy_with(self.lineage_.at_level(level))

    def _judged(self, X: Any, targets: Tensor, weight: Tensor | None) -> ArrayDataset:
        """Unit rows with label weights, those without direction left out."""
        stored = self._stored(X, reset=False, gaps=True)
        x, lost = on_sphere(stored, self._normalizer, self.params_.w.dtype)
        self._check_some_left(lost)
        rows = Batch(x, targets.to(x), None if weight is None else weight.to(x))
        if bool(lost.any()):
            self._warn_set_aside(stored, weight)
            rows = rows.take(~lost)
        return ArrayDataset(rows)

    def _take_in(
        self, params: Parameters, dataset: ArrayDataset, rule: LabelRule, *, first: bool
    ) -> None:
        """One incremental fixed-point step from a batch of a stream."""
        half_life = getattr(self.solver, "half_life", None)
        solver = FixedPoint(dataset.n_rows, learn_beta=self.beta == "learn", half_life=half_life)
        started = solver.start if first else solver.resume
        state = self.__dict__.get("_stream") or started(params)
        if first:
            self.history_, self.lineage_ = [], None
        result = fit(
            params, StreamedBatch(dataset.rows), solver, rule=rule, max_iter=1, state=state
        )
        self._stream = result.state
        (record,) = result.history
        self.history_ = [*self.history_, {**record.as_dict(), "n_iter": len(self.history_) + 1}]
        self.n_iter_, self.converged_, self.status_ = len(self.history_), False, "streaming"
        self._set_params(result.params)
