"""Solve the saddle-point equations from many starts at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.theory import saddle_free
from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_point import (
    Conjugate,
    OrderParameters,
    conjugate,
    free_entropy_at,
    residual,
    respond,
    shrinkage,
)

# Accelerated steps leave p_bar above this, those of first and those of second order.
_JUMP_FLOOR, _NEWTON_FLOOR = 1e-8, 1e-13

# A start that has not converged after this many passes tries a step of second order, and where
# that is refused again after some more.
_PATIENCE, _PAUSE = 20, 2
_RADIUS = 0.5

# A solution may miss the tolerance by this factor; after so many passes no more is asked for.
_SLACK, _PATIENT = 2.0, 100


class NotConvergedError(RuntimeError):
    """Some starts did not reach the tolerance.

    Examples
    --------
    >>> issubclass(mn.theory.NotConvergedError, RuntimeError)
    True
    """


@dataclass(frozen=True)
class Solution:
    """Solutions of the saddle-point equations from S starts.

    Attributes
    ----------
    problem : SaddlePointProblem
        The equations.
    m : tensor of shape (S, P*, P)
        Overlaps.
    m_hat : tensor of shape (S, P*, P)
        Conjugate overlaps.
    p : tensor of shape (S, P+1, C+1)
        Class weights of the student.
    residual : tensor of shape (S,)
        Largest change under one more step.
    objective : tensor of shape (S,)
        Free entropy per example, log Z/M relative to the uniform density.
    iterations : tensor of int of shape (S,)
        Steps taken.
    converged : tensor of bool of shape (S,)
        Whether the residual is within the tolerance.
    message : str
        How it ended, and what to try.

    Examples
    --------
    >>> solution.m.shape, bool(solution.converged.all())
    (torch.Size([20, 2, 2]), True)
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
    def state(self) -> OrderParameters:
        """The order parameters of all starts, OrderParameters."""
        return OrderParameters(self.m, self.p)

    def __getitem__(self, index: int) -> OrderParameters:
        """Order parameters of one start, without the leading dimension."""
        return OrderParameters(self.m[index], self.p[index])

    def __len__(self) -> int:
        return self.m.shape[0]

    def raise_if_failed(self) -> "Solution":
        """Return the solution, or raise an error that says what to try.

        Returns
        -------
        Solution
            The solution itself.

        Raises
        ------
        NotConvergedError
            If some start missed the tolerance.

        Examples
        --------
        >>> solution.raise_if_failed() is solution
        True
        """
        if not bool(self.converged.all()):
            raise NotConvergedError(self.message)
        return self


def solve(
    problem: SaddlePointProblem,
    starts: OrderParameters,
    *,
    tol: float = 1e-10,
    max_iter: int = 5000,
    memory: int = 5,
) -> Solution:
    """Solve Eq. (saddle-point) from many starts at once.

    It is a fixed-point iteration on the conjugate parameters. Anderson acceleration, in turns with
    stretched steps, proposes jumps, which are kept only if they raise the free entropy, or keep it and
    lower the residual. Starts that linger in flat valleys or near saddles try steps of second order.
    Starts that have converged leave the batch.

    Parameters
    ----------
    problem : SaddlePointProblem
        The equations.
    starts : OrderParameters
        m (S, P*, P) and p (S, P+1, C+1).
    tol : float, default 1e-10
        Residual of a solution.
    max_iter : int, default 5000
        Steps at most.
    memory : int, default 5
        Points that the acceleration uses; 0: none, and no steps of second order.

    Returns
    -------
    Solution
        One solution per start.

    Examples
    --------
    >>> starts = mn.theory.random_starts(problem, 4, generator=generator)
    >>> mn.theory.solve_saddle_point(problem, starts).converged.all()
    tensor(True)
    """
    _check_solver_arguments(problem, starts, tol, max_iter, memory)
    whole, problem = problem, problem.compressed()
    n_starts = starts.m.shape[0]
    first = conjugate(problem, starts)
    run = _Run(problem, first, memory)
    final_x, final_p = first.x_bar.clone(), first.p_bar.clone()
    iterations = torch.full((n_starts,), max_iter)
    active = torch.arange(n_starts)
    for iteration in range(1, max_iter + 1):
        run.evaluate()
        # Look at the exact residual only where the cheap one is small: it costs a second step.
        # Labels moved between memories that coincide change p_bar, and nothing else.
        close = run.base_residual <= 30.0 * tol
        if bool(close.any()):
            done = close.clone()
            ended = respond(problem, run.base_next_x[close], run.base_next_p[close])
            # Where a valley is as flat as rounding, more passes gain nothing.
            limit = tol if iteration <= _PATIENT else _SLACK * tol
            done[close] = residual(problem, ended) <= limit
            index = active[done]
            final_x[index], final_p[index] = run.base_next_x[done], run.base_next_p[done]
            iterations[index] = iteration
            active = active[~done]
            run.keep(~done)
        if len(active) == 0:
            break
        if iteration < max_iter:
            run.propose()
    final_x[active], final_p[active] = run.base_next_x, run.base_next_p
    return _collect(whole, problem, final_x, final_p, iterations, tol, max_iter)


def _check_solver_arguments(
    problem: SaddlePointProblem,
    starts: OrderParameters,
    tol: float,
    max_iter: int,
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


def _collect(
    whole: SaddlePointProblem,
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
    converged = error <= _SLACK * tol
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
        problem=whole,
        m=state.m,
        m_hat=c.m_hat,
        p=state.p,
        residual=error,
        objective=free_entropy_at(problem, c, x_bar),
        iterations=iterations,
        converged=converged,
        message=message,
    )


class _Run:
    """Batched, safeguarded, accelerated iteration on z = (x_bar, p_bar); one row per running start.

    Two kinds of jump take turns, each as long as it succeeds. Anderson's shines near a solution.
    Where the nearest solution is a saddle it aims at what must be left, and is refused: there a
    stretched plain step, doubled at each success, leaves at an exponential pace. Where even that is
    slow, eigenvalues near 1 are the reason, and a saddle-free Newton step is tried.
    """

    def __init__(self, problem: SaddlePointProblem, first: Conjugate, memory: int) -> None:
        self.problem = problem
        self.memory = memory
        batch = first.x_bar.shape[0]
        self.trial_x, self.trial_p = first.x_bar, first.p_bar
        self.plain = torch.ones(batch, dtype=torch.bool)  # is the trial a plain step?
        self.refused = torch.zeros(batch, dtype=torch.bool)  # was the last trial refused?
        self.stretching = torch.zeros(batch, dtype=torch.bool)  # which kind of jump is on
        self.stretch = torch.full((batch,), 2.0, dtype=torch.float64)
        self.second_order = torch.zeros(batch, dtype=torch.bool)  # is the trial a Newton step?
        self.radius = torch.full((batch,), _RADIUS, dtype=torch.float64)
        self.newton_length = torch.zeros(batch, dtype=torch.float64)  # of the last one tried
        # Passes until the next Newton step; never where the matrices would be too large.
        small = memory > 0 and saddle_free.unknowns(problem) <= saddle_free.MAX_UNKNOWNS
        self.wait = torch.full((batch,), _PATIENCE if small else 1 << 60)
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
        objective = free_entropy_at(self.problem, c, self.trial_x)
        # The change of x_bar in units of w, so that light memories count as much as heavy ones.
        scale = shrinkage(self.problem, self.trial_x.norm(dim=-1, keepdim=True))
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
        first_order = ~self.second_order
        success = self.stretching & kept & ~self.plain & first_order
        self.stretch = torch.where(success, grown, self.stretch)
        self.stretch = torch.where(self.stretching & ~kept & first_order, 2.0, self.stretch)
        self.stretching = self.stretching ^ (~kept & first_order)
        self.refused = ~kept
        longer = (3.0 * self.newton_length).clamp(0.05, 10.0)
        radius = torch.where(kept, longer, 0.2 * self.newton_length)
        # What so short a step gains is rounding: look farther again.
        radius = torch.where(radius < 1e-4, _RADIUS, radius)
        self.radius = torch.where(self.second_order, radius, self.radius)
        # A step of second order that was kept is followed by another.
        paused = torch.where(kept, 0, _PAUSE)
        self.wait = torch.where(self.second_order, paused, (self.wait - 1).clamp_min(0))

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
        jump = (self.length > 1) & ~self.refused
        stretched = jump & self.stretching
        plain = base + change
        step_size = torch.where(stretched, self.stretch, 1.0)
        trial = base + step_size.unsqueeze(-1) * change
        mixed = jump & ~self.stretching
        if bool(mixed.any()):
            trial = torch.where(mixed[:, None], self._anderson(plain), trial)
        self.second_order = jump & (self.wait == 0)
        if bool(self.second_order.any()):
            trial[self.second_order] = self._newton(self.second_order)
        x_size = self.trial_x[0].numel()
        self.trial_x = trial[:, :x_size].reshape(self.trial_x.shape)
        p_plain = plain[:, x_size:].reshape(self.trial_p.shape)
        p_trial = trial[:, x_size:].reshape(self.trial_p.shape)
        # An extrapolated weight may turn negative, and one pushed to 1e-30 takes forever to come
        # back, as it grows by a factor per step: jumps stop at a floor, plain steps may go on.
        # Steps of second order know which weights vanish, and go on further.
        newton = self.second_order[:, None, None]
        lowest = torch.where(newton, _NEWTON_FLOOR, _JUMP_FLOOR)
        share = torch.where(newton, saddle_free.KEPT, 0.1)
        floor = torch.minimum(p_plain, torch.maximum(share * p_plain, lowest))
        self.trial_p = torch.maximum(p_trial, floor)
        self.plain = ~jump

    def _newton(self, mask: Tensor) -> Tensor:
        """Saddle-free Newton steps from the bases of the rows in the mask."""
        point = self.points[mask, 0]
        image = point + self.changes[mask, 0]
        x_size = self.trial_x[0].numel()

        def split(z: Tensor) -> tuple[Tensor, Tensor]:
            x, p = z[:, :x_size], z[:, x_size:]
            return x.reshape(-1, *self.trial_x.shape[1:]), p.reshape(-1, *self.trial_p.shape[1:])

        x_bar, p_bar, length = saddle_free.saddle_free_step(
            self.problem,
            *split(point),
            *split(image),
            self.base_objective[mask],
            self.radius[mask],
        )
        self.newton_length[mask] = length
        return _flatten(x_bar, p_bar)

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
        moved = d_point + d_change  # (S, H, Z)
        jump: Tensor = plain - (weights.unsqueeze(-2) @ moved).squeeze(-2)
        return jump


def _flatten(x_bar: Tensor, p_bar: Tensor) -> Tensor:
    return torch.cat([x_bar.flatten(1), p_bar.flatten(1)], dim=1)
