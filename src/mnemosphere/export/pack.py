"""Arrays as text in a page: in as few bytes as they need, deflated, base64."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemosphere.fitted.model import as_numpy


def pack(values: Any) -> dict[str, Any] | None:
    """An array or a tensor, of at most 8 bytes per number; the bytes of each order lie together."""
    if values is None:
        return None
    values = as_numpy(values)
    plain = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    planes = plain.reshape(-1).view(np.uint8).reshape(-1, values.dtype.itemsize).T
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(planes).tobytes(), 9))
    kind = f"{values.dtype.kind}{values.dtype.itemsize}"
    return {"kind": kind, "shape": values.shape, "data": data.decode()}


def pack_rows(x: NDArray[np.float64]) -> dict[str, Any] | None:
    """Rows as they came: pixels in a byte each, other numbers as they are."""
    with np.errstate(invalid="ignore"):
        pixels = x.astype(np.uint8)
    return pack(pixels if np.array_equal(pixels, x) else x)


def rounded(
    x: NDArray[Any], kind: type[np.signedinteger[Any]]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Rows (n, N) as whole numbers, and the scale (n,) of each."""
    scale = np.maximum(np.abs(x).max(1).astype(float), 1e-12) / np.iinfo(kind).max
    return np.rint(x / scale[:, None]).astype(kind), scale
