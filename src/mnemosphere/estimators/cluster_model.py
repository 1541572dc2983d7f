"""What a fitted clusterer answers: clusters, their centers, criteria, levels of growth."""

from __future__ import annotations

import math
import warnings
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset, FileDataset
from mnemosphere.estimators.base import Floats, as_numpy, check_whole, sample_weights
from mnemosphere.estimators.from_files import sample_rows
from mnemosphere.estimators.portable_model import PortableModel
from mnemosphere.model import objectives
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.schema import Array, Check, mapping, maybe, number
from mnemosphere.training import latent

_EVEN, _ALONE = 0.5, 1.1  # clusters of equal size that the division is worth: per cluster, at least


class ClusterModel(PortableModel):
    """All that reads a fitted model and knows of clusters."""

    labels_: NDArray[np.int64]
    n_clusters: int | str
    class_prior: ArrayLike | str
    smoothing: float

    _HEADER: ClassVar[dict[str, Check]] = PortableModel._HEADER | {
        "own": mapping({"novelty_threshold": maybe(number())})
    }
    _OWN: ClassVar[dict[str, Array]] = {"labels": Array("n", "int32", low=0)}

    @property
    def _smoothing(self) -> float:
        return float(self.smoothing)

    def _no_labels(self, n_rows: int, n_columns: int | None = None) -> Tensor:
        """Label weights of rows without label; one row of zeros stands for all of them."""
        columns = len(self.classes_) + 1 if n_columns is None else n_columns
        return torch.zeros(1, columns, dtype=torch.float64).expand(n_rows, -1)

    def _keep(self, params: Parameters) -> None:
        super()._keep(params)
        self.memory_labels_ = latent.latent_class(params).cpu().numpy()
        # Σ_μ P(memory | cluster) w^μ, the direction of the rows that a cluster holds.
        means = params.p[1:, :-1].T @ params.w  # (C, P) (P, N)
        norm = means.norm(dim=1, keepdim=True).clamp_min(torch.finfo(means.dtype).tiny)
        self.cluster_centers_ = self._normalizer.restore(means / norm).cpu().numpy()

    def _own(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        labels = torch.as_tensor(self.labels_).to(torch.int32)
        return {"novelty_threshold": self.novelty_threshold_}, {"labels": labels}

    def _set_own(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        self.labels_ = arrays["labels"].astype(np.int64)
        n_clusters = len(self.classes_)
        if self.labels_.max(initial=0) >= n_clusters or self.classes_.tolist() != list(
            range(n_clusters)
        ):
            raise ValueError(f"its labels are none of {n_clusters} clusters")
        threshold = header["novelty_threshold"]
        self.novelty_threshold_ = None if threshold is None else float(threshold)

    def _proportions(self) -> Tensor | None:
        """class_prior (C,) as a tensor; None for "auto"."""
        if isinstance(self.class_prior, str) and self.class_prior == "auto":
            return None
        try:
            given = np.asarray(self.class_prior, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"class_prior must be 'auto' or numbers, got {self.class_prior!r}"
            ) from error
        n_clusters = given.size if self.n_clusters == "auto" else self.n_clusters
        if given.shape != (n_clusters,):
            raise ValueError(
                f"class_prior must have one entry for each of {n_clusters} clusters, got shape "
                f"{given.shape}: pass n_clusters={given.size}, or other proportions"
            )
        if not (given.size and np.isfinite(given).all() and (given > 0).all()):
            raise ValueError(
                f"class_prior must be positive, got {given.tolist()}: leave empty clusters out"
            )
        return torch.from_numpy(given)

    def _class_index(self, y: Any) -> Tensor:
        index = y if isinstance(y, Tensor) else np.asarray(y)
        kind = as_numpy(index[:0] if index.ndim else index).dtype.kind
        n_clusters = len(self.classes_)
        if kind not in "iu" or bool(((index < 0) | (index >= n_clusters)).any()):
            some = as_numpy(index).reshape(-1)[:5].tolist()
            raise ValueError(f"y must be clusters from 0 to {n_clusters - 1}, got {some}")
        return torch.as_tensor(index).reshape(-1).to(self.params_.w.device).long()

    @property
    def _rule(self) -> LabelRule:
        return objectives.marginal

    def _rows_to_judge(self, X: Any, y: Any, sample_weight: Any) -> ArrayDataset:
        if isinstance(X, FileDataset):
            X, _, sample_weight = sample_rows(X, 0)
        stored = self._stored(X, reset=False, gaps=True)
        weight = sample_weights(sample_weight, stored.n_rows, stored.device)
        return self._judged(X, self._no_labels(stored.n_rows), weight)

    @property
    def n_clusters_(self) -> int:
        """How many clusters there are."""
        check_is_fitted(self, "params_")
        return len(self.classes_)

    def _warn_degenerate(self) -> None:
        """Say so where the clusters are no division of the rows worth the name."""
        n_clusters = len(self.classes_)
        share = np.bincount(self.labels_, minlength=n_clusters) / len(self.labels_)
        used = share[share > 0]
        # exp of the entropy: as many clusters of equal size would be as even a division.
        effective = math.exp(-float(used @ np.log(used)))
        empty = n_clusters - len(used)
        if empty or effective < max(_EVEN * n_clusters, _ALONE) <= n_clusters:
            told = f"{empty} of {n_clusters} clusters have no rows, and " if empty else ""
            warnings.warn(
                f"{told}one cluster has {share.max():.0%} of the rows: ask for another n_clusters "
                "or another normalize",
                UserWarning,
                stacklevel=3,
            )

    def predict_proba(self, X: ArrayLike) -> Floats:
        """P(cluster | x, it is one of the C), (n, C)."""
        check_is_fitted(self, "params_")
        params = self._class_params
        log_joint = self._log_joint(params)
        proba: Floats = self._over_rows(
            X, lambda x, lost: log_joint(x, lost)[:, :-1].double().softmax(1), params.w.dtype
        )
        return proba

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:
        """The most probable cluster of each row, (n,)."""
        check_is_fitted(self, "params_")
        params = self._class_params
        log_joint = self._log_joint(params)
        labels: NDArray[np.int64] = self._over_rows(
            X, lambda x, lost: log_joint(x, lost)[:, :-1].argmax(1), params.w.dtype
        )
        return labels

    def score(self, X: ArrayLike, y: object = None) -> float:
        """Mean of `score_samples`, the log-density (ς = 1) or effective log-density of a row."""
        return float(as_numpy(self.score_samples(X)).mean())

    def bic(self, X: ArrayLike) -> float:
        """Bayesian information criterion on X, the lower the better; needs varsigma=1."""
        scores = self._log_density(X)
        return -2 * float(scores.sum()) + self._n_parameters() * math.log(len(scores))

    def aic(self, X: ArrayLike) -> float:
        """Akaike information criterion on X, the lower the better; needs varsigma=1."""
        return -2 * float(self._log_density(X).sum()) + 2 * self._n_parameters()

    def _log_density(self, X: ArrayLike) -> Floats:
        check_is_fitted(self, "params_")
        if self.varsigma_ != 1.0:
            raise ValueError(
                f"bic and aic need a density that integrates to 1, but varsigma={self.varsigma_:g}:"
                " fit with varsigma=1"
            )
        return as_numpy(self.score_samples(X))

    def _n_parameters(self) -> int:
        """Free numbers of the density of the rows: directions of the memories, and β if learned.

        Class weights do not count: their sums over the classes are fixed, and only those enter.
        Centered rows, and so the memories, lie on a sphere of one dimension less.
        """
        directions = self.params_.n_features - 1 - (self.normalize_ == "center")
        return self.n_memories_ * directions + (self.beta == "learn")

    def at_level(self, level: int) -> Self:
        """The smaller model at the end of one level of growth, as a fitted clusterer.

        A memory's class weights are the sum of those of its descendants.
        """
        check_is_fitted(self, "params_")
        if self.lineage_ is None:
            raise ValueError("this model did not grow: fit with growth=16, say")
        check_whole(level, "level")
        tree, early = self.lineage_, self.lineage_.at_level(int(level))
        place = torch.full((tree.n_nodes,), -1)
        place[tree.members[level]] = torch.arange(early.n_memories)
        p = self.params_.p.new_zeros(early.n_memories + 1, self.params_.n_columns)
        p[0] = self.params_.p[0]
        for leaf, weights in zip(tree.members[-1].tolist(), self.params_.p[1:], strict=True):
            node = leaf
            while place[node] < 0:
                node = int(tree.parent[node])
            p[1 + place[node]] += weights
        return self._copy_with(early.replace(p=p, p_q=self.params_.p_q))
