"""Largest eigenpairs of many symmetric operators at once, from products alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def rayleigh_ritz(
    product: Callable[[Tensor], Tensor],
    tangent: Callable[[Tensor], Tensor],
    start: Tensor,
    steps: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Largest Ritz pair of each memory's operator on the Krylov space of `start`.

    product: tangent vectors (M, K) to (M, K), symmetric for each row; tangent: the projection
    onto these vectors. Returns the Ritz vectors (M, K), their Rayleigh quotients (M,) and
    relative residuals (M,).
    """
    n_memories, n_coordinates = start.shape
    steps = min(steps, n_coordinates - 1)  # one dimension at least is not tangent
    eps = torch.finfo(start.dtype).eps
    basis = start.new_zeros(steps, n_memories, n_coordinates)
    images = torch.zeros_like(basis)
    v = start
    for j in range(steps):
        basis[j] = v
        v = images[j] = tangent(product(v))
        size = v.norm(dim=1, keepdim=True)
        for _ in range(2):  # once is not enough in floating point
            along = torch.einsum("jpn,pn->jp", basis[: j + 1], v)
            v = tangent(v - torch.einsum("jp,jpn->pn", along, basis[: j + 1]))
        norm = v.norm(dim=1, keepdim=True)
        # An invariant space is exhausted: nothing is left but rounding.
        exhausted = norm <= 100 * eps * size
        v = torch.where(exhausted, 0.0, v / norm.masked_fill(exhausted, 1.0))
    h = torch.einsum("ipn,jpn->pij", basis, images).double()  # (M, steps, steps)
    h = (h + h.mT) / 2
    # An empty basis vector must not win with its eigenvalue 0.
    empty = (basis.square().sum(2) < 0.5).T  # (M, steps)
    floor = -(1 + h.abs().sum((1, 2)))
    h = h + torch.diag_embed(empty * floor[:, None])
    top = torch.linalg.eigh(h).eigenvectors[:, :, -1].to(start.dtype)  # (M, steps)
    top = torch.where(top[:, :1] < 0, -top, top)  # of the two signs, the one towards the start
    u = torch.einsum("pj,jpn->pn", top, basis)
    image = torch.einsum("pj,jpn->pn", top, images)
    norm = u.norm(dim=1, keepdim=True)
    u, image = u / norm, image / norm
    spread = (u * image).sum(1)
    return u, spread, relative_residual(u, image, spread)


def relative_residual(u: Tensor, image: Tensor, spread: Tensor) -> Tensor:
    """‖A u − (uᵀAu)u‖ / |uᵀAu| of unit vectors u (M, K) with their images and quotients (M,)."""
    error = (image - spread[:, None] * u).norm(dim=1)
    return torch.where(error > 0, error / spread.abs().clamp_min(torch.finfo(u.dtype).tiny), 0.0)
