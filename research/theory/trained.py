"""What training does, beside what the theory says: complexity, regularizer, splits, corrections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.data import load
from mnemosphere.model import Batch, Krylov, objectives
from mnemosphere.numerics import sphere
from mnemosphere.plots.style import BLUE, MARKERS, PALETTE, VERMILLION, figure_style, new_axes
from mnemosphere.theory import sample_data, sample_teacher, varsigma_of_noise
from mnemosphere.theory.teacher_student import match_memories
from mnemosphere.training import Splitting
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


def rows_of(name: str, n_rows: int) -> Tensor:
    """Rows of a named data set as unit vectors, in float64."""
    return fits.unit_rows(load(name).x_train[:n_rows], "cpu", torch.float64)


@dataclass(frozen=True)
class Complexity:
    """Memories that growth without labels ends with, at each β held, and whether it was stable."""

    beta_eff: list[float]
    n_memories: list[int]
    stable: list[bool]

    @figure_style()
    def draw(self) -> Axes:
        """Memories against β_eff, both logarithmic; open where the limit ended growth."""
        ax = new_axes(5.2, 3.4)
        ax.plot(self.beta_eff, self.n_memories, "-", color=BLUE, linewidth=1.2)
        for beta, n, stable in zip(self.beta_eff, self.n_memories, self.stable, strict=True):
            ax.plot(beta, n, "o", color=BLUE, markerfacecolor=BLUE if stable else "white")
        ax.set_xscale("log")
        ax.set_yscale("log", base=2)
        ax.set_xlabel(r"inverse temperature $\beta_{\rm eff}$")
        ax.set_ylabel("memories without a saddle")
        ax.grid(color="#E5E5E5", linewidth=0.6)
        return ax


def complexity_curve(
    x: Tensor,
    betas: Sequence[float],
    *,
    max_memories: int = 256,
    progress: StepDone = no_progress,
    generator: torch.Generator,
) -> Complexity:
    """The smallest network that growth finds without a saddle, at each β (ς = 1, no labels)."""
    rows = fits.unlabeled(x, 1)
    found: list[tuple[int, bool]] = []
    for k, beta in enumerate(betas):
        progress(k, len(betas))
        grown = fits.grow_from(
            fits.data_start(rows, 1, varsigma=1.0, beta=beta, generator=generator),
            Batch(x, rows.targets + 1.0),
            fits.fixed_point(learn_beta=False),
            max_memories=max_memories,
            splitting=Splitting(curvature=Krylov(), threshold=-1e-7),
            varsigma=1.0,
            passes=400,
            final_passes=400,
            tol=1e-10,
            rule=objectives.marginal,
            generator=generator,
        )
        found.append((n_distinct(grown.params.w), grown.status == "stable"))
    return Complexity([float(b) for b in betas], [n for n, _ in found], [s for _, s in found])


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
    """Distinct memories (K, P) that training ends with, for each number of memories and each β."""

    ratio: list[float]  # P/P*
    beta: list[float]
    distinct: NDArray[np.int64]
    beta_split: float  # of the theory, where the first split comes
    beta_split_noise: float  # the same where the noise of M rows in N dimensions spreads them too

    @figure_style()
    def draw(self) -> Axes:
        """A map of the number of distinct memories over P/P* and β, and the theory's line."""
        ax = new_axes(5.4, 3.8)
        mesh = ax.pcolormesh(
            np.arange(len(self.ratio) + 1) - 0.5, _edges(self.beta), self.distinct.T, cmap="viridis"
        )
        ax.figure.colorbar(mesh, ax=ax, label="distinct memories after training")
        for i, row in enumerate(self.distinct):
            for j, n in enumerate(row):
                shade = "white" if n < 0.6 * self.distinct.max() else "black"
                ax.text(i, self.beta[j], str(n), ha="center", va="center", fontsize=6, color=shade)
        for beta, style, name in (
            (self.beta_split, "-", "theory, many dimensions"),
            (self.beta_split_noise, "--", "with the spread of the noise"),
        ):
            ax.axhline(beta, color=VERMILLION, linestyle=style, linewidth=1.6, label=name)
        ax.set_xticks(range(len(self.ratio)), [f"{r:.2g}" for r in self.ratio])
        ax.set_xlabel(r"memories per pattern $P/P^*$")
        ax.set_ylabel(r"inverse temperature $\beta$")
        ax.legend(loc="upper left", facecolor="white", framealpha=0.9, frameon=True)
        return ax


def _edges(x: Sequence[float]) -> NDArray[np.float64]:
    middle = (np.asarray(x)[1:] + np.asarray(x)[:-1]) / 2
    return np.concatenate([[2 * x[0] - middle[0]], middle, [2 * x[-1] - middle[-1]]])


def map_splits(
    sizes: Sequence[int],
    betas: Sequence[float],
    *,
    n_teacher: int = 6,
    n_features: int = 120,
    rho: float = 8.0,
    upsilon: float = 1.0,
    progress: StepDone = no_progress,
    generator: torch.Generator,
) -> Splits:
    """Train P memories from a nearly symmetric start on planted data, at every β held.

    The theory's first split, with many examples: β_eff² = P* for orthonormal patterns and
    β_eff = ς(2υ)β, whatever P is. In N dimensions the noise of M rows adds its own spread,
    (1 − ς²)(1 + √(N/M))²/N at its largest, to the ς²/P* of the patterns.
    """
    teacher = sample_teacher(n_teacher, n_features, upsilon=upsilon, generator=generator)
    basis = torch.linalg.qr(teacher.w.T).Q.T.contiguous()
    data = sample_data(type(teacher)(**{**vars(teacher), "w": basis}), rho, generator=generator)
    rows = Batch(data.x, data.x.new_ones(len(data.x), 1))
    table = np.zeros((len(sizes), len(betas)), dtype=np.int64)
    for i, size in enumerate(sizes):
        progress(i, len(sizes))
        noise = torch.randn(size, n_features, dtype=torch.float64, generator=generator)
        start = sphere.project(data.x.mean(0) / data.x.mean(0).norm() + 0.02 * noise)
        for j, beta in enumerate(betas):
            trained = fits.train_from(
                fits.Start(start, beta),
                rows,
                fits.fixed_point(learn_beta=False),
                passes=600,
                varsigma=1.0,
                tol=1e-11,
                rule=objectives.marginal,
                generator=generator,
            ).params
            table[i, j] = n_distinct(trained.w)
    overlap = varsigma_of_noise(upsilon)
    ratio = 1 + math.sqrt(n_features / len(data.x))
    noise = (1 - overlap**2) * ratio**2 / n_features
    return Splits(
        [s / n_teacher for s in sizes],
        [float(b) for b in betas],
        table,
        math.sqrt(n_teacher) / overlap,
        overlap / math.sqrt(n_teacher) / (overlap**2 / n_teacher + noise),
    )


@dataclass(frozen=True)
class Corrections:
    """N·Δ of every setting at every N: Gibbs minus theory, and its standard error, times N."""

    names: list[str]
    n_features: list[int]
    scaled: NDArray[np.float64]  # (settings, sizes)
    error: NDArray[np.float64]

    def spread(self) -> float:
        """χ² per degree of freedom of "N·Δ is the same at every N", over all settings."""
        weight = 1 / self.error**2
        mean = (weight * self.scaled).sum(1, keepdims=True) / weight.sum(1, keepdims=True)
        freedom = self.scaled.size - len(self.scaled)
        return float((((self.scaled - mean) / self.error) ** 2).sum() / freedom)

    @figure_style()
    def draw(self) -> Axes:
        """One row per setting, one mark per N."""
        ax = new_axes(6.2, 0.3 * len(self.names) + 1.2)
        for k, n in enumerate(self.n_features):
            place = np.arange(len(self.names)) + 0.18 * (k - (len(self.n_features) - 1) / 2)
            ax.errorbar(
                self.scaled[:, k], place, xerr=self.error[:, k], fmt=MARKERS[k], color=PALETTE[k],
                markersize=4, capsize=2, linewidth=1, label=f"N = {n}",
            )  # fmt: skip
        ax.set_yticks(range(len(self.names)), self.names, fontsize=7.5)
        ax.invert_yaxis()
        ax.axvline(0, color="#999999", linewidth=0.8)
        ax.set_xlabel(r"$N\cdot\Delta m$, Gibbs minus theory")
        ax.grid(axis="x", color="#E5E5E5", linewidth=0.6)
        ax.legend(loc="best")
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
    )
