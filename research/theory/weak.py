"""Teachers with β* = b√N: overlaps by theory and sampling, and phases in the plane of b and ϱ."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from mnemosphere import theory
from mnemosphere.numerics import bessel
from mnemosphere.plots.style import MARKERS, PALETTE, SEQUENTIAL, figure_style, new_figure
from research.theory.setting import StepDone, no_progress

Array = NDArray[np.float64]

PHASES = ("memories coincide", "memories fit noise", "memories find the teacher's")
_SHADES = ("#F4F4F4", "#F3D3BE", "#BBD8EA")
_PARTED = 1e-3


def problem_of(
    n_teacher: int, n_student: int, *, b: float, beta_eff: float, rho: float, n_features: int
) -> theory.SaddlePointProblem:
    """A teacher of β* = b√N and a student of this β_eff; no warning that noise counts."""
    upsilon = b / math.sqrt(n_features)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", theory.ValidityWarning)
        return theory.SaddlePointProblem.uniform(
            n_teacher, n_student, beta=beta_eff / theory.varsigma_of_noise(upsilon), rho=rho,
            upsilon=upsilon, n_features=n_features,
        )  # fmt: skip


def aligned(problem: theory.SaddlePointProblem) -> theory.OrderParameters:
    """A start with one memory near each vector of the teacher."""
    m = 0.05 + 0.85 * torch.eye(problem.n_teacher, problem.n_student, dtype=torch.float64)
    return theory.OrderParameters(m, problem.p_h[:, None] * problem.p_q)


def _read(m: torch.Tensor) -> tuple[float, float]:
    """Mean overlap with the own vector, and with all."""
    return float(m.diagonal().mean()), float(m.mean())


def overlaps(n: int, b: float, beta_eff: float, rho: float, n_features: int) -> dict[str, float]:
    """Overlaps by the paper's equations, and by those with noise."""
    problem = problem_of(n, n, b=b, beta_eff=beta_eff, rho=rho, n_features=n_features)
    start = aligned(problem)
    plain = theory.solve_saddle_point(problem, theory.OrderParameters(start.m[None], start.p[None]))
    own, mean = _read(theory.solve_with_noise(problem, start, tol=1e-7).m)
    return {"paper": _read(plain.m[0])[0], "theory": own, "theory_mean": mean}


def sampled(
    n: int, b: float, beta_eff: float, rho: float, n_features: int, *, sweeps: int,
    generator: torch.Generator,
) -> tuple[float, float]:  # fmt: skip
    """The same for one teacher and its data: exact for one memory, else by Gibbs sampling."""
    problem = problem_of(n, n, b=b, beta_eff=beta_eff, rho=rho, n_features=n_features)
    teacher = theory.sample_teacher(n, n_features, upsilon=problem.upsilon, generator=generator)
    data = theory.sample_data(teacher, rho, generator=generator)
    if n == 1:
        total = data.x.sum(0)
        length = bessel.mean_resultant(problem.beta * total.norm(), n_features)
        return _read((length * (teacher.w @ total) / total.norm())[:, None])
    posterior = theory.sample_posterior(
        teacher, data, n_memories=n, beta=problem.beta, start="teacher", n_chains=2,
        n_burn_in=sweeps // 2, n_sweeps=sweeps - sweeps // 2, generator=generator,
    )  # fmt: skip
    return _read(posterior.overlaps("none").mean)


class Contrast:
    """Fixed points of a student with β = β* and P = P*, for any P, through one function A(x).

    The contrast δ = m_own − m_other solves δ/(1 − δ) = ϱ b² (P A(b²δ) − 1)/(P − 1), with A(x) the mean
    share of the first memory in a softmax of x e_1 + √x ξ. Its stationary function is
    ½(P − 1)[log(1 − δ) + δ] + ½ϱ ∫_0^{b²δ} (P A − 1) dx.
    """

    def __init__(self, n_memories: int, *, largest: float = 60.0, n_draws: int = 2**14) -> None:
        sobol = torch.quasirandom.SobolEngine(n_memories, scramble=True, seed=0)
        u = sobol.draw(n_draws, dtype=torch.float64).clamp(1e-12, 1 - 1e-12)
        xi = math.sqrt(2.0) * torch.erfinv(2 * u - 1)
        self.n = n_memories
        self.x = np.concatenate([[0.0], np.geomspace(1e-4, largest, 400)])
        excess = [0.0]
        for x in self.x[1:]:
            h = math.sqrt(x) * xi
            # Every memory in turn as the first: the draws become symmetric.
            share = [
                torch.softmax(h + x * torch.eye(n_memories, dtype=h.dtype)[k], 1)[:, k].mean()
                for k in range(n_memories)
            ]
            excess.append(float(n_memories * torch.stack(share).mean() - 1))
        self.excess = np.array(excess)  # P A − 1
        steps = np.diff(self.x) * (self.excess[1:] + self.excess[:-1]) / 2
        self.area = np.concatenate([[0.0], np.cumsum(steps)])

    def thresholds(self, b: float) -> tuple[float, float, float]:
        """(least ϱ with a parted solution, ϱ at which it is the better one, ϱ = P/b⁴)."""
        delta = np.linspace(1e-3, 1 - 1e-4, 4000)
        delta = delta[b * b * delta < self.x[-1]]
        excess = np.interp(b * b * delta, self.x, self.excess)
        rho = delta / (1 - delta) * (self.n - 1) / (b * b * excess)
        easy = self.n / b**4
        k = int(rho.argmin())
        if rho[k] > easy * (1 - 2e-3):
            return easy, easy, easy
        area = np.interp(b * b * delta, self.x, self.area)
        value = (self.n - 1) * (np.log1p(-delta) + delta) + rho * area  # 0 at δ = 0
        after = np.arange(len(delta)) > k  # the stable branch
        wins = after & (value > 0)
        return float(rho[k]), float(rho[wins][0]) if wins.any() else easy, easy

    def solve(self, b: float, rho: float) -> float:
        """The largest contrast δ."""
        delta = 1.0
        for _ in range(500):
            excess = float(np.interp(b * b * delta, self.x, self.excess))
            gain = rho * b * b * excess / (self.n - 1)
            delta, before = gain / (1 + gain), delta
            if abs(delta - before) < 1e-8:
                break
        return delta


@dataclass(frozen=True)
class WeakTeachers:
    """Overlaps along b, and phases in the plane of b and ϱ.

    points: rows of memories, b, N, paper, theory (with noise), sampled, error, and the mean over all
    overlaps, which no permutation changes. curves: the same lines on a finer grid. contrast (ϱ, b):
    of two memories with β = β*. phase (ϱ, b): numbers into PHASES, of two memories at β_eff. hard:
    thresholds (3, b) of many memories with β = β*.
    """

    rho: float
    beta_eff: float
    n_many: int
    points: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    b: Array
    rhos: Array
    contrast: Array
    phase: NDArray[np.int64]
    b_many: Array
    hard: Array

    @figure_style()
    def draw(self) -> Figure:
        """Overlaps, two maps for two memories, and thresholds for many."""
        figure = new_figure(10.2, 7.4)
        panels = figure.subplots(2, 2)
        self._draw_overlaps(panels[0, 0])
        ax = panels[0, 1]
        levels = np.linspace(0.0, 1.0, 11)
        drawn = ax.contourf(self.b, self.rhos, self.contrast, levels=levels, cmap=SEQUENTIAL)
        figure.colorbar(drawn, ax=ax, label="own overlap − other overlap")
        ax.plot(self.b, 2 / self.b**4, color="black", label=r"$\varrho b^4=P^*$")
        ax.set_title("P = P* = 2, best student (β = β*)")
        ax.legend(loc="lower left")
        ax = panels[1, 0]
        ax.pcolormesh(self.b, self.rhos, self.phase, cmap=ListedColormap(_SHADES), vmin=0, vmax=2)
        for k, name in enumerate(PHASES):
            ax.plot(
                [], [], "s", color=_SHADES[k], markeredgecolor="#777777", markersize=9, label=name
            )
        ax.plot(self.b, 2 / self.b**4, "--", color="black", linewidth=1)
        ax.set_title(rf"P = P* = 2, student with $\beta_{{\rm eff}}$ = {self.beta_eff:g}")
        ax.legend(loc="upper right", fontsize=9)
        ax = panels[1, 1]
        exists, better, _ = self.hard / self.hard[2]  # in units of P*/b⁴
        ax.fill_between(self.b_many, 1.0, 1.15, color=_SHADES[2])
        ax.fill_between(self.b_many, better, 1.0, color=_SHADES[1])
        ax.fill_between(self.b_many, 0.7, better, color=_SHADES[0])
        ax.plot(
            self.b_many, exists, ":", color="black", label="parted solutions exist from here on"
        )
        for k, name in ((2, "easy"), (1, "possible, hard"), (0, "impossible")):
            ax.plot(
                [], [], "s", color=_SHADES[k], markeredgecolor="#777777", markersize=9, label=name
            )
        ax.set_title(f"P = P* = {self.n_many}, best student (β = β*)")
        ax.legend(loc="lower left", fontsize=9)
        for ax in panels.ravel()[1:]:
            ax.set_xscale("log")
            ax.set_xlabel(r"$b=\beta^*/\sqrt{N}$")
            ax.set_ylabel(r"examples per parameter $\varrho$")
        for ax in panels.ravel()[1:3]:
            ax.set_yscale("log")
            ax.set_ylim(self.rhos[0], self.rhos[-1])
        panels[1, 1].set_ylim(0.75, 1.1)
        panels[1, 1].set_ylabel(r"$\varrho b^4/P^*$")
        for ax, b in zip(panels.ravel()[1:], (self.b, self.b, self.b_many), strict=True):
            ax.set_xlim(b[0], b[-1])
            ticks = [t for t in (0.5, 1, 2, 4, 8, 16) if b[0] <= t <= b[-1]]
            ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
            ax.minorticks_off()
        return figure

    def _draw_overlaps(self, ax: Any) -> None:
        sizes = sorted({p["n_features"] for p in self.points})
        for k, curve in enumerate(self.curves):
            color, n = PALETTE[k], curve["memories"]
            ax.plot(curve["b"], curve["theory"], color=color, label=f"P = P* = {n}")
            ax.plot(curve["b"], curve["paper"], ":", color=color, linewidth=1)
            for j, size in enumerate(sizes):
                own = [p for p in self.points if (p["memories"], p["n_features"]) == (n, size)]
                ax.errorbar(
                    [p["b"] for p in own], [p["sampled"] for p in own], [p["error"] for p in own],
                    fmt=MARKERS[j], color=color, markersize=4, capsize=2, linewidth=1,
                    markerfacecolor="white" if j == 0 else color,
                )  # fmt: skip
        for j, size in enumerate(sizes):
            ax.plot([], [], MARKERS[j], color="#555555", label=f"sampled, N = {size}",
                    markerfacecolor="white" if j == 0 else "#555555")  # fmt: skip
        ax.plot([], [], ":", color="#555555", label="the paper's equations")
        ax.set_xscale("log")
        ax.set_xticks([0.5, 1, 2, 4, 8], ["0.5", "1", "2", "4", "8"])
        ax.minorticks_off()
        ax.set_ylim(0, 1)
        ax.set_xlabel(r"$b=\beta^*/\sqrt{N}$")
        ax.set_ylabel("overlap with the own vector")
        ax.set_title(rf"$\beta_{{\rm eff}}$ = {self.beta_eff:g}, $\varrho$ = {self.rho:g}")
        ax.legend(fontsize=8.5, loc="lower right")


def study_weak_teachers(
    *, rho: float, beta_eff: float, memories: Sequence[int], sizes: Sequence[int], many: int,
    teachers: int, sweeps: int, grid: int, generator: torch.Generator,
    progress: StepDone = no_progress,
) -> WeakTeachers:  # fmt: skip
    """Sample every b and N, and map the phases."""
    at, fine = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 8.0), np.geomspace(0.45, 9, 40)
    points, curves = [], []
    total = len(memories) * len(sizes) * len(at) + grid
    for n in memories:
        lines = [overlaps(n, float(b), beta_eff, rho, 10**6) for b in fine]
        curve = {key: [line[key] for line in lines] for key in ("paper", "theory")}
        curves.append({"memories": n, "b": fine, **curve})
        for size in sizes:
            for b in at:
                found = np.array([
                    sampled(n, b, beta_eff, rho, size, sweeps=sweeps, generator=generator)
                    for _ in range(teachers * (4 if n == 1 else 1))
                ])  # fmt: skip
                (own, mean), error = found.mean(0), found.std(0, ddof=1) / math.sqrt(len(found))
                points.append({
                    "memories": n, "b": b, "n_features": size,
                    **overlaps(n, b, beta_eff, rho, size),
                    "sampled": own, "error": error[0], "sampled_mean": mean, "mean_error": error[1],
                })  # fmt: skip
                progress(len(points), total)
    axis, rhos = np.geomspace(0.5, 8, grid), np.geomspace(0.01, 30, grid)
    two, many_of = Contrast(2), Contrast(many)
    contrast = np.array([[two.solve(float(b), float(r)) for b in axis] for r in rhos])
    phase = np.zeros((grid, grid), np.int64)
    for i, r in enumerate(rhos):
        for j, b in enumerate(axis):
            problem = problem_of(
                2, 2, b=float(b), beta_eff=beta_eff, rho=float(r), n_features=10**8
            )
            found_state = theory.solve_with_noise(problem, aligned(problem), tol=1e-7)
            parted = [float(v[0, 0] - v[0, 1]) > _PARTED for v in (found_state.m, found_state.q)]
            phase[i, j] = 2 if parted[0] else int(parted[1])
        progress(len(points) + i + 1, total)
    b_many = np.geomspace(0.8, 8, 3 * grid)
    hard = np.array([many_of.thresholds(float(b)) for b in b_many]).T
    return WeakTeachers(
        rho, beta_eff, many, points, curves, axis, rhos, contrast, phase, b_many, hard
    )
