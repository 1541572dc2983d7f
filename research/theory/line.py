"""Branches at β = 8, visited by replica exchange along the line on which they have equal weight.

Three memories on two teacher vectors, as in `occupation`. On a ladder in β alone the two branches
change places by a jump, whose barrier grows with N. Give the third memory the weight t and the
others (1 − t)/2: the line of equal free entropy in (β, t) starts at β = 7.85 and t = 1/3 and ends
near β = 5.4, where an idle memory and a pair pass into each other. At finite N the line of equal
weight, N f + f₁, lies beside it by O(1/N). Rungs along that line hold both branches everywhere,
and lead from one to the other without a barrier.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere import theory
from mnemosphere.plots.style import PALETTE, VERMILLION, figure_style, new_figure
from mnemosphere.theory.tempering import Ladder
from research.theory.occupation import balanced, idle_share, predicted
from research.theory.setting import StepDone, no_progress

BETA = 8.0
_END, _NEAR_END = 5.2, 6.0  # β of the first rung, and up to where the branches are soft
_RUNGS = 19  # at N = 600
_STARTS = [[[0.9, 0.0, 0.1], [0.0, 0.9, 0.1]], [[0.8, 0.0, 0.8], [0.0, 0.9, 0.0]]]


def weights(t: Tensor) -> Tensor:
    """p_h (..., 4) with weight t on the third memory."""
    return torch.stack([torch.zeros_like(t), (1 - t) / 2, (1 - t) / 2, t], -1)


def solve(beta: float, t: float) -> tuple[theory.SaddlePointProblem, theory.Solution]:
    """From an idle memory and from a pair."""
    problem = theory.SaddlePointProblem.uniform(
        2, 3, beta=beta, rho=1.0, upsilon=1.0, n_features=1000,
        p_h=weights(torch.tensor(t, dtype=torch.float64)),
    )  # fmt: skip
    start = torch.tensor(_STARTS, dtype=torch.float64)
    p = problem.p_h[None, :, None].expand(2, -1, -1)
    return problem, theory.solve_saddle_point(
        problem, theory.OrderParameters(start, p)
    ).raise_if_failed()


def solve_both(beta: float, t: float) -> tuple[bool, float]:
    """Whether an idle memory and a pair are two solutions at (β, t), and f_idle − f_paired."""
    problem, found = solve(beta, t)
    two = float((found.m[0] - found.m[1]).abs().max()) > 0.05 and all(
        float(theory.spectrum(problem, found[i])[0]) < 1 for i in range(2)
    )
    return two, _gap(problem, found)


def _gap(problem: theory.SaddlePointProblem, found: theory.Solution) -> float:
    return float(found.objective[0] - found.objective[1]) * problem.rho * 2


@cache
def equal_entropy(beta: float) -> float:
    """The t at which both branches have the same free entropy; past the end of the line, its t."""
    low, high = 0.28, 0.34  # idle below, paired above
    while high - low > 1e-4:
        t = (low + high) / 2
        two, gap = solve_both(beta, t)
        if not two and abs(gap) < 1e-9:
            # Past the end there is one solution, idle on one side.
            m = solve(beta, t)[1].m[1, :, 2]
            gap = 1.0 if float((m[0] - m[1]).abs()) < 1e-3 else -1.0
        low, high = (t, high) if gap > 0 else (low, t)
    return (low + high) / 2


@cache
def shift(beta: float) -> float:
    """N times what finite N moves the line by: the difference in f₁ over the slope of f in t.

    Next to the end, where f₁ of either branch diverges, 0.
    """
    if beta < _NEAR_END:
        return 0.0
    t, step = equal_entropy(beta), 1e-3
    problem, found = solve(beta, t)
    f_1 = [theory.finite_size_corrections(problem, found[i]).log_z for i in range(2)]
    slope = (_gap(*solve(beta, t + step)) - _gap(*solve(beta, t - step))) / (2 * step)
    return (f_1[1] - f_1[0]) / slope


def _place(rung: tuple[int, float]) -> float:
    torch.set_num_threads(1)
    n, beta = rung
    return 1 / 3 if beta == BETA else min(1 / 3, equal_entropy(beta) + shift(beta) / n)


def ladder(n: int, run: Callable[..., Iterable[float]] = map) -> Ladder:
    """Rungs from past the end of the line to β = 8 and equal weights.

    As many as √N asks for: neighbors must overlap in log-likelihood, which varies by √N. run: maps
    a function over them.
    """
    betas = np.linspace(_END, BETA, max(4, round(_RUNGS * math.sqrt(n / 600))))
    t = list(run(_place, [(n, beta) for beta in betas.tolist()]))
    return Ladder(torch.tensor(betas), weights(torch.tensor(t, dtype=torch.float64)))


@dataclass(frozen=True)
class Visits:
    """Share of draws with an idle memory for each data set, (sizes, sets), and where they can be.

    error: standard error over chains; from_idle, from_paired: of the chains that start there;
    log_odds: the theory's; seconds: of sampling. two (B, T): whether both branches are solutions
    at (β, t); rung_t: t of every rung at the largest N.
    """

    n_features: list[int]
    share: NDArray[np.float64]
    error: NDArray[np.float64]
    from_idle: NDArray[np.float64]
    from_paired: NDArray[np.float64]
    log_odds: NDArray[np.float64]
    acceptance: NDArray[np.float64]  # smallest on the ladder
    seconds: NDArray[np.float64]
    rungs: list[int]
    rung_beta: list[float]
    rung_t: list[float]
    beta: NDArray[np.float64]
    t: NDArray[np.float64]
    two: NDArray[np.bool_]

    def measured(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Log odds of the visits with their standard errors, (sizes, sets)."""
        share = self.share.clip(1e-3, 1 - 1e-3)
        odds: NDArray[np.float64] = np.log(share / (1 - share))
        return odds, self.error / (share * (1 - share))

    @figure_style()
    def draw(self) -> Axes:
        """Left: where there are two branches, and the ladder. Right: log odds against N."""
        figure = new_figure(8.4, 3.6)
        left, right = figure.subplots(1, 2)
        colors = ListedColormap(["#FFFFFF", "#F5D9B8"])
        left.pcolormesh(self.beta, self.t, self.two.T, cmap=colors, shading="nearest")
        left.plot(self.rung_beta, self.rung_t, ".-", color=PALETTE[0], linewidth=0.8, markersize=5)
        left.plot(BETA, 1 / 3, "*", color=VERMILLION, markersize=11)
        left.set_xlabel(r"inverse temperature $\beta$")
        left.set_ylabel(r"weight $t$ of the third memory")
        odds, error = self.measured()
        n = np.asarray(self.n_features, dtype=float)
        width = 0.05 * max(n[-1] - n[0], 1.0)
        sets = odds.shape[1]
        for j in range(sets):
            at = n + width * (j - (sets - 1) / 2)
            right.errorbar(at, odds[:, j], error[:, j], fmt="o", color=PALETTE[0], markersize=4,
                           capsize=2, label="visits" if j == 0 else None)  # fmt: skip
            right.hlines(
                self.log_odds[:, j], at - width / 3, at + width / 3, color=VERMILLION, linewidth=2,
                label="theory, for the same data" if j == 0 else None,
            )  # fmt: skip
        right.axhline(0, color="#999999", linewidth=0.8)
        right.set_xlabel(r"dimension $N$")
        right.set_ylabel("log odds, idle against paired")
        right.set_xticks(n)
        right.legend(fontsize=7.5, loc="lower right")
        axes: Axes = left
        return axes


@dataclass(frozen=True)
class _Job:
    n: int
    seed: int
    ladder: Ladder
    n_chains: int
    n_sweeps: int
    device: str


def visit(job: _Job) -> list[float]:
    """One data set: idle share, its error, of both starts, theory's odds, acceptance, seconds."""
    torch.set_num_threads(1)
    # Data of the processor: the theory's side needs no other device.
    teacher, data = balanced(job.n, 1.0, 1.0, generator=torch.Generator().manual_seed(job.seed))
    problem = theory.SaddlePointProblem.uniform(
        2, 3, beta=BETA, rho=1.0, upsilon=1.0, n_features=job.n
    )
    odds = predicted(problem, teacher, data)
    began = time.perf_counter()
    share, accepted = idle_share(
        teacher.w.to(job.device), data.x.to(job.device), job.ladder, n_chains=job.n_chains,
        n_sweeps=job.n_sweeps, generator=torch.Generator(job.device).manual_seed(job.seed),
    )  # fmt: skip
    last, half = share[:, -1], job.n_chains // 2
    error = float(last.std()) / job.n_chains**0.5
    starts = [float(last[:half].mean()), float(last[half:].mean())]
    seconds = time.perf_counter() - began
    return [float(last.mean()), error, *starts, odds, accepted, seconds]


def _row(place: tuple[float, Sequence[float]]) -> list[bool]:
    torch.set_num_threads(1)
    return [solve_both(place[0], t)[0] for t in place[1]]


def visit_on_line(
    sizes: Sequence[int],
    *,
    n_sets: int,
    n_chains: int,
    n_sweeps: int,
    device: str = "cpu",
    workers: int = 1,
    seed: int = 0,
    grid: tuple[int, int] = (29, 23),
    progress: StepDone = no_progress,
) -> Visits:
    """Sample every N with several data sets, and put the theory's log odds beside the visits.

    grid: values of β and t of the map.
    """
    beta, t = np.linspace(5.0, 8.5, grid[0]), np.linspace(0.26, 1 / 3, grid[1])
    rows = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        run = map if workers == 1 else pool.map
        ladders = {n: ladder(n, run) for n in sizes}
        jobs = [
            _Job(n, 1000 * seed + 10 * n + j, ladders[n], n_chains, n_sweeps, device)
            for n in sizes
            for j in range(n_sets)
        ]
        for row in run(visit, jobs[::-1]):  # the largest take longest
            rows.append(row)
            progress(len(rows), len(jobs))
        two = list(run(_row, [(b, t.tolist()) for b in beta.tolist()]))
    table = np.array(rows[::-1]).reshape(len(sizes), n_sets, -1)
    last = ladders[max(sizes)]
    assert last.p_h is not None
    return Visits(
        list(sizes), *(table[..., k] for k in range(7)), [len(ladders[n].betas) for n in sizes],
        last.betas.tolist(), last.p_h[:, 3].tolist(), beta, t, np.array(two),
    )  # fmt: skip
