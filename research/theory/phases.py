"""The phase diagram: which solution wins where, and the line on which symmetry breaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray

from mnemosphere.theory import symmetric_transition
from research.plots import theory as pictures
from research.theory.setting import Setting, is_broken, solve_two

SYMBOLS = {"upsilon": r"signal to noise $\upsilon$", "rho": r"examples per parameter $\varrho$"}
PHASES = ("symmetric", "both stable", "broken")


@dataclass(frozen=True)
class PhaseDiagram:
    """Phases over (x, β): `phase` (len(beta), len(x)) holds numbers into PHASES.

    The cells come from the solver, from an informed and an uninformed start: where they end apart,
    both phases are stable, and `broken_wins` says whether the broken one has the larger free
    entropy. `line` (len(x),) is the analytic β at which the symmetric solution turns unstable, NaN
    where it never does. `overlap` is the largest overlap of the winner.
    """

    parameter: str
    x: NDArray[np.float64]
    beta: NDArray[np.float64]
    phase: NDArray[np.int64]
    broken_wins: NDArray[np.bool_]
    overlap: NDArray[np.float64]
    line: NDArray[np.float64]
    unconverged: int

    def draw(self) -> Axes:
        """Colored phases with the transition line on top."""
        present = [k for k in range(len(PHASES)) if (self.phase == k).any()]
        numbers = np.searchsorted(present, self.phase)
        known = np.isfinite(self.line)
        return pictures.phase_diagram(
            self.x,
            self.beta,
            numbers,
            [PHASES[k] for k in present],
            (self.x[known], self.line[known]),
            xlabel=SYMBOLS[self.parameter],
        )


def map_phases(
    setting: Setting,
    parameter: str,
    x: Sequence[float],
    beta: Sequence[float],
    *,
    generator: torch.Generator,
) -> PhaseDiagram:
    """Solve the equations on the grid of x ("upsilon" or "rho") and β."""
    if parameter not in SYMBOLS:
        raise ValueError(f"parameter must be one of {tuple(SYMBOLS)}, got {parameter!r}")
    if setting.soft_labels is not None:
        raise ValueError("labels that tell teachers apart leave no symmetric phase to map")
    phase = np.zeros((len(beta), len(x)), np.int64)
    broken_wins = np.zeros(phase.shape, bool)
    overlap = np.zeros(phase.shape)
    line = np.full(len(x), np.nan)
    unconverged = 0
    # One check, and one warning, for the corner farthest out of the equations' range.
    first = setting.problem(**{parameter: min(x), "beta": max(beta)})
    for j, value in enumerate(x):
        problem = first.replace(**{parameter: float(value)})
        try:
            line[j] = symmetric_transition(problem, "beta", upper=10.0 * max(beta))
        except ValueError:
            if setting.n_teacher == 1 or setting.n_student == 1:
                raise
        for i, b in enumerate(beta):
            solution = solve_two(problem.replace(beta=float(b)), generator=generator)
            informed, uninformed = (is_broken(m) for m in solution.m)
            best = int(solution.objective.argmax())
            unconverged += int(not bool(solution.converged.all()))
            overlap[i, j] = float(solution.m[best].max())
            phase[i, j] = int(informed) + int(uninformed)
            broken_wins[i, j] = is_broken(solution.m[best])
    return PhaseDiagram(
        parameter,
        np.asarray(x, float),
        np.asarray(beta, float),
        phase,
        broken_wins,
        overlap,
        line,
        unconverged,
    )
