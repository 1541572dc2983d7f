"""`python -m research theory`: solve the saddle-point equations and draw what they say."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np
from torch import Generator

from research.theory.branches import coexistence_window, ladder, trace_branches
from research.theory.finite_size import study_finite_size
from research.theory.hierarchy import duplicated_spectrum, trace_hierarchy
from research.theory.merging import study_merging
from research.theory.overlaps import Sampling, compare_overlaps, near_transition
from research.theory.phases import map_phases
from research.theory.setting import Setting
from research.theory.study import STUDIES, Found, main, parser, study
from research.theory.transition_order import study_transition_order
from research.theory.weak import study_weak_teachers

__all__ = ["STUDIES", "main", "parser"]

Range = tuple[float, float] | None


def _check(flag: str, limits: Range) -> None:
    if limits is not None and not 0.0 < limits[0] < limits[1] < math.inf:
        raise ValueError(f"{flag} must be two numbers 0 < LOW < HIGH, got {limits}")


@study("phase-diagram")
def phase_diagram(
    generator: Generator, along: str = "upsilon", teacher: int = 5, memories: int = 5,
    rho: float = 2.0, upsilon: float = 1.0, features: int = 1000, uniform_share: float = 0.0,
    x_range: tuple[float, float] = (0.25, 1.5), beta_range: Range = None, grid: int = 18,
) -> Found:  # fmt: skip
    """Map the phases over (υ, β) or (ϱ, β): symmetric, broken, or both stable.

    Each cell is solved from an informed and an uninformed start. The line is analytic: above it the
    symmetric solution is unstable.
    """
    _check("--x-range", x_range)
    _check("--beta-range", beta_range)
    setting = Setting(teacher, memories, 1.0, rho, upsilon, uniform_share, features)
    if beta_range is None:
        left, right = (replace(setting, **{along: x}).transition() for x in x_range)
        beta_range = 0.6 * right, min(1.2 * left, 3.0 * right)
    x, beta = (np.linspace(*limits, grid).tolist() for limits in (x_range, beta_range))
    found = map_phases(setting, along, x, beta, generator=generator)
    remark = f"{found.unconverged} cells next to the transition converged to 1e-8 only partly"
    return Found(asdict(found), found.draw(), remarks=[remark] * bool(found.unconverged))


@study("overlaps")
def overlaps(
    generator: Generator, along: str = "beta", teacher: int = 2, memories: int = 2,
    beta: float = 10.0, rho: float = 2.0, upsilon: float = 1.0, features: int = 200,
    uniform_share: float = 0.0, x_range: Range = None, steps: int = 46, points: int = 8,
    teachers: int = 4, sweeps: int = 100,
) -> Found:  # fmt: skip
    """Draw overlaps along β, ϱ or υ, with points from Gibbs sampling at N features on top.

    Error bars are one standard error over teachers. Theory is the limit of many features; next to
    the transition a finite N rounds it off.
    """
    low, high = x_range or ((0.5, 8.0) if along == "beta" else (0.1, 2.0))
    _check("--x-range", (low, high))
    setting = Setting(teacher, memories, beta, rho, upsilon, uniform_share, features)
    near = near_transition(setting, along, low, high)
    found = compare_overlaps(
        setting,
        along,
        sorted({*np.linspace(low, high, steps).tolist(), *near}),
        np.linspace(low, high, points + 1)[1:].tolist(),
        sampling=Sampling(teachers, n_burn_in=sweeps // 2, n_sweeps=sweeps),
        generator=generator,
    )
    remarks = []
    if found.r_hat is not None and found.r_hat > 1.1:
        remarks.append(
            f"chains of one teacher disagree at some point (R-hat {found.r_hat:.2f}): next to the "
            "transition they mix slowly; raise --sweeps"
        )
    return Found(asdict(found), found.draw(), remarks=remarks)


@study("bifurcation")
def bifurcation(
    generator: Generator, patterns: str = "uniform", teacher: int = 3, memories: int | None = None,
    rho: float = 2.0, upsilon: float = 1.0, features: int = 1000, depth: int = 3,
    beta_range: Range = None, steps: int = 41,
) -> Found:  # fmt: skip
    """Trace all solutions as β grows: where they are born, part, and lose stability.

    With --patterns tree, ϱ and υ are infinite and memories part one by one, each at its β_split.
    """
    _check("--beta-range", beta_range)
    if patterns == "tree":
        beta = np.geomspace(*(beta_range or (1.5, 60.0)), steps).tolist()
        tree = trace_hierarchy(depth, memories or 2**depth, beta, generator=generator)
        places = ", ".join(f"{split:.4f}" for split in tree.splits)
        return Found(asdict(tree), tree.draw(), [f"memories part at β_split = {places or 'none'}"])
    setting = Setting(teacher, memories or 3, 1.0, rho, upsilon, n_features=features)
    critical = setting.transition()
    values = np.linspace(*(beta_range or (0.75 * critical, 1.35 * critical)), steps).tolist()
    found = trace_branches(setting, values, generator=generator)
    return Found(asdict(found), found.draw_tree(), _events(found.bifurcations))


def _events(bifurcations: list[tuple[str, str, float]]) -> list[str]:
    words = {"crossing": "changes stability", "end": "folds back", "symmetry": "merges"}
    return [f"β = {place:.6f}: {name} {words[kind]}" for name, kind, place in bifurcations]


@study("free-entropy")
def free_entropy(
    generator: Generator, teacher: int = 3, memories: int = 3, rho: float = 2.0,
    upsilon: float = 1.0, features: int = 1000, beta_range: Range = None, steps: int = 41,
) -> Found:  # fmt: skip
    """Compare the free entropies of the solutions around the transition: the largest wins."""
    _check("--beta-range", beta_range)
    setting = Setting(teacher, memories, 1.0, rho, upsilon, n_features=features)
    values = np.linspace(*(beta_range or coexistence_window(setting, generator=generator)), steps)
    found = trace_branches(setting, values.tolist(), saddles=False, generator=generator)
    return Found(asdict(found), found.draw_free_entropy(), _events(found.bifurcations))


@study("solutions", draws=False)
def solutions(
    generator: Generator, teacher: int = 3, memories: int = 3, beta: float = 4.0, rho: float = 2.0,
    upsilon: float = 1.0, features: int = 1000, starts: int = 600,
) -> Found:  # fmt: skip
    """List all solutions with their indices, and check by their sum that none is missing."""
    setting = Setting(teacher, memories, beta, rho, upsilon, n_features=features)
    found = ladder(setting.problem(), starts, generator=generator)
    total = sum((-1) ** row["index"] * row["copies"] for row in found)
    told = (
        f"{len(found)} solutions; copies counted by (−1)^index add up to {total}, all of them to 1"
    )
    return Found({"solutions": found, "sum": total}, lines=[told])


@study("spectrum")
def spectrum(generator: Generator, depth: int = 3, memories: int = 2, beta: float = 12.0) -> Found:
    """Draw the spectrum of the Jacobian where every memory is doubled: above 1, copies part.

    Patterns are the leaves of a tree. Rings are the closed form, β_eff/β_split the largest of them.
    """
    found = duplicated_spectrum(depth, memories, beta, generator=generator)
    lines = [
        f"memory {k}: β_split = {value:.4f}, {'a saddle' if beta > value else 'a minimum'} of the "
        f"doubled network at β = {beta:g}"
        for k, value in enumerate(found.beta_split)
    ]
    return Found(asdict(found), found.draw(), lines)


@study("weak-teachers")
def weak_teachers(
    generator: Generator, rho: float = 2.0, beta_eff: float = 3.0, features: int = 1000,
    teachers: int = 6, sweeps: int = 200, grid: int = 60,
) -> Found:  # fmt: skip
    """Compare teachers of β* = b√N with theory; map where noise parts memories before the signal."""
    found = study_weak_teachers(
        rho=rho, beta_eff=beta_eff, memories=(1, 2, 3), n_features=features,
        teachers=teachers, sweeps=sweeps, grid=grid, generator=generator,
    )  # fmt: skip
    return Found(asdict(found), found.draw())


@study("transition-order", draws=False)
def transition_orders(
    generator: Generator, rho: float = 2.0, upsilon: float = 1.0, features: int = 1000
) -> Found:
    """Tell where the symmetric state breaks continuously and where by a jump, and the ϱ between."""
    return Found(study_transition_order((2, 3, 5), (3, 4, 5, 7, 10), rho, upsilon, features))


@study("finite-size", draws=False)
def finite_size(generator: Generator, teachers: int = 8, sweeps: int = 120) -> Found:
    """Compare overlaps with Gibbs sampling at finite N, and their difference with the corrections of order 1/N."""
    sampling = Sampling(teachers, n_burn_in=sweeps // 2, n_sweeps=sweeps)
    return Found(study_finite_size([100, 300], sampling, generator=generator))


@study("merging", draws=False)
def merging(generator: Generator, memories: int = 20, splits: int = 5) -> Found:
    """Compare the ς at which memories merge with the one that fits fresh rows best."""
    return Found({"sets": study_merging(memories, splits)})
