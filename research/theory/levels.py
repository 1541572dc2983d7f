"""Log Z of planted data by thermodynamic integration, beside N f and the term of order 1.

d log Z/dβ is the posterior mean of Σ_c Σ_μ r (⟨w^μ, x_c⟩ − A_N(β)), sampled at the nodes of a
Gauss–Legendre rule on both sides of the transition and integrated from β = 0, where Z = 1. What the
chance of the data adds is taken out by `theory.log_weight` for the same data.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray

from mnemosphere import theory
from mnemosphere.numerics import bessel, sphere
from mnemosphere.plots.style import MARKERS, PALETTE, figure_style, new_axes
from mnemosphere.theory.gibbs import GibbsState, Likelihood, fields, overlaps_with_rows, sweep
from research.theory.setting import Setting, StepDone, no_progress


@dataclass(frozen=True)
class Levels:
    """E log Z − N f (settings, sizes) as integrated, its standard error, and as computed."""

    names: list[str]
    n_features: list[int]
    measured: NDArray[np.float64]
    error: NDArray[np.float64]
    computed: NDArray[np.float64]

    @figure_style()
    def draw(self) -> Axes:
        """Marks: integrated, at every N; lines: computed."""
        ax = new_axes(5.4, 3.6)
        for k, name in enumerate(self.names):
            ax.plot(self.n_features, self.computed[k], "-", color=PALETTE[k], linewidth=1.2)
            ax.errorbar(
                self.n_features, self.measured[k], self.error[k], fmt=MARKERS[k], color=PALETTE[k],
                markersize=4.5, capsize=2, label=name,
            )  # fmt: skip
        ax.set_xscale("log")
        ax.set_xticks(self.n_features, [str(n) for n in self.n_features])
        ax.minorticks_off()
        ax.set_ylim(bottom=0)
        ax.set_xlabel("features N")
        ax.set_ylabel(r"$\log Z - N f$")
        ax.grid(color="#E5E5E5", linewidth=0.6)
        ax.legend(fontsize=7.5)
        return ax


def log_z(
    data: theory.PlantedData,
    start: torch.Tensor,
    breaks: Sequence[float],
    *,
    n_nodes: int,
    n_sweeps: int,
    generator: torch.Generator,
) -> float:
    """Log Z of the data at the last of the increasing breaks, from 0, by sampling at every node.

    start (P, N): where all chains begin; a third of the sweeps is left out.
    """
    x, w = np.polynomial.legendre.leggauss(n_nodes)
    ends = [0.0, *breaks]
    pairs = list(itertools.pairwise(ends))
    beta = np.concatenate([(a + b) / 2 + (b - a) / 2 * x for a, b in pairs])
    weight = np.concatenate([(b - a) / 2 * w for a, b in pairs])
    n_memories, n = start.shape
    likelihood = Likelihood(data.x, data.y, torch.tensor(beta))
    p = torch.full((n_memories + 1, 1), 1 / n_memories, dtype=torch.float64)
    p[0] = 0.0
    state = GibbsState(start.expand(len(beta), -1, -1), p.expand(len(beta), -1, -1))
    resultant = bessel.mean_resultant(likelihood.slope, n)  # (K, 1, 1)
    total, first = torch.zeros(len(beta), dtype=torch.float64), n_sweeps // 3
    for i in range(n_sweeps):
        state = sweep(state, likelihood, class_weight_moves=1, generator=generator)
        if i >= first:
            overlap = overlaps_with_rows(state.w, data.x)  # (K, P, M)
            h = fields(overlap, likelihood)[:, 1:]
            total += (torch.softmax(h, 1) * (overlap - resultant)).sum((1, 2))
    return float(torch.tensor(weight) @ total) / (n_sweeps - first)


def integrate_levels(
    settings: Sequence[Setting],
    sizes: Sequence[int],
    *,
    n_sets: int = 6,
    n_nodes: int = 10,
    n_sweeps: int = 300,
    progress: StepDone = no_progress,
    generator: torch.Generator,
) -> Levels:
    """Integrate every setting at every N for several data sets."""
    shape = (len(settings), len(sizes))
    measured, error, computed = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for i, setting in enumerate(settings):
        for j, n in enumerate(sizes):
            problem = replace(setting, n_features=n).problem()
            starts = theory.random_starts(problem, 16, generator=generator)
            solved = theory.solve_saddle_point(problem, starts).raise_if_failed()
            state = solved[int(solved.objective.argmax())]
            kind = theory.classify(state).kind
            line = theory.symmetric_transition(problem, "beta") if setting.n_student > 1 else 1e9
            breaks = [line, setting.beta] if line < setting.beta else [setting.beta]
            # Z holds every permutation of the memories; the computed term is of one.
            copies = math.lgamma(setting.n_student + 1) if kind == "broken" else 0.0
            level = theory.finite_size_corrections(problem, state).log_z + copies
            gaps = []
            for k in range(n_sets):
                progress((i * len(sizes) + j) * n_sets + k, len(settings) * len(sizes) * n_sets)
                teacher = theory.sample_teacher(
                    setting.n_teacher, n, upsilon=setting.upsilon, generator=generator
                )
                basis = torch.linalg.qr(teacher.w.T).Q.T.contiguous()
                teacher = theory.Teacher(basis, teacher.g, teacher.beta)
                data = theory.sample_data(teacher, setting.rho, generator=generator)
                index = torch.arange(setting.n_student) % setting.n_teacher
                start = sphere.project(teacher.w[index])
                found = log_z(
                    data, start, breaks, n_nodes=n_nodes, n_sweeps=n_sweeps, generator=generator
                )
                gaps.append(found - theory.log_weight(problem, state, teacher, data) - copies)
            measured[i, j] = level + np.mean(gaps)
            error[i, j] = np.std(gaps, ddof=1) / math.sqrt(n_sets)
            computed[i, j] = level
    names = [
        f"{s.n_teacher}×{s.n_student}: υ {s.upsilon:g}, ϱ {s.rho:g}, β {s.beta:g}" for s in settings
    ]
    return Levels(names, list(sizes), measured, error, computed)
