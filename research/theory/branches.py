"""All solutions at one β, followed as β changes: the bifurcation tree and the free entropies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from torch import Tensor

from mnemosphere.theory import (
    OrderParameters,
    SaddlePointProblem,
    classify,
    find_solutions,
    solve_saddle_point,
)
from mnemosphere.theory.newton import newton
from mnemosphere.theory.saddle_point import conjugate, free_entropy_at
from research.plots import theory as pictures
from research.report import Json
from research.theory.continuation import Branch, trace_branch
from research.theory.setting import Setting, solve_two

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class BranchCurve:
    """One solution along β (K,): free entropy per example, stability, and overlaps (K, G).

    The overlaps are the largest of each group of memories that coincide, biggest group first.
    """

    name: str
    beta: NDArray[np.float64]
    overlaps: NDArray[np.float64]
    free_entropy: NDArray[np.float64]
    stable: NDArray[np.bool_]
    partner: bool  # of a stable branch, met at its fold


@dataclass(frozen=True)
class Branches:
    """Every branch found, and the places where one turns unstable, folds or merges.

    bifurcations: (branch, kind, β), with the kinds of `continuation.trace_branch`.
    """

    curves: list[BranchCurve]
    bifurcations: list[tuple[str, str, float]]

    def grid(self) -> NDArray[np.float64]:
        """All values of β at which any branch is known."""
        return np.unique(np.concatenate([curve.beta for curve in self.curves]))

    def draw_tree(self) -> Axes:
        """The largest overlap of each group of memories against β."""
        beta = self.grid()
        lines, stable = [], []
        for curve in self.curves:
            for overlap in curve.overlaps.T:
                lines.append(_resample(beta, curve, overlap))
                stable.append(_resample(beta, curve, curve.stable.astype(float)) > 0.5)
        return pictures.bifurcation_tree(
            beta,
            lines,
            stable,
            sorted({round(place, 6) for _, _, place in self.bifurcations}),
            transition_label="bifurcation",
            ylabel="largest overlap of a memory",
        )

    def draw_free_entropy(self) -> Axes:
        """Free entropies above that of the symmetric solution, of states that are stable somewhere.

        With them the saddle between two of them, up to where it merges.
        """
        beta = self.grid()
        shown = [curve for curve in self.curves if curve.stable.any() or curve.partner]
        table = {
            curve.name: _resample(beta, curve, curve.free_entropy - self._symmetric(curve.beta))
            for curve in shown
        }
        return pictures.free_entropy_branches(
            beta, table, ylabel="free entropy per example, symmetric = 0"
        )

    def _symmetric(self, beta: NDArray[np.float64]) -> NDArray[np.float64]:
        (trunk,) = (curve for curve in self.curves if curve.name == "symmetric")
        # Cubic where there is room: free entropies differ in the fifth digit.
        value: NDArray[np.float64] = CubicSpline(trunk.beta, trunk.free_entropy)(beta)
        return value


def _resample(
    beta: NDArray[np.float64], curve: BranchCurve, values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Values between a curve's own points; NaN outside them."""
    return np.interp(beta, curve.beta, values, left=np.nan, right=np.nan)


def orbit(m: Tensor) -> int:
    """How many matrices arise from overlaps (P*, P) by permuting teachers and memories."""
    rows, columns = (list(permutations(range(n))) for n in m.shape)
    near = (m * 1e5).round().to(torch.int64)
    return len({tuple(near[list(r)][:, list(c)].flatten().tolist()) for r in rows for c in columns})


def ladder(problem: SaddlePointProblem, n_starts: int, *, generator: torch.Generator) -> list[Json]:
    """All solutions found, from the maximum to the symmetric one, with index and number of copies.

    −F rises to the edge of the balls of memories, so the sum of (−1)^index over all solutions is 1 (Morse): a
    list for which it is not has gaps.
    """
    return [
        {"m": s.m.T.sort(1, descending=True).values.tolist(), "free_entropy": s.free_entropy, "index": s.index,
         "leading": s.leading_eigenvalue, "copies": orbit(s.m), "groups": len(s.symmetry.groups)}
        for s in find_solutions(problem, n_starts, generator=generator)
    ]  # fmt: skip


def coexistence_window(setting: Setting, *, generator: torch.Generator) -> tuple[float, float]:
    """A range of β in which the broken solution appears and takes over from the symmetric one."""
    critical = setting.transition()
    top = setting.problem(beta=1.1 * critical)
    broken = solve_two(top, generator=generator)[0]
    branch = trace_branch(top, (np.linspace(1.1, 0.5, 13) * critical).tolist(), broken)
    start = next((e.value for e in branch.bifurcations if e.kind != "crossing"), 0.5 * critical)
    even = OrderParameters(torch.ones_like(broken.m)[None] / len(broken.m), broken.p[None])
    ahead = []
    for point in branch.points:
        here = top.replace(beta=point.value)
        flat = solve_saddle_point(here, even)[0]  # what starts symmetric stays so
        if point.value > start:
            ahead.append((_per_example(here, point.state) - _per_example(here, flat), point.value))
    gain, beta = np.array(sorted(ahead)).T
    takes_over = float(np.interp(0.0, gain, beta))
    # A continuous transition has no window of its own.
    width = max(takes_over - start, 0.01 * critical)
    return start - width, takes_over + 3.0 * width


def _per_example(problem: SaddlePointProblem, state: OrderParameters) -> float:
    c = conjugate(problem, state)
    return float(free_entropy_at(problem, c, c.x_bar))


def trace_branches(
    setting: Setting,
    beta: Sequence[float],
    *,
    n_starts: int = 60,
    saddles: bool = True,
    generator: torch.Generator,
) -> Branches:
    """Find all solutions at the largest β and follow them down through the values of β.

    Where a branch folds back, the one it meets there is followed up again. saddles=False leaves out
    solutions that are unstable at the largest β, but for the symmetric one.
    """
    if setting.soft_labels is not None:
        raise ValueError("branches start from the symmetric solution, which labels rule out")
    values = sorted(float(b) for b in beta)
    if len(values) < 4 or values[0] == values[-1]:
        raise ValueError(f"need at least 4 different values of beta, got {values}")
    top = setting.problem(beta=values[-1])
    seeds = find_solutions(top, n_starts, generator=generator)
    if not saddles:
        seeds = [seed for seed in seeds if seed.stable or len(seed.symmetry.groups) == 1]
    curves: list[BranchCurve] = []
    events: list[tuple[str, str, float]] = []
    names = _names([seed.symmetry.groups for seed in seeds])
    for name, seed in zip(names, seeds, strict=True):
        branch = _stretch(trace_branch(top, values[::-1], seed.state))
        curves.append(_curve(top, name, branch))
        events += [(name, event.kind, event.value) for event in branch.bifurcations]
        if not branch.complete:
            partner = _behind_the_fold(top, branch, values)
            if partner is not None:
                steady = bool(curves[-1].stable.any())
                title = f"{name}, behind its fold"
                curves.append(_curve(top, title, partner, partner=steady))
    return Branches([curve for curve in curves if len(curve.beta) > 1], events)


def _names(groups: list[Groups]) -> list[str]:
    """A name for each solution: sizes of its groups, numbered where several share them."""

    def describe(parts: Groups) -> str:
        if len(parts) == 1:
            return "symmetric"
        sizes = [len(part) for part in parts]
        return "broken" if max(sizes) == 1 else "partly broken " + "+".join(map(str, sizes))

    plain = [describe(parts) for parts in groups]
    seen: Counter[str] = Counter()
    names = []
    for name in plain:
        seen[name] += 1
        names.append(name if plain.count(name) == 1 else f"{name} ({'abcdefgh'[seen[name] - 1]})")
    return names


def _behind_the_fold(
    problem: SaddlePointProblem, branch: Branch, values: Sequence[float]
) -> Branch | None:
    """The unstable branch that meets a stable one at its fold, followed up in β.

    Near a fold the two solutions lie mirrored about it, like ±√(β − β_fold).
    """
    fold = branch.points[-1]
    value = 1.0005 * fold.value
    above = next((p for p in reversed(branch.points) if p.value > value), None)
    if above is None:
        return None
    here = problem.replace(beta=value)
    ours = newton(here, above.state)
    found = newton(here, OrderParameters(2.0 * fold.state.m - ours.state.m, above.state.p))
    parted = classify(found.state).groups == fold.symmetry.groups
    if not (ours.converged and found.converged and parted):
        return None
    if float((found.state.m - ours.state.m).abs().max()) < 1e-4:
        return None
    rest = [v for v in values if v > value]
    gap = (rest[0] if rest else value) - value
    up = [value, *(value + gap * t**2 for t in (0.2, 0.4, 0.6, 0.8)), *rest]
    partner = _stretch(trace_branch(problem, up, found.state))
    # The curve starts at the fold itself.
    return Branch([fold, *partner.points], partner.bifurcations, True)


def _stretch(branch: Branch) -> Branch:
    """A branch up to where it first meets one of another symmetry, to end there or to pass it."""
    start = branch.points[0]
    for k, event in enumerate(branch.bifurcations):
        at = event.point
        if event.kind == "symmetry" or at.symmetry.groups != start.symmetry.groups:
            way = abs(at.value - start.value)
            before = [point for point in branch.points if abs(point.value - start.value) < way]
            return Branch([*before, at], branch.bifurcations[: k + 1], True)
    return branch


def _curve(
    problem: SaddlePointProblem, name: str, branch: Branch, *, partner: bool = False
) -> BranchCurve:
    rows, groups = [], branch.points[0].symmetry.groups
    for point in branch.points:
        here = problem.replace(beta=point.value)
        m = point.state.m
        # By group size, then value: an order that does not change along the branch.
        tops = [(-len(group), -float(m[:, group[0]].max())) for group in groups]
        largest = [-top for _, top in sorted(tops)]
        value = _per_example(here, point.state)
        rows.append((point.value, largest, value, point.n_unstable == 0))
    rows.sort(key=lambda row: row[0])
    columns = list(zip(*rows, strict=True))
    return BranchCurve(
        name,
        np.array(columns[0]),
        np.array(columns[1]),
        np.array(columns[2]),
        np.array(columns[3]),
        partner,
    )
