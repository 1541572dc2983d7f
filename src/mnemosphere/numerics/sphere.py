"""The unit sphere S^{N-1}: points are the rows on the last axis, batched over the leading ones."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mnemosphere.gpu import on_gpu

_AT_ONCE = 1 << 22  # squares that are held at a time


def norms(x: Tensor, *, keepdim: bool = False) -> Tensor:
    """‖x‖ of each row of x (..., N), (...) or (..., 1), right to a few units in the last place.

    On a processor, torch's own norm adds up squares one after another. If most entries are nearly
    equal, as in a centered row of few counts, the roundings have one sign, and the float32 norm of 2,000
    entries is off by 3e-5. The sum of squares is pairwise.
    """
    if on_gpu(x):
        found: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=keepdim)
        return found
    if x.numel() <= _AT_ONCE or x.ndim < 2:
        return x.square().sum(-1, keepdim=keepdim).sqrt()
    rows = max(1, _AT_ONCE * x.shape[0] // x.numel())
    return torch.cat([norms(part, keepdim=keepdim) for part in torch.split(x, rows)])


def project(x: Tensor) -> Tensor:
    """Put each row of x (..., N) on the sphere: x / ‖x‖. A zero row has no direction: NaN."""
    # Divide by the largest entry first: squares of entries near 1e20 overflow float32.
    x = x / x.detach().abs().amax(-1, keepdim=True)
    return x / norms(x, keepdim=True)


def to_tangent(x: Tensor, g: Tensor) -> Tensor:
    """Project the vectors g (..., N) orthogonally on the tangent spaces at x: g − ⟨g, x⟩x."""
    return g - (g * x).sum(-1, keepdim=True) * x


def retract(x: Tensor, v: Tensor) -> Tensor:
    """Move from x along the tangent vector v and return to the sphere: (x + v)/‖x + v‖."""
    moved = x + v  # never shorter than x, whose norm is 1
    return moved / norms(moved, keepdim=True)


def check(x: Tensor, name: str = "x") -> Tensor:
    """Return x (..., N) if each row is finite and of unit norm to rounding; raise if not.

    The tolerance on ‖row‖ is 64 units in the last place plus √N of them, for rounding of entries.
    """
    # NumPy from here on: its calls are quick.
    norm = norms(x.detach()).numpy(force=True)
    tol = torch.finfo(x.dtype).eps * (64.0 + float(x.shape[-1] ** 0.5))
    off = abs(norm - 1.0)
    if not (off <= tol).all():  # NaN and inf compare false
        bad = ~(off <= tol)
        row = tuple(int(i[0]) for i in np.nonzero(bad)) if norm.ndim else ()
        where = f"row {row[0] if len(row) == 1 else row} of {name}" if row else name
        fault = f"norm {float(norm[row]):.9g}, not 1: apply sphere.project first"
        if not bool(torch.isfinite(x[row]).all()):
            fault = "entries that are not finite: clean the input"
        raise ValueError(f"{where} has {fault}")
    return x


def sample_uniform(
    n_samples: int,
    n: int,
    *,
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Draw n_samples points (n_samples, n) uniformly on S^{n-1}: normalized Gaussian vectors."""
    # Drawn where the generator lives, so that one seed gives the same points on every device.
    where = device if generator is None else generator.device
    draws = torch.randn(n_samples, n, generator=generator, dtype=dtype, device=where)
    return project(draws.to(where if device is None else device))
