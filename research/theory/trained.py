"""What training does, beside what the theory says: regularizer, splits, corrections."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.model import Batch, objectives
from mnemosphere.numerics import sphere
from mnemosphere.plots.style import (
    BLUE,
    MARKERS,
    PALETTE,
    VERMILLION,
    figure_style,
    new_axes,
    new_figure,
)
from mnemosphere.theory import (
    from_parameters,
    sample_data,
    sample_teacher,
    split_temperature,
    varsigma_of_noise,
)
from mnemosphere.theory.teacher_student import match_memories
from research import fits
from research.report import Json
from research.theory.setting import StepDone, no_progress

_TWIN = 0.999  # memories of a larger overlap are one


def n_distinct(w: Tensor, twin: float = _TWIN) -> int:
    """Groups of memories (P, N) that are linked by overlaps above `twin`."""
    link = ((w @ w.T) > twin).double()
    for _ in range(max(1, math.ceil(math.log2(max(len(w), 2))))):
        link = ((link @ link) > 0).double()
    return int(link.unique(dim=0).shape[0])


@dataclass(frozen=True)
class Regularizer:
    """Overlap (U, S) of trained memories with the planted ones, for each υ and ς."""

    upsilon: list[float]
    varsigma: list[float]
    overlap: NDArray[np.float64]
    error: NDArray[np.float64]
    theory: list[float]  # ς(2υ)

    def best(self) -> list[float]:
        """ς of the largest overlap, for each υ."""
        return [self.varsigma[int(k)] for k in self.overlap.argmax(1)]

    @figure_style()
    def draw(self) -> Axes:
        """Overlap against ς, one line per υ, ς(2υ) dotted, the best ringed."""
        ax = new_axes(5.2, 3.6)
        for k, upsilon in enumerate(self.upsilon):
            color = PALETTE[k]
            ax.errorbar(
                self.varsigma, self.overlap[k], self.error[k], color=color, capsize=2,
                marker=MARKERS[k], markersize=4, label=f"υ = {upsilon:g}",
            )  # fmt: skip
            ax.axvline(self.theory[k], color=color, linestyle=":", linewidth=1.2)
            best = int(self.overlap[k].argmax())
            ax.plot(
                self.varsigma[best], self.overlap[k, best], "o", markersize=11, color=color,
                markerfacecolor="none",
            )  # fmt: skip
        ax.set_xlabel(r"regularizer $\varsigma$ (dotted: $\varsigma(2\upsilon)$)")
        ax.set_ylabel("overlap with the planted memories")
        ax.grid(color="#E5E5E5", linewidth=0.6)
        ax.legend()
        return ax


def scan_regularizer(
    upsilons: Sequence[float],
    varsigmas: Sequence[float],
    *,
    n_teacher: int = 4,
    n_features: int = 60,
    rho: float = 1.0,
    seeds: int = 4,
    progress: StepDone = no_progress,
    generator: torch.Generator,
) -> Regularizer:
    """Train on planted data with β learned, from the planted memories, at every ς."""
    table = np.zeros((len(upsilons), len(varsigmas), seeds))
    for i, upsilon in enumerate(upsilons):
        for seed in range(seeds):
            progress(i * seeds + seed, len(upsilons) * seeds)
            teacher = sample_teacher(n_teacher, n_features, upsilon=upsilon, generator=generator)
            data = sample_data(teacher, rho, generator=generator)
            rows = Batch(data.x, data.x.new_ones(len(data.x), 1))
            for j, varsigma in enumerate(varsigmas):
                trained = fits.train_from(
                    fits.Start(teacher.w.clone(), upsilon * n_features),
                    rows,
                    fits.fixed_point(),
                    passes=100,
                    varsigma=varsigma,
                    tol=1e-7,
                    rule=objectives.marginal,
                    generator=generator,
                ).params
                m = teacher.w @ trained.w.T
                table[i, j, seed] = float(m[:, match_memories(m)].diagonal().mean())
    return Regularizer(
        [float(u) for u in upsilons],
        [float(v) for v in varsigmas],
        table.mean(2),
        table.std(2, ddof=1) / math.sqrt(seeds),
        [varsigma_of_noise(u) for u in upsilons],
    )


@dataclass(frozen=True)
class Splits:
    """Distinct memories (K, B) that training ends with, for each number of memories and each β.

    predicted and measured (K, D) on D data sets: the β from which on memories part, by β_split of
    one memory and by training.
    """

    ratio: list[float]  # P/P*
    beta: list[float]
    distinct: NDArray[np.int64]
    limit: float  # of many dimensions
    predicted: NDArray[np.float64]
    measured: NDArray[np.float64]

    @figure_style()
    def draw(self) -> Axes:
        """Left: distinct memories over P/P* and β on the first data set. Right: all thresholds."""
        figure = new_figure(8.6, 3.7)
        ax, right = figure.subplots(1, 2, width_ratios=[3, 2])
        place = np.arange(len(self.ratio))
        mesh = ax.pcolormesh(
            np.arange(len(self.ratio) + 1) - 0.5, _edges(self.beta), self.distinct.T, cmap="viridis"
        )
        figure.colorbar(mesh, ax=ax, label="distinct memories after training")
        for i, row in enumerate(self.distinct):
            for j, n in enumerate(row):
                shade = "white" if n < 0.6 * self.distinct.max() else "black"
                ax.text(i, self.beta[j], str(n), ha="center", va="center", fontsize=6, color=shade)
        ax.axhline(self.limit, color=VERMILLION, linestyle="--", linewidth=1.2,
                   label="many dimensions")  # fmt: skip
        ax.plot(place, self.predicted[:, 0], "_", color=VERMILLION, markersize=22,
                markeredgewidth=2, label=r"$\beta_{\rm split}$ on these data")  # fmt: skip
        ax.plot(place, self.measured[:, 0], "o", color="white", markeredgecolor="black",
                markersize=5, label="training, by bisection")  # fmt: skip
        ax.set_xticks(place, [f"{r:.2g}" for r in self.ratio])
        ax.set_xlabel(r"memories per pattern $P/P^*$")
        ax.set_ylabel(r"inverse temperature $\beta$")
        ax.legend(loc="upper left", facecolor="white", framealpha=0.9, frameon=True, fontsize=7)
        for i, ratio in enumerate(self.ratio):
            right.plot(self.predicted[i], self.measured[i], MARKERS[i % len(MARKERS)],
                       color=PALETTE[i % len(PALETTE)], markersize=4.5,
                       label=f"P/P* = {ratio:.2g}")  # fmt: skip
        ends = [self.predicted.min() - 0.05, self.predicted.max() + 0.05]
        right.plot(ends, ends, color="#999999", linewidth=0.8)
        right.set_xlabel(r"$\beta_{\rm split}$ of the theory")
        right.set_ylabel("β where memories part in training")
        right.grid(color="#E5E5E5", linewidth=0.6)
        right.legend(fontsize=7)
        return ax


def _edges(x: Sequence[float]) -> NDArray[np.float64]:
    middle = (np.asarray(x)[1:] + np.asarray(x)[:-1]) / 2
    return np.concatenate([[2 * x[0] - middle[0]], middle, [2 * x[-1] - middle[-1]]])


class _Planted:
    """Rows of an orthonormal teacher, and what memories do on them at a β that is held."""

    def __init__(
        self, n_teacher: int, n: int, rho: float, upsilon: float, generator: torch.Generator
    ) -> None:
        teacher = sample_teacher(n_teacher, n, upsilon=upsilon, generator=generator)
        basis = torch.linalg.qr(teacher.w.T).Q.T.contiguous()
        x = sample_data(replace(teacher, w=basis), rho, generator=generator).x
        self.rows = Batch(x, x.new_ones(len(x), 1))
        self.mean = sphere.project(x.mean(0))
        self.noise = torch.randn(64, n, dtype=torch.float64, generator=generator)

    def trained(self, size: int, beta: float, passes: int) -> Tensor:
        """Memories (P, N) after training from a nearly symmetric start."""
        start = sphere.project(self.mean + 0.02 * self.noise[:size])
        return fits.train_from(
            fits.Start(start, beta),
            self.rows,
            fits.fixed_point(learn_beta=False),
            passes=passes,
            varsigma=1.0,
            tol=1e-12,
            rule=objectives.marginal,
            generator=torch.Generator().manual_seed(0),
        ).params.w

    def is_saddle(self, size: int, beta: float) -> bool:
        """Whether β is above β_split of one memory that weighs as much as `size` do."""
        start = fits.begin_growth(
            fits.Start(self.mean[None], beta), self.rows.targets.mean(0), max_memories=size,
            varsigma=1.0,
        )  # fmt: skip
        found = fits.continue_training(
            start, self.rows, fits.fixed_point(learn_beta=False), passes=400, tol=1e-13,
            rule=objectives.marginal, generator=torch.Generator().manual_seed(0),
        )  # fmt: skip
        problem, state = from_parameters(found.params, self.rows)
        return beta > float(split_temperature(problem, state)[0])


def bisect(is_above: Callable[[float], bool], low: float, high: float, tol: float) -> float:
    """The β between low and high where `is_above` turns true; NaN where it does not."""
    if is_above(low) or not is_above(high):
        return math.nan
    while high - low > tol:
        middle = (low + high) / 2
        low, high = (low, middle) if is_above(middle) else (middle, high)
    return (low + high) / 2


def map_splits(
    sizes: Sequence[int],
    betas: Sequence[float],
    *,
    n_teacher: int = 6,
    n_features: int = 120,
    rho: float = 3.0,
    upsilon: float = 1.0,
    n_sets: int = 3,
    passes: int = 800,
    tol: float = 0.01,
    progress: StepDone = no_progress,
    generator: torch.Generator,
) -> Splits:
    """Train P memories from a nearly symmetric start on planted data, at every β held.

    In many dimensions, with many examples, the first split comes at β_eff² = P*, whatever P is,
    with β_eff = ς(2υ)β. On given data it comes at β_split of a single memory there.
    """
    table = np.zeros((len(sizes), len(betas)), dtype=np.int64)
    predicted, measured = np.zeros((2, len(sizes), n_sets))
    limit = math.sqrt(n_teacher) / varsigma_of_noise(upsilon)
    for k in range(n_sets):
        planted = _Planted(n_teacher, n_features, rho, upsilon, generator)
        for i, size in enumerate(sizes):
            progress(k * len(sizes) + i, n_sets * len(sizes))
            predicted[i, k] = bisect(
                partial(planted.is_saddle, size), 0.5 * limit, 1.5 * limit, tol / 10
            )

            def parts(beta: float, planted: _Planted = planted, size: int = size) -> bool:
                return n_distinct(planted.trained(size, beta, passes)) > 1

            measured[i, k] = bisect(parts, 0.9 * predicted[i, k], 1.1 * predicted[i, k], tol)
            if k == 0:
                table[i] = [n_distinct(planted.trained(size, beta, 600)) for beta in betas]
    return Splits(
        [s / n_teacher for s in sizes], [float(b) for b in betas], table, limit, predicted, measured
    )


@dataclass(frozen=True)
class Corrections:
    """N·Δ of every setting at every N: Gibbs minus theory, and its standard error, times N.

    computed (settings,): by theory.finite_size_corrections, NaN where it has none.
    """

    names: list[str]
    n_features: list[int]
    scaled: NDArray[np.float64]  # (settings, sizes)
    error: NDArray[np.float64]
    computed: NDArray[np.float64]

    def mean(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """N·Δ of every setting over all N, and its standard error."""
        weight = 1 / self.error**2
        return (weight * self.scaled).sum(1) / weight.sum(1), 1 / np.sqrt(weight.sum(1))

    def spread(self) -> float:
        """χ² per degree of freedom of "N·Δ is the same at every N", over all settings."""
        freedom = self.scaled.size - len(self.scaled)
        away = (self.scaled - self.mean()[0][:, None]) / self.error
        return float((away**2).sum() / freedom)

    def slope(self) -> tuple[float, float]:
        """Slope of measured N·Δ against computed ones through 0, and their correlation."""
        known = np.isfinite(self.computed)
        x, y = self.computed[known], self.mean()[0][known]
        return float(x @ y / (x @ x)), float(np.corrcoef(x, y)[0, 1])

    @figure_style()
    def draw(self) -> Axes:
        """Left: a row per setting, a mark per N, computed values as bars. Right: all of them."""
        figure = new_figure(9.0, 0.23 * len(self.names) + 1.2)
        ax, right = figure.subplots(1, 2, width_ratios=[3, 2])
        for k, n in enumerate(self.n_features):
            place = np.arange(len(self.names)) + 0.18 * (k - (len(self.n_features) - 1) / 2)
            ax.errorbar(
                self.scaled[:, k], place, xerr=self.error[:, k], fmt=MARKERS[k], color=PALETTE[k],
                markersize=3.5, capsize=1.5, linewidth=1, label=f"N = {n}",
            )  # fmt: skip
        ax.plot(
            self.computed, np.arange(len(self.names)), "|", color="black", markersize=11,
            markeredgewidth=1.6, label="computed",
        )  # fmt: skip
        ax.set_yticks(range(len(self.names)), self.names, fontsize=6.5)
        ax.invert_yaxis()
        ax.axvline(0, color="#999999", linewidth=0.8)
        ax.set_xlabel(r"$N\cdot\Delta m$, Gibbs minus theory")
        ax.legend(loc="best", fontsize=7.5)
        mean, error = self.mean()
        right.errorbar(self.computed, mean, error, fmt="o", color=BLUE, markersize=3.5, capsize=1.5)
        low = float(np.nanmin(self.computed)) * 1.1
        right.plot([low, 0], [low, 0], color="#999999", linewidth=0.8)
        for scale in (right.set_xscale, right.set_yscale):
            scale("symlog", linthresh=0.5)
        right.set_xlabel(r"computed $N\cdot\Delta m$")
        right.set_ylabel(r"$N\cdot\Delta m$, Gibbs minus theory")
        for axes in (ax, right):
            axes.grid(axis="x", color="#E5E5E5", linewidth=0.6)
        return ax


def corrections(stored: Json) -> Corrections:
    """N·Δ from the stored comparison of theory and Gibbs sampling."""
    sizes = sorted({row["n_features"] for row in stored["rows"]})
    groups: dict[tuple[object, ...], dict[int, Json]] = {}
    for row in stored["rows"]:
        key = (row["setting"], row["upsilon"], row["rho"], row["beta"])
        groups.setdefault(key, {})[row["n_features"]] = row
    pick = [[rows[n] for n in sizes] for rows in groups.values()]
    return Corrections(
        [f"{name}: υ {u:g}, ϱ {r:g}, β {b:g}" for name, u, r, b in groups],
        sizes,
        np.array([[r["n_features"] * r["clamped_difference"] for r in row] for row in pick]),
        np.array([[r["n_features"] * r["clamped_standard_error"] for r in row] for row in pick]),
        np.array(
            [np.nan if row[-1]["correction"] is None else row[-1]["correction"] for row in pick]
        ),
    )
