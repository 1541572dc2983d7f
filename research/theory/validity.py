"""How large the terms are that the saddle-point equations drop, and what is left with noise kept.

Two sources: stored comparisons with Gibbs sampling, without labels, and exact posteriors of one
memory over a grid of υ, β and N. Each has an error of the plain equations and one of those with
the noise of the examples, next to the relative size β(1 − ς²)/(2Nς) of what is dropped.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes

from mnemosphere import theory
from mnemosphere.numerics import bessel
from mnemosphere.plots.style import PALETTE, figure_style, new_axes
from mnemosphere.theory.problem import MAX_DROPPED
from research.benchmarks.theory_vs_gibbs import CASES, own_weights
from research.report import Json
from research.theory.setting import StepDone, no_progress

GRID = {
    "upsilon": (0.01, 0.03, 0.1, 0.3, 1.0),
    "beta": (3.0, 10.0, 30.0, 100.0),
    "size": (100, 300, 1000),
}
RHO = 2.0
_MOST_BETA = 0.1  # of N


@dataclass(frozen=True)
class Validity:
    """rows: source, memories, υ, ϱ, β, N, dropped, sampled, error of the sample, plain, with noise."""

    rows: list[dict[str, Any]]

    @figure_style()
    def draw(self) -> Axes:
        """Distance from the samples against the size of what is dropped."""
        ax = new_axes(6.8, 4.0)
        for k, (key, name) in enumerate(
            (("plain", "the paper's equations"), ("noisy", "with noise"))
        ):
            for source, marker in (("exact posterior", "o"), ("Gibbs", "D")):
                own = [row for row in self.rows if row["source"] == source]
                gap = [max(abs(row[key] - row["sampled"]), 1e-5) for row in own]
                ax.plot([row["dropped"] for row in own], gap, marker, color=PALETTE[1 - k], markersize=4,
                        alpha=0.75, label=f"{name}, {source}")  # fmt: skip
        ax.axvline(MAX_DROPPED, color="#777777", linestyle=":", label="a warning beyond")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlabel(r"terms dropped, $\beta(1-\varsigma^2)/(2N\varsigma)$")
        ax.set_ylabel("distance of the overlap from the sample")
        ax.legend(fontsize=8.5)
        return ax


def check_validity(stored: Json, *, sets: int, generator: torch.Generator,
                   progress: StepDone = no_progress) -> Validity:  # fmt: skip
    """Both sources."""
    rows: list[dict[str, Any]] = []
    cells = [
        (upsilon, beta, n) for upsilon in GRID["upsilon"] for beta in GRID["beta"] for n in GRID["size"]
        if beta <= _MOST_BETA * n
    ]  # fmt: skip
    for i, (upsilon, beta, n) in enumerate(cells):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", theory.ValidityWarning)
            problem = theory.SaddlePointProblem.uniform(
                1, 1, beta=beta, rho=RHO, upsilon=upsilon, n_features=n
            )
        start = theory.OrderParameters(torch.full((1, 1), 0.5).double(), problem.p_h[:, None])
        plain = theory.varsigma_of_noise(problem.beta_eff * RHO)
        found = []
        for _ in range(sets):
            teacher = theory.sample_teacher(1, n, upsilon=upsilon, generator=generator)
            total = theory.sample_data(teacher, RHO, generator=generator).x.sum(0)
            length = bessel.mean_resultant(beta * total.norm(), n)
            found.append(float(length * (teacher.w @ total) / total.norm()))
        rows.append(_row("exact posterior", problem, 1, np.mean(found), np.std(found, ddof=1) / math.sqrt(sets),
                         plain, float(theory.solve_with_noise(problem, start).m)))  # fmt: skip
        progress(i + 1, len(cells))
    cases = {(c.name, c.upsilon, c.rho, c.beta): c for c in CASES}
    for row in stored["rows"]:
        if row["soft_labels"] is not None:
            continue
        case = cases[row["setting"], row["upsilon"], row["rho"], row["beta"]]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", theory.ValidityWarning)
            problem = case.problem(row["n_features"])
        m = torch.tensor(row["theory_overlaps"], dtype=torch.float64)
        weight = own_weights(m, case)
        noisy = theory.solve_with_noise(problem, theory.OrderParameters(m, problem.p_h[:, None]))
        # The stored difference is that to the solution for the very vectors of each teacher.
        sampled = row["theory"] + row["clamped_difference"]
        rows.append(_row("Gibbs", problem, case.n_student, sampled, row["clamped_standard_error"],
                         row["theory"], float((weight * noisy.m).sum())))  # fmt: skip
    return Validity(rows)


def _row(
    source: str, problem: theory.SaddlePointProblem, memories: int, sampled: float, error: float,
    plain: float, noisy: float,
) -> dict[str, Any]:  # fmt: skip
    return {
        "source": source, "memories": memories, "upsilon": problem.upsilon, "rho": problem.rho,
        "beta": problem.beta, "n_features": problem.n_features,
        "dropped": problem.noise / (2 * problem.beta_eff), "sampled": float(sampled),
        "error": float(error), "plain": plain, "noisy": noisy,
    }  # fmt: skip
