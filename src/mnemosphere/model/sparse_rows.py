"""Rows with few entries other than zero, or other than one and the same vector: S + b vᵀ.

S is stored by compressed rows. Centering a row, or standardizing its features, moves every entry,
but all of them along one vector: v = (1, …, 1), or v = (−mean/scale, √N). So such rows stay as
they are, with one number b each beside them, and a product with them is that of S corrected by a
matrix of rank one.

To torch a `SparseRows` is a tensor that can do what the model asks of rows (slices, rows by number,
norms, the products X Wᵀ and Rᵀ X) and nothing else. On a processor the products are SciPy's,
which are as fast as torch's for X Wᵀ and twice as fast for Rᵀ X.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

_aten = torch.ops.aten


class SparseRows(Tensor):
    """(n, N) rows S + b vᵀ; b and v are None where S is all."""

    start: Tensor  # (n+1,) int64: entries of row i are start[i] to start[i+1]
    column: Tensor  # (nnz,) int64
    value: Tensor  # (nnz,)
    factor: Tensor | None  # b (n,)
    direction: Tensor | None  # v (N,)

    @staticmethod
    def __new__(
        cls: type[SparseRows],
        start: Tensor,
        column: Tensor,
        value: Tensor,
        n_columns: int,
        factor: Tensor | None = None,
        direction: Tensor | None = None,
    ) -> SparseRows:
        """Wrap the parts; nothing is copied."""
        shape = (start.shape[0] - 1, n_columns)
        rows: SparseRows = Tensor._make_wrapper_subclass(
            cls, shape, dtype=value.dtype, device=value.device
        )
        rows.start, rows.column, rows.value = start, column, value
        rows.factor, rows.direction = factor, direction
        return rows

    @classmethod
    def of(cls, x: Any) -> Self:
        """From a SciPy matrix or a sparse CSR tensor, entries in order and each stored once."""
        if isinstance(x, Tensor):
            parts = x.detach().crow_indices(), x.detach().col_indices(), x.detach().values()
            x = sparse.csr_matrix(
                tuple(p.cpu().numpy() for p in (parts[2], parts[1], parts[0])), shape=x.shape
            )
        x = sparse.csr_matrix(x)
        if not x.has_canonical_format:
            x = x.copy()
            x.sum_duplicates()
        return cls._from_scipy(x)

    @classmethod
    def _from_scipy(cls, x: Any) -> Self:
        data = x.data if x.data.dtype in (np.float32, np.float64) else x.data.astype(np.float64)
        start, column = (torch.from_numpy(i.astype(np.int64)) for i in (x.indptr, x.indices))
        return cls(start, column, torch.from_numpy(data), x.shape[1])

    @classmethod
    def cat(cls, parts: Sequence[SparseRows]) -> SparseRows:
        """Rows of one kind below each other."""
        first = parts[0]
        ends = torch.tensor([0, *(len(p.value) for p in parts)]).cumsum(0).tolist()
        starts = [p.start[1:] + end for p, end in zip(parts, ends, strict=False)]
        factors = [p.factor for p in parts if p.factor is not None]
        return cls(
            torch.cat([first.start[:1], *starts]),
            torch.cat([p.column for p in parts]),
            torch.cat([p.value for p in parts]),
            first.shape[1],
            torch.cat(factors) if factors else None,
            first.direction,
        )

    @property
    def parts(self) -> list[Tensor]:
        """All numbers that the rows are made of."""
        found = (self.start, self.column, self.value, self.factor, self.direction)
        return [part for part in found if part is not None]

    def same_as(self, other: SparseRows) -> Tensor:
        """Which rows equal those of `other` at the same place, (n,) bool; neither is shifted."""
        same = self.start.diff() == other.start.diff()
        at = same.nonzero()[:, 0]
        one, two = _rows(self, at), _rows(other, at)
        differs = (one.column != two.column) | (one.value != two.value)
        same[at] = one.sum_rows(differs.double()) == 0
        return same

    # What torch would call it.

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        shift = "" if self.factor is None else " + rank one"
        return f"SparseRows{tuple(self.shape)} {self.dtype}, {len(self.value)} entries{shift}"

    def to_dense(
        self, dtype: torch.dtype | None = None, *, masked_grad: bool | None = None
    ) -> Tensor:
        """The rows as a plain tensor."""
        dense = torch.zeros(self.shape, dtype=self.dtype, device=self.device)
        dense[self.row, self.column] = self.value
        if self.factor is not None and self.direction is not None:
            dense.addr_(self.factor, self.direction)
        return dense if dtype is None else dense.to(dtype)

    @property
    def row(self) -> Tensor:
        """The row of each entry, (nnz,)."""
        n = self.shape[0]
        return torch.arange(n, device=self.device).repeat_interleave(self.start.diff())

    def sum_rows(self, value: Tensor) -> Tensor:
        """Sums of one value per entry over each row, (n,)."""
        return value.new_zeros(self.shape[0]).index_add_(0, self.row, value)

    def with_values(
        self, value: Tensor, factor: Tensor | None = None, direction: Tensor | None = None
    ) -> SparseRows:
        """The same places with other values."""
        n = self.shape[1] if direction is None else direction.shape[0]
        return SparseRows(self.start, self.column, value, n, factor, direction)

    def norms(self) -> Tensor:
        """Lengths of the rows, (n,)."""
        square = self.sum_rows(self.value.double().square())
        if self.factor is not None and self.direction is not None:
            b, v = self.factor.double(), self.direction.double()
            across = self.sum_rows(self.value.double() * v[self.column])
            square = square + 2 * b * across + b.square() * v.square().sum()
        return square.clamp_min(0).sqrt().to(self.dtype)

    # Products.

    def times(self, m: Tensor) -> Tensor:
        """X m for a dense m (N, K), (n, K)."""
        if self.device.type == "cpu":
            out = torch.from_numpy(self.to_scipy() @ m.numpy())
        else:
            out = self._coo() @ m
        if self.factor is not None and self.direction is not None:
            out.addr_(self.factor, self.direction @ m)
        return out

    def transposed_times(self, r: Tensor) -> Tensor:
        """Xᵀ r for a dense r (n, K), (N, K)."""
        if self.device.type == "cpu":
            out = torch.from_numpy(self.to_scipy().T @ r.numpy())
        else:
            out = self._coo().t() @ r
        if self.factor is not None and self.direction is not None:
            out.addr_(self.direction, self.factor @ r)
        return out

    def to_scipy(self) -> Any:
        """S as a SciPy matrix, on the same numbers."""
        parts = (self.value.numpy(), self.column.numpy(), self.start.numpy())
        return sparse.csr_matrix(parts, shape=tuple(self.shape))

    def _coo(self) -> Tensor:
        at = torch.stack([self.row, self.column])
        # Not by `check_invariants=False`: torch 2.11 and 2.12 warn before they read it.
        with torch.sparse.check_sparse_tensor_invariants(enable=False):  # type: ignore[no-untyped-call]
            return torch.sparse_coo_tensor(at, self.value, tuple(self.shape), is_coalesced=True)

    # What torch's own functions come to.

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Answer torch where rows can be asked for that."""
        if func not in _ANSWERS:
            raise TypeError(
                f"{func} is not for sparse rows: pass dense ones, or fewer and .to_dense()"
            )
        return _ANSWERS[func](*args, **(kwargs or {}))


def _slice(x: SparseRows, axis: int = 0, first: int | None = None, last: int | None = None,
           step: int = 1) -> SparseRows:  # fmt: skip
    if axis != 0:
        raise TypeError("columns of sparse rows cannot be taken apart: pass dense ones")
    where = range(x.shape[0])[first:last:step]
    if step != 1:
        return _rows(x, torch.arange(where.start, where.stop, step, device=x.device))
    first, last = where.start, max(where.start, where.stop)
    start = x.start[first : last + 1]
    entries = slice(int(start[0]), int(start[-1]))
    factor = None if x.factor is None else x.factor[first:last]
    return SparseRows(
        start - start[0], x.column[entries], x.value[entries], x.shape[1], factor, x.direction
    )


def _rows(x: SparseRows, at: Tensor) -> SparseRows:
    n_entries = x.start.diff()[at]
    start = torch.cat([n_entries.new_zeros(1), n_entries.cumsum(0)])
    shift = (x.start[:-1][at] - start[:-1]).repeat_interleave(n_entries)
    entries = torch.arange(len(shift), device=x.device) + shift
    factor = None if x.factor is None else x.factor[at]
    return SparseRows(start, x.column[entries], x.value[entries], x.shape[1], factor, x.direction)


def _index(x: SparseRows, at: list[Tensor]) -> Tensor:
    (rows,) = at
    if rows.dtype == torch.bool:
        rows = rows.nonzero()[:, 0]
    if rows.ndim == 1:
        return _rows(x, rows)
    # Rows on more than one axis are few, and what is done with them is dense.
    return _rows(x, rows.reshape(-1)).to_dense().reshape(*rows.shape, x.shape[1])


def _convert(x: SparseRows, *, dtype: Any = None, device: Any = None, **_: Any) -> SparseRows:
    def to(part: Tensor | None) -> Any:
        return None if part is None else part.to(device=device, dtype=dtype)

    start, column = (i.to(device=device) for i in (x.start, x.column))
    return SparseRows(start, column, to(x.value), x.shape[1], to(x.factor), to(x.direction))


def _norm(x: SparseRows, order: float = 2, axis: Any = None, keep: bool = False) -> Tensor:
    if order != 2 or axis not in ([1], [-1]):
        raise TypeError("sparse rows have Euclidean norms, one per row, and no others")
    return x.norms()[:, None] if keep else x.norms()


def _mm(one: Tensor, other: Tensor) -> Tensor:
    if isinstance(one, SparseRows):
        return one.times(other.to_dense())
    assert isinstance(other, SparseRows)
    return other.transposed_times(one.T).T


def _new(func: Any) -> Callable[..., Tensor]:
    def make(x: SparseRows, size: Any, *args: Any, **kwargs: Any) -> Tensor:
        made: Tensor = func(x.value, size, *args, **kwargs)
        return made

    return make


_ANSWERS: dict[Any, Callable[..., Any]] = {
    _aten.slice.Tensor: _slice,
    _aten.index.Tensor: _index,
    _aten.select.int: lambda x, axis, i: _slice(x, axis, i, i + 1 or None).to_dense()[0],
    _aten._to_copy.default: _convert,
    _aten.detach.default: lambda x: x,
    _aten.alias.default: lambda x: x,
    _aten.linalg_vector_norm.default: _norm,
    _aten.mm.default: _mm,
    _aten.mv.default: lambda x, v: x.times(v[:, None])[:, 0],
    _aten.addmm_.default: lambda out, one, other: out.add_(_mm(one, other)),
    **{op: _new(op) for op in (_aten.new_empty.default, _aten.new_zeros.default,
                               _aten.new_ones.default, _aten.new_full.default)},
}  # fmt: skip


def take_rows(values: Tensor, rows: Tensor | slice | tuple[slice, Tensor]) -> Tensor:
    """`values[rows]`; rows by their numbers in a third of the time that brackets take."""
    axis, own = (1, rows[1]) if isinstance(rows, tuple) else (0, rows)
    if type(values) is Tensor and isinstance(own, Tensor) and own.dtype == torch.long:
        return values.index_select(axis, own)
    return values[rows]


def inference(kind: type[Tensor]) -> torch.inference_mode:
    """No autograd inside, where steps on such rows are taken: small ones take a tenth less.

    Sparse tensors do not go with it. What is made inside and kept is cloned outside.
    """
    return torch.inference_mode(not issubclass(kind, SparseRows))
