"""Adam on the sphere and the polytope, for objectives that have no fixed-point step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import Statistics
from mnemosphere.model.m_step import share_out
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.streams import join
from mnemosphere.numerics import polytope, sphere
from mnemosphere.training import step_gpu
from mnemosphere.training.solver import GradientSolver, SolverState

__all__ = ["Adam"]

_BETA_SHARE = 0.1  # β acts on all memories at once: its rate is this much smaller


@dataclass(frozen=True)
class Adam(GradientSolver):
    """Steps of a set size along running means of the gradient, fading out over `steps` steps.

    In each set of coordinates m ← a·m + (1−a)·g, v ← b·v + (1−b)·‖g‖², and the step is
    −rate·m/√v with Adam's correction for the start. A coordinate means nothing on the sphere, so v
    is one number per memory and a step one angle, less for a memory with little gradient (`floor`):

    - memories: g is the tangent gradient; the step is retracted, m carried along by projection;
    - class weights: the coordinates are log p, g = to_tangent(p·∂f/∂p), one v per row; the step
      multiplies p and the marginals are restored by scaling, to `tolerance`. With None, g is
      centered in each row alone, and `sweeps` sweeps leave the rows a little off;
      With `learn_weights` both marginals are free but for the uniform component's total weight;
    - β: its logarithm, at a tenth of the rate of log p;
    - the metric, where there is one: a matrix A, whose length means nothing, so it keeps that of
      its start, the identity. It is drawn back to it by `metric_decay`·‖A − 1‖²/2 per pass.

    Rates of unlike units: `angle` for memories, in radians, `learning_rate` for log p, and
    `metric_angle` for the metric, an angle between matrices. All fade to 0 along half a cosine.
    Where they stand is part of the state, so a resumed run goes on with the same bits.
    No step waits for the device except in scaling to a tolerance.
    """

    steps: int
    angle: float = 0.1
    learning_rate: float = 0.1
    batch_size: int = 1000
    learn_beta: bool = True
    decay: tuple[float, float] = (0.9, 0.99)  # a, b
    floor: float = 0.3  # of √v, relative to its root mean square
    sweeps: int = 20
    tolerance: float | None = 1e-7
    learn_weights: bool = False
    metric_angle: float = 0.02
    metric_decay: float = 0.0  # relative to the mean loss

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "sweeps"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        for name in ("angle", "learning_rate", "metric_angle"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be > 0, got {getattr(self, name)}")
        if not 0 <= self.floor < math.inf:
            raise ValueError(f"floor must be finite and >= 0, got {self.floor}")
        if not all(0 <= d < 1 for d in self.decay):
            raise ValueError(f"both decays must lie in [0, 1), got {self.decay}")

    def start(self, params: Parameters) -> SolverState:
        """At rest, at the beginning of the schedule."""
        of_metric = {} if params.metric is None else {
            "metric": torch.zeros_like(params.metric),
            "metric_square": torch.zeros_like(params.beta),
        }  # fmt: skip
        return of_metric | {
            "w": torch.zeros_like(params.w),
            "w_square": torch.zeros_like(params.w[..., 0]),
            "p": torch.zeros_like(params.p),
            "p_square": torch.zeros_like(params.p_h),
            "beta": torch.zeros_like(params.beta),
            "beta_square": torch.zeros_like(params.beta),
            # On the device, like all of the state: reading it never waits.
            "step": torch.zeros((), dtype=torch.float64, device=params.w.device),
        }

    def step(
        self, params: Parameters, state: SolverState, stats: Statistics, batch: Batch, share: float
    ) -> tuple[Parameters, SolverState]:
        """One step from the statistics of one batch."""
        join()
        turns = step_gpu.usable(params.w)
        weighs = self.tolerance is None and not self.learn_weights
        weighs = weighs and step_gpu.takes_weights(params)
        # Kernels see for themselves where the schedule is.
        alone = turns and weighs and params.metric is None
        scale: Any = None if alone else self._scale(state["step"])
        if weighs:
            p, m_p, v_p = step_gpu.reweigh(self, params, state, stats)
            weighted = params.replace(p=p)
        else:
            weighted, m_p, v_p = self._step_of_p(params, state, stats, self.learning_rate * scale)
        beta_rate = _BETA_SHARE * self.learning_rate
        if not self.learn_beta:
            beta, m_b, v_b = params.beta, state["beta"], state["beta_square"]
        elif turns:
            beta, m_b, v_b = step_gpu.rescale_beta(self, params, state, stats, beta_rate)
        else:
            beta, m_b, v_b = self._step_of_beta(params, state, stats, beta_rate * scale)
        if turns:
            w, m_w, v_w = step_gpu.turn(self, params, state, stats)
        else:
            m_w, v_w = self._means_of_w(params, state, stats)
            size = self._size(v_w, params.p_h[..., 1:])
            turned = (-self.angle * scale / size)[..., None]
            w = torch.addcmul(params.w, m_w, turned)  # `sphere.retract`
            w = w.div_(sphere.norms(w, keepdim=True))
        metric, of_metric = self._metric_step(params, state, stats, scale)
        return weighted.replace(w=w, beta=beta, metric=metric), of_metric | {
            "w": m_w,
            "w_square": v_w,
            "p": m_p,
            "p_square": v_p,
            "beta": m_b,
            "beta_square": v_b,
            "step": state["step"] + 1,
        }

    def _scale(self, done: Tensor) -> Any:
        """Where the schedule is, half a cosine, times Adam's correction for the start.

        A plain number on a processor, where tensors of one number cost as much as small products.
        """
        a, b = self.decay
        at: Any = done if done.is_cuda else float(done)
        cosine, root, least = (
            (torch.cos, torch.sqrt, torch.clamp_max) if done.is_cuda else (math.cos, math.sqrt, min)
        )
        fade = 0.5 * (1 + cosine(math.pi * least(at / self.steps, 1.0)))
        # The corrections 1 − a^t and 1 − b^t for running means that start from 0.
        return fade * root(1 - b ** (at + 1)) / (1 - a ** (at + 1))

    def _step_of_p(
        self, params: Parameters, state: SolverState, stats: Statistics, rate: Any
    ) -> tuple[Parameters, Tensor, Tensor]:
        """Parameters with new class weights, and the running means."""
        a, b = self.decay
        g = stats.gradient_p(params)
        if self.learn_weights:
            g = params.p * g
        elif self.tolerance is None:
            g = params.p * polytope.center_rows(params.p, g, params.p_h)
        else:
            g = polytope.to_tangent(params.p, params.p * g, params.p_h, params.p_q)
        m_p = torch.lerp(g, state["p"], a)
        v_p = torch.lerp(torch.linalg.vecdot(g, g), state["p_square"], b)
        step = m_p * (-rate / self._size(v_p, params.p_h))[..., None]  # of log p
        if self.learn_weights:
            return share_out(params, params.p * step.clamp(-1, 1).exp()), m_p, v_p
        p = polytope.retract(
            params.p, params.p * step, params.p_h, params.p_q,
            tol=self.tolerance, sweeps=self.sweeps,
        )  # fmt: skip
        return params.replace(p=p), m_p, v_p

    def _step_of_beta(
        self, params: Parameters, state: SolverState, stats: Statistics, rate: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """β, and the running means."""
        a, b = self.decay
        beta, m_b, v_b = params.beta, state["beta"], state["beta_square"]
        g = beta * stats.gradient_beta(params)
        m_b = torch.lerp(g, m_b, a)
        v_b = torch.lerp(g.square(), v_b, b)
        step = -rate * m_b / v_b.sqrt().clamp_min(torch.finfo(v_b.dtype).tiny)
        return (beta * step.exp()).to(beta.dtype), m_b, v_b  # the rate is float64

    def _means_of_w(
        self, params: Parameters, state: SolverState, stats: Statistics
    ) -> tuple[Tensor, Tensor]:
        """The running means of the gradient of w, across it, (P, N), and of its square (P,).

        In few sweeps: for many features they cost half as much as the products of a batch.
        """
        a, b = self.decay
        slope = stats.per_row(params)
        across = torch.addcmul(stats.w_bar, stats.overlap[..., None], params.w, value=-1)
        old = state["w"]
        along = torch.linalg.vecdot(old, params.w)[..., None]
        mean = torch.addcmul(a * old, along, params.w, value=-a)
        mean.addcmul_(across, slope, value=1 - a)
        square = slope[..., 0].square() * torch.linalg.vecdot(across, across)
        return mean, b * state["w_square"] + (1 - b) * square

    def _metric_step(
        self, params: Parameters, state: SolverState, stats: Statistics, rate: Any
    ) -> tuple[Tensor | None, SolverState]:
        """The metric after the step, and its part of the state."""
        old, g = params.metric, stats.gradient_metric(params)
        if old is None or g is None:
            return None, {}
        a, b = self.decay
        length = math.sqrt(min(old.shape[-2:]))  # of the identity
        g = g.add(old, alpha=self.metric_decay)
        g.diagonal(dim1=-2, dim2=-1).sub_(self.metric_decay)
        # Across: the length means nothing.
        along = (g * old).sum((-2, -1), keepdim=True) / length**2
        g.addcmul_(along, old, value=-1)
        m = torch.lerp(g, state["metric"], a)
        v = torch.lerp(g.square().sum((-2, -1)), state["metric_square"], b)
        step = self.metric_angle * rate * length / v.sqrt().clamp_min(torch.finfo(v.dtype).tiny)
        new = torch.addcmul(old, step.to(old.dtype)[..., None, None], m, value=-1)
        new.mul_(length / torch.linalg.vector_norm(new, dim=(-2, -1), keepdim=True))
        return new, {"metric": m, "metric_square": v}

    def expand_state(self, state: SolverState, params: Parameters, source: Tensor) -> SolverState:
        """Copies go on in the direction of the memory they come from.

        k copies share its gradients, so each takes 1/k of the means and 1/k² of the squares.
        """
        share = 1 / source.bincount()[source].to(params.w)  # (P,)
        p, p_square = state["p"], state["p_square"]
        return state | {
            "w": sphere.to_tangent(params.w, share[:, None] * state["w"][source]),
            "w_square": share.square() * state["w_square"][source],
            "p": torch.cat([p[:1], share[:, None] * p[1:][source]]),
            "p_square": torch.cat([p_square[:1], share.square() * p_square[1:][source]]),
        }

    def _size(self, square: Tensor, weight: Tensor) -> Tensor:
        """√v of each row, but not below `floor` times the root mean square of √v/p_h, times p_h.

        A memory that few rows answer to has little but noise for a gradient: steps of full size
        along it would dissolve the memory. Relative to its prior `weight` p_h, the mean taken with
        that weight too, so that k copies with 1/k of the prior count as one.
        """
        tiny = torch.finfo(square.dtype).tiny
        typical = ((square / weight.clamp_min(tiny)).sum(-1) / weight.sum(-1)).sqrt()[..., None]
        return torch.maximum(square.sqrt(), weight * (self.floor * typical)).clamp_min_(tiny)
