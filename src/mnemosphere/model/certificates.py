"""Is a trained model at a stationary point, and which of its memories are saddles?

Eq. (stationarity) holds if one fixed-point step does not move the parameters, so the length of
that step is the residual. A memory at rest is a minimum or a saddle of the network in which it is
duplicated. At fixed class weights it is a saddle exactly when β_eff > β_split, as model.curvature
derives; if the copies may divide the classes too, model.splits decides. Training stops when the
loss hardly falls, which is short of rest, so `settle` takes exact steps from there first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.curvature import CurvatureMethod, Krylov
from mnemosphere.model.kernel import Statistics, accumulate
from mnemosphere.model.m_step import Residual, displacement, maximize_bound
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters, memory_name
from mnemosphere.model.splits import class_splits, joint_split
from mnemosphere.numerics import polytope, sphere
from mnemosphere.numerics.bessel import mean_resultant

Kind = Literal["minimum", "saddle", "not at rest"]
JointKind = Literal["minimum", "saddle", "label saddle", "not at rest"]

_JOINT: dict[str, JointKind] = {
    "minimum": "minimum",
    "saddle": "label saddle",
    "label saddle": "label saddle",
    "undecided": "not at rest",
}
_ROUNDING = 64  # units in the last place by which β_eff must exceed β_split


@dataclass(frozen=True)
class Certificate:
    """The kind of each memory on given rows, at fixed class weights and jointly.

    "saddle": Eq. (stationarity) holds, and two copies of the memory lower the loss by moving apart
    along ±`direction`, so the network gains by growing there. "minimum": it holds, and no such split
    lowers the loss to second order. "not at rest": the memory, its class weights or β still move by
    more than `tol`, or the curvature is too near 0 to tell its sign.

    In `joint_kinds` the copies may also divide the classes: a "label saddle" is a minimum only at fixed
    class weights. If the weights of memories are learned (hold_weights=False), a copy may also take
    a share of one class alone.

    Attributes
    ----------
    residual : Residual
        Length of one fixed-point step in memories, class weights and β.
    mass : tensor of shape (P,)
        Rows that each memory answers for.
    lambda_min : tensor of shape (P,)
        Lowest curvature along a split, per row of the data.
    lambda_joint : tensor of shape (P,)
        The same if classes are divided, within 1e-6 of the pull of the memory's rows; computed only for
        minima at fixed class weights.
    beta_split : tensor of shape (P,)
        The β_eff above which the memory is a saddle at fixed class weights.
    direction : tensor of shape (P, N)
        Direction of that split: unit tangent vectors.
    beta_eff : float
        ς·β of the model.
    tol : float
        Tolerance of the residual.
    kinds : tuple of P str
        "minimum", "saddle" or "not at rest", at fixed class weights.
    joint_kinds : tuple of P str
        The same or "label saddle", if the copies may divide the classes.
    params : Parameters
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
    lambda_joint: Tensor
    beta_split: Tensor
    direction: Tensor
    beta_eff: float
    tol: float
    kinds: tuple[Kind, ...]
    joint_kinds: tuple[JointKind, ...]
    params: Parameters
    n_iter: int

    @property
    def counts(self) -> dict[str, int]:
        """Number of memories of each kind at fixed class weights, dict."""
        return {kind: self.kinds.count(kind) for kind in get_args(Kind)}

    @property
    def joint_counts(self) -> dict[str, int]:
        """Number of memories of each kind if the copies may divide the classes, dict."""
        return {kind: self.joint_kinds.count(kind) for kind in get_args(JointKind)}

    @property
    def at_rest(self) -> bool:
        """Whether every residual is within tol, including that of the uniform component, bool."""
        return float(self.residual.largest) <= self.tol

    def as_dict(self) -> dict[str, Any]:
        """Return the certificate as plain values, for JSON.

        Returns
        -------
        dict
            Totals, and under "memories" one dict per memory.

        Examples
        --------
        >>> len(clf.certify(X_train, y_train).as_dict()["memories"])
        6
        """
        numbers = [
            values.tolist()
            for values in (self.mass, self.lambda_min, self.lambda_joint, self.beta_split)
        ]
        names = "memory kind joint_kind rows lambda_min lambda_joint beta_split"
        memories = range(len(self.kinds))
        rows = zip(memories, self.kinds, self.joint_kinds, *numbers, strict=True)
        return {
            "counts": self.counts,
            "joint_counts": self.joint_counts,
            "at_rest": self.at_rest,
            "n_iter": self.n_iter,
            "largest_residual": float(self.residual.largest),
            "beta_eff": self.beta_eff,
            "memories": [dict(zip(names.split(), row, strict=True)) for row in rows],
        }

    def summary(self, max_rows: int = 20) -> str:
        """Format the certificate as a table: totals, then the memories of lowest β_split/β_eff first.

        Parameters
        ----------
        max_rows : int, default 20
            Memories to show.

        Returns
        -------
        str
            Text for a terminal.

        Examples
        --------
        >>> clf.certify(X_train, y_train).summary(max_rows=2).startswith("6 memories")
        True
        """
        held, free = (
            ", ".join(f"{n} {kind}" for kind, n in counts.items())
            for counts in (self.counts, self.joint_counts)
        )
        after = f", after {self.n_iter} exact passes on a copy" if self.n_iter else ""
        lines = [
            f"{len(self.kinds)} memories{after}: {held} at fixed class weights",
            f"{free} if copies divide the classes",
            f"largest residual: memories {float(self.residual.w.amax()):.1e}, class weights "
            f"{float(self.residual.p.amax()):.1e}, beta {float(self.residual.beta):.1e} "
            f"(tolerance {self.tol:.1e})",
            f"beta_eff {self.beta_eff:.4g}, beta_split from {float(self.beta_split.amin()):.4g} to "
            f"{float(self.beta_split.amax()):.4g}",
            "",
            f"{'memory':>6}  {'rows':>9}  {'residual':>8}  {'lambda_min':>10}  {'beta_split':>10}"
            "  fixed          jointly",
        ]
        order = self.beta_split.argsort(stable=True)[:max_rows].tolist()
        for memory in order:
            own = max(float(self.residual.w[memory]), float(self.residual.p[memory + 1]))
            lines.append(
                f"{memory_name(memory):>6}  {float(self.mass[memory]):>9.4g}  {own:>8.1e}  "
                f"{float(self.lambda_min[memory]):>10.2e}  "
                f"{float(self.beta_split[memory]):>10.4g}  {self.kinds[memory]:<13}  "
                f"{self.joint_kinds[memory]}"
            )
        if len(order) < len(self.kinds):
            lines.append(f"and {len(self.kinds) - len(order)} more with a higher beta_split")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.summary()


def residual(
    params: Parameters,
    stats: Statistics,
    rule: LabelRule = objectives.joint,
    *,
    learn_beta: bool = True,
    hold_weights: bool = True,
) -> Residual:
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


def settle(
    params: Parameters,
    batch: Batch,
    rule: LabelRule = objectives.joint,
    *,
    tol: float,
    max_iter: int,
    learn_beta: bool = True,
    hold_weights: bool = True,
) -> tuple[Parameters, int]:
    """(parameters that a step moves by tol at most, passes taken), or after max_iter passes."""
    passes = max_iter if rule.supports_fixed_point else 0
    for n_iter in range(passes):
        stats = accumulate(params, batch, rule)
        moved = maximize_bound(
            params, stats.w_bar, stats.p_bar, learn_beta=learn_beta, hold_weights=hold_weights
        )
        if float(displacement(params, moved).largest) <= tol:
            return params, n_iter
        params = moved
    return params, passes


def certify(
    params: Parameters,
    batch: Batch,
    rule: LabelRule = objectives.joint,
    *,
    tol: float = 1e-3,
    max_iter: int = 0,
    learn_beta: bool = True,
    hold_weights: bool = True,
    method: CurvatureMethod | None = None,
) -> Certificate:
    """Say of every memory whether it is a minimum, a saddle, or not at rest on these rows.

    Use the rows, targets and rule that the model was trained with. tol: the largest residual that
    counts as converged; class pulls up to that part of the whole make no label saddle. max_iter:
    exact passes that may bring a copy of the parameters there first, if the rule has such a step.
    hold_weights: False if the weights of memories are learned, for then a minimum needs more: no
    share of a single class may gain by moving away. method: how to find the curvature at fixed
    class weights; by default on all rows (Krylov).
    """
    if not tol > 0:
        raise ValueError(f"tol must be positive, got {tol}")
    learned = {"learn_beta": learn_beta, "hold_weights": hold_weights}
    batch = batch.check(params)
    params, n_iter = settle(params, batch, rule, tol=tol, max_iter=max_iter, **learned)
    stats = accumulate(params, batch, rule)
    moved = residual(params, stats, rule, **learned)
    method = Krylov() if method is None else method
    found = method(params, batch.filled(), rule)
    signed = not rule.supports_fixed_point  # then the weights of a row add up to 0
    shared = accumulate(params, batch, objectives.marginal) if signed else stats
    beta_eff = params.beta_eff
    rests = torch.maximum(moved.w, moved.p[1:]).clamp_min(float(moved.beta)) <= tol
    # The value found is that of a direction, so a saddle is proven. A minimum is not, unless the
    # largest eigenvalue, as far as its residual lets it be, stays below too.
    above = beta_eff > found.beta_split * (1 + _ROUNDING * torch.finfo(params.w.dtype).eps)
    below = beta_eff * (1 + found.residual) <= found.beta_split
    kinds: list[Kind] = [
        "saddle" if saddle else "minimum" if minimum else "not at rest"
        for saddle, minimum in zip(rests & above, rests & below, strict=True)
    ]
    lambda_joint, joint_kinds = found.lambda_min.clone(), list[JointKind](kinds)
    resting = [memory for memory, kind in enumerate(kinds) if kind == "minimum"]
    if resting:
        which = torch.tensor(resting, device=params.w.device)
        joint = joint_split(params, batch.filled(), rule, which=which, tol=tol**2)
        lambda_joint[which] = joint.lambda_joint.to(lambda_joint)
        for memory, name in zip(resting, joint.kinds, strict=True):
            # A split that pays at fixed class weights would have been found before.
            joint_kinds[memory] = _JOINT[name]
    resting = [memory for memory, kind in enumerate(joint_kinds) if kind == "minimum"]
    if resting and not hold_weights:
        which = torch.tensor(resting, device=params.w.device)
        alone = class_splits(params, batch.filled(), rule, which=which, tol=tol**2)
        lowest = alone.lambda_min.amin(1)
        lambda_joint[which] = torch.minimum(lambda_joint[which], lowest.to(lambda_joint))
        for k, memory in enumerate(resting):
            if float(lowest[k]) < -(tol**2) * float(alone.scale[k]):
                joint_kinds[memory] = "label saddle"
            elif not bool(alone.decided[k].all()):
                joint_kinds[memory] = "not at rest"
    return Certificate(
        residual=moved,
        mass=shared.mass[1:],
        lambda_min=found.lambda_min,
        lambda_joint=lambda_joint,
        beta_split=found.beta_split,
        direction=found.direction,
        beta_eff=float(beta_eff),
        tol=tol,
        kinds=tuple(kinds),
        joint_kinds=tuple(joint_kinds),
        params=params,
        n_iter=n_iter,
    )
