"""Splits in which the two copies of a memory divide its classes, too: the steepest one of each memory.

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

A memory that is a minimum at fixed class weights may gain by such a split: a label saddle.
docs/research/theory-derivations.md, section 5a, has the proofs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

import mnemosphere as mn
from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.certificates import certify
from mnemosphere.model.curvature import random_tangent
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.one_pass import Pass
from mnemosphere.model.one_pass import chunks as row_chunks
from mnemosphere.numerics import sphere
from mnemosphere.numerics.rayleigh_ritz import rayleigh_ritz
from research.report import Json

SplitKind = Literal["minimum", "saddle", "label saddle", "undecided"]

# Products of a search before it starts again from the best that it has found, and searches at most.
_STEPS, _CYCLES = 20, 10
_ACCURACY = 1e-6  # at which a search stops, in units of `JointSplit.scale`


class SplitForm:
    """Minus the Hessian of M memories over z = (u, a), (M, N + C+1).

    w (M, N), p (M, C+1); pull (M, N, C+1): Σ_b r[b,y] x_b; spread: from u (M, N) to
    Σ_b r[b] ⟨u, x_b⟩ x_b. With r over n it is that of the mean loss.
    """

    def __init__(
        self, w: Tensor, p: Tensor, beta: Tensor, pull: Tensor, spread: Callable[[Tensor], Tensor]
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


@dataclass(frozen=True)
class JointSplit:
    """The steepest way (u, a), |u|² + |a|² = 1, to move the copies of each memory apart.

    Each number is the exact value for the direction found, so `lambda_joint` is never below the true one. A
    "label saddle" lowers the loss only because its copies divide the classes; "undecided" is too near 0 to tell.
    """

    lambda_joint: Tensor  # (P,) lowest curvature over (u, a), per row of the data
    split: Tensor  # (P,) S = uᵀSu/|u|²
    coupling: Tensor  # (P,) c = |Cᵀu|/|u|
    direction: Tensor  # (P, N) u, tangent at w
    class_direction: Tensor  # (P, C+1) v: the copies at w ± u hold p/2 ± v
    residual: Tensor  # (P,) in units of `scale`; an eigenvalue lies within it of `lambda_joint`
    scale: Tensor  # (P,) β_eff Σ_b |r[b]|/n, the size of the pull of the memory's rows
    kinds: tuple[SplitKind, ...]


def joint_split(
    params: Mixture, batch: Batch, rule: LabelRule = objectives.joint, *, tol: float = 1e-6
) -> JointSplit:
    """Lowest curvature of the loss over splits in which classes may be divided.

    tol: curvature below −tol·scale counts as negative. As λ ≈ −c²/S for small c, class pulls below √tol of
    the whole are taken for the residue of training that has not quite converged.
    """
    form, scale = _form(params.to(dtype=torch.float64), batch.to(dtype=torch.float64), rule)
    noise = random_tangent(form.w, None)
    # If C = 0, (0, a) is an exact eigenpair of value 0, whose residual says nothing about S.
    plain, lowest, missed = _lowest(_alone(form), noise, scale)
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
    pull = torch.einsum("pny,pn->py", form.coupling, u).norm(dim=1) / safe.sqrt()
    kinds = map(_kind, saddle.tolist(), minimum.tolist(), split.tolist())
    return JointSplit(value, split, pull, u, v, error / scale, scale, tuple(kinds))


def _kind(saddle: bool, minimum: bool, split: float) -> SplitKind:
    if saddle:
        return "saddle" if split < 0 else "label saddle"
    return "minimum" if minimum else "undecided"


def _form(params: Mixture, batch: Batch, rule: LabelRule) -> tuple[SplitForm, Tensor]:
    """The form on all rows, and the scale of each memory."""
    w, p, beta = sphere.project(params.w), params.p[1:], params.slope
    n = max(batch.total_weight, 1e-300)

    def chunks() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Rows x (B, N), e (B, P) and s (B, C+1): r = e·s·p of each class."""
        run, weight = Pass(params), params.p[1:].sum(1, keepdim=True)
        for part in map(batch.take, row_chunks(batch.n_rows, len(w), w.device)):
            e, s, *_ = run.label_weights(part, rule)
            yield part.x, (e[1:] / weight).mT, s.mT

    def spread(u: Tensor) -> Tensor:
        total = torch.zeros_like(u)
        for x, e, s in chunks():
            total += (e * (s @ p.T) * (x @ u.T)).T @ x
        return total / n

    pull, mass = w.new_zeros(*w.shape, p.shape[1]), w.new_zeros(len(w))
    for x, e, s in chunks():
        for y in range(p.shape[1]):
            r = e * s[:, y, None] * p[:, y]  # (B, P)
            pull[:, :, y] += r.T @ x
            mass += r.abs().sum(0)
    return SplitForm(w, p, beta, pull / n, spread), (beta * mass / n).clamp_min(1e-300)


def _alone(form: SplitForm) -> SplitForm:
    """The form over u alone: −S."""
    own = copy.copy(form)
    own.root, own.coupling = form.root[:, :0], form.coupling[:, :, :0]
    return own


def _lowest(form: SplitForm, start: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lowest eigenpairs z (M, K) and values (M,) of the form, and their residuals (M,)."""
    z = start
    for _ in range(_CYCLES):
        z, value, residual = rayleigh_ritz(form.product, form.tangent, z, _STEPS)
        error = residual * value.abs().clamp_min(torch.finfo(value.dtype).tiny)
        if bool((error <= _ACCURACY * scale).all()):
            break
    return z, -value, error


def study_joint_splits(memories: int, betas: Sequence[float], tol: float = 1e-4) -> list[Json]:
    """Kinds of the memories of joint models of digits, at fixed class weights and jointly, at each β; ς = 1."""
    data, found = mn.load_data("digits"), []
    for beta in betas:
        model = mn.DAMClassifier(
            memories, objective="joint", geometry="center", varsigma=1.0, beta=beta, search=None, random_state=0,
            solver=mn.FixedPoint(batch_size=None, learn_weights=False),
        ).fit(data.x_train, data.y_train).model_  # fmt: skip
        batch = model.labeled(data.x_train, data.y_train, None)
        held = certify(model.density, batch, tol=tol, max_iter=5000, learn_beta=False)
        joint = joint_split(held.params, batch, tol=tol**2)
        saddles = [
            m for m, pair in enumerate(zip(held.kinds, joint.kinds, strict=True))
            if pair == ("minimum", "label saddle")
        ]  # fmt: skip
        gain = (joint.lambda_joint / joint.scale)[saddles]
        found.append({
            "beta": beta, **held.counts, "label saddle": len(saddles),
            "lambda_joint": float(gain.median()) if saddles else None,
        })  # fmt: skip
    return found
