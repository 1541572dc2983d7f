"""Overlap curves: theory as lines, Gibbs sampling of the student's posterior as points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.theory import (
    SaddlePointProblem,
    Teacher,
    sample_data,
    sample_posterior,
    sample_teacher,
    symmetric_transition,
)
from research.plots import theory as pictures
from research.theory.setting import PARAMETERS, Setting, is_broken, matched, solve_two

CURVES = ("own teacher memory", "other teacher memories", "symmetric")
_SYMBOLS = {
    "beta": r"inverse temperature $\beta$",
    "rho": r"examples per parameter $\varrho$",
    "upsilon": r"signal to noise $\upsilon$",
}


@dataclass(frozen=True)
class Sampling:
    """How the points are sampled: chains start from the teacher, errors are over teachers."""

    n_teachers: int = 4
    n_chains: int = 2
    n_burn_in: int = 50
    n_sweeps: int = 100

    def __post_init__(self) -> None:
        if self.n_teachers < 2:
            raise ValueError(f"error bars need at least 2 teachers, got {self.n_teachers}")


@dataclass(frozen=True)
class OverlapCurves:
    """Overlaps of the solution of largest free entropy, and sampled ones.

    curves maps the names of CURVES to (len(x),), NaN outside their phase; points maps them to
    (x, mean over teachers, its standard error). r_hat is the largest over all chains.
    """

    parameter: str
    n_features: int
    x: NDArray[np.float64]
    curves: dict[str, NDArray[np.float64]]
    points: dict[str, tuple[list[float], list[float], list[float]]]
    r_hat: float | None

    def draw(self) -> Axes:
        """Lines, and points with error bars of one standard error."""
        shown = {name: y for name, y in self.curves.items() if np.isfinite(y).any()}
        return pictures.overlap_curves(
            self.x,
            shown,
            {name: values for name, values in self.points.items() if values[0]},
            xlabel=_SYMBOLS[self.parameter],
            sampled_label=f"Gibbs, N = {self.n_features}",
        )


def read(m: Tensor, broken: bool) -> list[float]:
    """The numbers compared, in the order of CURVES, from matched overlaps (..., P*, P); NaN outside a phase."""
    nan = float("nan")
    if not broken:
        return [nan, nan, float(m.mean())]
    own = m.diagonal(dim1=-2, dim2=-1)
    others = (m.sum() - own.sum()) / max(m.numel() - own.numel(), 1)
    return [float(own.mean()), float(others), nan]


def compare_overlaps(
    setting: Setting,
    parameter: str,
    x: Sequence[float],
    sampled_at: Sequence[float],
    *,
    sampling: Sampling | None = None,
    generator: torch.Generator,
) -> OverlapCurves:
    """Overlaps along β, ϱ or υ: solved at x, sampled at sampled_at with N = setting.n_features.

    In the broken phase chains start from the teacher, each keeps its permutation, and own and
    other overlaps are read apart. In the symmetric phase only the mean of all overlaps is read:
    matching memories there would pick the larger fluctuation.
    """
    if parameter not in PARAMETERS:
        raise ValueError(f"parameter must be one of {PARAMETERS}, got {parameter!r}")
    sampling = Sampling() if sampling is None else sampling
    first = setting.problem(**{parameter: max(x) if parameter == "beta" else min(x)})
    table = np.full((len(CURVES), len(x)), np.nan)
    for j, value in enumerate(x):
        best = _best(first.replace(**{parameter: float(value)}), generator)
        table[:, j] = read(best, is_broken(best))
    points: dict[str, tuple[list[float], list[float], list[float]]]
    points = {name: ([], [], []) for name in CURVES}
    r_hat = None
    for value in sampled_at:
        broken = is_broken(_best(first.replace(**{parameter: float(value)}), generator))
        runs = []
        for _ in range(sampling.n_teachers):
            here = replace(setting, **{parameter: float(value)})
            run, worst, _ = sample_overlaps(here, sampling, broken, generator)
            runs.append(run)
            r_hat = worst if r_hat is None else max(r_hat, worst)
        mean = np.mean(runs, axis=0)
        error = np.std(runs, axis=0, ddof=1) / len(runs) ** 0.5
        for name, center, spread in zip(CURVES, mean, error, strict=True):
            if np.isfinite(center):
                for column, number in zip(points[name], (value, center, spread), strict=True):
                    column.append(float(number))
    curves = dict(zip(CURVES, table, strict=True))
    return OverlapCurves(parameter, setting.n_features, np.asarray(x, float), curves, points, r_hat)


def near_transition(setting: Setting, name: str, low: float, high: float) -> list[float]:
    """A few values next to the transition, where overlaps leave each other like a square root."""
    if setting.soft_labels is not None or min(setting.n_teacher, setting.n_student) < 2:
        return []
    try:
        place = symmetric_transition(setting.problem(), name, upper=high)
    except ValueError:
        return []  # beyond the range
    near = [place * (1.0 + step) for step in (-1e-3, 1e-3, 4e-3, 0.01, 0.02)]
    return [value for value in near if low < value < high]


def _best(problem: SaddlePointProblem, generator: torch.Generator) -> Tensor:
    solution = solve_two(problem, generator=generator)
    return matched(solution.m[int(solution.objective.argmax())])


def sample_overlaps(
    setting: Setting, sampling: Sampling, broken: bool, generator: torch.Generator
) -> tuple[list[float], float, Teacher]:
    """One teacher: the numbers of `read`, the largest R-hat of its overlaps, and the teacher."""
    targets = setting.targets
    teacher = sample_teacher(
        setting.n_teacher, setting.n_features, 0 if targets is None else targets.shape[1] - 1,
        upsilon=setting.upsilon, soft_labels=targets, generator=generator,
    )  # fmt: skip
    data = sample_data(teacher, setting.rho, generator=generator)
    posterior = sample_posterior(
        teacher,
        data,
        n_memories=setting.n_student,
        beta=setting.beta,
        p_h=setting.p_h,
        start="teacher",
        n_chains=sampling.n_chains,
        n_burn_in=sampling.n_burn_in,
        n_sweeps=sampling.n_sweeps,
        generator=generator,
    )
    if not broken:
        whole = posterior.mean_overlap()
        return read(whole.mean, False), float(whole.r_hat.max()), teacher
    found = posterior.overlaps()
    return read(found.mean, True), float(found.r_hat.max()), teacher
