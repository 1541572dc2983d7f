"""Memories at fixed β: Figs. (prelim_DAM_memories) and (suboptimal_memories)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from mnemosphere.plots import memories
from mnemosphere.plots.style import figure_style, new_figure
from research.paper.classification import (
    NAMES,
    SOLVERS,
    compared,
    cost,
    galleries,
    held,
    key,
    settings,
    train_and_gather,
)
from research.paper.experiment import Experiment, load_arrays, save_picture
from research.report import Comparison, Json

_SIDE = (28, 28)
_BETAS = (18, 14, 10, 6)


def _first_settings(quick: bool) -> Json:
    return settings([held(16)], 25, quick=quick, quick_memories=25, quick_passes=8)


def _suboptimal_settings(quick: bool) -> Json:
    cases = [held(beta) for beta in (_BETAS[:1] + _BETAS[-1:] if quick else _BETAS)]
    return settings(cases, 1000, quick=quick, quick_memories=49, quick_passes=8)


def _compare_first(measured: Json) -> list[Comparison]:
    found = []
    for solver in SOLVERS:
        note = cost(measured["rows"], "beta=16", solver)
        found += compared(measured, "beta=16", solver, "accuracy", "accuracy", note=note)
        found += compared(
            measured, "beta=16", solver, "noisy memories", "memory", "noisy", digits=1
        )
    return found


def _compare_suboptimal(measured: Json) -> list[Comparison]:
    cases = list(dict.fromkeys(row["case"] for row in measured["rows"]))
    found = []
    for solver in SOLVERS:
        for case in cases:
            name = case.replace("beta=", "β = ")
            found += compared(
                measured, case, solver, f"{name}: noisy memories", "memory", "noisy", digits=1
            )
            found += compared(
                measured, case, solver, f"{name}: closest twin", "memory", "twin", unit="", digits=4
            )
    return found


@figure_style()
def _panels(result: Json, folder: Path, cases: list[str], solvers: tuple[str, ...]) -> Figure:
    """Galleries side by side: one column per case, one row per solver; one scale in all of them."""
    arrays, rows = load_arrays(folder), galleries(result)
    ncols = len(cases) if len(cases) > 1 else len(solvers)
    nrows = len(cases) * len(solvers) // ncols
    tile = 0.62 if ncols == 2 else 0.4
    figure = new_figure(ncols * 5.5 * tile, nrows * (6.7 * tile + 0.35) + 0.1)
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(wspace=0.03, hspace=0.03, rect=(0, 0.02, 1, 0.98))  # frames stand out a little
    panels = figure.subplots(nrows, ncols, squeeze=False).ravel()
    order = [(case, solver) for solver in solvers for case in cases]
    shown = {pair: arrays[f"w {key(rows[pair])}"].astype(np.float64) for pair in order}
    # Noise has the largest entries of all and would make digits pale.
    scale = max(float(np.quantile(np.abs(w), 0.999)) for w in shown.values())
    for ax, pair in zip(panels, order, strict=True):
        row = rows[pair]
        memories(shown[pair], _SIDE, vmax=scale, ax=ax)
        beta = f"β = {row['beta']:g}"
        ax.set_title(f"{NAMES[pair[1]]}, {beta}: {row['accuracy']:.1f}%", fontsize=9)
    return figure


def _draw_first(result: Json, folder: Path) -> list[Path]:
    figure = _panels(result, folder, ["beta=16"], SOLVERS)
    return [save_picture(figure, folder, "fig1", result)]


def _draw_suboptimal(result: Json, folder: Path) -> list[Path]:
    cases = list(dict.fromkeys(row["case"] for row in result["measured"]["rows"]))
    figure = _panels(result, folder, cases, SOLVERS)
    return [save_picture(figure, folder, "fig2", result, dpi=115)]


EXPERIMENTS = (
    Experiment(
        "fig1",
        "Fig. (prelim_DAM_memories): all memories of a small network, P = 25, β = 16",
        _first_settings,
        train_and_gather,
        _draw_first,
        _compare_first,
    ),
    Experiment(
        "fig2",
        "Fig. (suboptimal_memories): memories at fixed β, noisy when high, blurred when low",
        _suboptimal_settings,
        train_and_gather,
        _draw_suboptimal,
        _compare_suboptimal,
    ),
)
