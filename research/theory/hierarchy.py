"""Patterns that form a tree: how memories part as β grows, and the spectrum that tells when.

ϱ = ∞, so that a duplicated memory is a fixed point of the grown network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor

from mnemosphere.theory import (
    OrderParameters,
    SaddlePointProblem,
    classify,
    duplicate,
    random_starts,
    solve_saddle_point,
    spectrum,
    split_temperature,
)
from mnemosphere.theory.newton import newton
from mnemosphere.theory.saddle_point import conjugate, mean_memories
from mnemosphere.theory.stability import antisymmetric_matrix, antisymmetric_spectrum
from research.plots import theory as pictures
from research.plots.axes import plain_log

_TOGETHER = 1e-4  # memories whose overlaps differ by less coincide


def tree_patterns(depth: int = 3, *, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """2^depth unit patterns (leaves of a binary tree), and a direction (D,) that orders them.

    Every node has a direction of its own; a leaf is the sum over the nodes on its path, to the
    left or to the right, less the deeper the node. Lengths vary a little, so that no two nodes
    split at the same temperature.
    """
    if not 1 <= depth <= 5:
        raise ValueError(f"depth must lie in 1..5, got {depth}")
    n_leaves = 2**depth
    x = torch.zeros(n_leaves, n_leaves, dtype=torch.float64)
    order = torch.zeros(n_leaves, dtype=torch.float64)
    x[:, 0] = 1.0  # the root: what all patterns share
    column = 1
    for level in range(depth):
        block = n_leaves >> level
        for node in range(2**level):
            length = 0.75 * 0.62**level * (0.9 + 0.2 * float(torch.rand(1, generator=generator)))
            rows = slice(node * block, (node + 1) * block)
            sign = torch.ones(block, dtype=torch.float64)
            sign[block // 2 :] = -1.0
            x[rows, column] = length * sign
            order[column] = 0.62**level
            column += 1
    return x / x.norm(dim=1, keepdim=True), order / order.norm()


def _problem(patterns: Tensor, n_student: int, beta: float) -> SaddlePointProblem:
    """Clean examples of the patterns, υ = ∞, which span a few of very many features.

    N enters through the uniform component alone, and this student has none.
    """
    problem = SaddlePointProblem.clamped(
        patterns, n_student=n_student, beta=beta, rho=math.inf, upsilon=math.inf
    )
    return problem.replace(n_features=1_000_000)


def _positions(problem: SaddlePointProblem, state: OrderParameters, axis: Tensor) -> Tensor:
    """⟨w^μ, axis⟩ (P,)."""
    return mean_memories(problem, conjugate(problem, state).x_bar) @ axis


@dataclass(frozen=True)
class Hierarchy:
    """How memories part: positions (P, len(beta)) along the tree, sorted, and where they part.

    saddles holds (β, positions of the memories that parted) of states left behind: fixed points
    still, but unstable. splits are the β at which such a state has β_eff = β_split.
    """

    beta: NDArray[np.float64]
    positions: NDArray[np.float64]
    n_groups: NDArray[np.int64]
    saddles: list[tuple[NDArray[np.float64], NDArray[np.float64]]]
    splits: list[float]

    def draw(self) -> Axes:
        """The tree, with saddles dashed and β_split dotted."""
        lines = [*self.positions]
        stable = [np.ones(len(self.beta), bool) for _ in lines]
        for beta, positions in self.saddles:
            for line in positions:
                lines.append(np.interp(self.beta, beta, line, left=np.nan, right=np.nan))
                stable.append(np.zeros(len(self.beta), bool))
        ax = pictures.bifurcation_tree(
            self.beta,
            lines,
            stable,
            self.splits,
            transition_label=r"$\beta_{\rm split}$",
            ylabel="position of the memory in the tree",
        )
        ax.set_xscale("log")
        plain_log(ax.xaxis)
        return ax


def trace_hierarchy(
    depth: int, n_memories: int, beta: Sequence[float], *, generator: torch.Generator
) -> Hierarchy:
    """Raise β from values where all memories coincide, and follow them as they part.

    Memories that coincide are kept so by Newton's method. Where β_eff exceeds the β_split of some,
    half of them move along their unstable direction, half against it, and the equations are solved
    from there; the state left behind is followed further as a saddle.
    """
    patterns, axis = tree_patterns(depth, generator=generator)
    values = [float(b) for b in beta]
    if len(values) < 2 or any(b <= a for a, b in pairwise(values)):
        raise ValueError(f"beta must increase, got {values}")
    if n_memories < 1 or n_memories & (n_memories - 1):
        raise ValueError(f"memories part in halves: take a power of two of them, got {n_memories}")
    problem = _problem(patterns, n_memories, values[0])
    starts = random_starts(problem, 8, generator=generator)
    solved = solve_saddle_point(problem, starts).raise_if_failed()
    state = _tie(solved[int(solved.objective.argmax())])
    found, saddles, splits = [(values[0], state)], [], []
    for k in range(1, len(values)):
        here = problem.replace(beta=values[k])
        last, state = state, _solve_near(here, state)
        unstable = _unstable(here, state)
        if unstable:
            members = [group[0] for group in unstable]
            places = [_split_beta(problem, last, mu, values[k - 1], values[k]) for mu in members]
            splits += places
            # Every third value will do for a curve this smooth.
            beta_saddle, path = _saddle(problem, last, [*values[k - 1 : -1 : 3], values[-1]], axis)
            saddles.append((beta_saddle, path[:, members].T))
            found.append((min(places), newton(problem.replace(beta=min(places)), last).state))
        while unstable:
            for group in unstable:
                state = _part(here, state, group)
            state = _tie(_solve_from(here, state))
            unstable = _unstable(here, state)
            if not unstable:
                # Memories part like a square root: a few points more where it rises.
                for t in (0.2, 0.45, 0.7):
                    value = max(places) + t**2 * (values[k] - values[k - 1])
                    found.append((value, _solve_from(problem.replace(beta=value), state)))
        found.append((values[k], state))
    found.sort(key=lambda pair: pair[0])
    positions = [_positions(problem.replace(beta=b), s, axis).sort().values for b, s in found]
    return Hierarchy(
        np.array([b for b, _ in found]),
        torch.stack(positions, dim=1).numpy(),
        np.array([_n_groups(s) for _, s in found]),
        saddles,
        sorted(splits),
    )


def _unstable(problem: SaddlePointProblem, state: OrderParameters) -> list[tuple[int, ...]]:
    """Groups of coinciding memories with β_eff > β_split."""
    limit = split_temperature(problem, state)
    groups = classify(state, tol=_TOGETHER).groups
    return [g for g in groups if len(g) > 1 and problem.beta_eff > float(limit[g[0]])]


def _part(
    problem: SaddlePointProblem, state: OrderParameters, group: tuple[int, ...]
) -> OrderParameters:
    """A small step of one half of a group along its unstable direction, of the other against it."""
    vector = torch.linalg.eigh(antisymmetric_matrix(problem, state, group[0])).eigenvectors[:, -1]
    m = state.m.clone()
    for k, memory in enumerate(group):
        m[:, memory] += (0.01 if k % 2 else -0.01) * (problem.patterns @ vector)
    return OrderParameters(m, state.p)


def _solve_near(problem: SaddlePointProblem, state: OrderParameters) -> OrderParameters:
    """The solution near a state at the next β, with the same memories coinciding."""
    near = newton(problem, state).state
    # Just above a split Newton's method may fall back onto the saddle between the parted memories.
    if _n_groups(near) < _n_groups(state):
        return _tie(_solve_from(problem, state))
    return near


def _n_groups(state: OrderParameters) -> int:
    return len(classify(state, tol=_TOGETHER).groups)


def _solve_from(problem: SaddlePointProblem, state: OrderParameters) -> OrderParameters:
    start = OrderParameters(state.m[None], state.p[None])
    return solve_saddle_point(problem, start).raise_if_failed()[0]


def _tie(state: OrderParameters) -> OrderParameters:
    """Memories that coincide but for rounding made equal, so that Newton keeps them so."""
    m = state.m.clone()
    for group in classify(state, tol=_TOGETHER).groups:
        m[:, list(group)] = m[:, list(group)].mean(1, keepdim=True)
    return OrderParameters(m, state.p)


def _split_beta(
    problem: SaddlePointProblem, state: OrderParameters, memory: int, low: float, high: float
) -> float:
    """β in [low, high] at which β_eff = β_split of one memory; state is a solution at `low`."""

    def excess(beta: float) -> float:
        here = problem.replace(beta=beta)
        return here.beta_eff - float(split_temperature(here, newton(here, state).state)[memory])

    return float(brentq(excess, low, high, xtol=1e-10))


def _saddle(
    problem: SaddlePointProblem, state: OrderParameters, values: Sequence[float], axis: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Follow a state with its memories tied: β (K,) and positions (K, P)."""
    path = []
    for value in values:
        here = problem.replace(beta=value)
        found = newton(here, state)
        if not found.converged:
            break
        state = found.state
        path.append(_positions(here, state, axis).numpy())
    return np.array(values[: len(path)]), np.array(path)


@dataclass(frozen=True)
class Spectrum:
    """Jacobian of the fixed-point map where every memory is doubled.

    eigenvalues (2 P D,) of the full Jacobian, largest first; antisymmetric (P, D): the closed form
    for the directions in which the two copies of a memory part; beta_split (P,).
    """

    beta_eff: float
    eigenvalues: NDArray[np.float64]
    antisymmetric: NDArray[np.float64]
    beta_split: NDArray[np.float64]

    def draw(self) -> Axes:
        """The sorted spectrum; rings are the closed form."""
        return pictures.jacobian_spectrum(
            self.eigenvalues,
            self.antisymmetric.ravel(),
            predicted_label="two copies parting, closed form",
        )


def duplicated_spectrum(
    depth: int, n_memories: int, beta: float, *, n_starts: int = 32, generator: torch.Generator
) -> Spectrum:
    """Solve for few memories on the tree of patterns, double each, and look at the Jacobian."""
    patterns, _ = tree_patterns(depth, generator=generator)
    problem = _problem(patterns, n_memories, beta)
    starts = random_starts(problem, n_starts, generator=generator)
    solved = solve_saddle_point(problem, starts).raise_if_failed()
    narrow = newton(problem, solved[int(solved.objective.argmax())]).state
    wide, doubled = duplicate(problem, narrow, range(n_memories))
    antisymmetric = [antisymmetric_spectrum(wide, doubled, mu) for mu in range(n_memories)]
    return Spectrum(
        beta_eff=problem.beta_eff,
        eigenvalues=spectrum(wide, doubled).numpy(),
        antisymmetric=torch.stack(antisymmetric).numpy(),
        beta_split=split_temperature(wide, doubled)[:n_memories].numpy(),
    )
