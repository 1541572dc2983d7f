"""How often branches are visited, beside what the theory says of their weights at finite N.

Three memories on two teacher vectors have two stable solutions: one memory idle between the
vectors, or two memories on one of them. Replica exchange in β carries chains from one to the other.
At each β the log odds of the two are, up to terms that vanish as N grows,

    N (f_idle − f_paired) + what `theory.log_weight` adds for the data drawn,

summed over the permutations that make solutions of the same kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere import theory
from mnemosphere.numerics import sphere, vmf
from mnemosphere.plots.style import MARKERS, PALETTE, figure_style, new_figure
from mnemosphere.theory.gibbs import GibbsState
from mnemosphere.theory.tempering import Ladder, start_replicas, tempered_sweep
from research.theory.setting import StepDone, no_progress

_IDLE = 0.45  # a memory whose overlaps with the two vectors differ by less is idle
_FLOOR = 1e-4
_MIXED = 0.1  # what the shares of chains from two starts may differ by


@dataclass(frozen=True)
class Occupation:
    """Visits of the branch with an idle memory, (sizes, sets, K) for K values of β.

    share: of the draws, with its standard error over chains; log_odds: the theory's, for the same
    data, NaN where a branch is no solution. gap (K,): f_idle − f_paired per dimension.
    """

    n_features: list[int]
    beta: list[float]
    share: NDArray[np.float64]
    error: NDArray[np.float64]
    log_odds: NDArray[np.float64]
    gap: NDArray[np.float64]
    acceptance: list[float]  # smallest of the ladder, per size
    from_idle: NDArray[np.float64]  # (sizes, K) share of the chains that started there
    from_paired: NDArray[np.float64]

    def measured(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Log odds of the visits, their mean over data sets and its standard error, (sizes, K)."""
        share = self.share.clip(_FLOOR, 1 - _FLOOR)
        odds = np.log(share / (1 - share))
        return odds.mean(1), odds.std(1, ddof=1) / np.sqrt(odds.shape[1])

    def mixed(self) -> list[bool]:
        """Whether chains of both starts visit the branches equally often, for each N."""
        gap = np.abs(np.asarray(self.from_idle) - np.asarray(self.from_paired)).max(1)
        return [bool(value < _MIXED) for value in gap]

    @figure_style()
    def draw(self) -> Axes:
        """Log odds against β for every N whose chains mix; those of each data set beside theory."""
        figure = new_figure(8.4, 3.6)
        left, right = figure.subplots(1, 2)
        mean, error = self.measured()
        for k, n in enumerate(self.n_features):
            if not self.mixed()[k]:
                continue
            inside = (self.share[k] > 0.002).all(0) & (self.share[k] < 0.998).all(0)
            known = np.isfinite(self.log_odds[k]).all(0)
            beta = np.asarray(self.beta)
            left.plot(beta[known], self.log_odds[k].mean(0)[known], "-", color=PALETTE[k])
            left.errorbar(
                beta[inside], mean[k][inside], error[k][inside], fmt=MARKERS[k], color=PALETTE[k],
                markersize=4, capsize=2, label=f"N = {n}",
            )  # fmt: skip
            both = inside & known
            share = self.share[k][:, both]
            right.plot(
                self.log_odds[k][:, both].ravel(), np.log(share / (1 - share)).ravel(), MARKERS[k],
                color=PALETTE[k], markersize=3, alpha=0.7,
            )  # fmt: skip
        left.axhline(0, color="#999999", linewidth=0.8)
        left.set_ylim(-7.5, 7.5)
        left.set_xlabel(r"inverse temperature $\beta$")
        left.set_ylabel("log odds, idle against paired")
        left.legend(fontsize=7.5)
        ends = [-7, 7]
        right.plot(ends, ends, color="#999999", linewidth=0.8)
        right.set_xlabel("theory, for the same data")
        right.set_ylabel("log odds of the visits")
        for ax in (left, right):
            ax.grid(color="#E5E5E5", linewidth=0.6)
        return left


_STARTS = {
    "idle": [[0.9, 0.0, 0.1], [0.0, 0.9, 0.1]],
    "paired": [[0.8, 0.8, 0.0], [0.0, 0.0, 0.9]],
}


def branches(problem: theory.SaddlePointProblem) -> dict[str, tuple[Tensor, float]]:
    """Overlaps (2, 3) and f of the solutions with an idle memory and with two on one vector.

    A branch that is no stable solution at this β is left out.
    """
    found = {}
    for name, m in _STARTS.items():
        start = torch.tensor([m], dtype=torch.float64)
        solved = theory.solve_saddle_point(
            problem, theory.OrderParameters(start, problem.p_h[None, :, None])
        ).raise_if_failed()
        idle = float((solved.m[0, 0] - solved.m[0, 1]).abs().min()) < _IDLE
        if idle == (name == "idle") and float(theory.spectrum(problem, solved[0])[0]) < 1:
            f = float(solved.objective[0]) * problem.rho * problem.n_teacher
            found[name] = (solved.m[0], f)
    return found


def predicted(
    problem: theory.SaddlePointProblem, teacher: theory.Teacher, data: theory.PlantedData
) -> float:
    """Log odds of an idle memory for these data; NaN where one branch is no solution."""
    found = branches(problem)
    if len(found) < 2:
        return float("nan")
    p = problem.p_h[:, None]

    def weight(m: Tensor) -> float:
        return theory.log_weight(problem, theory.OrderParameters(m, p), teacher, data)

    # Six permutations of an idle state; three of each of the two paired ones.
    paired = found["paired"][0]
    try:
        pair = np.logaddexp(weight(paired), weight(paired.flip(0)))
        return float(np.log(2.0) + weight(found["idle"][0]) - pair)
    except ValueError:  # a branch that has barely begun may be none for these data
        return float("nan")


def balanced(
    n: int, rho: float, upsilon: float, *, generator: torch.Generator
) -> tuple[theory.Teacher, theory.PlantedData]:
    """Two teacher vectors with equally many examples: their chance would decide which is shared."""
    teacher = theory.sample_teacher(2, n, upsilon=upsilon, generator=generator)
    cluster = torch.arange(round(2 * rho * n), device=generator.device) % 2
    kappa = torch.tensor(teacher.beta, dtype=torch.float64, device=generator.device)
    x = vmf.sample(teacher.w[cluster], kappa, generator=generator)
    return teacher, theory.PlantedData(x, torch.zeros_like(cluster), cluster)


def is_idle(m: Tensor) -> Tensor:
    """Whether a memory is idle, (...,), by overlaps m (..., 3, 2) with the teacher's vectors."""
    return (m[..., 0] - m[..., 1]).abs().amin(-1) < _IDLE


def idle_share(
    vectors: Tensor,
    x: Tensor,
    ladder: Ladder,
    *,
    n_chains: int,
    n_sweeps: int,
    generator: torch.Generator,
) -> tuple[Tensor, float]:
    """Share (chains, K) of draws with an idle memory after a fifth of the sweeps; acceptance.

    vectors (2, N): the teacher's; x (M, N): examples. The first half of the chains starts idle, the
    other paired.
    """
    half = n_chains // 2
    noise = sphere.sample_uniform(
        n_chains, x.shape[1], generator=generator, dtype=torch.float64, device=x.device
    )
    middle = sphere.project(0.1 * vectors.sum(0) + noise)
    third = torch.cat([middle[:half], vectors[1].expand(n_chains - half, -1)])
    w = torch.cat([vectors.expand(n_chains, -1, -1), third[:, None]], 1)
    p = x.new_tensor([0.0, 1 / 3, 1 / 3, 1 / 3])[None, :, None]
    replicas = start_replicas(GibbsState(w, p.expand(n_chains, -1, -1)), ladder)
    y = torch.zeros(len(x), dtype=torch.long, device=x.device)
    total = x.new_zeros(n_chains, len(ladder.betas))
    first = n_sweeps // 5
    for i in range(n_sweeps):
        replicas = tempered_sweep(
            replicas, x, y, parity=i % 2, class_weight_moves=1, generator=generator
        )
        if i >= first:
            total += is_idle(replicas.state.w @ vectors.T).double().reshape(n_chains, -1)
    return (total / (n_sweeps - first)).cpu(), float(replicas.acceptance().min())


def visit_branches(
    sizes: Sequence[int],
    betas: Sequence[float],
    *,
    rho: float = 1.0,
    upsilon: float = 1.0,
    n_sets: int = 4,
    n_chains: int = 16,
    n_sweeps: int = 4000,
    progress: StepDone = no_progress,
    generator: torch.Generator,
) -> Occupation:
    """Sample every N with several data sets, and put the theory's log odds beside the visits."""
    shape = (len(sizes), n_sets, len(betas))
    share, error, odds = np.zeros(shape), np.zeros(shape), np.full(shape, np.nan)
    starts, acceptance = np.zeros((2, len(sizes), len(betas))), []
    gap = np.full(len(betas), np.nan)
    for i, n in enumerate(sizes):
        problems = [
            theory.SaddlePointProblem.uniform(
                2, 3, beta=beta, rho=rho, upsilon=upsilon, n_features=n
            )
            for beta in betas
        ]
        lowest = 1.0
        for j in range(n_sets):
            progress(i * n_sets + j, len(sizes) * n_sets)
            teacher, data = balanced(n, rho, upsilon, generator=generator)
            idle, accepted = idle_share(
                teacher.w, data.x, Ladder(data.x.new_tensor(list(betas))), n_chains=n_chains,
                n_sweeps=n_sweeps, generator=generator,
            )  # fmt: skip
            lowest = min(lowest, accepted)
            share[i, j] = idle.mean(0)
            error[i, j] = idle.std(0) / n_chains**0.5
            half = n_chains // 2
            starts[0, i] += idle[:half].mean(0).numpy() / n_sets
            starts[1, i] += idle[half:].mean(0).numpy() / n_sets
            odds[i, j] = [predicted(problem, teacher, data) for problem in problems]
        acceptance.append(lowest)
    for k, problem in enumerate(problems):
        both = branches(problem)
        if len(both) == 2:
            gap[k] = both["idle"][1] - both["paired"][1]
    return Occupation(
        list(sizes), [float(b) for b in betas], share, error, odds, gap, acceptance, starts[0],
        starts[1],
    )  # fmt: skip
