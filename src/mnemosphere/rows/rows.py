"""Rows as one matrix of numbers: of any type, wherever they lie, looked at in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from torch import Tensor

from mnemosphere.model.batch import take_rows
from mnemosphere.model.gaps import has_gaps
from mnemosphere.rows.columns import Columns

# Held at a time in float64, several times over: at most half a gigabyte on a GPU.
_CHUNK_NUMBERS = {"cpu": 1 << 20, "cuda": 1 << 24}
DENSE_LIMIT = 2_000_000_000  # bytes that a sparse matrix may take with its zeros, in float32
_KEPT = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
         torch.float16, torch.bfloat16, torch.float32, torch.float64)  # fmt: skip
_PROJECTION_SEED = 20251115  # of the fixed vector that sorts rows; any number does
_GAP = 0.123456789  # any number that rows do not hold, in units of the largest of a feature
_HASHED = 64  # features that tell rows apart
_SKETCHED = 1000  # rows that tell whether others are among them
_SORTED = 1_000_000  # numbers, up to which rows are sorted


@dataclass(frozen=True)
class Rows:
    """The one matrix of rows, NaN where something is missing, and the device it is looked at on."""

    values: Tensor  # (n, N) of any type, on any device
    device: torch.device
    ids: Tensor | None = None  # (n,) what the user calls each row; None: its place
    columns: Columns | None = None  # that the numbers come from; None: each is a column

    @classmethod
    def encode(cls, X: Any, columns: Columns, device: torch.device) -> Self:
        """X as the columns encode it; ValueError for an infinite number."""
        rows = cls.of(columns.numbers(X), device, columns)
        return rows.check_finite(columns.number_names, gaps=True)

    @classmethod
    def of(cls, x: Any, device: torch.device, columns: Columns | None = None) -> Self:
        """From an array or a tensor, without a copy where that is possible; or a sparse matrix."""
        if sparse.issparse(x):
            x = _dense(x)
        if not isinstance(x, Tensor):
            if not x.flags.writeable or not x.dtype.isnative or min(x.strides, default=1) < 0:
                x = np.array(x, dtype=x.dtype.newbyteorder("="))
            known = x.dtype.kind in "buif" and x.dtype.itemsize <= 8
            # Unsigned 16 bits and more are not at home in torch.
            odd = not known or (x.dtype.kind == "u" and x.dtype.itemsize > 1)
            x = torch.from_numpy(x.astype(np.float64) if odd else x)
        x = x.detach()
        if x.dtype not in _KEPT:
            x = x.to(torch.uint8 if x.dtype == torch.bool else torch.float64)
        return cls(x, device, columns=columns)

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return self.values.shape[0]

    @property
    def n_features(self) -> int:
        """How many features."""
        return self.values.shape[1]

    @property
    def n_numbers(self) -> int:
        """How many numbers are stored."""
        return self.values.numel()

    def chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """(rows, their values in float64 on the device), in order; they cross as stored."""
        most = _CHUNK_NUMBERS.get(self.device.type, 1 << 24)
        step = max(1, most * self.n_rows // max(1, self.n_numbers))
        for start in range(0, self.n_rows, step):
            part = slice(start, min(start + step, self.n_rows))
            # Contiguous, so that the same numbers give the same bits from every kind of table.
            yield part, self.values[part].to(self.device).double().contiguous()

    def take(self, rows: Tensor | slice) -> Self:
        """Some of the rows, in that order; they keep what they are called."""
        ids = torch.arange(self.n_rows) if self.ids is None else self.ids
        if isinstance(rows, slice):
            return replace(self, values=self.values[rows], ids=ids[rows])
        values = take_rows(self.values, rows.to(self.values.device))
        return replace(self, values=values, ids=ids[rows.to(ids.device)])

    @property
    def levels(self) -> dict[int, int]:
        """Columns that hold a level of a category, to be replaced by its log-odds, and how many there are."""
        return {} if self.columns is None else self.columns.pending_odds

    @property
    def vectors(self) -> tuple[int, ...]:
        """Columns that are numbers of a text, or of another vector."""
        return () if self.columns is None else self.columns.vectors

    def part(self, *, vectors: bool) -> Self:
        """The same rows with the columns of vectors alone, or the others."""
        assert self.columns is not None
        own = self.columns.part(vectors=vectors)
        kept = [j for j in range(self.n_features) if (j in {*self.vectors}) == vectors]
        return replace(self, values=self.values[:, kept], columns=own)

    def on(self, device: torch.device) -> Self:
        """The same rows, looked at on another device."""
        return replace(self, device=device)

    def row_ids(self, rows: Tensor) -> list[int]:
        """What the user calls these rows."""
        if self.ids is not None:
            rows = self.ids[rows.to(self.ids.device)]
        return [int(row) for row in rows.tolist()]

    def observed(self) -> Tensor:
        """(3, N) least and largest number of each feature, and 1 if all are whole.

        inf and −inf for a feature that is NaN in every row.
        """
        low = torch.full((self.n_features,), torch.inf, dtype=torch.float64, device=self.device)
        high, whole = -low, torch.ones_like(low, dtype=torch.bool)
        for _, x in self.chunks():
            least = most = x
            if has_gaps(x):  # nothing is learned from them
                least, most = (x.masked_fill(x.isnan(), end) for end in (torch.inf, -torch.inf))
            low, high = torch.fmin(low, least.amin(0)), torch.fmax(high, most.amax(0))
            if bool(whole.any()):
                some = x[:, whole]
                whole[whole.clone()] = ((some == some.round()) | some.isnan()).all(0)
        return torch.stack([low, high, whole.double()])

    def check_finite(self, names: Sequence[Any] | None = None, *, gaps: bool = False) -> Self:
        """Return self; ValueError names the first number that is none, by row and column.

        gaps: NaN stands for what is not known, and only infinite numbers are wrong.
        """
        if not self.values.is_floating_point():
            return self
        for part, x in self.chunks():
            # A sum is cheaper than a look at each number, and right but for overflow.
            if bool(torch.isfinite(x.sum())):
                continue
            bad = (x.isinf() if gaps else ~x.isfinite()).nonzero()
            if len(bad) == 0:
                continue
            row, column = bad[0].tolist()
            what = "NaN" if bool(torch.isnan(x[row, column])) else "infinite (inf)"
            where = column if names is None else repr(names[column])
            (number,) = self.row_ids(torch.tensor([part.start + row]))
            raise ValueError(
                f"row {number} of X is {what} in column {where}: drop the row or fill it in"
            )
        return self


def _dense(x: Any) -> NDArray[np.float32]:
    """A sparse matrix with all its zeros; ValueError if that is too large."""
    n_bytes = 4 * x.shape[0] * x.shape[1]
    if n_bytes > DENSE_LIMIT:
        raise ValueError(
            f"X is sparse, and its {x.shape[0]:,} rows of {x.shape[1]:,} features take "
            f"{n_bytes / 1e9:.1f} GB with their zeros, more than {DENSE_LIMIT / 1e9:.0f} GB: put "
            "sklearn.decomposition.TruncatedSVD in front"
        )
    found: NDArray[np.float32] = x.astype(np.float32).toarray()
    return found


def largest(x: Tensor) -> Tensor:
    """Largest modulus of each feature, (N,)."""
    return x.abs().nan_to_num(0.0).amax(0)


def row_sketch(rows: Rows) -> NDArray[np.int64]:
    """The smallest hashes of rows that occur once, a uniform sample of them (Bar-Yossef et al. 2002)."""
    hashes, counts = np.unique(row_keys(rows), return_counts=True)
    found: NDArray[np.int64] = hashes[counts == 1][:_SKETCHED]
    return found


def share_known(rows: Rows, sketch: NDArray[np.int64]) -> float:
    """The share of rows, estimated, that occur once among those of a sketch.

    Fresh rows hardly do: if rows repeat, a row that occurs once is rarely the one that occurs again.
    """
    hashes = row_keys(rows)
    if len(sketch) == _SKETCHED:  # others with such hashes are none of the rows
        hashes = hashes[hashes <= sketch[-1]]
    return float(np.isin(hashes, sketch).mean()) if len(hashes) else 0.0


def row_keys(rows: Rows) -> NDArray[np.int64]:
    """A number for each row, (n,), of at most 64 of its features in single precision."""
    rows = Rows(rows.values[:, :: -(-rows.n_features // _HASHED)], rows.device)
    generator = torch.Generator().manual_seed(_PROJECTION_SEED)
    key = torch.randint(-(1 << 62), 1 << 62, (rows.n_features,), generator=generator)
    key = (2 * key + 1).to(rows.device)  # sums of products wrap around

    hashes = []
    for _, x in rows.chunks():
        bits = (x.nan_to_num(_GAP).float() + 0.0).view(torch.int32).long()  # −0 is 0
        hashes.append((bits * key).sum(1).cpu().numpy())
    return np.concatenate(hashes)


WeightedRows = tuple[Rows, Tensor, Tensor | None]  # with label weights and sample weights


def sort_and_merge_duplicates(
    rows: Rows, targets: Tensor, sample_weight: Tensor | None
) -> tuple[WeightedRows, WeightedRows]:
    """(all rows, one for each distinct row with the weights of its copies), without those of weight 0.

    Few rows are sorted, so that nothing depends on the order in which they came. The statistics of the model
    are linear in weights, so a row of weight 2 trains exactly as the same row given twice.
    """
    if sample_weight is not None:
        kept = (sample_weight > 0).nonzero()[:, 0]
        if len(kept) < rows.n_rows:
            rows, targets, sample_weight = rows.take(kept), targets[kept], sample_weight[kept]
        if bool((sample_weight == 1).all()):
            sample_weight = None
    each = rows, targets, sample_weight
    order, is_first = _sort_copies(rows)
    n_distinct = int(is_first.sum())
    if rows.n_numbers <= _SORTED:
        weight = None if sample_weight is None else sample_weight[order]
        each = rows.take(order), targets[order], weight
    if n_distinct == rows.n_rows:
        return each, each
    group = is_first.cumsum(0) - 1  # (n,) of the sorted rows
    first = order[is_first]
    weight = targets.new_ones(rows.n_rows) if sample_weight is None else sample_weight
    weight = weight[order].double()
    total = weight.new_zeros(n_distinct).index_add_(0, group, weight)
    # The mean of the labels as a change of the first one: copies that agree keep it to the bit.
    one = targets[first].double()
    change = (targets[order].double() - one[group]) * weight[:, None]
    label = one + torch.zeros_like(one).index_add_(0, group, change) / total[:, None]
    return each, (rows.take(first), label.to(targets), total.to(targets))


def distinct_numbers(rows: Rows) -> Tensor:
    """The number of each row (n,) among the distinct rows: copies have the same."""
    order, is_first = _sort_copies(rows)
    return torch.empty_like(order).scatter_(0, order, is_first.cumsum(0) - 1)


def _sort_copies(rows: Rows) -> tuple[Tensor, Tensor]:
    """(an order (n,) in which copies are neighbors, which of them is the first of its kind)."""
    generator = torch.Generator().manual_seed(_PROJECTION_SEED)
    key = torch.randn(rows.n_features, generator=generator, dtype=torch.float64).to(rows.device)
    peak = torch.zeros_like(key)
    for _, x in rows.chunks():
        peak = torch.maximum(peak, largest(x))
    peak = torch.where(peak > 0, peak, 1.0)
    projected = torch.cat([_project(x, key, peak) for _, x in rows.chunks()])
    value, order = projected.sort(stable=True)
    tied = torch.zeros_like(value, dtype=torch.bool)
    tied[1:] = value[1:] == value[:-1]
    at = tied.nonzero()[:, 0]
    if at.shape[0] == 0:
        return order, ~tied
    stored = rows.values
    for here in torch.split(at, 1 << 16):
        one, other = (stored[order[i].to(stored.device)] for i in (here, here - 1))
        tied[here] = _same(one, other).to(tied.device)
    if bool(tied[at].all()):
        return order, ~tied
    # Rounding of the projection hid a difference, in a feature of small numbers say.
    table = stored.cpu().numpy()
    order = torch.from_numpy(np.lexsort(table.T)).to(rows.device)
    ordered = stored[order.to(stored.device)]
    tied[1:] = _same(ordered[1:], ordered[:-1]).to(tied.device)
    return order, ~tied


def _project(x: Tensor, key: Tensor, unit: Tensor) -> Tensor:
    """Σ key·x/unit of each row, (n,), in which the units of single features do not show.

    Row by row, so that equal rows have equal projections to the last bit.
    """
    x = x / unit
    return ((x.nan_to_num_(_GAP) if has_gaps(x) else x) * key).sum(1)


def _same(one: Tensor, other: Tensor) -> Tensor:
    return ((one == other) | ((one != one) & (other != other))).all(1)  # NaN is like NaN
