"""Constrained stochastic gradient descent with momentum (App. weight_normalization)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from mnemosphere.gpu import on_gpu
from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import Statistics
from mnemosphere.numerics import polytope, sphere
from mnemosphere.training.solver import Solver, SolverState, check_tol

_MIN_BETA = 1e-6  # a mixture as good as uniform
_TOLERANCE = 1e-7  # of the marginals; a GPU takes the paper's ten sweeps, which wait for nothing
_MOST_RATE = 1e30  # single precision holds it


@dataclass(frozen=True)
class SGD(Solver):
    """The paper's SGD with momentum, constrained to the sphere and to the polytope of class weights.

    The step is that of the heavy ball, v ← m·v − lr·gradient, θ ← θ + v.

    Memories: the gradient is projected onto the tangent space, the step normalized. Class
    weights: multiplied by exp(v), then scaled back to their marginals by Sinkhorn–Knopp; their
    rate is P + P_0 times smaller than that of the memories, which is the same as training
    g = (P + P_0)p at the same rate. β: plain, kept positive by construction.

    Parameters
    ----------
    learning_rate : float > 0, default 0.01
        Rate of the memories and of β.
    momentum : float in [0, 1), default 0.99
        Share of the last step that is kept.
    batch_size : int, default 1000
        Rows per step.
    learn_beta : bool, default True
        Whether β is trained; the estimators decide by their `beta`.
    validation_fraction : float in (0, 1), default 0.1
        Held-out rows for validation.
    patience : int, default 3
        Passes without improvement on these rows before stopping.
    tol : float >= 0, default 1e-4
        Stop if a pass changes the loss by less than this, relative; 0 switches it off.

    Examples
    --------
    >>> solver = mn.SGD(learning_rate=0.01, batch_size=50)
    >>> clf.set_params(solver=solver, max_iter=20).fit(X_train, y_train).n_iter_ <= 20
    True
    """

    learning_rate: float = 0.01
    momentum: float = 0.99
    batch_size: int = 1000
    learn_beta: bool = True
    validation_fraction: float = 0.1
    patience: int = 3
    tol: float = 1e-4

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate <= _MOST_RATE:
            raise ValueError(
                f"learning_rate must lie in (0, {_MOST_RATE}], got {self.learning_rate}"
            )
        check_tol(self.tol)
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must lie in [0, 1), got {self.momentum}")
        if min(self.batch_size, self.patience) < 1:
            raise ValueError(f"batch_size and patience must be >= 1, got {self}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction must lie in (0, 1), got {self.validation_fraction}"
            )

    @classmethod
    def paper(cls, *, learn_beta: bool = True) -> Self:
        """Use the settings of the paper's authors.

        They write v ← m·v − η·grad, θ ← θ + η·v with η = 0.1 and m = 0.99: heavy ball at the rate
        η² = 0.01 in the convention used here, an effective step of η²/(1−m) = 1.

        Parameters
        ----------
        learn_beta : bool, default True
            Whether β is trained.

        Returns
        -------
        SGD
            The solver.

        Examples
        --------
        >>> mn.SGD.paper().momentum
        0.99
        """
        return cls(learning_rate=0.1**2, momentum=0.99, learn_beta=learn_beta)

    def can_capture(self, params: Mixture) -> bool:
        """A set number of sweeps needs no device-to-host synchronization."""
        return on_gpu(params.w)

    def start(self, params: Mixture) -> SolverState:
        """Momentum at rest."""
        return {
            "w": torch.zeros_like(params.w),
            "p": torch.zeros_like(params.p),
            "beta": torch.zeros_like(params.beta),
        }

    def step(
        self, params: Mixture, state: SolverState, stats: Statistics, batch: Batch, share: float
    ) -> tuple[Mixture, SolverState]:
        """One step from the statistics of one batch."""
        m, lr = self.momentum, self.learning_rate
        beta, v_beta = params.beta, state["beta"]
        if self.learn_beta:
            v_beta = torch.sub(m * v_beta, stats.gradient_beta(params), alpha=lr)
            beta = _positive_step(beta, v_beta)
        g = sphere.to_tangent(params.w, stats.gradient_w(params))
        v_w = torch.sub(m * state["w"], g, alpha=lr)
        w = sphere.retract(params.w, v_w)

        # The gradient −p̄/p, its rows centered, at the rate of w over P + P_0, where by App.
        # initialization P + P_0 = P / (1 − p_h(0)).
        p = params.p.clamp_min(torch.finfo(params.p.dtype).tiny)
        rate = (1 - params.p_h[0]) * (lr / params.n_memories) / stats.count.to(p.dtype)
        g = polytope.center_rows(params.p, stats.p_bar / p, params.p_h)
        v_p = torch.addcmul(m * state["p"], g, rate)  # the velocity of log p
        tol = None if on_gpu(p) else _TOLERANCE
        p = polytope.retract(p, p * v_p, params.p_h, params.p_q, tol=tol)
        return params.replace(w=w, p=p, beta=beta), {"w": v_w, "p": v_p, "beta": v_beta}

    def expand_state(self, state: SolverState, params: Mixture, source: Tensor) -> SolverState:
        """Copies go on with the velocity of the memory they come from.

        Velocities of class weights are those of log p, which halving p leaves as they are.
        """
        p = state["p"]
        return {
            "w": sphere.to_tangent(params.w, state["w"][source]),
            "p": torch.cat([p[:1], p[1:][source]]),
            "beta": state["beta"],
        }


def _positive_step(beta: Tensor, step: Tensor) -> Tensor:
    """β + step to first order, never zero or below: β²/(β − step) for a step down.

    The floor is for many large steps down in a row, whose squares would underflow.
    """
    down = (beta * beta / (beta - step.clamp_max(0))).clamp_min(_MIN_BETA)
    return torch.where(step >= 0, beta + step, down)
