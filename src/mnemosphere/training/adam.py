"""Adam on the sphere, for the conditional likelihood, which has no fixed-point step."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Self

import torch
from torch import Tensor

from mnemosphere.gpu import on_gpu
from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import Statistics
from mnemosphere.numerics import sphere
from mnemosphere.training.solver import Solver, SolverState

_STEPS = 20  # of the first cycle, and a pass, at least
_STEPS_PER_PASS, _ROWS_PER_STEP = (2, 5), 40  # on few rows batches are smaller


@dataclass(frozen=True)
class Adam(Solver):
    """Adam on the sphere, for the conditional likelihood: steps of a set size that fade out.

    In each set of coordinates m ← a·m + (1−a)·g, v ← b·v + (1−b)·‖g‖², and the step is
    −rate·m/√v with Adam's correction for the start. A single coordinate means nothing on the
    sphere, so v is one number per memory, and a step turns a memory by an angle:

    - memories: g is the tangent gradient; the step is retracted, m carried along by projection;
    - class weights: the coordinates are log p, one v per memory; they keep their sum, and a class
      that a memory has no weight for stays so;
    - β: its logarithm.

    Parameters
    ----------
    angle : float > 0, default 0.1
        The largest turn of a memory in one step, in radians.
    learning_rate : float > 0, default 0.01
        The largest change in one step of log p and of log β.
    noise : float >= 0 or "auto", default "auto"
        The length of the noise on every row of every batch, relative to the row. "auto": the
        search chooses; none without a search.
    batch_size : int, default 1000
        Rows per step, at most half of all.
    learn_beta : bool, default True
        Whether β is trained; the estimators decide by their `beta`.
    steps : int, default 1
        Steps of the whole schedule; the estimators set it.
    decay : (float, float), default (0.9, 0.99)
        a and b, how much of the running means is kept in a step.

    Examples
    --------
    >>> clf.set_params(objective="conditional", solver=mn.Adam(noise=0.5), max_iter=5)
    DAMClassifier(...)
    >>> clf.fit(X_train, y_train).score(X_test, y_test) > 0.9
    True
    """

    angle: float = 0.1
    learning_rate: float = 0.01
    noise: float | str = "auto"
    batch_size: int = 1000
    learn_beta: bool = True
    steps: int = 1  # of the whole schedule
    decay: tuple[float, float] = (0.9, 0.99)  # a, b

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        for name in ("angle", "learning_rate"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be finite and > 0, got {getattr(self, name)}")
        if self.noise != "auto" and not 0 <= float(self.noise) < math.inf:
            raise ValueError(f"noise must be finite and >= 0, or 'auto', got {self.noise}")
        if not all(0 <= d < 1 for d in self.decay):
            raise ValueError(f"both decays must lie in [0, 1), got {self.decay}")

    def scheduled(
        self, n_rows: int, cycle: int = 0, max_iter: int | None = None
    ) -> tuple[Self, int]:
        """(the same with the schedule of a cycle, its passes over n_rows), each twice as long as the last.

        The first has max_iter passes, or some steps and passes at least. No batch is much smaller than the others.
        """
        few, several = _STEPS_PER_PASS
        least = min(max(few, n_rows // _ROWS_PER_STEP), several, n_rows)
        each = max(math.ceil(n_rows / self.batch_size), least)
        passes = (max_iter or max(1, round(_STEPS / each))) << cycle
        return replace(self, batch_size=math.ceil(n_rows / each), steps=passes * each), passes

    def can_capture(self, params: Mixture) -> bool:
        """No step needs a device-to-host synchronization."""
        return on_gpu(params.w)

    def start(self, params: Mixture) -> SolverState:
        """At rest, at the beginning of the schedule."""
        return {
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
        self, params: Mixture, state: SolverState, stats: Statistics, batch: Batch, share: float
    ) -> tuple[Mixture, SolverState]:
        """One step from the statistics of one batch."""
        scale = self._scale(state["step"])
        a, b = self.decay
        new: SolverState = {"step": state["step"] + 1}

        def mean_step(name: str, g: Tensor, square: Tensor, rate: float) -> Tensor:
            """−rate·m/√v; remembers both means."""
            m = torch.lerp(g, state[name], a)
            v = torch.lerp(square, state[f"{name}_square"], b)
            new[name], new[f"{name}_square"] = m, v
            size = v.clamp_min(torch.finfo(v.dtype).tiny).rsqrt_().mul_(-rate * scale)
            step: Tensor = m * (size[..., None] if m.ndim > v.ndim else size)
            return step

        w, m = params.w, state["w"]
        along = torch.linalg.vecdot(m, w)[..., None]
        state = state | {"w": torch.addcmul(m, along, w, value=-1)}
        across = torch.addcmul(stats.w_bar, stats.overlap[..., None], w, value=-1)
        across *= stats.per_row(params)
        w = sphere.retract(w, mean_step("w", across, across.square().sum(-1), self.angle))

        g = stats.p_bar / -stats.count.to(params.p.dtype)[..., None, None]  # p·∂f/∂p
        p = mean_step("p", g, g.square().sum(-1), self.learning_rate).exp_().mul_(params.p)
        p_h = p.sum(-1)
        total = p_h.sum(-1)[..., None]
        p, p_h = p.div_(total[..., None]), p_h / total
        changed: dict[str, Any] = {"w": w, "p": p, "p_h": p_h, "p_q": p.sum(-2)}

        if self.learn_beta:
            # Without a uniform component all mass cancels, and no Bessel function is needed.
            alone = not (on_gpu(params.w) or bool(params.p[..., 0, :].any()))
            g = params.beta * stats.gradient_beta(params, 0.0 if alone else None)
            move = mean_step("beta", g, g.square(), self.learning_rate)
            changed["beta"] = (params.beta * move.exp()).to(params.beta.dtype)
        return params.replace(**changed), state | new

    def _scale(self, done: Tensor) -> Any:
        """Where the schedule is, half a cosine, times Adam's correction for the start.

        The corrections are 1 − a^t and 1 − b^t, for running means that start from 0.
        """
        a, b = self.decay
        if not on_gpu(done):  # plain numbers are quicker, and a GPU is not waited for
            t = int(done)
            cosine = 0.5 * (1 + math.cos(math.pi * min(t / self.steps, 1.0)))
            return cosine * math.sqrt(1 - b ** (t + 1)) / (1 - a ** (t + 1))
        fade = 0.5 * (1 + torch.cos(math.pi * (done / self.steps).clamp_max(1.0)))
        return fade * torch.sqrt(1 - b ** (done + 1)) / (1 - a ** (done + 1))
