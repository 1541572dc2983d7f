"""Is a trained model at a stationary point, and which of its memories are saddles?

Eq. (stationarity) holds if one fixed-point step does not move the parameters, so the length of
that step is the residual. A memory at rest is a minimum or a saddle of the network in which it is
duplicated: at fixed class weights it is a saddle exactly when β_eff > β_split, as model.curvature
derives. Training stops when the loss hardly falls, which is short of rest, so a copy may take exact
steps from there first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from mnemosphere.base.text import Shown, Table
from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.curvature import Curvature, krylov
from mnemosphere.model.m_step import Residual, displacement, maximize_bound
from mnemosphere.model.mixture import Mixture, memory_name
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.one_pass import Statistics, accumulate
from mnemosphere.numerics import polytope, sphere
from mnemosphere.numerics.bessel import mean_resultant

Kind = Literal["minimum", "saddle", "not at rest"]

_ROUNDING = 64  # units in the last place by which β_eff must exceed β_split
_SHOWN = 20  # memories of the printed table


@dataclass(frozen=True)
class Certificate(Shown):
    """The kind of each memory on given rows, at fixed class weights; `print` shows a table.

    "saddle": Eq. (stationarity) holds, and two copies of the memory lower the loss by moving apart
    along ±`direction`, so the network gains by growing there. "minimum": it holds, and no such split
    lowers the loss to second order. "not at rest": the memory, its class weights or β still move by
    more than `tol`, or the curvature is too near 0 to tell its sign.

    Attributes
    ----------
    residual : Residual
        Length of one fixed-point step in memories, class weights and β.
    mass : tensor of shape (P,)
        Rows that each memory answers for.
    lambda_min : tensor of shape (P,)
        Lowest curvature along a split, per row of the data.
    beta_split : tensor of shape (P,)
        The β_eff above which the memory is a saddle.
    direction : tensor of shape (P, N)
        Direction of that split: unit tangent vectors.
    beta_eff : float
        ς·β of the model.
    tol : float
        Tolerance of the residual.
    kinds : tuple of P str
        "minimum", "saddle" or "not at rest".
    params : Mixture
        The certified parameters: a copy of the model's after `n_iter` exact passes.
    n_iter : int
        Exact passes of the copy.

    Examples
    --------
    >>> certificate = clf.certify(X_train, y_train)
    >>> len(certificate.kinds), certificate.beta_split.shape
    (6, torch.Size([6]))
    """

    residual: Residual
    mass: Tensor
    lambda_min: Tensor
    beta_split: Tensor
    direction: Tensor
    beta_eff: float
    tol: float
    kinds: tuple[Kind, ...]
    params: Mixture
    n_iter: int

    @property
    def counts(self) -> dict[str, int]:
        """Number of memories of each kind, dict."""
        return {kind: self.kinds.count(kind) for kind in get_args(Kind)}

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """Totals, and the memories of lowest β_split."""
        after = f" after {self.n_iter} exact passes of a copy" if self.n_iter else ""
        told = ", ".join(f"{n} {kind}" for kind, n in self.counts.items())
        order = self.beta_split.argsort(stable=True)[: most or _SHOWN].tolist()
        lines: Table = [
            {"memory": memory_name(m), "kind": self.kinds[m], "rows": f"{float(self.mass[m]):.4g}",
             "residual": f"{max(float(self.residual.w[m]), float(self.residual.p[m + 1])):.1e}",
             "lambda_min": f"{float(self.lambda_min[m]):.2e}",
             "beta_split": f"{float(self.beta_split[m]):.4g}"}
            for m in order
        ]  # fmt: skip
        left = len(self.kinds) - len(order)
        return [
            f"{len(self.kinds)} memories{after}: {told}; beta_eff {self.beta_eff:.4g}, largest residual "
            f"{float(self.residual.largest):.1e} (tolerance {self.tol:.1e})",
            lines, *([f"and {left} more with a higher beta_split"] if left else []),
        ]  # fmt: skip


def residual(
    params: Mixture, stats: Statistics, rule: LabelRule = objectives.joint, *,
    learn_beta: bool = True, hold_weights: bool = True,
) -> Residual:  # fmt: skip
    """Residual of Eq. (stationarity), read from the statistics of all rows, in float64.

    It is how far `m_step.maximize_bound` moves the parameters. A rule whose label weights can
    be negative has no such step. There the tangent parts of the gradient of the mean loss stand
    in for it, in units that make both agree near a fixed point of the joint likelihood up to
    factors of order 1: for w^μ in units of β_eff p_h(μ), for p as the natural gradient, for β in
    units of A_N(β).

    learn_beta: False if β is held fixed, so that it need not be stationary. hold_weights: False
    if the weights of memories are learned.
    """
    old = params.to(dtype=torch.float64)
    w_bar, p_bar = stats.w_bar.double(), stats.p_bar.double()
    if rule.supports_fixed_point:
        new = maximize_bound(old, w_bar, p_bar, learn_beta=learn_beta, hold_weights=hold_weights)
        return displacement(old, new)
    prior = old.p_h.clamp_min(torch.finfo(torch.float64).tiny)
    delta_p = polytope.to_tangent(old.p, p_bar / stats.count, old.p_h, old.p_q)
    pull = params.varsigma * stats.overlap.double().sum()
    push = mean_resultant(old.beta, params.n_features)
    delta_beta = (pull / push - p_bar[1:].sum()).abs() / stats.count
    return Residual(
        w=sphere.to_tangent(old.w, w_bar).norm(dim=1) / (stats.count * prior[1:]),
        p=delta_p.abs().sum(1) / prior,
        beta=delta_beta if learn_beta else torch.zeros_like(delta_beta),
    )


def certify(
    params: Mixture,
    batch: Batch,
    rule: LabelRule = objectives.joint,
    *,
    tol: float = 1e-3,
    max_iter: int = 0,
    learn_beta: bool = True,
    hold_weights: bool = True,
    method: Callable[..., Curvature] = krylov,
) -> Certificate:
    """Say of every memory whether it is a minimum, a saddle, or not at rest on these rows.

    Use the rows, targets and rule that the model was trained with. tol: the largest residual that
    counts as converged. max_iter: exact passes that may bring a copy of the parameters there first,
    if the rule has such a step. learn_beta, hold_weights: whether training learned β, and held the
    weights of memories. method: how to find the curvature; by default on all rows.
    """
    if not tol > 0:
        raise ValueError(f"tol must be positive, got {tol}")
    learned = {"learn_beta": learn_beta, "hold_weights": hold_weights}
    batch = batch.check(params)
    stats, n_iter = accumulate(params, batch, rule), 0
    while rule.supports_fixed_point and n_iter < max_iter:
        stepped = maximize_bound(params, stats.w_bar, stats.p_bar, **learned)
        if float(displacement(params, stepped).largest) <= tol:
            break
        params, n_iter = stepped, n_iter + 1
        stats = accumulate(params, batch, rule)
    moved = residual(params, stats, rule, **learned)
    found = method(params, batch.filled(), rule)
    signed = not rule.supports_fixed_point  # then the weights of a row add up to 0
    shared = accumulate(params, batch, objectives.marginal) if signed else stats
    rests = torch.maximum(moved.w, moved.p[1:]).clamp_min(float(moved.beta)) <= tol
    # The value found is that of a direction, so a saddle is proven. A minimum is not, unless the
    # largest eigenvalue, as far as its residual lets it be, stays below too.
    beta_eff, eps = params.slope, torch.finfo(params.w.dtype).eps
    above = beta_eff > found.beta_split * (1 + _ROUNDING * eps)
    below = beta_eff * (1 + found.residual) <= found.beta_split
    kinds: list[Kind] = [
        "saddle" if saddle else "minimum" if minimum else "not at rest"
        for saddle, minimum in zip(rests & above, rests & below, strict=True)
    ]
    return Certificate(
        moved, shared.mass[1:], found.lambda_min, found.beta_split, found.direction,
        float(beta_eff), tol, tuple(kinds), params, n_iter,
    )  # fmt: skip
