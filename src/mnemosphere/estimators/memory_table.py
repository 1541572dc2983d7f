"""What stands behind each memory: typical rows, how many rows, and all of it as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mnemosphere.data.normalize import Normalizer
from mnemosphere.data.prepare import on_sphere
from mnemosphere.data.rows import StoredRows
from mnemosphere.estimators.base import check_whole
from mnemosphere.model import kernel
from mnemosphere.model.gaps import overlaps
from mnemosphere.model.parameters import Parameters, memory_name
from mnemosphere.model.scores import Scores

if TYPE_CHECKING:
    from mnemosphere.estimators.portable_model import PortableModel

_MOST_ROWS = 8000
_TYPICAL = 3
_DIGITS = 1000  # responsibilities are compared to a thousandth, then overlaps decide


class RowsBehind(NamedTuple):
    """The rows that memories answer for."""

    typical: NDArray[np.int64]  # (P, 3) numbers of rows, most typical first; −1 where there is none
    support: NDArray[np.float64]  # (P,) summed responsibility, in units of rows
    names: NDArray[Any] | None = None  # (P, 3) what the typical rows are called, "" for none

    def shown(self) -> list[list[Any]]:
        """Names of the typical rows of each memory, or their numbers."""
        rows = self.typical if self.names is None else self.names
        return [[row for row in line if row not in (-1, "")] for line in rows.tolist()]


def rows_behind(
    params: Parameters,
    normalizer: Normalizer,
    stored: StoredRows,
    sample_weight: Tensor | None = None,
) -> RowsBehind:
    """One forward pass over at most 8,000 rows, evenly spaced; labels are not looked at.

    Typical rows of a memory are those of the largest responsibility, to three digits, and among
    them of the largest overlap. A row of which it has less than 0.0005 does not count.
    """
    if sample_weight is not None and not bool((sample_weight > 0).all()):
        kept = (sample_weight > 0).nonzero()[:, 0]
        stored, sample_weight = stored.take(kept), sample_weight[kept]
    n_given = stored.n_rows
    total = float(n_given) if sample_weight is None else float(sample_weight.sum())
    if n_given > _MOST_ROWS:
        some = torch.linspace(0, n_given - 1, _MOST_ROWS, dtype=torch.float64).long()
        stored = stored.take(some)
        sample_weight = None if sample_weight is None else sample_weight[some]
    x, lost = on_sphere(stored, normalizer, params.w.dtype)
    place = (~lost).nonzero()[:, 0]
    nobody = np.full((params.n_memories, _TYPICAL), -1)
    if place.shape[0] == 0:
        return RowsBehind(nobody, np.zeros(params.n_memories))
    x = x if place.shape[0] == x.shape[0] else x[place]
    weight = torch.ones(len(x)) if sample_weight is None else sample_weight[place.cpu()].cpu()
    weight = weight.to(x.device, torch.float64)
    support = torch.zeros(params.n_memories, dtype=torch.float64, device=x.device)
    best = x.new_full((_TYPICAL, params.n_memories), -1.0)
    number = torch.full_like(best, -1, dtype=torch.long)
    scores = Scores(params, None, len(x))
    for rows in kernel.chunks(len(x), params.n_memories, x.device):
        overlap = _overlaps(params, x[rows])
        share = scores.of_overlaps(overlap, rows).softmax(1)[:, 1:]  # (B, P)
        support += weight[rows] @ share.double()
        digits = (share * _DIGITS).round()
        score = torch.where(digits > 0, digits + 0.4 * overlap, -1.0)
        here, order = score.topk(min(_TYPICAL, len(score)), dim=0)
        names = torch.cat([number, order + rows.start])
        best, order = torch.cat([best, here]).topk(_TYPICAL, dim=0)
        number = names.gather(0, order)
    number = torch.where(best > 0, number, -1)
    found = nobody.copy()
    taken = number.T.cpu()
    is_row = (taken >= 0).numpy()
    rows_given = place[taken[taken >= 0].to(place.device)]
    found[is_row] = stored.call(rows_given.cpu())
    # Where only some rows were looked at, or some have no direction, they stand for all.
    scale = total / float(weight.sum())
    return RowsBehind(found, (support * scale).cpu().numpy())


def _overlaps(params: Parameters, x: Tensor) -> Tensor:
    return overlaps(params.w, x, params.beta_eff)


def memory_table(model: PortableModel, X: Any = None, y: Any = None) -> Any:
    """One line per memory, as a pandas frame; see `PortableModel.memory_table`."""
    import pandas as pd

    check_is_fitted(model, "params_")
    params = model.params_
    behind, beta_split = model._rows_behind, np.full(params.n_memories, np.nan)
    if X is not None:
        stored = model._stored(X, reset=False)
        behind = rows_behind(params, model._normalizer, stored)
        beta_split = model.certify(X, y, max_iter=0).beta_split.double().cpu().numpy()
    if behind is None:  # edited, shrunk or streamed: nothing is known of the rows
        behind = RowsBehind(
            np.full((params.n_memories, _TYPICAL), -1), np.full(params.n_memories, np.nan)
        )
    soft = model._class_params.p[1:].double().cpu().numpy()
    soft = soft / soft.sum(axis=1, keepdims=True)
    names = [*model.classes_.tolist(), None]
    nearest, overlap = _nearest(params)
    return pd.DataFrame(
        {
            "name": [memory_name(m) for m in range(params.n_memories)],
            "label": pd.Series([names[k] for k in soft.argmax(axis=1)], dtype=object),
            "soft_label": [
                {name: float(v) for name, v in zip(names, line, strict=True) if v > 0}
                for line in soft
            ],
            "purity": soft.max(axis=1),
            "share": behind.support / np.nansum(behind.support).clip(1e-300),
            "support": behind.support,
            "supported": behind.support >= 1,
            "beta_split": beta_split,
            "nearest": [None if k < 0 else memory_name(k) for k in nearest],
            "nearest_overlap": overlap,
            "features": _strongest(model, _TYPICAL)[1],
            "typical_rows": behind.shown(),
        }
    )


def _nearest(params: Parameters) -> tuple[list[int], NDArray[np.float64]]:
    """The memory nearest to each other than itself, and their overlap; −1 and NaN for one alone."""
    w = params.w.double().cpu()
    if len(w) == 1:
        return [-1], np.array([np.nan])
    nearest, overlaps = [], []
    for rows in kernel.chunks(len(w), len(w), w.device):
        overlap = w[rows] @ w.T
        overlap[torch.arange(len(overlap)), torch.arange(rows.start, rows.stop)] = -torch.inf
        value, index = overlap.max(1)
        nearest += index.tolist()
        overlaps.append(value.numpy())
    return nearest, np.concatenate(overlaps)


def strongest_features(model: PortableModel, n_features: int) -> Any:
    """The largest coordinates of each memory; see `PortableModel.strongest_features`."""
    import pandas as pd

    check_is_fitted(model, "params_")
    check_whole(n_features, "n_features", 1)
    soft = model._class_params.p[1:]
    labels = [*model.classes_.tolist(), None]
    weights, names = _strongest(model, n_features)
    lines = [
        (memory_name(m), labels[int(soft[m].argmax())], rank, name, value)
        for m, (line, called) in enumerate(zip(weights, names, strict=True))
        for rank, (value, name) in enumerate(zip(line, called, strict=True), start=1)
    ]
    return pd.DataFrame(lines, columns=["memory", "label", "rank", "feature", "weight"])


def _strongest(model: PortableModel, most: int) -> tuple[list[list[float]], list[list[Any]]]:
    """(weights, names) of the features of the largest weight in the overlap with each memory.

    A metric has its say: weights are those of features, not of the coordinates that it sees.
    """
    n = model._n_numbers
    called = model._feature_names() or range(n)
    # Without the coordinate that "standard" appends.
    w = model._normalizer.pull_back(model.params_.w)[:, :n]
    order = w.abs().topk(min(most, n), dim=1).indices  # (P, k)
    return w.gather(1, order).tolist(), [[called[j] for j in row] for row in order.tolist()]
