"""Teachers with β* = b√N: overlaps by theory and sampling, and phases in the plane of b and ϱ."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from mnemosphere import theory
from mnemosphere.numerics import bessel
from mnemosphere.plots.style import PALETTE, figure_style, new_figure
from research.report import Json
from research.theory.example_noise import parting_eigenvalues, solve_with_noise
from research.theory.setting import matched

Array = NDArray[np.float64]

AT = (0.5, 0.7, 1.0, 1.4, 2.0, 8.0)  # values of b that are sampled
_SHADES = ("#F4F4F4", "#F3D3BE", "#BBD8EA")


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


def with_noise(problem: theory.SaddlePointProblem) -> torch.Tensor:
    """Overlaps (P*, P), with the noise of the examples."""
    return solve_with_noise(problem, aligned(problem), tol=1e-7).m


def without_noise(problem: theory.SaddlePointProblem) -> torch.Tensor:
    """Overlaps (P*, P) by the paper's equations."""
    start = aligned(problem)
    return theory.solve_saddle_point(
        problem, theory.OrderParameters(start.m[None], start.p[None])
    ).m[0]


def _own(m: torch.Tensor) -> float:
    return float(m.diagonal().mean())


def overlaps(n: int, b: float, beta_eff: float, rho: float, n_features: int) -> dict[str, float]:
    """Overlaps by the paper's equations, and by those with noise."""
    problem = problem_of(n, n, b=b, beta_eff=beta_eff, rho=rho, n_features=n_features)
    noisy = with_noise(problem)
    return {
        "paper": _own(without_noise(problem)),
        "theory": _own(noisy),
        "theory_mean": float(noisy.mean()),
    }


def sampled(
    n: int, b: float, beta_eff: float, rho: float, n_features: int, *, sweeps: int,
    generator: torch.Generator,
) -> tuple[float, float, float, float]:  # fmt: skip
    """One teacher: own overlap sampled from it and from a random start, mean of all, its excess.

    The excess is over the theory for this teacher's vectors, which are not quite orthogonal. One memory
    has an exact posterior; others are sampled by Gibbs.
    """
    problem = problem_of(n, n, b=b, beta_eff=beta_eff, rho=rho, n_features=n_features)
    teacher = theory.sample_teacher(n, n_features, upsilon=problem.upsilon, generator=generator)
    data = theory.sample_data(teacher, rho, generator=generator)
    expected = with_noise(problem.replace(patterns=teacher.w, uniform_teacher=False))
    if n == 1:
        total = data.x.sum(0)
        length = bessel.mean_resultant(problem.beta * total.norm(), n_features)
        m = float(length * (teacher.w @ total) / total.norm())
        return m, m, m, m - _own(expected)
    found = [
        theory.sample_posterior(
            teacher, data, n_memories=n, beta=problem.beta, start=start, n_chains=1,
            n_burn_in=sweeps // 2, n_sweeps=sweeps, generator=generator,
        ).trace.mean((0, 1))
        for start in ("teacher", "random")
    ]  # fmt: skip
    mean = float(torch.stack(found).mean())
    return _own(found[0]), _own(matched(found[1])), mean, mean - float(expected.mean())


@dataclass(frozen=True)
class WeakTeachers:
    """Overlaps along b, and phases in the plane of b and ϱ.

    points: rows of memories, b, overlaps by theory and samples. curves: the same lines on a finer grid.
    eigenvalues (3, ϱ, b): `parting_eigenvalues` of two memories at β_eff. examples: those of the page.
    """

    rho: float
    beta_eff: float
    n_features: int
    points: list[dict[str, Any]]
    curves: list[dict[str, Any]]
    b: Array
    rhos: Array
    eigenvalues: Array
    examples: Json

    @figure_style()
    def draw(self) -> Figure:
        """Overlaps, and where noise parts two memories before the signal."""
        figure = new_figure(9.2, 4.0)
        panels = figure.subplots(1, 2)
        self._draw_overlaps(panels[0])
        self._draw_phases(panels[1])
        for ax in panels:
            low, high = ax.get_xlim()
            ax.set_xscale("log")
            ticks = [t for t in (0.5, 1, 2, 4, 8) if low <= t <= high]
            ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
            ax.minorticks_off()
            ax.set_xlabel(r"$b=\beta^*/\sqrt{N}$")
        return figure

    def _draw_overlaps(self, ax: Axes) -> None:
        for k, curve in enumerate(self.curves):
            color, n = PALETTE[k], curve["memories"]
            own = [p for p in self.points if p["memories"] == n]
            b = [p["b"] for p in own]
            ax.plot(curve["b"], curve["theory"], color=color, label=f"P = P* = {n}")
            ax.plot(curve["b"], curve["paper"], ":", color=color, linewidth=1)
            ax.errorbar(b, [p["sampled"] for p in own], [p["error"] for p in own], fmt="s", color=color,
                        markersize=4, capsize=2, linewidth=1)  # fmt: skip
            if n > 1:
                ax.plot(
                    b, [p["random"] for p in own], "o", color=color, markersize=5, fillstyle="none"
                )
        for style, name in (("s", "sampled, from the teacher"), ("o", "from a random start")):
            ax.plot([], [], style, color="#555555", markersize=4, label=name,
                    fillstyle="none" if style == "o" else "full")  # fmt: skip
        ax.plot([], [], ":", color="#555555", label="the paper's equations")
        ax.set_ylim(0, 1)
        ax.set_xlim(0.45, 9)
        ax.set_ylabel("overlap with the own vector")
        ax.set_title(rf"$\beta_{{\rm eff}}$ = {self.beta_eff:g}, $\varrho$ = {self.rho:g}")
        ax.legend(fontsize=8, loc="lower right")

    def _draw_phases(self, ax: Axes) -> None:
        signal, noise, parted = self.eigenvalues
        phase = np.where(parted > 1, 2, np.where(noise > 1, 1, 0))
        ax.pcolormesh(self.b, self.rhos, phase, cmap=ListedColormap(_SHADES), vmin=0, vmax=2,
                      rasterized=True)  # fmt: skip
        misled = ((signal > 1) & (parted <= 1)).astype(float)
        ax.contourf(self.b, self.rhos, misled, levels=[0.5, 1.5], colors="none", hatches=["////"])
        styles = (
            (signal, "--", "signal = 1"),
            (noise, ":", "noise = 1"),
            (parted, "-", "parted = 1"),
        )
        for values, style, _ in styles:
            ax.contour(self.b, self.rhos, values, levels=[1.0], colors="black", linestyles=style)
        names = ("coincide", "fit noise", "find the teacher's")
        edge = {"edgecolor": "#777777"}
        handles: list[Any] = [
            Patch(facecolor=c, label=n, **edge) for c, n in zip(_SHADES, names, strict=True)
        ]
        handles.append(
            Patch(facecolor=_SHADES[1], hatch="////", label="noise before signal", **edge)
        )
        handles += [Line2D([], [], color="black", linestyle=s, label=n) for _, s, n in styles]
        ax.set_yscale("log")
        ax.set_xlim(self.b[0], self.b[-1])
        ax.set_ylim(self.rhos[0], self.rhos[-1])
        ax.set_ylabel(r"examples per parameter $\varrho$")
        ax.set_title(rf"P = P* = 2, student with $\beta_{{\rm eff}}$ = {self.beta_eff:g}")
        ax.legend(handles=handles, loc="upper right", fontsize=7.5)


def study_weak_teachers(
    *, rho: float, beta_eff: float, memories: Sequence[int], n_features: int,
    teachers: int, sweeps: int, grid: int, generator: torch.Generator,
) -> WeakTeachers:  # fmt: skip
    """Sample every b, and map the phases."""
    fine = np.geomspace(0.45, 9, 40)
    points: list[dict[str, Any]] = []
    curves = []
    for n in memories:
        lines = [overlaps(n, float(b), beta_eff, rho, 10**6) for b in fine]
        curve = {key: [line[key] for line in lines] for key in ("paper", "theory")}
        curves.append({"memories": n, "b": fine, **curve})
        for b in AT:
            found = np.array([
                sampled(n, b, beta_eff, rho, n_features, sweeps=sweeps, generator=generator)
                for _ in range(teachers * (4 if n == 1 else 1))
            ])  # fmt: skip
            names = ("sampled", "random", "sampled_mean", "excess")
            values = dict(zip(names, found.mean(0).tolist(), strict=True))
            error = found.std(0, ddof=1) / math.sqrt(len(found))
            points.append({"memories": n, "b": b, **overlaps(n, b, beta_eff, rho, n_features), **values,
                           "error": error[0], "random_error": error[1], "mean_error": error[2],
                           "excess_error": error[3]})  # fmt: skip
    axis, rhos = np.geomspace(0.5, 8, grid), np.geomspace(0.01, 30, grid)
    found_at = [
        [parting_eigenvalues(
            problem_of(2, 2, b=float(b), beta_eff=beta_eff, rho=float(r), n_features=10**8)
        ) for b in axis]
        for r in rhos
    ]  # fmt: skip
    eigenvalues = np.moveaxis(np.array(found_at), 2, 0)
    return WeakTeachers(
        rho, beta_eff, n_features, points, curves, axis, rhos, eigenvalues, worked_examples()
    )


def worked_examples() -> Json:
    """One memory, memories that noise parts first, and overlaps near a transition."""
    rho, n = 2.0, 10**6
    one = overlaps(1, 1.0, 3.0, rho, n)
    misled = problem_of(2, 2, b=1.0, beta_eff=3.0, rho=rho, n_features=n)
    b = math.sqrt(1.75 / (2 * 0.02))  # drops terms of relative size 0.02
    near = problem_of(2, 2, b=b, beta_eff=1.75, rho=rho, n_features=n)
    return {
        "one": {"factor": one["paper"] / math.sqrt(1.0 + 1.0 / rho), "overlap": one["theory"]},
        "parting": parting_eigenvalues(misled), "misled": with_noise(misled).tolist(),
        "near": {"dropped": near.noise / (2 * near.beta_eff),
                 "paper": without_noise(near)[0].tolist(), "noise": with_noise(near)[0].tolist()},
    }  # fmt: skip
