"""Do two copies of a memory move apart if they may also divide its classes between them?

Let memory μ be two copies of itself, each with half of its class weights. Move them to w ± u with
u ⊥ w, and shift class weights between them, p/2 ± v with Σ_y v_y = 0: row sums and column sums of p
stay. For every row and class the density changes at second order only, so the loss does, under any
label rule, by

    ½ uᵀ S u − uᵀ C a,    S = β_eff·o·(I − w wᵀ) − β_eff² T          as in model.curvature,
    C[:, y] = β_eff Σ_b r[b,y] x_⊥ / (n √g_y),    v = (p_h/2) √g ∘ a,    g = p/p_h(μ)

r[b,y] is the part of row b and class y that μ answers for. There is no a-a term: class weights
moved between copies that coincide change nothing. The coordinates a are the natural ones of a class
distribution: √g lies on a unit sphere as w does, a ⊥ √g is tangent to it, and |a|² = Σ (δg_y)²/g_y
is the Fisher metric. For a given u the best a lies along Cᵀu, and the Hessian is the 2×2 matrix
[[S, −c], [−c, 0]] with S = uᵀSu and c = |Cᵀu|, of lowest eigenvalue

    λ = (S − √(S² + 4c²))/2,

negative if c > 0, at every β. So a memory with labels is a minimum only if S ⪰ 0 *and* the rows of
each of its classes pull along w alone: β_eff < β_split does not suffice.

If the weights of memories are free, a copy may take a small share t of a single class y. If
C_y = 0, it changes the loss by ½ t uᵀ S_y u, where S_y is S with the rows of class y alone,
S = Σ_y S_y. The complete criterion is then C_y = 0 and S_y ⪰ 0 for every class with p_y > 0.
docs/research/theory-derivations.md has the proofs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from mnemosphere.numerics import sphere


class SplitForm:
    """Minus the Hessian of M memories over z = (u, a), (M, N + C+1).

    w (M, N), p (M, C+1); pull (M, N, C+1): Σ_b r[b,y] x_b; spread: from u (M, N) to
    Σ_b r[b] ⟨u, x_b⟩ x_b. With r over n it is that of the mean loss.
    """

    def __init__(
        self,
        w: Tensor,
        p: Tensor,
        beta: Tensor,
        pull: Tensor,
        spread: Callable[[Tensor], Tensor],
    ) -> None:
        self.w, self.beta, self._spread = w, beta, spread
        self.prior = p.sum(1, keepdim=True)  # what the memory has, rather than what it should have
        self.root = (p / self.prior.clamp_min(torch.finfo(p.dtype).tiny)).sqrt()  # √g
        self.hold = beta * (pull.sum(2) * w).sum(1, keepdim=True)  # (M, 1) β_eff·o
        # A class without weight here cannot move, and along √g itself g would not stay normalized.
        inverse = torch.where(self.root > 0, 1 / self.root.clamp_min(1e-18), 0.0)
        pull = pull * inverse[:, None, :]
        pull = pull - w[:, :, None] * torch.einsum("mny,mn->my", pull, w)[:, None, :]
        self.coupling = beta * (pull - (pull @ self.root[:, :, None]) * self.root[:, None, :])

    def start(self, u: Tensor) -> Tensor:
        """The direction u (M, N) of a plain split, and where the classes pull apart most."""
        a = torch.linalg.eigh(self.coupling.mT @ self.coupling).eigenvectors[:, :, -1]
        sides = a @ torch.arange(1, a.shape[1] + 1).to(a)  # of the two signs, always the same one
        a = torch.where(sides[:, None] < 0, -a, a)
        across = (self.coupling @ a[:, :, None])[:, :, 0]
        across = across / across.norm(dim=1, keepdim=True).clamp_min(1e-30)
        return sphere.project(self.tangent(torch.cat([u + across, a], dim=1)))

    def tangent(self, z: Tensor) -> Tensor:
        """The part of z across w, and across √g on the classes that can move."""
        u, a = z[:, : self.w.shape[1]], z[:, self.w.shape[1] :]
        a = torch.where(self.root > 0, sphere.to_tangent(self.root, a), 0.0)
        return torch.cat([sphere.to_tangent(self.w, u), a], dim=1)

    def curvature(self, u: Tensor) -> Tensor:
        """S u of tangent vectors (M, N), up to its part along w; one pass over the rows."""
        return self.hold * u - self.beta**2 * self._spread(u)

    def product(self, z: Tensor) -> Tensor:
        """−H z."""
        u, a = z[:, : self.w.shape[1]], z[:, self.w.shape[1] :, None]
        top = (self.coupling @ a)[:, :, 0] - self.curvature(u)
        return torch.cat([top, (self.coupling.mT @ u[:, :, None])[:, :, 0]], dim=1)

    def parts(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """(u (M, N), v (M, C+1)) of z."""
        n = self.w.shape[1]
        return z[:, :n], 0.5 * self.prior * self.root * z[:, n:]


def random_tangent(w: Tensor, generator: torch.Generator | None) -> Tensor:
    """Unit rows, each orthogonal to its memory."""
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    u = sphere.sample_uniform(*w.shape, generator=generator, dtype=w.dtype, device=w.device)
    return sphere.project(sphere.to_tangent(w, u))
