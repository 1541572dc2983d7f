"""Do two copies of a memory part when they may share out its classes too?

Let memory μ be two copies of itself, each with half of its class weights. Move them apart to w ± u
with u ⊥ w, and shift class weights between them, p/2 ± v with Σ_y v_y = 0: row sums and column
sums of p stay. For every row and class the density changes at second order only, so the loss does,
under any label rule, by

    ½ uᵀ S u − uᵀ C a,    S = β_eff·o·(I − w wᵀ) − β_eff² T          as in model.curvature,
    C[:, y] = β_eff Σ_b r[b,y] x_⊥ / (n √g_y),    v = (p_h/2) √g ∘ a,    g = p/p_h(μ)

r[b,y] is the part of row b and class y that μ answers for. There is no a-a term: class weights
moved between copies that coincide change nothing. The coordinates a are the natural ones of a class
distribution: √g lies on a unit sphere as w does, a ⊥ √g is tangent to it, and |a|² = Σ (δg_y)²/g_y
is the Fisher metric. For a given u the best a lies along Cᵀu, and the Hessian is the 2×2 matrix
[[S, −c], [−c, 0]] with S = uᵀSu and c = |Cᵀu|, of lowest eigenvalue

    λ = (S − √(S² + 4c²))/2,

negative wherever c > 0, at every β. So a memory with labels is a minimum only if S ⪰ 0 *and* the
rows of each of its classes pull along w alone: β_eff < β_split does not suffice.
docs/theory-derivations.md has the proof. model.class_split takes the same form on few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import chunks
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import sphere
from mnemosphere.numerics.bessel import log_omega_ratio

JointVerdict = Literal["minimum", "saddle", "label saddle", "undecided"]

# Vectors kept for each memory before the search starts again from its best one.
_MAX_BASIS = 48


@dataclass(frozen=True)
class JointSplit:
    """The steepest way to part the copies of each memory, classes included.

    (u, a) is a unit vector: |u|² + |a|² = 1. Each number is the exact value for the direction
    returned, so `lambda_joint` is never below the true one.

    Verdicts: "minimum", no split lowers the loss to second order; "saddle", copies that part along
    ±u lower it, at fixed class weights already; "label saddle", along this u they lower it only
    because they share out the classes; "undecided", λ is too near 0 for the accuracy reached.
    """

    lambda_joint: Tensor  # (P,) lowest curvature over (u, a), per row of the data; P: those asked
    split: Tensor  # (P,) S = uᵀSu/|u|²
    coupling: Tensor  # (P,) c = |Cᵀu|/|u|
    direction: Tensor  # (P, N) u, tangent at w
    class_direction: Tensor  # (P, C+1) v: the copies hold p/2 ± v where they lie at w ± u
    residual: Tensor  # (P,) |H(u, a) − λ(u, a)| in units of `scale`
    scale: Tensor  # (P,) β_eff Σ_b |r[b]|/n, the size of the pull of μ's rows
    tol: float
    verdicts: tuple[JointVerdict, ...]  # (P,)


def joint_split(
    params: Parameters,
    batch: Batch,
    rule: LabelRule = objectives.joint,
    *,
    which: Tensor | None = None,
    tol: float = 1e-6,
    accuracy: float | None = 1e-8,
    max_products: int = 200,
    generator: torch.Generator | None = None,
) -> JointSplit:
    """Lowest curvature of the loss over splits of a memory in which classes may be shared out.

    which: indices of the memories asked about, all by default. A memory counts as a saddle where
    λ < −tol·scale; as λ ≈ −c²/S for small c, class pulls below √tol of the whole are let pass, as
    the residue of training that has not quite converged.
    Rayleigh–Ritz for all of them at once, until the residual is below `accuracy`, every verdict
    is known if that is None, or after `max_products` products with all rows.
    """
    if not (tol > 0 and (accuracy is None or accuracy > 0) and max_products > 0):
        raise ValueError(
            "tol, accuracy and max_products must be positive, got "
            f"{tol}, {accuracy}, {max_products}"
        )
    which = torch.arange(params.n_memories) if which is None else which
    which = which.to(params.w.device)
    problem = _Quadratic(params.to(dtype=torch.float64), batch.check(params), rule, which)
    generator = torch.Generator().manual_seed(0) if generator is None else generator

    def done(value: Tensor, error: Tensor) -> bool:
        reached = value / problem.scale
        known = (reached < -tol) | (reached - error >= -tol)
        return bool((known if accuracy is None else error <= accuracy).all())

    u, a, value, error = problem.lowest(done, max_products, generator)
    size = (u * u).sum(1)
    safe = size.clamp_min(1e-300)
    split = torch.where(size > 0, (u * problem.products(u)).sum(1) / safe, 0.0)
    pull = torch.einsum("pny,pn->py", problem.coupling, u)
    verdicts = [
        _verdict(float(v) / float(s), float(e), float(k), tol)
        for v, s, e, k in zip(value, problem.scale, error, split, strict=True)
    ]
    return JointSplit(
        lambda_joint=value,
        split=split,
        coupling=pull.norm(dim=1) / safe.sqrt(),
        direction=u,
        class_direction=0.5 * problem.prior[:, None] * problem.root * a,
        residual=error,
        scale=problem.scale,
        tol=tol,
        verdicts=tuple(verdicts),
    )


def _verdict(value: float, error: float, split: float, tol: float) -> JointVerdict:
    """Read the verdict off λ and its error, both in units of the scale."""
    if value < -tol:
        return "saddle" if split < 0 else "label saddle"
    # An eigenvalue lies within the residual of λ.
    return "minimum" if value - error >= -tol else "undecided"


class _Quadratic:
    """The quadratic form ½ uᵀSu − uᵀCa of the memories `which`, in float64."""

    def __init__(self, params: Parameters, batch: Batch, rule: LabelRule, which: Tensor) -> None:
        self.params, self.which = params, which
        self.x, self.targets = batch.x.double(), batch.targets.double()
        self.weight = None if batch.sample_weight is None else batch.sample_weight.double()
        self.rule = rule
        self.w, self.beta = params.w[which], params.beta_eff
        self.log_ratio = log_omega_ratio(params.beta, params.n_features)
        self.n = max(batch.total_weight, 1e-300)
        self.p = p = params.p[1:][which]  # (P, C+1)
        self.prior = p.sum(1)  # what the memory has, rather than what it should have
        self.root = (p / self.prior[:, None]).sqrt()  # √g
        pull = torch.zeros(*self.w.shape, p.shape[1], dtype=p.dtype, device=p.device)
        mass = torch.zeros_like(self.prior)
        for rows, shares in self._class_shares():
            pull += torch.einsum("bpy,bn->pny", shares, rows)
            mass += shares.sum(2).abs().sum(0)
        self.scale = (self.beta * mass / self.n).clamp_min(1e-300)
        self.overlap = self.beta * (pull.sum(2) * self.w).sum(1) / self.n  # β_eff·o
        # A class without weight here cannot move, and along √g itself g would not stay normalized.
        inverse = torch.where(self.root > 0, 1.0 / self.root.clamp_min(1e-150), 0.0)
        coupling = self.beta / self.n * pull * inverse[:, None, :]  # (P, N, C+1)
        along = torch.einsum("pny,pn->py", coupling, self.w)
        coupling = coupling - self.w[:, :, None] * along[:, None, :]
        self.coupling = coupling - (coupling @ self.root[:, :, None]) * self.root[:, None, :]
        outside = torch.diag_embed((self.root == 0).to(p.dtype))
        self.barred = outside + self.root[:, :, None] * self.root[:, None, :]  # (P, C+1, C+1)

    def _fields(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Chunks of rows x (B, N), exp(h) (B, those asked) and label weight over density."""
        for part in chunks(self.x.shape[0], self.params.n_memories, self.x.device):
            x = self.x[part]
            h = self.beta * (x @ self.params.w.T) - self.log_ratio  # (B, all memories)
            top = h.amax(1, keepdim=True).clamp_min(0.0)
            e = torch.exp(h - top)
            density = e @ self.params.p[1:] + torch.exp(-top) * self.params.p[0]  # (B, C+1)
            density = density.clamp_min(1e-290)
            _, weights = self.rule(density.log() + top, self.targets[part])
            if self.weight is not None:
                weights = weights * self.weight[part, None]
            yield x, e[:, self.which], weights / density

    def _class_shares(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows x (B, N) and their shares r (B, P, C+1) by class, few rows at a time."""
        step = max(1, (1 << 22) // self.p.numel())
        for x, e, ratio in self._fields():
            for first in range(0, x.shape[0], step):
                part = slice(first, first + step)
                shares = e[part, :, None] * ratio[part, None, :] * self.p
                yield x[part], shares

    def products(self, u: Tensor) -> Tensor:
        """S u for tangent vectors u (P, N), one for each memory; one pass over the rows."""
        spread = torch.zeros_like(u)
        for x, e, ratio in self._fields():
            shares = e * (ratio @ self.p.T)  # (B, P)
            spread += (shares * (x @ u.T)).T @ x
        s_u = self.overlap[:, None] * u - self.beta**2 / self.n * spread
        return sphere.to_tangent(self.w, s_u)

    def lowest(
        self,
        done: Callable[[Tensor, Tensor], bool],
        max_products: int,
        generator: torch.Generator,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Lowest eigenpair (u, a) of [[S, −C], [−Cᵀ, 0]], its value, and its relative residual.

        The space is span(V) for u, and all of the classes for a. V starts from the columns of C and
        a random vector, and grows by residuals: those of S alone, as S is a multiple of the
        identity up to the spread of few rows.
        """
        noise = torch.randn(self.w.shape, generator=generator, dtype=torch.float64)
        noise = sphere.to_tangent(self.w, noise.to(self.w.device))
        start = [*self.coupling.unbind(2), noise]
        basis: list[Tensor] = []
        images: list[Tensor] = []
        queue = list(start)
        n_features = self.w.shape[1]
        for count in range(max_products):
            basis.append(self._orthogonal(basis, queue.pop(0)))
            images.append(self.products(basis[-1]))
            last = count + 1 == max_products
            if queue and not last:
                continue
            u, a, value, left = self._ritz(basis, images)
            error = left.norm(dim=1) / self.scale
            if last or done(value, error) or len(basis) >= n_features + len(start):
                break
            queue = [left]
            if len(basis) >= _MAX_BASIS:
                basis, images, queue = [], [], [*self.coupling.unbind(2), u, left]
        return u, a, value, error

    def _orthogonal(self, basis: list[Tensor], v: Tensor) -> Tensor:
        """Part of v (P, N) outside the basis, of unit length, or 0 where nothing is left."""
        size = v.norm(dim=1, keepdim=True)
        for _ in range(2):  # once is not enough in floating point
            for b in basis:
                v = v - (b * v).sum(1, keepdim=True) * b
            v = sphere.to_tangent(self.w, v)
        norm = v.norm(dim=1, keepdim=True)
        empty = norm <= 1e-13 * size
        return torch.where(empty, 0.0, v / norm.masked_fill(empty, 1.0))

    def _ritz(
        self, basis: list[Tensor], images: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Lowest Ritz pair (u, a), its value, and its residual S u − C a − λ u, all of it in u."""
        v, s_v = torch.stack(basis, 1), torch.stack(images, 1)  # (P, K, N)
        k = v.shape[1]
        top = v @ s_v.mT
        cross = -v @ self.coupling  # (P, K, C+1)
        matrix = torch.cat(
            [torch.cat([top, cross], 2), torch.cat([cross.mT, torch.zeros_like(self.barred)], 2)], 1
        )
        # Directions that do not exist must not win with their eigenvalue 0.
        missing = torch.diag_embed(((v * v).sum(2) < 0.5).to(v.dtype))
        high = 1.0 + matrix.abs().sum((1, 2))
        matrix[:, :k, :k] += high[:, None, None] * missing
        matrix[:, k:, k:] += high[:, None, None] * self.barred
        values, vectors = torch.linalg.eigh((matrix + matrix.mT) / 2)
        value, vector = values[:, 0], vectors[:, :, 0]
        u = torch.einsum("pk,pkn->pn", vector[:, :k], v)
        a = vector[:, k:]
        left = torch.einsum("pk,pkn->pn", vector[:, :k], s_v)
        left = left - torch.einsum("pny,py->pn", self.coupling, a) - value[:, None] * u
        return u, a, value, left
