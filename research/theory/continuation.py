"""Follow a branch of solutions as β changes, and find where it loses stability."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.theory import solutions, stability
from mnemosphere.theory.problem import SaddlePointProblem, ValidityWarning
from mnemosphere.theory.saddle_point import OrderParameters, conjugate, residual, respond

# Eigenvalues this close to 1 are flat directions, not instabilities.
_FLAT = 1e-9

_MAX_JUMP = 0.1  # largest change of an overlap in a step along a branch
_WIDTH = 1e-10  # accuracy of bifurcations, relative to β


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


@dataclass(frozen=True)
class BranchPoint:
    """One solution on a branch: its parameter value, eigenvalues and symmetry."""

    value: float
    state: OrderParameters
    eigenvalues: Tensor
    symmetry: solutions.Symmetry

    @property
    def n_unstable(self) -> int:
        """Number of eigenvalues above 1."""
        return int((self.eigenvalues > 1.0 + _FLAT).sum())


@dataclass(frozen=True)
class Bifurcation:
    """A place where a branch changes character.

    kind: "crossing" (an eigenvalue of the Jacobian passes 1 along the branch), "symmetry" (memories
    merge or part along it, as where a broken branch ends on a symmetric one) or "end" (no solution
    was found nearby beyond this value, as at a fold). value lies within width.
    """

    kind: str
    value: float
    width: float
    point: BranchPoint


@dataclass(frozen=True)
class Branch:
    """Solutions that `trace_branch` followed, what lies between them, and whether all were reached."""

    points: list[BranchPoint]
    bifurcations: list[Bifurcation]
    complete: bool


def _point(
    problem: SaddlePointProblem, beta: float, guess: OrderParameters, max_jump: float = _MAX_JUMP
) -> BranchPoint | None:
    """The solution at this β near the guess, or None."""
    here = problem.replace(beta=beta)
    found = newton(here, guess, max_iter=25)
    if not found.converged or float((found.state.m - guess.m).abs().max()) > max_jump:
        return None
    groups = solutions.classify(found.state, tol=1e-6)
    return BranchPoint(beta, found.state, stability.spectrum(here, found.state), groups)


def trace_branch(
    problem: SaddlePointProblem, betas: Sequence[float], start: OrderParameters
) -> Branch:
    """Follow a branch of solutions along values of β, from a state near a solution at the first.

    Newton's method corrects each point, so unstable branches are followed too. A step that fails or
    moves an overlap far is halved, until it is tiny: there the branch ends. Changes in the number of
    unstable directions or in which memories coincide are located by bisection.
    """
    with warnings.catch_warnings():
        # One warning for the whole branch, at its largest β, is enough.
        warnings.simplefilter("once", ValidityWarning)
        problem.replace(beta=max(betas)).warn_if_invalid()
    here = _point(problem, betas[0], start, math.inf)
    if here is None:
        raise ValueError(
            f"no solution near the start at β = {betas[0]:g}: pass a solution of solve() there"
        )
    points: list[BranchPoint] = [here]
    bifurcations: list[Bifurcation] = []
    for target in betas[1:]:
        step = target - points[-1].value
        while points[-1].value != target:
            last = points[-1]
            near = abs(step) >= abs(target - last.value)
            value = float(target) if near else last.value + step
            reached = _point(problem, value, last.state)
            if reached is None:
                step = (value - last.value) / 2.0
                if abs(step) > _WIDTH * abs(value):
                    continue
                bifurcations.append(Bifurcation("end", value, 2.0 * abs(step), last))
                return Branch(points, bifurcations, False)
            bifurcations.extend(_between(problem, last, reached))
            points.append(reached)
            step *= 2.0
    return Branch(points, bifurcations, True)


def _bisect(
    problem: SaddlePointProblem, low: BranchPoint, high: BranchPoint, kind: str
) -> Bifurcation | None:
    """Narrow [low, high] down to where the two sides' characters meet."""

    def mark(point: BranchPoint) -> object:
        return point.n_unstable if kind == "crossing" else point.symmetry.groups

    first = mark(low)
    a, b = low, high
    while abs(b.value - a.value) > _WIDTH * abs(b.value):
        middle = 0.5 * (a.value + b.value)
        if middle in (a.value, b.value):
            break
        near = _point(problem, middle, a.state)
        if near is None:
            return None
        if mark(near) == first:
            a = near
        else:
            b = near
    return Bifurcation(kind, 0.5 * (a.value + b.value), abs(b.value - a.value), a)


def _between(problem: SaddlePointProblem, low: BranchPoint, high: BranchPoint) -> list[Bifurcation]:
    if low.symmetry.groups != high.symmetry.groups:
        kind = "symmetry"
    elif low.n_unstable != high.n_unstable:
        kind = "crossing"
    else:
        return []
    found: list[Bifurcation] = []
    current = low
    # Several may lie between two points: go on from each until the far side's character is met.
    for _ in range(max(1, abs(low.n_unstable - high.n_unstable))):
        next_one = _bisect(problem, current, high, kind)
        if next_one is None:
            break
        found.append(next_one)
        beyond = next_one.value + math.copysign(2.0 * next_one.width, high.value - low.value)
        past = _point(problem, beyond, next_one.point.state)
        if past is None or kind == "symmetry" or past.n_unstable == high.n_unstable:
            break
        current = past
    return found
