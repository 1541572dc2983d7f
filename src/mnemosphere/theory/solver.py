"""Solve the saddle-point equations from many starts at once."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_free import MAX_UNKNOWNS, saddle_free_step, unknowns
from mnemosphere.theory.saddle_point import (
    OrderParameters,
    Point,
    conjugate,
    distance,
    free_entropy_at,
    residual,
    respond,
)

_PLAIN = 3  # passes before the first Newton step
_RADIUS = 0.5  # of the first Newton step

# Rounding may add as much to the residual of a solution, in units of the tolerance.
_SLACK = 2.0


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
) -> Solution:
    """Solve Eq. (saddle-point) from many starts at once.

    A few passes of the fixed-point iteration are followed by saddle-free Newton steps, unless their matrices
    would be too large. No step lowers the free entropy. Starts that have converged leave the batch.

    Parameters
    ----------
    problem : SaddlePointProblem
        The equations.
    starts : OrderParameters
        m (S, P*, P) and p (S, P+1, C+1).
    tol : float, default 1e-10
        Residual of a solution.
    max_iter : int, default 5000
        Maximum number of steps.

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
    _check_solver_arguments(problem, starts, tol, max_iter)
    whole, problem = problem, problem.compressed()
    first = conjugate(problem, starts)
    point = first.x_bar, first.p_bar
    ended = first.x_bar.clone(), first.p_bar.clone()
    active = torch.arange(len(starts.m))
    iterations = torch.full_like(active, max_iter)
    radius = torch.full((len(active),), _RADIUS, dtype=torch.float64)
    plain = _PLAIN if unknowns(problem) <= MAX_UNKNOWNS else max_iter
    for iteration in range(1, max_iter + 1):
        state = respond(problem, *point)
        c = conjugate(problem, state)
        objective = free_entropy_at(problem, c, point[0])
        ended[0][active], ended[1][active] = point
        going = distance(respond(problem, c.x_bar, c.p_bar), state) > tol
        iterations[active[~going]] = iteration
        active, radius, objective = active[going], radius[going], objective[going]
        if len(active) == 0 or iteration == max_iter:
            break
        point = point[0][going], point[1][going]
        image = c.x_bar[going], c.p_bar[going]
        if iteration > plain:
            image, radius = saddle_free_step(problem, point, image, objective, radius)
        point = image
    return _collect(whole, problem, ended, iterations, tol, max_iter)


def _check_solver_arguments(
    problem: SaddlePointProblem, starts: OrderParameters, tol: float, max_iter: int
) -> None:
    expected_m = (problem.n_teacher, problem.n_student)
    expected_p = (problem.n_student + 1, problem.n_columns)
    if starts.m.ndim != 3 or tuple(starts.m.shape[1:]) != expected_m:
        raise ValueError(f"starts.m must be (S, {expected_m}), got {tuple(starts.m.shape)}")
    if tuple(starts.p.shape) != (starts.m.shape[0], *expected_p):
        raise ValueError(f"starts.p must be (S, {expected_p}), got {tuple(starts.p.shape)}")
    if not tol > 0.0:
        raise ValueError(f"tol must be positive, got {tol}")
    if max_iter < 1:
        raise ValueError(f"max_iter must be at least 1, got {max_iter}")


def _collect(
    whole: SaddlePointProblem,
    problem: SaddlePointProblem,
    ended: Point,
    iterations: Tensor,
    tol: float,
    max_iter: int,
) -> Solution:
    """Assemble the Solution, with the residual and free entropy of the state returned."""
    state = respond(problem, *ended)
    c = conjugate(problem, state)
    error = residual(problem, state)
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
        objective=free_entropy_at(problem, c, ended[0]),
        iterations=iterations,
        converged=converged,
        message=message,
    )
