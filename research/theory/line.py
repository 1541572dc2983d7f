"""Branches at β = 8, visited by replica exchange along the line on which they have equal weight.

Three memories on two teacher vectors, as in `occupation`. On a ladder in β alone the two branches
change places by a jump, whose barrier grows with N. Give the third memory the weight t and the
others (1 − t)/2: the line of equal free entropy in (β, t) starts at β = 7.85 and t = 1/3 and ends
near β = 5.4, where an idle memory and a pair pass into each other. Rungs along that line hold both
branches everywhere, and lead from one to the other without a barrier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
_END, _BEGINS = 5.2, 7.85  # of the ladder, and β of equal free entropy at equal weights
_RUNGS = 19  # at N = 600
_STARTS = [[[0.9, 0.0, 0.1], [0.0, 0.9, 0.1]], [[0.8, 0.0, 0.8], [0.0, 0.9, 0.0]]]


def weights(t: Tensor) -> Tensor:
    """p_h (..., 4) with weight t on the third memory."""
    return torch.stack([torch.zeros_like(t), (1 - t) / 2, (1 - t) / 2, t], -1)


def solve_both(beta: float, t: float) -> tuple[bool, float]:
    """Whether an idle memory and a pair are two solutions at (β, t), and f_idle − f_paired."""
    problem = theory.SaddlePointProblem.uniform(
        2, 3, beta=beta, rho=1.0, upsilon=1.0, n_features=1000,
        p_h=weights(torch.tensor(t, dtype=torch.float64)),
    )  # fmt: skip
    start = torch.tensor(_STARTS, dtype=torch.float64)
    p = problem.p_h[None, :, None].expand(2, -1, -1)
    found = theory.solve_saddle_point(problem, theory.OrderParameters(start, p)).raise_if_failed()
    two = float((found.m[0] - found.m[1]).abs().max()) > 0.05 and all(
        float(theory.spectrum(problem, found[i])[0]) < 1 for i in range(2)
    )
    return two, float(found.objective[0] - found.objective[1]) * problem.rho * 2


@cache
def equal_weight(beta: float) -> float:
    """The t at which both branches have the same free entropy; past the end of the line, its t."""
    if beta >= _BEGINS:
        return 1 / 3
    low, high = 0.28, 1 / 3  # idle below, paired above
    while high - low > 1e-4:
        t = (low + high) / 2
        two, gap = solve_both(beta, t)
        if not two and abs(gap) < 1e-9:
            # Past the end there is one solution, idle on one side.
            gap = 1.0 if is_symmetric(beta, t) else -1.0
        low, high = (t, high) if gap > 0 else (low, t)
    return (low + high) / 2


def is_symmetric(beta: float, t: float) -> bool:
    """Whether the third memory of the solution found from an idle one lies between the vectors."""
    problem = theory.SaddlePointProblem.uniform(
        2, 3, beta=beta, rho=1.0, upsilon=1.0, n_features=1000,
        p_h=weights(torch.tensor(t, dtype=torch.float64)),
    )  # fmt: skip
    start = torch.tensor(_STARTS[1:], dtype=torch.float64)
    p = problem.p_h[None, :, None]
    found = theory.solve_saddle_point(problem, theory.OrderParameters(start, p)).raise_if_failed()
    return float((found.m[0, 0, 2] - found.m[0, 1, 2]).abs()) < 1e-3


def ladder(n: int) -> Ladder:
    """Rungs from past the end of the line to β = 8 and equal weights.

    As many as √N asks for: neighbors must overlap in log-likelihood, which varies by √N.
    """
    betas = np.linspace(_END, BETA, max(4, round(_RUNGS * math.sqrt(n / 600))))
    t = torch.tensor([equal_weight(float(beta)) for beta in betas], dtype=torch.float64)
    return Ladder(torch.tensor(betas), weights(t))


@dataclass(frozen=True)
class Visits:
    """Share of draws with an idle memory for each data set, (sizes, sets), and where they can be.

    error: standard error over chains; from_idle, from_paired: of the chains that start there;
    log_odds: the theory's. two (B, T): whether both branches are solutions at (β, t).
    """

    n_features: list[int]
    share: NDArray[np.float64]
    error: NDArray[np.float64]
    from_idle: NDArray[np.float64]
    from_paired: NDArray[np.float64]
    log_odds: NDArray[np.float64]
    acceptance: NDArray[np.float64]  # smallest on the ladder
    rungs: list[int]
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
        rungs = ladder(max(self.n_features))
        assert rungs.p_h is not None
        left.plot(rungs.betas, rungs.p_h[:, 3], ".-", color=PALETTE[0], linewidth=0.8, markersize=5)
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
    n_chains: int
    n_sweeps: int
    device: str


def visit(job: _Job) -> list[float]:
    """One data set: share of idle states, its error, both starts, the theory's odds, acceptance."""
    torch.set_num_threads(1)
    # Data of the processor: the theory's side needs no other device.
    teacher, data = balanced(job.n, 1.0, 1.0, generator=torch.Generator().manual_seed(job.seed))
    problem = theory.SaddlePointProblem.uniform(
        2, 3, beta=BETA, rho=1.0, upsilon=1.0, n_features=job.n
    )
    odds = predicted(problem, teacher, data)
    share, accepted = idle_share(
        teacher.w.to(job.device), data.x.to(job.device), ladder(job.n), n_chains=job.n_chains,
        n_sweeps=job.n_sweeps, generator=torch.Generator(job.device).manual_seed(job.seed),
    )  # fmt: skip
    last, half = share[:, -1], job.n_chains // 2
    error = float(last.std()) / job.n_chains**0.5
    starts = [float(last[:half].mean()), float(last[half:].mean())]
    return [float(last.mean()), error, *starts, odds, accepted]


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
    jobs = [
        _Job(n, 1000 * seed + 10 * n + j, n_chains, n_sweeps, device)
        for n in sizes
        for j in range(n_sets)
    ]
    rows = []
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        run = map if workers == 1 else pool.map
        for row in run(visit, jobs[::-1]):  # the largest take longest
            rows.append(row)
            progress(len(rows), len(jobs))
    table = np.array(rows[::-1]).reshape(len(sizes), n_sets, -1)
    beta, t = np.linspace(5.0, 8.5, grid[0]), np.linspace(0.26, 1 / 3, grid[1])
    two = np.array([[solve_both(b, s)[0] for s in t] for b in beta])
    return Visits(
        list(sizes), table[..., 0], table[..., 1], table[..., 2], table[..., 3], table[..., 4],
        table[..., 5], [len(ladder(n).betas) for n in sizes], beta, t, two,
    )  # fmt: skip
