"""From a user's rows to unit rows, equal ones merged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]

NORMALIZATIONS = ("center", "unit", "standard", "none")
_PROJECTION_SEED = 20251115  # of the fixed vector that sorts rows; any number does


@dataclass(frozen=True)
class Normalizer:
    """Puts rows on the unit sphere.

    center    minus the row's mean, over the row's norm (images, spectra, counts)
    unit      over the row's norm (embeddings)
    standard  each feature to mean 0 and variance 1 over the training rows, one constant
              coordinate √N appended, over the norm (tables of unlike features): keeps the length
              of a row as well as its direction, and no row is ever zero
    none      the rows are unit vectors already
    """

    kind: str
    mean: Floats | float = 0.0  # (N,) with 'standard'
    scale: Floats | float = 1.0

    @classmethod
    def fit(cls, kind: str, x: Floats, sample_weight: Floats | None = None) -> Normalizer:
        """Learn what the kind needs from the training rows."""
        if kind != "standard":
            return cls(kind)
        x = x.astype(np.float64, copy=False)
        mean = np.average(x, axis=0, weights=sample_weight)
        scale = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=sample_weight))
        # A constant feature tells nothing: any scale does.
        return cls(kind, mean, np.where(scale > 1e-12 * np.abs(mean), scale, 1.0))

    @property
    def extra(self) -> int:
        """How many coordinates are appended."""
        return 1 if self.kind == "standard" else 0

    def __call__(self, x: Floats, number: NDArray[np.intp] | None = None) -> Floats:
        """Unit rows; ValueError that names the first row without direction.

        number: what the user calls each row, where some were dropped or moved.
        """
        number = np.arange(x.shape[0]) if number is None else number
        x, norms, lost = self.directions(x)
        if lost.any():
            what = "constant" if self.kind == "center" else "all zeros"
            raise ValueError(
                f"row {number[lost].min()} of X is {what}, so it has no direction: drop such rows "
                "or use normalize='standard'"
            )
        off = np.abs(norms - 1) > 1e-4
        if self.kind == "none" and off.any():
            raise ValueError(
                f"row {number[off][0]} of X has norm {norms[off][0]:.6g} but normalize='none' "
                "wants unit rows: divide by the norm or use normalize='unit'"
            )
        return np.asarray(x / norms[:, None])

    def directions(self, x: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Rows that only need to be divided by their norms, the norms, which have no direction."""
        if self.kind == "standard":
            root = np.full((x.shape[0], 1), np.sqrt(x.shape[1]))
            x = np.hstack([(x - self.mean) / self.scale, root])
        else:
            x = _moderate(x)
        norms = np.linalg.norm(x.astype(np.float64, copy=False), axis=1)
        if self.kind != "center":
            return x, norms, norms == 0
        x = x - x.mean(axis=1, keepdims=True, dtype=np.float64)
        left = np.linalg.norm(x, axis=1)
        # Measured against the row as it came: what is left of a constant row is rounding.
        return x, left, left <= 1e-9 * norms

    def fill(self, x: Floats, gaps: NDArray[np.bool_]) -> Floats:
        """The rows with a neutral value in each gap: one that becomes 0 on the sphere."""
        if not gaps.any():
            return x
        lost = gaps.all(axis=1)
        if lost.any():
            raise ValueError(f"row {np.flatnonzero(lost)[0]} of X has no known feature: drop it")
        value: Floats | float = 0.0
        if self.kind == "center":  # the mean of the row is that of the features that are known
            value = np.nanmean(np.where(gaps, np.nan, x), axis=1, keepdims=True)
        elif self.kind == "standard":
            value = self.mean
        filled = np.where(gaps, value, x)
        if self.kind == "none":
            filled = filled / np.linalg.norm(filled, axis=1, keepdims=True)
        return np.asarray(filled)

    def restore(self, w: Floats) -> Floats:
        """Memories as a user would read them: in the units of the features where that exists."""
        if self.kind != "standard":
            return w
        n = w.shape[1] - 1
        # The last coordinate is √N over the norm, so it gives the norm back; a memory on the far
        # side of the sphere has no counterpart, and its direction is shown at unit length.
        last = np.where(w[:, -1:] > 1e-6, w[:, -1:] / np.sqrt(n), 1.0)
        return np.asarray(self.mean + self.scale * w[:, :-1] / last)


def check_table(x: Any) -> None:
    """Raise ValueError where X is no table of real numbers; other rules are scikit-learn's."""
    if getattr(x, "ndim", 2) == 1:
        raise ValueError(
            f"X must be (rows, features), got shape {tuple(x.shape)}. Reshape your data: "
            "X.reshape(-1, 1) is one feature, X.reshape(1, -1) one row"
        )
    if getattr(getattr(x, "dtype", None), "kind", "") == "c":
        raise ValueError("Complex data not supported in X: pass real and imaginary parts apart")


def check_finite(x: Floats, names: NDArray[Any] | None) -> None:
    """Raise ValueError that names the first number of X that is none."""
    with np.errstate(all="ignore"):
        if np.isfinite(x.sum(dtype=np.float64)):
            return
    bad = ~np.isfinite(x)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        what = "NaN" if np.isnan(x[row, column]) else "infinite (inf)"
        where = column if names is None else repr(names[column])
        raise ValueError(
            f"row {row} of X is {what} in column {where} ({bad.any(axis=1).sum()} such rows): "
            "drop it or fill it in"
        )


def usable_normalizations(x: Floats) -> list[str]:
    """The kinds among which 'auto' chooses: those under which every row has a direction."""
    usable = ["standard"]
    for kind, least in (("unit", 2), ("center", 3)):
        if x.shape[1] >= least and not Normalizer(kind).directions(x)[2].any():
            usable.append(kind)
    return usable


def _moderate(x: Floats) -> Floats:
    """The rows, those of huge or tiny numbers times a power of 2, so that squares are finite."""
    peak = np.abs(x).max(axis=1).astype(np.float64)
    far = (peak > 1e100) | ((peak < 1e-100) & (peak > 0))
    if not far.any():
        return x
    exponent = np.where(far, np.frexp(peak)[1], 0)
    return np.asarray(np.ldexp(x, -exponent[:, None]))


def merge_duplicates(
    x: Floats, targets: Floats, sample_weight: Floats | None
) -> tuple[Floats, Floats, Floats | None, NDArray[np.intp]]:
    """One row for each distinct row of x, with the label weights and sample weights of its copies.

    Returns those three, and the index of each row among those that came.

    The statistics of the model are linear in them, so nothing changes but the cost; and a row of
    weight 2 trains exactly as the same row given twice. Rows of weight 0 are dropped. Data without
    copies, all of weight 1, come back as they are.
    """
    key = np.random.default_rng(_PROJECTION_SEED).normal(size=x.shape[1])
    step = max(1, (1 << 22) // x.shape[1])
    # Row by row, so that equal rows have equal projections to the last bit.
    projected = np.concatenate(
        [(x[i : i + step] * key).sum(axis=1) for i in range(0, x.shape[0], step)]
    )
    order = np.argsort(projected, kind="stable")
    if sample_weight is not None:
        order = order[sample_weight[order] > 0]
    tied = 1 + np.flatnonzero(np.diff(projected[order]) == 0)
    copies = (x[order[tied]] == x[order[tied - 1]]).all(axis=1)
    if not copies.all():
        # Rounding of the projection hid a difference, in a feature of small numbers say.
        order = order[np.lexsort(x[order].T)]
        tied = np.arange(1, order.size)
        copies = (x[order[1:]] == x[order[:-1]]).all(axis=1)
    first = np.delete(np.arange(order.size), tied[copies])
    if first.size == x.shape[0] and (sample_weight is None or (sample_weight == 1).all()):
        return x, targets, None, np.arange(x.shape[0])
    weight = np.ones(x.shape[0]) if sample_weight is None else sample_weight
    weight = weight[order].astype(np.float64)
    total = np.add.reduceat(weight, first)
    # The mean of the labels as a change of the first one: copies that agree keep it to the bit.
    one = targets[order[first]]
    group = np.repeat(np.arange(first.size), np.diff(first, append=order.size))
    change = np.add.reduceat((targets[order] - one[group]) * weight[:, None], first, axis=0)
    labels = (one + change / total[:, None]).astype(targets.dtype)
    return x[order[first]], labels, total, order[first]
