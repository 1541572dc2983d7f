"""Newton's method on the saddle-point equations: solutions of any index."""

from dataclasses import dataclass

import torch

from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_free import modes_at
from mnemosphere.theory.saddle_point import OrderParameters, Point, conjugate, residual, respond

_FLAT = 1e-12  # |1 − λ| of directions that are left alone


@dataclass(frozen=True)
class Refined:
    """Result of `newton`: state, residual, and whether the tolerance was met."""

    state: OrderParameters
    residual: float
    converged: bool


def newton(
    problem: SaddlePointProblem, state: OrderParameters, *, tol: float = 1e-13, max_iter: int = 50
) -> Refined:
    """Newton's method on the saddle-point equations from one state, stable or not.

    Unlike `solve` it does not climb the free entropy: it converges to the solution nearby, saddles
    included. Steps that do not lower the residual are halved; flat directions are left alone.
    """
    c = conjugate(problem, OrderParameters(state.m[None], state.p[None]))
    point = c.x_bar, c.p_bar
    error, image = _image(problem, point)
    for _ in range(max_iter):
        if error <= tol:
            break
        modes = modes_at(problem, point)
        flat = modes.stiffness.abs() < _FLAT
        y = torch.where(flat, 0.0, modes.slope(point, image) / modes.stiffness)
        goal = modes.land(image, y)
        fraction = 1.0
        while True:
            x, p = (a + fraction * (b - a) for a, b in zip(point, goal, strict=True))
            tried, after = _image(problem, (x, p))
            if tried < error or fraction < 1e-3:
                break
            fraction /= 2.0
        if tried >= error:  # rounding stops a few digits above the smallest residual there could be
            break
        point, error, image = (x, p), tried, after
    found = respond(problem, *point)
    found = OrderParameters(found.m[0], found.p[0])
    error = float(residual(problem, found))
    return Refined(found, error, error <= max(1e3 * tol, 1e-10))


def _image(problem: SaddlePointProblem, point: Point) -> tuple[float, Point]:
    """How far the map moves a point, in the largest entry, and to where."""
    c = conjugate(problem, respond(problem, *point))
    moved = (c.x_bar - point[0]).abs().amax()
    if problem.n_columns > 1:  # else class weights are fixed
        moved = torch.maximum(moved, (c.p_bar - point[1]).abs().amax())
    return float(moved), (c.x_bar, c.p_bar)
