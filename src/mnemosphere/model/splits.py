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

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import class_shares
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import sphere
from mnemosphere.numerics.rayleigh_ritz import restarted

SplitKind = Literal["minimum", "saddle", "label saddle", "undecided"]

# Products of a search before it starts again from the best that it has found, and searches at most.
_STEPS, _CYCLES = 20, 10
_ACCURACY = 1e-6  # at which a search stops, in units of `JointSplit.scale`


@dataclass(frozen=True)
class JointSplit:
    """The steepest way to move the copies of each memory apart, classes included.

    (u, a) is a unit vector: |u|² + |a|² = 1. Each number is the exact value for the direction returned, so
    `lambda_joint` is never below the true one.

    Attributes
    ----------
    lambda_joint : tensor of shape (P,)
        Lowest curvature over (u, a), per row of the data.
    split : tensor of shape (P,)
        S = uᵀSu/|u|².
    coupling : tensor of shape (P,)
        c = |Cᵀu|/|u|.
    direction : tensor of shape (P, N)
        u, tangent at w.
    class_direction : tensor of shape (P, C+1)
        v: the copies at w ± u hold p/2 ± v.
    residual : tensor of shape (P,)
        In units of `scale`; an eigenvalue lies within it of `lambda_joint`.
    scale : tensor of shape (P,)
        β_eff Σ_b |r[b]|/n, the size of the pull of the memory's rows.
    tol : float
        Curvature that counts as negative, in units of `scale`.
    kinds : tuple of P str
        "minimum": no such split lowers the loss to second order. "saddle": copies moved to w ± u lower it
        at fixed class weights. "label saddle": they lower it only because they divide the classes.
        "undecided": λ is too near 0 for the accuracy reached.

    Examples
    --------
    >>> mn.theory.joint_split(params, batch).direction.shape
    torch.Size([2, 3])
    """

    lambda_joint: Tensor
    split: Tensor
    coupling: Tensor
    direction: Tensor
    class_direction: Tensor
    residual: Tensor
    scale: Tensor
    tol: float
    kinds: tuple[SplitKind, ...]


def joint_split(
    params: Parameters,
    batch: Batch,
    rule: LabelRule = objectives.joint,
    *,
    which: Tensor | None = None,
    tol: float = 1e-6,
) -> JointSplit:
    """Compute the lowest curvature of the loss over splits of a memory in which classes may be divided.

    A memory counts as a saddle if λ < −tol·scale. As λ ≈ −c²/S for small c, class pulls below √tol of the
    whole are taken for the residue of training that has not quite converged. The method is
    Rayleigh–Ritz for all memories at once. The error of λ is at most the residual, and quadratic in
    it near the end.

    Parameters
    ----------
    params : Parameters
        The model, such as `clf.model_.density`.
    batch : Batch
        Unit rows x (n, N) with targets (n, C+1).
    rule : LabelRule
        The objective, by default the joint likelihood.
    which : tensor of int of shape (P,), default None
        Memories to look at; None: all.
    tol : float, default 1e-6
        Curvature that counts as negative, in units of `scale`.

    Returns
    -------
    JointSplit
        Curvature, direction and kind of each memory.

    Examples
    --------
    >>> len(mn.theory.joint_split(params, batch).kinds)
    2
    """
    if not tol > 0:
        raise ValueError(f"tol must be positive, got {tol}")
    which = torch.arange(params.n_memories) if which is None else which
    which = which.to(params.w.device)
    rows = _AllRows(params, batch.check(params), rule, which)
    form, scale, noise = rows.form, rows.scale, random_tangent(rows.form.w, None)
    # If C = 0, (0, a) is an exact eigenpair of value 0, whose residual says nothing about S.
    plain, lowest, missed = _lowest(form.alone(), noise, scale)
    z, value, error = _lowest(form, form.start(plain + noise), scale)
    # S ⪰ s and |Cᵀu| ≤ |C||u| bound the whole form from below.
    s = lowest - missed
    norm = torch.linalg.eigvalsh(form.coupling.mT @ form.coupling)[:, -1].clamp_min(0.0)
    labeled = (form.root > 0).sum(1) > 1  # else there is no a
    floor = torch.where(labeled, (s - (s * s + 4 * norm).sqrt()) / 2, s)
    error = torch.maximum(error, missed)
    saddle = value < -tol * scale
    minimum = ~saddle & (torch.maximum(floor, value - error) >= -tol * scale)
    u, v = form.parts(z)
    size = (u * u).sum(1)
    safe = size.clamp_min(1e-300)
    split = torch.where(size > 0, (u * form.curvature(u)).sum(1) / safe, 0.0)
    pull = torch.einsum("pny,pn->py", form.coupling, u)
    kinds = map(_kind, saddle.tolist(), minimum.tolist(), split.tolist())
    return JointSplit(
        lambda_joint=value,
        split=split,
        coupling=pull.norm(dim=1) / safe.sqrt(),
        direction=u,
        class_direction=v,
        residual=error / scale,
        scale=scale,
        tol=tol,
        kinds=tuple(kinds),
    )


class ClassSplits(NamedTuple):
    """Lowest eigenvalues of S_y for the classes of some memories, where they could be negative."""

    lambda_min: Tensor  # (P, C+1) per row of the data; inf for a class that holds next to nothing
    beta_split: Tensor  # (P, C+1) the β_eff above which S_y has a negative eigenvalue
    decided: Tensor  # (P, C+1) whether the sign is known up to `tol`
    scale: Tensor  # (P,) as in `JointSplit`


def class_splits(
    params: Parameters,
    batch: Batch,
    rule: LabelRule = objectives.joint,
    *,
    which: Tensor | None = None,
    tol: float = 1e-6,
) -> ClassSplits:
    """λ_min(S_y) of every memory and class: is there a copy of one class alone that pays?

    Classes whose S_y cannot reach −tol·scale, because μ answers for so little of them, are left
    out: λ_min(S_y) ≥ −(β_eff + β_eff²) Σ_b |r[b,y]|/n.
    """
    which = torch.arange(params.n_memories) if which is None else which
    which = which.to(params.w.device)
    whole = _AllRows(params, batch.check(params), rule, which)
    beta = params.beta_eff.double()
    could = (1 + beta) * whole.mass > tol * whole.mass.sum(1, keepdim=True)  # (P, C+1)
    shape = whole.mass.shape
    lowest, split = (torch.full(shape, torch.inf).to(whole.mass) for _ in range(2))
    decided = torch.ones_like(could)
    memory, label = could.nonzero(as_tuple=True)
    if len(memory):
        pairs = _AllRows(params, batch, rule, which[memory], label)
        form, scale = pairs.form.alone(), whole.scale[memory]
        _, value, error = _lowest(form, random_tangent(form.w, None), scale)
        lowest[could] = value
        decided[could] = (value < -tol * scale) | (value - error >= -tol * scale)
        # λ = β_eff·o − β_eff²·λ_max(T): what is known of the first two gives the third.
        spread = pairs.form.hold[:, 0] - value
        never = torch.full_like(spread, torch.inf)
        split[could] = torch.where(spread > 0, pairs.form.hold[:, 0] * beta / spread, never)
    return ClassSplits(lowest, split, decided, whole.scale)


def _kind(saddle: bool, minimum: bool, split: float) -> SplitKind:
    if saddle:
        return "saddle" if split < 0 else "label saddle"
    return "minimum" if minimum else "undecided"


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

    def alone(self) -> SplitForm:
        """The form over u alone: −S."""
        own = copy.copy(self)
        own.root, own.coupling = self.root[:, :0], self.coupling[:, :, :0]
        return own

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


class _AllRows:
    """The form of the memories `which` on all rows, in float64; `labels`: of one class each."""

    def __init__(
        self,
        params: Parameters,
        batch: Batch,
        rule: LabelRule,
        which: Tensor,
        labels: Tensor | None = None,
    ) -> None:
        self._params, self._rule = params.to(dtype=torch.float64), rule
        self._batch = batch.to(dtype=torch.float64)
        self._which, self._labels = which, labels
        self._n = max(batch.total_weight, 1e-300)
        p = self._params.p[1:][which]
        self._p = p if labels is None else p.gather(1, labels[:, None])  # (M, C+1) or (M, 1)
        # Unit in float64 as well, or what is left along w would swamp small residuals.
        w, beta = sphere.project(self._params.w[which]), self._params.beta_eff
        pull = w.new_zeros(*w.shape, self._p.shape[1])
        self.mass = torch.zeros_like(self._p)  # Σ_b |r[b,y]|
        for x, e, s in self._chunks():
            for y in range(self._p.shape[1]):
                r = e * (s[:, y, None] if labels is None else s) * self._p[:, y]  # (B, M)
                pull[:, :, y] += r.T @ x
                self.mass[:, y] += r.abs().sum(0)
        self.scale = (beta * self.mass.sum(1) / self._n).clamp_min(1e-300)
        self.form = SplitForm(w, self._p, beta, pull / self._n, self._spread)

    def _chunks(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Rows x (B, N), e (B, M), s (B, C+1) or (B, M): r = e·s·p of each class."""
        for rows, e, s in class_shares(self._params, self._batch, self._rule):
            s = s if self._labels is None else s[:, self._labels]
            yield self._batch.x[rows], e[:, self._which], s

    def _spread(self, u: Tensor) -> Tensor:
        total = torch.zeros_like(u)
        for x, e, s in self._chunks():
            r = e * (s @ self._p.T if self._labels is None else s * self._p[:, 0])  # (B, M)
            total += (r * (x @ u.T)).T @ x
        return total / self._n


def _lowest(form: SplitForm, start: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lowest eigenpairs z (M, K) and values (M,) of the form, and their residuals (M,)."""
    z, value, residual, _ = restarted(
        form.product, form.tangent, start, steps=_STEPS, cycles=_CYCLES,
        enough=lambda value, residual: _error(value, residual) <= _ACCURACY * scale,
    )  # fmt: skip
    return z, -value, _error(value, residual)


def _error(value: Tensor, residual: Tensor) -> Tensor:
    """The length of a residual that is relative to the value."""
    return residual * value.abs().clamp_min(torch.finfo(value.dtype).tiny)


def random_tangent(w: Tensor, generator: torch.Generator | None) -> Tensor:
    """Unit rows, each orthogonal to its memory."""
    generator = torch.Generator().manual_seed(0) if generator is None else generator
    u = sphere.sample_uniform(*w.shape, generator=generator, dtype=w.dtype, device=w.device)
    return sphere.project(sphere.to_tangent(w, u))
