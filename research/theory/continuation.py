"""Follow a branch of solutions as β changes, and find where it loses stability."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from mnemosphere.theory import solutions, stability
from mnemosphere.theory.newton import newton
from mnemosphere.theory.problem import SaddlePointProblem, ValidityWarning
from mnemosphere.theory.saddle_point import OrderParameters

# Eigenvalues this close to 1 are flat directions, not instabilities.
_FLAT = 1e-9

_MAX_JUMP = 0.1  # largest change of an overlap in a step along a branch
_WIDTH = 1e-10  # accuracy of bifurcations, relative to β
_TOUCH = 1e-3  # largest difference of overlaps on the two sides of a bifurcation


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
            reached = _point(problem, value, _ahead(points, value))
            passed = None if reached is None else _between(problem, last, reached)
            if reached is None or passed is None:
                step = (value - last.value) / 2.0
                if abs(step) > _WIDTH * abs(value):
                    continue
                bifurcations.append(Bifurcation("end", value, 2.0 * abs(step), last))
                return Branch(points, bifurcations, False)
            bifurcations.extend(passed)
            points.append(reached)
            step *= 2.0
    return Branch(points, bifurcations, True)


def _ahead(points: Sequence[BranchPoint], value: float) -> OrderParameters:
    """A guess along the secant of the last two points, which keeps its branch where another one crosses."""
    last = points[-1]
    if len(points) == 1:
        return last.state
    before = points[-2]
    ratio = (value - last.value) / (last.value - before.value)
    return OrderParameters(last.state.m + ratio * (last.state.m - before.state.m), last.state.p)


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
    if float((a.state.m - b.state.m).abs().max()) > _TOUCH:
        return None
    return Bifurcation(kind, 0.5 * (a.value + b.value), abs(b.value - a.value), a)


def _between(
    problem: SaddlePointProblem, low: BranchPoint, high: BranchPoint
) -> list[Bifurcation] | None:
    """Bifurcations between two points; None if they lie on different branches."""
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
            return found or None
        found.append(next_one)
        beyond = next_one.value + math.copysign(2.0 * next_one.width, high.value - low.value)
        past = _point(problem, beyond, next_one.point.state)
        if past is None or kind == "symmetry" or past.n_unstable == high.n_unstable:
            break
        current = past
    return found
