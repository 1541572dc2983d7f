"""Newton's method on the saddle-point equations: solutions of any index."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.theory import stability
from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_point import OrderParameters, conjugate, residual, respond


@dataclass(frozen=True)
class Refined:
    """Result of `newton`: state, residual, steps taken, and whether the tolerance was met."""

    state: OrderParameters
    residual: float
    iterations: int
    converged: bool


def newton(
    problem: SaddlePointProblem, state: OrderParameters, *, tol: float = 1e-13, max_iter: int = 50
) -> Refined:
    """Newton's method on the saddle-point equations from one state, stable or not.

    Unlike `solve` it does not climb the free entropy: it converges to the solution nearby, saddles
    included. Steps that do not lower the residual are halved; flat directions are left alone.
    """
    c = conjugate(problem, state)
    x_bar, p_bar = c.x_bar, c.p_bar
    size = x_bar.numel()
    error, change = _change(problem, x_bar, p_bar)
    for iteration in range(max_iter):
        if error <= tol:
            break
        k, factor, scale = stability.linearize(problem, x_bar, p_bar)
        labels = problem.n_columns > 1
        right = change if labels else change[:size]
        matrix = torch.eye(len(scale), dtype=scale.dtype) - k @ factor @ factor.mT
        # Flat directions make the matrix singular: least squares of least norm ignores them.
        solution = torch.linalg.lstsq(
            matrix, (right / scale).unsqueeze(-1), rcond=1e-12, driver="gelsd"
        ).solution
        move = scale * solution.squeeze(-1)
        fraction = 1.0
        while True:
            x_new = x_bar + fraction * move[:size].reshape(x_bar.shape)
            p_new = change[size:].reshape(p_bar.shape) + p_bar
            if labels:
                p_new = torch.maximum(
                    p_bar + fraction * move[size:].reshape(p_bar.shape), 0.1 * p_bar
                )
            new_error, new_change = _change(problem, x_new, p_new)
            if new_error < error or fraction < 1e-3:
                break
            fraction /= 2.0
        if new_error >= error:
            # Rounding stops Newton a few digits above the smallest residual it could report.
            return _refined(problem, x_bar, p_bar, iteration, tol)
        x_bar, p_bar, error, change = x_new, p_new, new_error, new_change
    return _refined(problem, x_bar, p_bar, max_iter if error > tol else iteration, tol)


def _change(problem: SaddlePointProblem, x_bar: Tensor, p_bar: Tensor) -> tuple[float, Tensor]:
    """How far the map moves (x_bar, p_bar): largest entry, and all of it."""
    after = conjugate(problem, respond(problem, x_bar, p_bar))
    change = torch.cat([(after.x_bar - x_bar).flatten(), (after.p_bar - p_bar).flatten()])
    if problem.n_columns == 1:
        return float(change[: x_bar.numel()].abs().max()), change
    return float(change.abs().max()), change


def _refined(
    problem: SaddlePointProblem, x_bar: Tensor, p_bar: Tensor, iterations: int, tol: float
) -> Refined:
    state = respond(problem, x_bar, p_bar)
    error = float(residual(problem, state))
    return Refined(state, error, iterations, error <= max(1e3 * tol, 1e-10))
