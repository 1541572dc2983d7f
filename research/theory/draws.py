"""Random class weights of the teacher: Gibbs chains beside the equations, draw by draw.

Each draw of the teacher's class weights is held against three equations: the paper's for a uniform
teacher, which averages the class weights before it maximizes; the one that maximizes for each draw;
and the clamped one, which knows the vectors of each teacher too. What is compared is the largest
gap between the overlaps of two memories with one vector: 0 where the permutation symmetry is whole.
Where it is broken by little, chains hop between permutations: memories are told apart by their
share of the first class, draw by draw.
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
from mnemosphere.plots.style import MARKERS, PALETTE, VERMILLION, figure_style, new_figure
from research.theory.setting import Setting, StepDone, no_progress

_STARTS = 12


@dataclass(frozen=True)
class Draws:
    """Gaps between overlaps, in the order of growing `each`.

    labels (D, P*, 2); averaged, each (D,): by the paper's equation and by that for the draw;
    clamped, gibbs (sizes, D, T): of T teachers with these class weights, error over chains.
    """

    n_features: list[int]
    labels: NDArray[np.float64]
    averaged: NDArray[np.float64]
    each: NDArray[np.float64]
    clamped: NDArray[np.float64]
    gibbs: NDArray[np.float64]
    error: NDArray[np.float64]

    @figure_style()
    def draw(self) -> Axes:
        """One column per draw: the three equations, and the chains of every teacher."""
        ax = new_figure(6.8, 3.6).subplots()
        n_sizes, n_draws, n_teachers = self.gibbs.shape
        place, colors = np.arange(1, n_draws + 1), (PALETTE[0], PALETTE[3], PALETTE[4])
        for i, n in enumerate(self.n_features):
            for k in range(n_teachers):
                at = place + 0.7 * ((i * n_teachers + k + 0.5) / (n_sizes * n_teachers) - 0.5)
                first = k == 0
                ax.errorbar(
                    at, self.gibbs[i, :, k], self.error[i, :, k], fmt=MARKERS[i], color=colors[i],
                    markersize=4, capsize=2, label=f"Gibbs, N = {n}" if first else None,
                )  # fmt: skip
                ax.plot(
                    at, self.clamped[i, :, k], "_", color="#333333", markersize=8,
                    label="clamped, for these vectors" if first and i == 0 else None,
                )  # fmt: skip
        ax.hlines(self.each, place - 0.4, place + 0.4, color=PALETTE[2], label="draw by draw")
        ax.hlines(self.averaged, place - 0.4, place + 0.4, color=VERMILLION, linestyle="--",
                  label="class weights averaged first")  # fmt: skip
        ax.set_xlabel("draw of the teacher's class weights")
        ax.set_ylabel("largest gap between overlaps")
        ax.set_xticks(place)
        ax.legend(fontsize=7.5)
        return ax


def _gap(m: Tensor) -> float:
    """Between two memories' overlaps with one vector, the largest, of m (P*, P)."""
    return float((m.amax(1) - m.amin(1)).max())


def _best(problem: theory.SaddlePointProblem, generator: torch.Generator) -> float:
    starts = theory.random_starts(problem, _STARTS, generator=generator)
    found = theory.solve_saddle_point(problem, starts).raise_if_failed()
    return _gap(found.m[int(found.objective.argmax())])


def _sampled(posterior: theory.Posterior) -> tuple[float, float]:
    """The gap of the chains' mean overlaps, and its standard error over chains."""
    order = posterior.class_weights[:, :, 1:, 0].argsort(-1)  # (chains, draws, P)
    m = posterior.trace.gather(3, order[:, :, None].expand_as(posterior.trace)).mean(1)
    chains = m.amax(2).sub(m.amin(2)).amax(1)
    return _gap(m.mean(0)), float(chains.std()) / len(chains) ** 0.5


def compare_draws(
    setting: Setting,
    sizes: Sequence[int],
    *,
    n_draws: int,
    n_teachers: int,
    n_chains: int,
    n_sweeps: int,
    generator: torch.Generator,
    progress: StepDone = no_progress,
) -> Draws:
    """Solve every draw, and sample it at every N; a third of the sweeps is left out."""
    p_star, p = setting.n_teacher, setting.n_student
    given = {"beta": setting.beta, "rho": setting.rho, "upsilon": setting.upsilon}
    limit = given | {"n_features": max(sizes)}
    solved = theory.solve_random_labels(
        p_star, p, 1, **limit, n_draws=n_draws, n_starts=_STARTS, generator=generator
    )
    order = solved.spread.argsort()
    labels, each = solved.labels[order], solved.spread[order].numpy()
    averaged = np.zeros(n_draws)
    clamped, gibbs, error = (np.zeros((len(sizes), n_draws, n_teachers)) for _ in range(3))
    for place in np.ndindex(gibbs.shape):
        i, j, k = place
        g = labels[j]
        if i == k == 0:
            papers = theory.SaddlePointProblem.uniform(p_star, p, **limit, p_q_teacher=g.mean(0))
            averaged[j] = _best(papers, generator)
        teacher = theory.sample_teacher(
            p_star, sizes[i], 1, upsilon=setting.upsilon, soft_labels=g, generator=generator
        )
        own = theory.SaddlePointProblem.clamped(teacher.w, g, n_student=p, **given)
        clamped[place] = _best(own, generator)
        posterior = theory.sample_posterior(
            teacher, theory.sample_data(teacher, setting.rho, generator=generator),
            n_memories=p, beta=setting.beta, start="teacher", n_chains=n_chains,
            n_burn_in=n_sweeps // 3, n_sweeps=n_sweeps - n_sweeps // 3, generator=generator,
        )  # fmt: skip
        gibbs[place], error[place] = _sampled(posterior)
        progress(int(np.ravel_multi_index(place, gibbs.shape)) + 1, gibbs.size)
    return Draws(list(sizes), labels.numpy(), averaged, each, clamped, gibbs, error)
