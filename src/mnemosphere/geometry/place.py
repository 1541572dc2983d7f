"""From stored rows to unit rows on the device, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from mnemosphere.base.warnings import warn_user
from mnemosphere.geometry.base import Geometry
from mnemosphere.model.gaps import has_gaps
from mnemosphere.model.sparse_rows import SparseRows
from mnemosphere.rows.stored import StoredRows

_NAMED = 5  # rows that a warning names
_UNIT = 1e-4  # how far from 1 the norm of a row may be where it is left as it is


def unit_chunks(
    rows: StoredRows, geometry: Geometry, dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor]]:
    """(unit rows, which of them have no direction and came out as zeros), chunk by chunk."""
    geometry = geometry.to(rows.device)
    for part, x in rows.chunks():
        if geometry.takes_unit_rows and not has_gaps(x):
            _check_norms(rows, part, x)
        unit, lost = geometry.place(x)
        yield unit.to(dtype), lost


def _check_norms(rows: StoredRows, part: slice, x: Tensor) -> None:
    """Raise ValueError where a row that is taken as it is has another norm than 1."""
    norm = torch.linalg.vector_norm(x, dim=1)
    off = ((norm - 1).abs() > _UNIT).nonzero()[:, 0]
    if off.shape[0] > 0:
        numbers = rows.call(part.start + off.cpu())
        number, first = min(zip(numbers, off.tolist(), strict=True))
        raise ValueError(
            f"row {number} of X has norm {float(norm[first]):.6g} but geometry='none' wants "
            "unit rows: divide by the norm or use geometry='unit'"
        )


def on_sphere(rows: StoredRows, geometry: Geometry, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """(all unit rows (n, N'), which have no direction (n,)) on the device of `rows`."""
    if isinstance(rows.values, SparseRows) and geometry.keeps_sparse:
        found = list(unit_chunks(rows, geometry, dtype))
        parts = [unit for unit, _ in found if isinstance(unit, SparseRows)]
        return SparseRows.cat(parts), torch.cat([lost for _, lost in found])
    if geometry.keeps_unit_rows and _are_unit_rows(rows, dtype):
        return rows.values, torch.zeros(rows.n_rows, dtype=torch.bool, device=rows.device)
    n_features = geometry.n_coordinates(rows.n_features)
    x = torch.empty(rows.n_rows, n_features, dtype=dtype, device=rows.device)
    lost = torch.zeros(rows.n_rows, dtype=torch.bool, device=rows.device)
    first = 0
    for unit, without in unit_chunks(rows, geometry, dtype):
        part = slice(first, first + unit.shape[0])
        x[part], lost[part] = unit, without
        first = part.stop
    return x, lost


def _are_unit_rows(rows: StoredRows, dtype: torch.dtype) -> bool:
    """Whether they are on the sphere as they are stored, so that no second copy is needed."""
    stored = rows.values
    as_needed = stored.dtype == dtype and stored.device == rows.device and stored.is_contiguous()
    if not as_needed:
        return False
    most = 4 * torch.finfo(dtype).eps
    return all(bool(((x.norm(dim=1) - 1).abs() <= most).all()) for _, x in rows.chunks())


def warn_set_aside(geometry: Geometry, given: StoredRows, weight: Tensor | None) -> None:
    """Count and name the rows of X that have no direction, all copies of them."""
    lost = torch.cat([without for _, without in unit_chunks(given, geometry, torch.float64)])
    if weight is not None:
        lost &= weight > 0
    numbers = given.call(lost.nonzero()[:, 0])
    named = ", ".join(map(str, numbers[:_NAMED]))
    more = ", …" if len(numbers) > _NAMED else ""
    warn_user(
        f"{len(numbers)} of {given.n_rows} rows of X are {geometry.no_direction}, so they have "
        f"no direction and were set aside: row {named}{more}{geometry.hint}",
    )
