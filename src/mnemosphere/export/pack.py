"""Arrays as text in a page: whole numbers where that changes no prediction, deflated, base64."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.model.kernel import log_joint
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.votes import Votes


def pack(values: NDArray[Any]) -> dict[str, Any]:
    """An array of at most 8 bytes per number; the bytes of each order lie together."""
    kind = f"{values.dtype.kind}{values.dtype.itemsize}"
    plain = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    planes = plain.reshape(-1).view(np.uint8).reshape(-1, values.dtype.itemsize).T
    data = base64.b64encode(zlib.compress(np.ascontiguousarray(planes).tobytes(), 9))
    return {"kind": kind, "shape": list(values.shape), "data": data.decode()}


def pack_memories(mixture: Votes | Parameters, x: Tensor | None, most: float) -> dict[str, Any]:
    """Memories (P, N) as whole numbers of 8 or 16 bits with one scale each, or as they are.

    x: (B, N) unit rows to evaluate on. The fewest bits are taken that change no predicted class of
    theirs, and no probability by more than `most`; without rows, 16.
    """
    exact = mixture.to(device="cpu", dtype=torch.float64)
    w = exact.w.numpy()
    if x is None:
        return _whole(*_quantize(w, np.int16))
    wanted = _answers(exact, x)

    def alike(rounded: NDArray[Any]) -> bool:
        found = _answers(exact.replace(w=torch.from_numpy(rounded.astype(np.float64))), x)
        same = bool((found.argmax(1) == wanted.argmax(1)).all())
        return same and float((found - wanted).abs().max()) <= most

    for kind in (np.int8, np.int16):
        whole, scale = _quantize(w, kind)
        if alike(whole.astype(np.float32) * scale[:, None]):
            return _whole(whole, scale)
    return pack(w.astype(np.float32))


def _whole(whole: NDArray[Any], scale: NDArray[Any]) -> dict[str, Any]:
    return {**pack(whole), "scale": pack(scale)}


def _quantize(
    w: NDArray[np.float64], kind: type[np.signedinteger[Any]]
) -> tuple[NDArray[Any], NDArray[np.float32]]:
    largest = np.iinfo(kind).max
    scale = (np.abs(w).max(axis=1) / largest).astype(np.float32)
    scale[scale == 0] = 1.0
    return np.rint(w / scale[:, None]).clip(-largest, largest).astype(kind), scale


def _answers(mixture: Votes | Parameters, x: Tensor) -> Tensor:
    """P(y|x) (B, C)."""
    return log_joint(mixture, x.double().cpu())[:, :-1].softmax(1)


def pack_rows(x: NDArray[Any]) -> dict[str, Any]:
    """Rows as they came: as whole numbers if they are, else in the precision that they need."""
    for kind in (np.uint8, np.int16, np.int32):
        limits = np.iinfo(kind)
        if limits.min <= x.min() and x.max() <= limits.max and (x == np.rint(x)).all():
            return pack(x.astype(kind))
    with np.errstate(over="ignore"):
        single = x.astype(np.float32)
    fits = (np.isnan(x) | (np.abs(single - x) <= 1e-9 * np.abs(x))).all()
    return pack(single if fits else x.astype(np.float64))
