"""Kernels with an edge, K(t) = max(0, 1 − (β/m)(1 − t))^m: m → ∞ is the paper's exp(β(t − 1)).

m = 1 is the log-sum-ReLU energy, β = m a rectified polynomial. Derivations: docs/research/theory-derivations.md, section 9.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import mpmath
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar, root
from scipy.special import betainc
from torch import Tensor

from mnemosphere.plots.style import PALETTE, figure_style, new_figure
from research.report import Json
from research.theory.setting import StepDone, no_progress

Array = NDArray[np.float64]
_KEPT = 0.9  # overlap with its pattern at which recall has succeeded


def log_normalization(n: int, beta: float, m: float) -> float:
    """Log of the mean of K over the sphere in n dimensions; m may be infinite."""
    b, half = mpmath.mpf(beta), mpmath.mpf(n - 1) / 2
    if math.isinf(m):
        return float(mpmath.log(mpmath.hyp0f1(half + 0.5, b * b / 4)) - b)
    if beta < m / 2:  # the cap is the whole sphere
        return float(mpmath.log(mpmath.hyp2f1(-m, half, n - 1, 2 * b / m)))
    log_c = mpmath.loggamma(half + 0.5) - mpmath.log(mpmath.pi) / 2 - mpmath.loggamma(half)
    rest = (
        mpmath.log(mpmath.beta(half, m + 1)) + (half - 1) * mpmath.log(2) + half * mpmath.log(m / b)
    )
    return float(
        log_c + rest + mpmath.log(mpmath.hyp2f1(1 - half, half, half + 1 + m, m / (2 * b)))
    )


def damping(a: float, b: float) -> float:
    """Mean overlap of a draw from K with its memory as N grows, m = aN, β = bN; ς(2b) for a = ∞."""
    if math.isinf(a):
        return 2 * b / (math.hypot(2 * b, 1.0) + 1.0)
    rest = 1 - b / a
    return (-rest + math.sqrt(rest * rest + 4 * b * b * (1 + 1 / a))) / (2 * b * (1 + 1 / a))


def split_of_two(angle: float, m: float) -> float:
    """β at which a memory between two patterns at ±angle splits."""
    c, s = math.cos(angle), math.sin(angle)
    return c / ((1 - 1 / m) * s * s + c * (1 - c) / m)


def stability_line(n_teacher: int, n_student: int, rho: float, m: float) -> float:
    """β_e = ςβ/(1 − β/m) from which the symmetric state is unstable; infinite for m ≤ 2."""
    if m <= 2:
        return math.inf
    return math.sqrt(n_teacher + (1 - 1 / m) * n_student / rho) / (1 - 2 / m)


def log_kernel(field: Tensor, m: float) -> Tensor:
    """Log of (1 + field/m)^m, field = β_e times an overlap."""
    return field if math.isinf(m) else m * torch.log1p(field / m)


def free_entropy(w: Tensor, beta_e: float, rho: float, m: float) -> Tensor:
    """F (...,) = ½ Σ log(1 − |w|²) + ϱ Σ_b log mean_μ (1 + β_e m_bμ/m)^m of w (..., P, P*), patterns the axes."""
    entropy = 0.5 * torch.log1p(-(w * w).sum(-1)).sum(-1)
    energy = torch.logsumexp(log_kernel(beta_e * w, m), -2) - math.log(w.shape[-2])
    return entropy + rho * energy.sum(-1)


def order_of(n: int, rho: float, m: float) -> Json:
    """Where P = P* = n memories can part: the least β_e of a state with one memory per vector, and its contrast.

    At a given contrast between its own and the other overlaps, stationarity fixes the overlaps and β_e.
    """
    line = stability_line(n, n, rho, m)
    row: Json = {"memories": n, "m": _plain(m), "line": None, "end": None, "jump": None}
    if math.isinf(line):
        return row
    unit = torch.eye(n, dtype=torch.float64)

    def state(contrast: float, guess: Array) -> Array:
        """(overlap with others, β_e) at this contrast."""

        def slopes(v: Array) -> list[float]:
            w = (float(v[0]) + contrast * unit).requires_grad_()
            (slope,) = torch.autograd.grad(free_entropy(w, float(v[1]), rho, m), w)
            return [float(slope[0, 0]), float(slope[0, 1])]

        found: Array = root(slopes, guess, tol=1e-12).x
        return found

    contrasts = np.arange(0.005, 0.6, 0.005)
    states = [np.array([1 / (line * (1 - 2 / m)), line])]  # symmetric, on the line
    for contrast in contrasts:
        states.append(state(contrast, states[-1]))
    k = int(np.argmin([beta_e for _, beta_e in states]))
    if k == 0:
        return row | {"line": line, "end": line, "jump": 0.0}
    fold = minimize_scalar(lambda contrast: state(contrast, states[k])[1], method="bounded",
                           bounds=(contrasts[k - 2], contrasts[k]), options={"xatol": 1e-7})  # fmt: skip
    return row | {"line": line, "end": float(fold.fun), "jump": float(fold.x)}


def capacity(n: int, beta: float, m: float, start: float, *, power: int) -> float:
    """α of the e^{αn} random patterns that recall from this overlap with one of them can bear.

    power = 1: the pattern keeps half of the shares, K(start) > M ⟨K⟩. power = 2: pulls of other patterns point
    anywhere and add up like √M, so its own wins if K(start)² > M ⟨K²⟩. If draws from K^power are nearer to a
    memory than the start, only a pattern nearer than its own disturbs it: the bound for every kernel.
    """
    if beta * (1 - start) >= m:
        return 0.0  # beyond the edge
    nearest = math.log(math.log(2) / (0.5 * betainc((n - 1) / 2, 0.5, 1 - start**2)))
    if start < damping(power * m / n, power * beta / n):
        return nearest / n
    level = beta * (start - 1) if math.isinf(m) else m * math.log(1 - beta / m * (1 - start))
    return min(nearest, power * level - log_normalization(n, power * beta, power * m)) / n


def recall(x: Tensor, w: Tensor, beta: float, m: float, *, n_steps: int = 15) -> Tensor:
    """Rows x (n, N) after fixed-point steps x ← Σ r k⁻¹ w among patterns w (M, N); a row outside all caps stays."""
    for _ in range(n_steps):
        if math.isinf(m):
            pull = torch.softmax(beta * (x @ w.T), 1)
        else:
            k = (1 - beta / m * (1 - x @ w.T)).clamp_min(0.0)
            top = k.amax(1, keepdim=True).clamp_min(1e-300)
            pull = (k / top) ** (m - 1) * (k > 0)  # r/k up to a factor
        moved = pull @ w
        length = moved.norm(dim=1, keepdim=True)
        x = torch.where(length > 0, moved / length.clamp_min(1e-300), x)
    return x


def measured_capacity(
    n: int, beta: float, m: float, start: float, *, alphas: Array, n_starts: int, generator: torch.Generator
) -> tuple[float, float]:  # fmt: skip
    """α at which half of the starts give their pattern half of the shares, and end at it; 0 if none do."""
    rates = []
    for alpha in alphas:
        w = torch.randn(round(math.exp(alpha * n)), n, generator=generator, dtype=torch.float64)
        w = w / w.norm(dim=1, keepdim=True)
        index = torch.arange(n_starts) % len(w)
        own = w[index]
        noise = torch.randn(n_starts, n, generator=generator, dtype=torch.float64)
        noise = noise - (noise * own).sum(1, keepdim=True) * own
        x = start * own + math.sqrt(1 - start**2) * noise / noise.norm(dim=1, keepdim=True)
        share = torch.softmax(_log_kernel_of(x @ w.T, beta, m), 1).nan_to_num(0.0)
        kept = share.gather(1, index[:, None])[:, 0] > 0.5
        ended = (recall(x, w, beta, m) * own).sum(1) > _KEPT
        rates.append((float(kept.double().mean()), float(ended.double().mean())))
        if max(rates[-1]) < 0.1:
            break
    kept_at, ended_at = (
        float(np.interp(-0.5, -np.minimum.accumulate(rate), alphas[: len(rates)])) if rate[0] > 0.5 else 0.0
        for rate in np.array(rates).T
    )  # fmt: skip
    return kept_at, ended_at


def _log_kernel_of(t: Tensor, beta: float, m: float) -> Tensor:
    return (
        beta * (t - 1) if math.isinf(m) else m * torch.log((1 - beta / m * (1 - t)).clamp_min(0.0))
    )


@dataclass(frozen=True)
class EdgeKernels:
    """Splits of two patterns, orders of the transition, and capacities of recall, as rows."""

    rho: float
    start: float
    n_features: int
    splits: list[Json]
    orders: list[Json]
    curves: list[Json]
    points: list[Json]

    @figure_style()
    def draw(self) -> Figure:
        """Where memories part against m, and the capacity of recall against temperature."""
        figure = new_figure(9.6, 3.7)
        left, right = figure.subplots(1, 2)
        self._draw_orders(left)
        self._draw_capacity(right)
        return figure

    def _draw_orders(self, ax: Axes) -> None:
        m = np.geomspace(2.05, 64, 200)
        for k, n in enumerate(sorted({row["memories"] for row in self.orders})):
            own = [r for r in self.orders if r["memories"] == n and r["end"] and r["m"] != "inf"]
            line = [stability_line(n, n, self.rho, v) for v in m]
            ax.plot(m, line, color=PALETTE[k], label=f"P = P* = {n}: symmetric state unstable")
            ax.plot([r["m"] for r in own], [r["end"] for r in own], "o", color=PALETTE[k], fillstyle="none",
                    label="parted solutions from here on")  # fmt: skip
        ax.axvline(2, color="#777777", linestyle=":")
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter("{x:g}")
        ax.set_xlabel("exponent $m$")
        ax.set_ylabel(r"$\beta_e$")
        ax.legend(fontsize=8)

    def _draw_capacity(self, ax: Axes) -> None:
        for k, curve in enumerate(self.curves):
            own = [p for p in self.points if p["a"] == curve["a"]]
            name = "exponential" if curve["a"] == "inf" else f"m = {curve['a']:g} N"
            for key, line, mark in (("shares", "-", "s"), ("recall", "--", "o")):
                ax.plot(curve["temperature"], curve[key], line, color=PALETTE[k], linewidth=1.4,
                        label=name if key == "shares" else None)  # fmt: skip
                ax.plot([p["temperature"] for p in own], [p[key] for p in own], mark, color=PALETTE[k],
                        markersize=4, fillstyle="full" if mark == "s" else "none")  # fmt: skip
        for line, mark, name in (
            ("-", "s", "half of the shares"),
            ("--", "o", "recall ends there"),
        ):
            ax.plot([], [], line, marker=mark, color="#555555", markersize=4, label=name,
                    fillstyle="full" if mark == "s" else "none")  # fmt: skip
        ax.set_xlabel(r"temperature $N/\beta$")
        ax.set_ylabel(r"capacity $\alpha$")
        ax.set_title(f"N = {self.n_features}, start at overlap {self.start:g}")
        ax.legend(fontsize=8)


def study_edge_kernels(
    *, rho: float, start: float, n_features: int, n_starts: int, generator: torch.Generator,
    progress: StepDone = no_progress,
) -> EdgeKernels:  # fmt: skip
    """Everything."""
    exponents = (2.0, 2.5, 3.0, 4.0, 8.0, 16.0, 64.0, math.inf)
    shapes = (math.inf, 1.0, 0.5)
    splits = [
        {"m": _plain(m), "beta": split_of_two(0.6, m)} for m in (2.0, 4.0, 16.0, 64.0, math.inf)
    ]
    orders = [order_of(n, rho, m) for n in (2, 3) for m in exponents]
    fine, at = np.linspace(0.05, 2.5, 99), (0.1, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5)
    curves: list[Json] = []
    points: list[Json] = []
    for a in shapes:
        m = a * n_features
        lines = {
            key: [capacity(n_features, n_features / t, m, start, power=power) for t in fine]
            for key, power in (("shares", 1), ("recall", 2))
        }
        curves.append({"a": _plain(a), "temperature": fine, **lines})
        for t in at:
            shares, ended = measured_capacity(
                n_features, n_features / t, m, start, alphas=np.arange(0.1, 0.72, 0.03), n_starts=n_starts,
                generator=generator,
            )  # fmt: skip
            points.append({"a": _plain(a), "temperature": t, "shares": shares, "recall": ended})
            progress(len(points), len(at) * len(shapes))
    return EdgeKernels(rho, start, n_features, splits, orders, curves, points)


def _plain(value: float) -> float | str:
    return "inf" if math.isinf(value) else value
