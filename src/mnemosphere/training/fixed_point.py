"""The fixed-point solver: each step maximises an exact lower bound (Eq. (stationarity))."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.model.kernel import Statistics, log_joint
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import polytope, sphere
from mnemosphere.numerics.bessel import inverse_mean_resultant, log_omega_ratio, mean_resultant
from mnemosphere.training.batches import Batch, State

# β stays finite where every row lies on its memory (ς = 1), and positive where none pulls.
_MIN_RESULTANT, _MAX_RESULTANT = 1e-9, 1 - 1e-9
_DEAD = 1e-3  # of a row
_RESEED_ROWS = 4096


def maximize_bound(
    params: Parameters, w_bar: Tensor, p_bar: Tensor, *, learn_beta: bool = True
) -> Parameters:
    """One exact M-step: w ← w̄/‖w̄‖, p ← p̄/ζ, β ← A_N⁻¹(ς Σ‖w̄‖ / Σ mass).

    With statistics of the whole data, taken at `params` with non-negative label weights, the loss
    does not increase for any ς in (0, 1].
    """
    norms = w_bar.norm(dim=1)
    # A memory with no pull at all stays where it is.
    w = sphere.project(torch.where(norms[:, None] > 0, w_bar, params.w))
    # Beyond the precision of the statistics there is nothing to gain.
    tol = 1e-12 if p_bar.dtype == torch.float64 else 1e-8
    p = polytope.maximize(p_bar, params.p_h, params.p_q, tol=tol).p
    beta = params.beta
    if learn_beta:
        mass = p_bar[1:].double().sum().clamp_min(torch.finfo(torch.float64).tiny)
        resultant = params.varsigma * norms.double().sum() / mass
        beta = inverse_mean_resultant(
            resultant.clamp(_MIN_RESULTANT, _MAX_RESULTANT), params.n_features
        )
    return params.replace(w=w, p=p, beta=beta.to(params.beta))


def bound(params: Parameters, w_bar: Tensor, p_bar: Tensor) -> Tensor:
    """The lower bound that `maximize_bound` maximises, up to a constant, in float64.

    Σ p̄ log p + ςβ Σ_μ⟨w̄^μ, w^μ⟩ − log(Ω_N(β)/Ω_N(0)) Σ_μ mass. Where it is no lower than at the
    parameters at which the statistics of the whole data were taken, the loss is no higher.
    """
    w, p, beta = params.w.double(), params.p.double(), params.beta.double()
    p_bar = p_bar.double()
    pull = params.varsigma * beta * (w_bar.double() * w).sum()
    push = log_omega_ratio(beta, params.n_features) * p_bar[1:].sum()
    return torch.xlogy(p_bar, p).sum() + pull - push


def _window(passes: float) -> float:
    """How much of the past the running mean holds, in passes: a fifth, growing after 5/3 passes."""
    return max(0.2, 0.3 * (passes - 1))


def residual(old: Parameters, new: Parameters) -> Tensor:
    """How far one fixed-point step moves: the stationarity residual of the old parameters.

    The largest of ‖Δw^μ‖, Σ_y|Δp^γ_y| / p_h(γ) and |Δβ|/β.
    """
    w = (new.w - old.w).norm(dim=1).amax()
    p = ((new.p - old.p).abs().sum(1) / old.p_h.clamp_min(torch.finfo(old.p.dtype).tiny)).amax()
    beta = (new.beta - old.beta).abs() / old.beta
    return torch.stack([w, p, beta]).amax()


@dataclass(frozen=True)
class FixedPoint:
    """Fixed-point iteration: no learning rate, no momentum, no schedule.

    `batch_size=None` takes one exact step a pass, and the loss never increases. A number takes a
    step after every batch from a running mean of the statistics, whose memory is short at first
    and grows with the passes: many steps early, less and less noise later.

    A memory that answers for less than a thousandth of one row is dead: it is put on a row that
    the model explains worst, with that row's label; in an exact step, only where the loss is sure
    not to increase by it.
    """

    batch_size: int | None = None
    learn_beta: bool = True

    def __post_init__(self) -> None:
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size must be >= 1 or None, got {self.batch_size}")

    @property
    def capturable(self) -> bool:
        """The class weights are solved for on the CPU."""
        return False

    def check_rule(self, rule: LabelRule) -> None:
        """Raise where the rule's weights can be negative."""
        if not rule.supports_fixed_point:
            raise ValueError(
                f"the fixed point needs non-negative label weights, which {rule} has not: "
                "train it with the SGD solver"
            )

    def start(self, params: Parameters) -> State:
        """Nothing seen yet."""
        return {
            "w_bar": torch.zeros_like(params.w),
            "p_bar": torch.zeros_like(params.p),
            "passes": torch.zeros((), dtype=torch.float64),
        }

    def resume(self, params: Parameters) -> State:
        """The running mean that a fitted model stands for, as if one pass had been taken in.

        At the fixed point p̄ = p up to scale and Σ‖w̄‖ = Σ mass · A_N(β)/ς.
        """
        overlap = mean_resultant(params.beta, params.n_features) / params.varsigma
        return {
            "w_bar": params.p_h[1:, None] * overlap * params.w,
            "p_bar": params.p.clone(),
            "passes": torch.ones((), dtype=torch.float64),
        }

    def step(
        self, params: Parameters, state: State, stats: Statistics, batch: Batch
    ) -> tuple[Parameters, State]:
        """One step from the statistics of one batch, taken at `params`."""
        share = batch.share
        passes = float(state["passes"]) + share
        # A batch that holds all rows forgets everything before it: the exact step.
        rate = 1.0 if share == 1.0 else min(1.0, share / min(passes, _window(passes)))
        count = stats.count.to(params.w.dtype)
        w_bar = torch.lerp(state["w_bar"], stats.w_bar / count, rate)
        p_bar = torch.lerp(state["p_bar"], stats.p_bar / count, rate)
        new = None
        if passes >= _window(passes):  # before that, an unused memory may just be unlucky
            seeded = _reseed(params, w_bar, p_bar, batch)
            if seeded is not None:
                trial = maximize_bound(params, *seeded, learn_beta=self.learn_beta)
                if share < 1.0 or bound(trial, w_bar, p_bar) >= bound(params, w_bar, p_bar):
                    new, (w_bar, p_bar) = trial, seeded
        if new is None:
            new = maximize_bound(params, w_bar, p_bar, learn_beta=self.learn_beta)
        state = {"w_bar": w_bar, "p_bar": p_bar, "passes": state["passes"] + share}
        return new, state

    def follow(self, state: State, params: Parameters, source: Tensor) -> State:
        """Copies share what their memory answered for, each turned to where it now is.

        Left as they were, the statistics of two copies would pull both back to the one place
        they come from. They weigh as much as one short window of rows.
        """
        share = 1 / torch.bincount(source).to(params.w.dtype)[source]  # (P,)
        norm = state["w_bar"].norm(dim=1)[source] * share
        p_bar = state["p_bar"]
        return {
            "w_bar": norm[:, None] * params.w,
            "p_bar": torch.cat([p_bar[:1], p_bar[1:][source] * share[:, None]]),
            "passes": torch.full_like(state["passes"], _window(0.0)),
        }


def _reseed(
    params: Parameters, w_bar: Tensor, p_bar: Tensor, batch: Batch
) -> tuple[Tensor, Tensor] | None:
    """Give dead memories the rows of the batch that the model explains worst; None if all live."""
    n_rows = batch.x.shape[0] / batch.share
    one_row = float(p_bar.sum()) / n_rows
    dead = (p_bar[1:].sum(1) < _DEAD * one_row).nonzero()[:, 0]
    if dead.shape[0] == 0:
        return None
    x = batch.x[:_RESEED_ROWS]
    q = batch.targets[:_RESEED_ROWS]
    worst = log_joint(params, x).logsumexp(1).argsort()[: dead.shape[0]]
    dead = dead[: worst.shape[0]]
    w_bar, p_bar = w_bar.clone(), p_bar.clone()
    w_bar[dead] = one_row * x[worst]
    p_bar[dead + 1] = one_row * torch.where(
        q[worst].sum(1, keepdim=True) > 0, q[worst], params.p_q / params.p_q.sum()
    )
    return w_bar, p_bar
