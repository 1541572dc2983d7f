"""Saddle-point equations of the teacher–student setting and their batched solver.

Both teachers of the paper are one problem. With patterns x (P*, D) and label weights q (P*, C+1),

    m_hat[b,μ]  = Σ_y q[b,y] r[b,y,μ],      r[b,y,γ] = softmax_γ(h[b,γ] + log p[γ,y])
    x_bar[μ]    = Σ_b m_hat[b,μ] x_b
    p_bar[γ,y]  = Σ_b q[b,y] r[b,y,γ]
    w[μ]        = ς(2 β_eff ϱ ‖x_bar[μ]‖) x_bar[μ] / ‖x_bar[μ]‖,      m = x wᵀ
    p           = argmax Σ p_bar log p over the class weights with marginals p_h, p_q

where h[b,μ] = β_eff m[b,μ] − log Ω_N(β)/Ω_N(0), h[b,0] = 0 and β_eff = ς(2υ) β. Clamped patterns
give Eq. (saddle-point); the orthonormal basis of D = P* dimensions with q[b] = p_q* for every b
gives Eq. (uniform_saddle-point).

The first three lines send (m, p) to its conjugate (x_bar, p_bar), the last two send a conjugate
back. Their composition is a minorize–maximize step: it never lowers the free entropy after m_hat
is eliminated (docs/theory-derivations.md), with or without damping. The solver leans on it.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mnemosphere.numerics import bessel, polytope, sphere


class ValidityWarning(UserWarning):
    """The parameters leave the regime β ≪ N, υ ≫ 1/N in which the equations were derived."""


class NotConvergedError(RuntimeError):
    """Some starts did not reach the tolerance."""


# The derivation drops terms of relative size β/N and 1/(υN); beyond these bounds they show.
MAX_BETA_PER_FEATURE = 0.1
MIN_TEACHER_CONCENTRATION = 10.0

# Accelerated steps leave p_bar above this.
_JUMP_FLOOR = 1e-8


def varsigma(x: Tensor) -> Tensor:
    """ς(x) = x / (√(x² + 1) + 1), with ς(∞) = 1. Below Eq. (uniform_saddle-point)."""
    # hypot does not overflow where x² would; ∞/∞ is replaced by the limit.
    value = x / (torch.hypot(x, torch.ones_like(x)) + 1.0)
    return torch.where(torch.isinf(x), torch.sign(x), value)


@dataclass(frozen=True)
class SaddlePointProblem:
    """Data of the saddle-point equations; build it with `uniform` or `clamped`.

    patterns (P*, D) are unit rows; targets (P*, C+1) are the expected soft labels of the patterns;
    p_h (P+1,) and p_q (C+1,) are the student's marginals, p_h[0] the uniform component. rho = ϱ =
    M/(P* N) and upsilon = υ = β*/N may be infinite. n_features = N enters through
    log Ω_N(β)/Ω_N(0) alone. One label column means: no labels. All tensors are float64.
    """

    patterns: Tensor
    targets: Tensor
    p_h: Tensor
    p_q: Tensor
    beta: float
    rho: float
    upsilon: float
    n_features: int
    uniform_teacher: bool

    def __post_init__(self) -> None:
        for name in ("patterns", "targets", "p_h", "p_q"):
            if not isinstance(getattr(self, name), Tensor):
                raise TypeError(f"{name} must be a tensor, got {type(getattr(self, name))}")
            object.__setattr__(self, name, getattr(self, name).to(torch.float64))
        _check_scalars(self)
        _check_arrays(self)
        # Sums and norms that are off by the rounding of float32 are made exact.
        for name in ("targets", "p_h", "p_q"):
            value = getattr(self, name)
            object.__setattr__(self, name, value / value.sum(-1, keepdim=True))
        object.__setattr__(self, "patterns", sphere.project(self.patterns))

    @classmethod
    def uniform(
        cls,
        n_teacher: int,
        n_student: int,
        *,
        beta: float,
        rho: float,
        upsilon: float,
        n_features: int,
        p_h: Tensor | None = None,
        p_q: Tensor | None = None,
        p_q_teacher: Tensor | None = None,
    ) -> "SaddlePointProblem":
        """Uniform teacher, Eq. (uniform_saddle-point).

        p_h defaults to equal memories and no uniform component, p_q_teacher = p_q* to no labels,
        p_q to p_q*.
        """
        if n_teacher < 1 or n_student < 1:
            raise ValueError(f"need at least one memory each, got {n_teacher} and {n_student}")
        if p_q_teacher is None:
            p_q_teacher = torch.ones(1, dtype=torch.float64)
        problem = cls(
            patterns=torch.eye(n_teacher, dtype=torch.float64),
            targets=p_q_teacher.to(torch.float64).expand(n_teacher, -1),
            p_h=_equal_memories(n_student) if p_h is None else p_h,
            p_q=p_q_teacher if p_q is None else p_q,
            beta=float(beta),
            rho=float(rho),
            upsilon=float(upsilon),
            n_features=n_features,
            uniform_teacher=True,
        )
        if problem.n_student != n_student:
            raise ValueError(f"p_h must have {n_student + 1} entries, got {problem.n_student + 1}")
        problem.warn_if_invalid()
        return problem

    @classmethod
    def clamped(
        cls,
        patterns: Tensor,
        targets: Tensor | None = None,
        *,
        n_student: int | None = None,
        beta: float,
        rho: float,
        upsilon: float,
        p_h: Tensor | None = None,
        p_q: Tensor | None = None,
    ) -> "SaddlePointProblem":
        """Teacher clamped to patterns (P*, N) with soft labels (P*, C+1), Eq. (saddle-point).

        Give n_student or p_h. p_q defaults to the mean of the targets.
        """
        if p_h is None and n_student is None:
            raise ValueError("the number of memories is unknown: pass n_student or p_h")
        if targets is None:
            targets = torch.ones(patterns.shape[0], 1, dtype=torch.float64)
        if p_h is None:
            assert n_student is not None
            p_h = _equal_memories(n_student)
        elif n_student is not None and p_h.shape[0] != n_student + 1:
            raise ValueError(f"p_h must have {n_student + 1} entries, got {p_h.shape[0]}")
        problem = cls(
            patterns=patterns,
            targets=targets,
            p_h=p_h,
            p_q=targets.to(torch.float64).mean(0) if p_q is None else p_q,
            beta=float(beta),
            rho=float(rho),
            upsilon=float(upsilon),
            n_features=patterns.shape[1],
            uniform_teacher=False,
        )
        problem.warn_if_invalid()
        return problem

    @property
    def n_teacher(self) -> int:
        """P*."""
        return self.patterns.shape[0]

    @property
    def n_student(self) -> int:
        """P."""
        return self.p_h.shape[0] - 1

    @property
    def n_columns(self) -> int:
        """C + 1; 1 without labels."""
        return self.p_q.shape[0]

    @cached_property
    def beta_eff(self) -> float:
        """β_eff = ς(2υ) β."""
        return self.beta * float(varsigma(torch.tensor(2.0 * self.upsilon, dtype=torch.float64)))

    @property
    def gain(self) -> float:
        """2 β_eff ϱ, what multiplies ‖x_bar‖ inside ς."""
        return 2.0 * self.beta_eff * self.rho

    @cached_property
    def log_ratio(self) -> float:
        """Log Ω_N(β)/Ω_N(0) = β_eff m^{μ* 0}."""
        beta = torch.tensor(self.beta, dtype=torch.float64)
        return float(bessel.log_omega_ratio(beta, self.n_features))

    def replace(self, **changes: Any) -> "SaddlePointProblem":
        """Copy with some fields changed, checked again."""
        return replace(self, **changes)

    def warn_if_invalid(self) -> None:
        """Warn (ValidityWarning) outside β ≪ N, υN ≫ 1.

        With ϱ = υ = ∞ the equations are Eq. (stationarity), which holds at any β: no warning.
        """
        if math.isinf(self.rho) and math.isinf(self.upsilon):
            return
        if self.beta > MAX_BETA_PER_FEATURE * self.n_features:
            warnings.warn(
                f"beta = {self.beta:g} is not small against n_features = {self.n_features}: the "
                "equations drop terms of relative size beta/n_features; lower beta or raise "
                "n_features",
                ValidityWarning,
                stacklevel=3,
            )
        elif self.upsilon * self.n_features < MIN_TEACHER_CONCENTRATION:
            warnings.warn(
                f"the teacher's concentration upsilon * n_features = "
                f"{self.upsilon * self.n_features:g} is not large: raise upsilon or n_features",
                ValidityWarning,
                stacklevel=3,
            )


def _equal_memories(n_student: int) -> Tensor:
    p_h = torch.full((n_student + 1,), 1.0 / n_student, dtype=torch.float64)
    p_h[0] = 0.0
    return p_h


def _check_scalars(problem: SaddlePointProblem) -> None:
    for name in ("rho", "upsilon", "beta"):
        value = getattr(problem, name)
        if math.isnan(value) or value <= 0.0:
            raise ValueError(f"{name} must be positive, got {value}")
    if math.isinf(problem.beta):
        raise ValueError("beta must be finite, got inf: take a large number for the hard limit")
    if problem.n_features < 2:
        raise ValueError(f"n_features must be at least 2, got {problem.n_features}")


def _check_arrays(problem: SaddlePointProblem) -> None:
    x, q, p_h, p_q = problem.patterns, problem.targets, problem.p_h, problem.p_q
    if x.ndim != 2 or q.ndim != 2 or p_h.ndim != 1 or p_q.ndim != 1:
        raise ValueError("patterns and targets must be matrices, p_h and p_q vectors")
    if q.shape != (x.shape[0], p_q.shape[0]):
        raise ValueError(
            f"targets must have shape {(x.shape[0], p_q.shape[0])}, got {tuple(q.shape)}"
        )
    if p_h.shape[0] < 2:
        raise ValueError("p_h needs the uniform component and at least one memory")
    if not torch.allclose(x.norm(dim=1), torch.ones_like(x[:, 0]), atol=1e-6):
        raise ValueError("patterns must be unit rows: divide each row by its norm")
    for name, value in (("p_h", p_h), ("p_q", p_q)):
        if not bool(torch.isfinite(value).all()) or abs(float(value.sum()) - 1.0) > 1e-6:
            raise ValueError(
                f"infeasible marginal: {name} must sum to 1, got {float(value.sum()):.12g}"
            )
    if bool((p_h < 0).any()) or bool((p_h[1:] == 0).any()):
        raise ValueError(
            "infeasible marginal: p_h must be positive for every memory and non-negative for the "
            "uniform component 0; drop memories of weight zero"
        )
    if bool((p_q <= 0).any()):
        raise ValueError(
            "infeasible marginal: p_q must be positive; drop empty label columns or smooth labels"
        )
    if bool((q < 0).any()) or not torch.allclose(q.sum(1), torch.ones_like(q[:, 0]), atol=1e-6):
        raise ValueError("targets must be non-negative rows that sum to 1")


@dataclass(frozen=True)
class State:
    """Order parameters: overlaps m (..., P*, P) and class weights p (..., P+1, C+1)."""

    m: Tensor
    p: Tensor


@dataclass(frozen=True)
class Conjugate:
    """Conjugate parameters: what (m, p) sends to the next (m, p).

    m_hat (..., P*, P), x_bar (..., P, D) = m_hatᵀ x, p_bar (..., P+1, C+1), and log_likelihood
    (...,) = Σ_b Σ_y q log Σ_γ p exp(h), relative to the uniform density on the sphere.
    """

    m_hat: Tensor
    x_bar: Tensor
    p_bar: Tensor
    log_likelihood: Tensor


def responsibilities(problem: SaddlePointProblem, state: State) -> tuple[Tensor, Tensor]:
    """Shares r (..., P*, C+1, P+1) of the components given pattern and label, and their log norm.

    σ_γ(β_eff m + log p_y) of Eq. (saddle-point).
    """
    h = problem.beta_eff * state.m - problem.log_ratio  # (..., P*, P)
    h = torch.cat([torch.zeros_like(h[..., :1]), h], dim=-1)  # (..., P*, P+1)
    # A weight of zero is a log of −∞, and a share of exactly zero.
    log_p = torch.log(state.p).transpose(-1, -2)  # (..., C+1, P+1)
    logits = h.unsqueeze(-2) + log_p.unsqueeze(-3)  # (..., P*, C+1, P+1)
    log_norm = torch.logsumexp(logits, dim=-1)  # (..., P*, C+1)
    return torch.exp(logits - log_norm.unsqueeze(-1)), log_norm


def conjugate(problem: SaddlePointProblem, state: State) -> Conjugate:
    """(m, p) → (m_hat, x_bar, p_bar): the "with" lines of Eq. (saddle-point)."""
    r, log_norm = responsibilities(problem, state)
    weighted = r * problem.targets.unsqueeze(-1)  # (..., P*, C+1, P+1)
    m_hat = weighted[..., 1:].sum(-2)  # (..., P*, P)
    p_bar = weighted.sum(-3).transpose(-1, -2)  # (..., P+1, C+1)
    x_bar = m_hat.transpose(-1, -2) @ problem.patterns  # (..., P, P*) @ (P*, D)
    return Conjugate(m_hat, x_bar, p_bar, (problem.targets * log_norm).sum((-1, -2)))


def mean_memories(problem: SaddlePointProblem, x_bar: Tensor) -> Tensor:
    """W (..., P, D) = ς(2 β_eff ϱ ‖x_bar‖) x_bar/‖x_bar‖, the student's mean memories."""
    norm = x_bar.norm(dim=-1, keepdim=True)  # (..., P, 1)
    return x_bar * _shrinkage(problem, norm)


def _shrinkage(problem: SaddlePointProblem, norm: Tensor) -> Tensor:
    """ς(k·norm)/norm for k = 2 β_eff ϱ, finite at norm = 0 whenever ϱ is."""
    if math.isinf(problem.rho):
        # ς jumps from 0 to 1 at zero: a vanishing x_bar stays where it is.
        return torch.where(norm > 0, 1.0 / norm.clamp_min(1e-300), torch.zeros_like(norm))
    k = problem.gain
    return k / (torch.hypot(k * norm, torch.ones_like(norm)) + 1.0)


def class_weights(problem: SaddlePointProblem, p_bar: Tensor) -> Tensor:
    """P (..., P+1, C+1) = p_bar/ζ, the exact maximizer of Σ p_bar log p. Eq. (nonlinear)."""
    if problem.n_columns == 1:
        return problem.p_h.unsqueeze(-1).expand(p_bar.shape)
    # A component of weight zero has no row to fill: leave it out of the polytope.
    first = 1 if float(problem.p_h[0]) == 0.0 else 0
    rows = problem.p_h[first:]
    p = polytope.maximize(p_bar[..., first:, :], rows, problem.p_q).p
    return torch.cat([torch.zeros_like(p_bar[..., :first, :]), p], dim=-2)


def respond(problem: SaddlePointProblem, x_bar: Tensor, p_bar: Tensor) -> State:
    """(x_bar, p_bar) → (m, p): the first two lines of Eq. (saddle-point)."""
    w = mean_memories(problem, x_bar)
    m = problem.patterns @ w.transpose(-1, -2)  # (P*, D) @ (..., D, P)
    return State(m, class_weights(problem, p_bar))


def step(problem: SaddlePointProblem, state: State) -> State:
    """One plain pass of Eq. (saddle-point): (m, p) → (m, p), batched over leading dimensions."""
    c = conjugate(problem, state)
    return respond(problem, c.x_bar, c.p_bar)


def residual(problem: SaddlePointProblem, state: State) -> Tensor:
    """Largest change (...,) of any entry of m or p under one step; 0 at a solution."""
    after = step(problem, state)
    return torch.maximum(
        (after.m - state.m).abs().amax((-1, -2)), (after.p - state.p).abs().amax((-1, -2))
    )


def _objective(problem: SaddlePointProblem, c: Conjugate, x_bar: Tensor) -> Tensor:
    """f/(ϱ P*) at (m, p) = respond(x_bar, ·) once m_hat is eliminated; no step lowers it.

    The overlap entropy is Σ_μ ½ log(1 − ‖w^μ‖²) with 1 − ς(z)² = 2/(√(z² + 1) + 1).
    """
    value = c.log_likelihood
    if not math.isinf(problem.rho):
        z = problem.gain * x_bar.norm(dim=-1)  # (..., P)
        entropy = -0.5 * torch.log((torch.hypot(z, torch.ones_like(z)) + 1.0) / 2.0)
        value = value + entropy.sum(-1) / problem.rho
    return value / problem.n_teacher


def random_starts(
    problem: SaddlePointProblem, n_starts: int, *, generator: torch.Generator
) -> State:
    """Random states (n_starts, ...) from the interior of the feasible set.

    Each memory starts on a random mix of the patterns, of random sharpness, and the class weights
    on a random point of their polytope.
    """
    if n_starts < 1:
        raise ValueError(f"n_starts must be at least 1, got {n_starts}")

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, dtype=torch.float64, generator=generator)

    # Sharpness from near even mixes (0) to near single patterns (8): both basins get starts.
    sharpness = 8.0 * uniform(n_starts, 1, problem.n_student)
    noise = uniform(n_starts, problem.n_teacher, problem.n_student)
    mix = torch.softmax(sharpness * noise, dim=1)  # (S, P*, P)
    x_bar = mix.transpose(-1, -2) @ problem.patterns  # (S, P, D)
    p_bar = 0.05 + uniform(n_starts, problem.n_student + 1, problem.n_columns)
    p_bar = p_bar * problem.p_h.unsqueeze(-1)
    return respond(problem, x_bar, p_bar)


@dataclass(frozen=True)
class Solution:
    """Result of `solve`, batched over the starts.

    m (S, P*, P), m_hat (S, P*, P), p (S, P+1, C+1); residual (S,) is the largest change under one
    more step; objective (S,) is the free entropy per example, log Z/M against the uniform density;
    iterations (S,), converged (S,) and a message that says what to try.
    """

    problem: SaddlePointProblem
    m: Tensor
    m_hat: Tensor
    p: Tensor
    residual: Tensor
    objective: Tensor
    iterations: Tensor
    converged: Tensor
    message: str

    @property
    def state(self) -> State:
        """The batch of order parameters."""
        return State(self.m, self.p)

    def __getitem__(self, index: int) -> State:
        """Order parameters of one start, without the leading dimension."""
        return State(self.m[index], self.p[index])

    def __len__(self) -> int:
        return self.m.shape[0]

    def raise_if_failed(self) -> "Solution":
        """Raise NotConvergedError if any start missed the tolerance; otherwise return self."""
        if not bool(self.converged.all()):
            raise NotConvergedError(self.message)
        return self


def solve(
    problem: SaddlePointProblem,
    starts: State,
    *,
    tol: float = 1e-10,
    max_iter: int = 5000,
    damping: float = 0.0,
    memory: int = 5,
    callback: Callable[[int, int], None] | None = None,
) -> Solution:
    """Solve Eq. (saddle-point) from many starts at once: m (S, P*, P), p (S, P+1, C+1).

    Fixed-point iteration on the conjugate parameters; damping in [0, 1) keeps that share of the
    old point. Anderson acceleration over the last `memory` points (0: none), in turns with
    stretched steps, proposes a jump; a jump is kept only if it raises the free entropy, or keeps
    it and lowers the residual, else the plain step is taken, so acceleration never makes a start
    worse. Starts that have converged leave the batch. callback(iteration, number of running
    starts) is called once a pass.
    """
    _check_solver_arguments(problem, starts, tol, max_iter, damping, memory)
    n_starts = starts.m.shape[0]
    first = conjugate(problem, starts)
    run = _Run(problem, first, damping, memory)
    final_x, final_p = first.x_bar.clone(), first.p_bar.clone()
    iterations = torch.full((n_starts,), max_iter)
    active = torch.arange(n_starts)
    for iteration in range(1, max_iter + 1):
        run.evaluate()
        # Look at the exact residual only where the cheap one is small: it costs a second step.
        close = run.base_residual <= tol
        if bool(close.any()):
            done = close.clone()
            ended = respond(problem, run.base_next_x[close], run.base_next_p[close])
            done[close] = residual(problem, ended) <= tol
            index = active[done]
            final_x[index], final_p[index] = run.base_next_x[done], run.base_next_p[done]
            iterations[index] = iteration
            active = active[~done]
            run.keep(~done)
        if callback is not None:
            callback(iteration, len(active))
        if len(active) == 0:
            break
        if iteration < max_iter:
            run.propose()
    final_x[active], final_p[active] = run.base_next_x, run.base_next_p
    return _collect(problem, final_x, final_p, iterations, tol, max_iter)


def _check_solver_arguments(
    problem: SaddlePointProblem,
    starts: State,
    tol: float,
    max_iter: int,
    damping: float,
    memory: int,
) -> None:
    expected_m = (problem.n_teacher, problem.n_student)
    expected_p = (problem.n_student + 1, problem.n_columns)
    if starts.m.ndim != 3 or tuple(starts.m.shape[1:]) != expected_m:
        raise ValueError(f"starts.m must be (S, {expected_m}), got {tuple(starts.m.shape)}")
    if tuple(starts.p.shape) != (starts.m.shape[0], *expected_p):
        raise ValueError(f"starts.p must be (S, {expected_p}), got {tuple(starts.p.shape)}")
    if not tol > 0.0:
        raise ValueError(f"tol must be positive, got {tol}")
    if max_iter < 1 or memory < 0:
        raise ValueError(f"need max_iter >= 1 and memory >= 0, got {max_iter} and {memory}")
    if not 0.0 <= damping < 1.0:
        raise ValueError(f"damping must lie in [0, 1), got {damping}")


def _collect(
    problem: SaddlePointProblem,
    x_bar: Tensor,
    p_bar: Tensor,
    iterations: Tensor,
    tol: float,
    max_iter: int,
) -> Solution:
    """Assemble the Solution, with the residual and free entropy of the state returned."""
    state = respond(problem, x_bar, p_bar)
    c = conjugate(problem, state)
    after = respond(problem, c.x_bar, c.p_bar)
    error = torch.maximum(
        (after.m - state.m).abs().amax((-1, -2)), (after.p - state.p).abs().amax((-1, -2))
    )
    # One more step may gain a last digit of rounding either way: allow it.
    converged = error <= 2.0 * tol
    failed = int((~converged).sum())
    if failed == 0:
        message = f"all {len(converged)} starts converged"
    else:
        message = (
            f"{failed} of {len(converged)} starts did not reach tol = {tol:g} within {max_iter} "
            f"iterations (largest residual {float(error.max()):.2e}): raise max_iter or tol; "
            "near a transition convergence is slow"
        )
    return Solution(
        problem=problem,
        m=state.m,
        m_hat=c.m_hat,
        p=state.p,
        residual=error,
        objective=_objective(problem, c, x_bar),
        iterations=iterations,
        converged=converged,
        message=message,
    )


class _Run:
    """Batched, safeguarded, accelerated iteration on z = (x_bar, p_bar); one row a running start.

    Two kinds of jump take turns, each as long as it succeeds. Anderson's shines near a solution.
    Where the nearest solution is a saddle it aims at what must be left, and is refused: there a
    stretched plain step, doubled at each success, leaves at an exponential pace.
    """

    def __init__(
        self, problem: SaddlePointProblem, first: Conjugate, damping: float, memory: int
    ) -> None:
        self.problem = problem
        self.damping = damping
        self.memory = memory
        batch = first.x_bar.shape[0]
        self.trial_x, self.trial_p = first.x_bar, first.p_bar
        self.plain = torch.ones(batch, dtype=torch.bool)  # is the trial a plain step?
        self.refused = torch.zeros(batch, dtype=torch.bool)  # was the last trial refused?
        self.stretching = torch.zeros(batch, dtype=torch.bool)  # which kind of jump is on
        self.stretch = torch.full((batch,), 2.0, dtype=torch.float64)
        # The base is the last point kept: its image under the map, objective and residual.
        self.base_next_x, self.base_next_p = first.x_bar, first.p_bar
        self.base_objective = torch.full((batch,), -torch.inf, dtype=torch.float64)
        self.base_residual = torch.full((batch,), torch.inf, dtype=torch.float64)
        size = first.x_bar[0].numel() + first.p_bar[0].numel()
        self.points = torch.zeros(batch, memory + 1, size, dtype=torch.float64)
        self.changes = torch.zeros(batch, memory + 1, size, dtype=torch.float64)
        self.length = torch.zeros(batch, dtype=torch.int64)

    def keep(self, mask: Tensor) -> None:
        """Drop the rows that are not in the mask."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value[mask])

    def evaluate(self) -> None:
        """Apply the map at the trial point and accept or refuse it."""
        state = respond(self.problem, self.trial_x, self.trial_p)
        c = conjugate(self.problem, state)
        objective = _objective(self.problem, c, self.trial_x)
        # The change of x_bar in units of w, so that light memories count as much as heavy ones.
        scale = _shrinkage(self.problem, self.trial_x.norm(dim=-1, keepdim=True))
        change_x = ((c.x_bar - self.trial_x) * scale).abs().amax((-1, -2))
        change_p = (c.p_bar - self.trial_p).abs().amax((-1, -2)) / self.problem.n_teacher
        error = torch.maximum(change_x, change_p)
        # Differences of the objective below its rounding say nothing: there the residual decides.
        slack = 1e-13 * (1.0 + self.base_objective.abs())
        slack = torch.where(torch.isinf(slack), torch.zeros_like(slack), slack)
        rises = objective > self.base_objective + slack
        equal = objective >= self.base_objective - slack
        kept = self.plain | rises | (equal & (error < self.base_residual))
        self._push(kept, c)
        self.base_next_x = torch.where(kept[:, None, None], c.x_bar, self.base_next_x)
        self.base_next_p = torch.where(kept[:, None, None], c.p_bar, self.base_next_p)
        self.base_objective = torch.where(kept, objective, self.base_objective)
        self.base_residual = torch.where(kept, error, self.base_residual)
        grown = (2.0 * self.stretch).clamp_max(1e6)
        success = self.stretching & kept & ~self.plain
        self.stretch = torch.where(success, grown, self.stretch)
        self.stretch = torch.where(self.stretching & ~kept, 2.0, self.stretch)
        self.stretching = self.stretching ^ ~kept
        self.refused = ~kept

    def _push(self, kept: Tensor, c: Conjugate) -> None:
        """Add the points kept to the history, and forget the history where a jump failed."""
        point = _flatten(self.trial_x, self.trial_p)
        change = _flatten(c.x_bar, c.p_bar) - point
        rolled = torch.roll(self.points, 1, dims=1)
        rolled[:, 0] = point
        rolled_changes = torch.roll(self.changes, 1, dims=1)
        rolled_changes[:, 0] = change
        self.points = torch.where(kept[:, None, None], rolled, self.points)
        self.changes = torch.where(kept[:, None, None], rolled_changes, self.changes)
        # After a failure only the base itself stays.
        grown = torch.clamp(self.length + 1, max=self.memory + 1)
        self.length = torch.where(kept, grown, torch.ones_like(grown))

    def propose(self) -> None:
        """Choose the next trial: a jump, or the plain step after a refusal or without history."""
        base, change = self.points[:, 0], self.changes[:, 0]
        step_size = torch.full_like(self.stretch, 1.0 - self.damping)
        jump = (self.length > 1) & ~self.refused
        stretched = jump & self.stretching
        plain = base + step_size.unsqueeze(-1) * change
        step_size = torch.where(stretched, step_size * self.stretch, step_size)
        trial = base + step_size.unsqueeze(-1) * change
        mixed = jump & ~self.stretching
        if bool(mixed.any()):
            trial = torch.where(mixed[:, None], self._anderson(plain), trial)
        x_size = self.trial_x[0].numel()
        self.trial_x = trial[:, :x_size].reshape(self.trial_x.shape)
        p_plain = plain[:, x_size:].reshape(self.trial_p.shape)
        p_trial = trial[:, x_size:].reshape(self.trial_p.shape)
        # An extrapolated weight may turn negative, and one pushed to 1e-30 takes forever to come
        # back, as it grows by a factor a step: jumps stop at a floor, plain steps may go on.
        floor = torch.minimum(p_plain, (0.1 * p_plain).clamp_min(_JUMP_FLOOR))
        self.trial_p = torch.maximum(p_trial, floor)
        self.plain = ~jump

    def _anderson(self, plain: Tensor) -> Tensor:
        """Plain point minus the combination of past differences that best cancels the change."""
        count = torch.arange(self.memory)
        used = (count < (self.length - 1).unsqueeze(-1)).to(torch.float64)  # (S, H)
        d_change = (self.changes[:, :-1] - self.changes[:, 1:]) * used.unsqueeze(-1)  # (S, H, Z)
        d_point = (self.points[:, :-1] - self.points[:, 1:]) * used.unsqueeze(-1)
        scale = d_change.norm(dim=-1).clamp_min(1e-300)  # (S, H)
        d_change, d_point = d_change / scale.unsqueeze(-1), d_point / scale.unsqueeze(-1)
        gram = d_change @ d_change.transpose(-1, -2)  # (S, H, H)
        # A whiff of regularization: consecutive differences become parallel near the solution.
        eye = torch.eye(self.memory, dtype=torch.float64)
        gram = gram + 1e-14 * eye + torch.diag_embed(1.0 - used)
        right = (d_change @ self.changes[:, 0].unsqueeze(-1)).squeeze(-1)  # (S, H)
        solution, info = torch.linalg.solve_ex(gram, right)
        weights = torch.where((info == 0).unsqueeze(-1), solution, torch.zeros_like(solution))
        weights = torch.nan_to_num(weights, nan=0.0, posinf=0.0, neginf=0.0)
        moved = d_point + (1.0 - self.damping) * d_change  # (S, H, Z)
        jump: Tensor = plain - (weights.unsqueeze(-2) @ moved).squeeze(-2)
        return jump


def _flatten(x_bar: Tensor, p_bar: Tensor) -> Tensor:
    return torch.cat([x_bar.flatten(1), p_bar.flatten(1)], dim=1)
