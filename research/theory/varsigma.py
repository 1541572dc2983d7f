"""Which ς: where memories merge, the analytic ς that training starts from, and the best on fresh rows.

P memories are distinct if those of a network of P/2 split: "merging" is the median of
`theory.merging_varsigma` over the groups of P/2 centers of k-means within the classes. "Splitting" is
the same for P centers, above which the P memories are saddles themselves. Both are held against
`shared_varsigma`, from which a search starts, and against a scan by log-loss on fresh rows.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere import theory
from mnemosphere.data import load
from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.estimators.start import shared_varsigma, start_joint
from mnemosphere.model import initialize, objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import log_joint
from mnemosphere.numerics import sphere
from mnemosphere.plots.style import MARKERS, PALETTE, figure_style, new_figure
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from research.field import sets
from research.theory.setting import StepDone, no_progress

SMOOTHING = 0.1
GRID = (0.1, 0.15, 0.2, 0.3, 0.4, 0.55, 0.7, 0.85, 1.0)
NAMES = ("merging", "splitting", "analytic")
PLANTED = {"planted, υ = 0.3": 0.3, "planted, υ = 1": 1.0, "planted, υ = 3": 3.0}
TABLES = ("iris", "wine", "breast-cancer", "pima", "sonar", "vertebral", "olive", "crabs")
IMAGES = {"digits": (1000, (20, 80)), "mnist-small": (2000, (40, 160))}


def _batch(x: Tensor, y: NDArray[np.int64], n_classes: int) -> Batch:
    targets = objectives.soft_labels(torch.from_numpy(y), n_classes, SMOOTHING, dtype=x.dtype)
    return Batch(x, targets)


def planted(upsilon: float, seed: int) -> tuple[Batch, Batch]:
    """Eight planted vectors in four classes, 60 dimensions, one example per parameter."""
    generator = torch.Generator().manual_seed(seed)
    teacher = theory.sample_teacher(8, 60, upsilon=upsilon, generator=generator)
    parts = []
    for rho in (1.0, 4.0):
        data = theory.sample_data(teacher, rho, generator=generator)
        parts.append(_batch(data.x, (data.cluster % 4).numpy(), 4))
    return parts[0], parts[1]


def real(name: str, n_rows: int, seed: int, folder: Path | None) -> tuple[Batch, Batch]:
    """Training rows of a data set on the sphere, and up to 1,000 others."""
    if name == "mnist-small":
        raw = load(name)
        x, y = np.concatenate([raw.x_train, raw.x_test]), np.concatenate([raw.y_train, raw.y_test])
    else:
        table = sets.load(name, "table", folder)
        x, y = np.asarray(table.x, float), table.y
    order = np.random.default_rng(seed).permutation(len(y))
    learned, fresh = order[:n_rows], order[n_rows : n_rows + 1000]
    x = np.asarray(x, float)
    if name in IMAGES:
        z = x - x.mean(1, keepdims=True)
    else:
        scale = x[learned].std(0)
        z = (x - x[learned].mean(0)) / np.where(scale > 0, scale, 1.0)
        z = np.hstack([z, np.full((len(z), 1), z.shape[1] ** 0.5)])
    unit = sphere.project(torch.from_numpy(z))
    y, n_classes = y.astype(np.int64), int(y.max()) + 1
    return _batch(unit[learned], y[learned], n_classes), _batch(unit[fresh], y[fresh], n_classes)


def typical_split(rows: Batch, n_memories: int, *, generator: torch.Generator) -> float:
    """The median ς at which the memories of a network of this size split."""
    w, labels = initialize.within_classes(rows.x, rows.targets, n_memories, generator=generator)
    # A row belongs to the nearest memory of its own class.
    foreign = rows.targets.argmax(1)[:, None] != labels.argmax(1)
    group = (rows.x @ w.T).masked_fill(foreign, -2.0).argmax(1)
    _, group = torch.unique(group, return_inverse=True)
    return min(1.0, float(theory.merging_varsigma(rows.x, group).median()))


def log_loss(rows: Batch, fresh: Batch, start: tuple[Tensor, Tensor], varsigma: float) -> float:
    """On fresh rows, of a joint model trained at this ς."""
    params = start_joint(*start, rows, varsigma=varsigma)
    solver = FixedPoint(None, learn_weights=True)
    params = fit(params, ArrayDataset(rows), solver, max_iter=60, tol=1e-5).params
    score = log_joint(params, fresh.x)[:, :-1].log_softmax(1)  # the classes, without "none"
    truth = fresh.targets[:, :-1].argmax(1)
    return -float(score.gather(1, truth[:, None]).mean())


@dataclass(frozen=True)
class VarsigmaScan:
    """rows: set, memories, seed, the ς, the log-loss of each, and of the grid."""

    grid: tuple[float, ...]
    rows: list[dict[str, Any]]

    @figure_style()
    def draw(self) -> Figure:
        """Left: both numbers against the best. Right: what each costs in log-loss."""
        figure = new_figure(9.6, 4.2)
        left, right = figure.subplots(1, 2)
        kinds = list(dict.fromkeys(_kind(row["set"]) for row in self.rows))
        for j, name in enumerate(NAMES):
            for k, kind in enumerate(kinds):
                mine = [row for row in self.rows if _kind(row["set"]) == kind]
                best = np.array([row["best"] for row in mine])
                jitter = 1 + 0.02 * np.cos(np.arange(len(mine)) + 2 * j)
                left.plot(
                    best * jitter, [row[name] for row in mine], MARKERS[k], color=PALETTE[j],
                    markersize=4, alpha=0.75, markerfacecolor="none" if j else PALETTE[j],
                    label=name if k == 0 else None,
                )  # fmt: skip
        for k, kind in enumerate(kinds):
            left.plot([], [], MARKERS[k], color="#555555", markerfacecolor="none", label=kind)
        left.plot([0.1, 1], [0.1, 1], color="#AAAAAA", linewidth=1, zorder=0)
        for axis in (left.set_xscale, left.set_yscale):
            axis("log")
        ticks = [0.1, 0.2, 0.4, 0.7, 1.0]
        left.set_xticks(ticks, [f"{t:g}" for t in ticks])
        left.set_yticks([0.05, *ticks], [f"{t:g}" for t in (0.05, *ticks)])
        left.minorticks_off()
        left.set_xlabel("best ς on fresh rows")
        left.set_ylabel("ς from the training rows alone")
        left.legend(fontsize=8.5)
        names = list(dict.fromkeys(row["set"] for row in self.rows))
        for j, name in enumerate(NAMES):
            mean = [
                statistics.fmean(
                    row["losses"][name] - row["losses"]["best"]
                    for row in self.rows if row["set"] == own
                )
                for own in names
            ]  # fmt: skip
            right.barh(
                np.arange(len(names)) + 0.27 * (j - 1), mean, 0.25, color=PALETTE[j], label=name
            )
        right.set_yticks(range(len(names)), names)
        right.invert_yaxis()
        right.set_xlabel("log-loss above that of the best ς")
        right.legend(fontsize=9)
        return figure


def _kind(name: str) -> str:
    return "planted" if name in PLANTED else "images" if name in IMAGES else "tables"


def scan_varsigma(
    *, seeds: int, folder: Path | None, grid: Sequence[float] = GRID, only: Sequence[str] = (),
    progress: StepDone = no_progress,
) -> VarsigmaScan:  # fmt: skip
    """All sets, numbers of memories and seeds."""
    cases: list[tuple[str, int]] = [(name, n) for name in PLANTED for n in (8, 16)]
    cases += [(name, n) for name, (_, widths) in IMAGES.items() for n in widths]
    cases += [(name, n) for name in TABLES for n in (12, 36)]
    cases = [case for case in cases if not only or case[0] in only]
    found = []
    for name, n in cases:
        for seed in range(seeds):
            if name in PLANTED:
                rows, fresh = planted(PLANTED[name], seed)
            else:
                size = IMAGES[name][0] if name in IMAGES else 0
                size = size or len(sets.load(name, "table", folder).y) // 2
                rows, fresh = real(name, min(size, 500) if name in TABLES else size, seed, folder)
            width = min(n, len(rows.x) // 3)
            generator = torch.Generator().manual_seed(seed)
            w, labels = initialize.within_classes(rows.x, rows.targets, width, generator=generator)
            numbers = {
                "merging": typical_split(rows, max(width // 2, 1), generator=generator),
                "splitting": typical_split(rows, width, generator=generator),
                "analytic": shared_varsigma(w, rows.x[:500], None, 1.0),
                "collapse": float(theory.merging_varsigma(rows.x)),
            }
            scan = [log_loss(rows, fresh, (w, labels), v) for v in grid]
            own = {key: log_loss(rows, fresh, (w, labels), numbers[key]) for key in NAMES}
            numbers["best"] = grid[int(np.argmin(scan))]
            found.append({"set": name, "memories": width, "seed": seed, **numbers, "scan": scan,
                          "losses": {**own, "best": min(scan)}})  # fmt: skip
            progress(len(found), len(cases) * seeds)
    return VarsigmaScan(tuple(grid), found)
