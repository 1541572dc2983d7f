"""Arrays as text in a page: in as few bytes as they need, deflated, base64."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXACT = 20_000  # numbers of memories that are stored as they are


def pack(values: NDArray[Any]) -> dict[str, Any]:
    """An array of at most 8 bytes per number; the bytes of each order lie together."""
    kind = f"{values.dtype.kind}{values.dtype.itemsize}"
    plain = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    planes = plain.reshape(-1).view(np.uint8).reshape(-1, values.dtype.itemsize).T
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(planes).tobytes(), 9))
    return {"kind": kind, "shape": list(values.shape), "data": data.decode()}


def pack_memories(w: NDArray[np.float64]) -> dict[str, Any]:
    """Memories (P, N) as they are, or many of them as whole numbers of 16 bits with one scale each."""
    if w.size <= EXACT:
        return pack(w)
    scale = (np.abs(w).max(axis=1) / np.iinfo(np.int16).max).astype(np.float32)
    whole = np.rint(w / scale[:, None]).astype(np.int16)
    return {**pack(whole), "scale": pack(scale)}


def pack_rows(x: NDArray[np.float64]) -> dict[str, Any]:
    """Rows as they came: pixels in a byte each, other numbers as they are."""
    with np.errstate(invalid="ignore"):
        pixels = x.astype(np.uint8)
    return pack(pixels if np.array_equal(pixels, x) else x)
