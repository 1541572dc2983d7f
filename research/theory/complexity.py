"""The complexity of a data set: how many memories it needs, at a given β, until none is a saddle.

No labels, ς = 1, no uniform component; memories and their weights are free. Memories are split, one
at a time along the direction of β_split, until β ≤ β_split for all. That is a local property. The
likelihood of a mixture is concave in the distribution of its memories, and no network of any size
does better exactly if D(w) = mean_b e^{β⟨x_b, w⟩}/Σ_μ p_μ e^{β⟨x_b, w^μ⟩} ≤ 1 for every w; where
D(w) > 1, a memory born at w, far from all others, gains what no split does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.data import load
from mnemosphere.numerics import sphere
from mnemosphere.plots.style import MARKERS, PALETTE, figure_style, new_axes
from mnemosphere.theory import PlantedData, sample_data, sample_teacher
from research import fits
from research.theory.setting import StepDone, no_progress

_TWIN = 0.9995  # memories of a larger overlap are one
_LEVEL = 1 + 1e-4  # β/β_split of a saddle


@dataclass(frozen=True)
class Network:
    """Memories w (P, N) with weights share (P,) at the β that is held."""

    w: Tensor
    share: Tensor
    beta: float

    def log_terms(self, x: Tensor) -> Tensor:
        """Log of p_μ e^{β⟨x_b, w^μ⟩} (M, P)."""
        return self.beta * (x @ self.w.T) + self.share.log()

    def likelihood(self, x: Tensor) -> float:
        """Mean log-likelihood, but for a constant."""
        return float(torch.logsumexp(self.log_terms(x), 1).mean())

    def split_ratio(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """β/β_split (P,) and the directions (P, N) in which copies part."""
        r = torch.softmax(self.log_terms(x), 1)  # (M, P)
        ratio, direction = [], []
        for w, mine in zip(self.w, r.T, strict=True):
            across = x - (x @ w)[:, None] * w
            value, vector = torch.linalg.eigh((across * mine[:, None]).T @ across)
            ratio.append(self.beta * value[-1] / (mine @ x).norm())
            direction.append(vector[:, -1])
        return torch.stack(ratio), torch.stack(direction)

    def excess(self, x: Tensor, steps: int = 200) -> float:
        """The largest D(w) − 1 that ascent from every row finds: 0 if no network does better."""
        weight = torch.exp(-torch.logsumexp(self.log_terms(x), 1))  # (M,)
        w = x
        for _ in range(steps):
            w = sphere.project(torch.exp(self.beta * (w @ x.T)) * weight @ x)
        return float((torch.exp(self.beta * (w @ x.T)) @ weight).max()) / len(x) - 1


def _merged(net: Network) -> Network:
    share, keep = net.share.clone(), []
    twin = net.w @ net.w.T > _TWIN
    for i in share.argsort(descending=True).tolist():
        first = next((j for j in keep if bool(twin[i, j])), None)
        if first is None:
            keep.append(i)
        else:
            share[first] += share[i]
    return Network(net.w[keep], share[keep], net.beta)


def settle(x: Tensor, net: Network, passes: int = 4000, tol: float = 1e-9) -> Network:
    """The fixed point that exact steps lead to; twins are merged on the way."""
    for i in range(1, passes + 1):
        r = torch.softmax(net.log_terms(x), 1)  # (M, P)
        w = sphere.project(r.T @ x)
        move = float((w - net.w).norm(dim=1).max())
        net = Network(w, r.mean(0), net.beta)
        if move < tol:
            break
        if i % 50 == 0:
            net = _merged(net)
    return _merged(net)


def grow(x: Tensor, net: Network, max_memories: int) -> tuple[Network, bool]:
    """Split the memory farthest above its β_split until there is none, and whether that is so."""
    while True:
        net = settle(x, net)
        ratio, direction = net.split_ratio(x)
        if float(ratio.max()) <= _LEVEL or len(net.w) >= max_memories:
            return net, float(ratio.max()) <= _LEVEL
        k = int(ratio.argmax())
        rest = [i for i in range(len(net.w)) if i != k]
        step = 0.25 * torch.stack([direction[k], -direction[k]])
        half = net.share[[k, k]] / 2
        net = Network(
            torch.cat([net.w[rest], sphere.project(net.w[k] + step)]),
            torch.cat([net.share[rest], half]),
            net.beta,
        )


def single(x: Tensor, beta: float) -> Network:
    """One memory, on the mean of the rows."""
    return Network(sphere.project(x.mean(0))[None], x.new_ones(1), beta)


@dataclass(frozen=True)
class Complexity:
    """Memories (sets, K) without a saddle at K values of β, for each set of rows.

    stable: whether growth ended by itself; excess: what a memory born elsewhere gains; first:
    β_split of a single memory.
    """

    names: list[str]
    beta_eff: list[float]
    n_memories: NDArray[np.int64]
    stable: NDArray[np.bool_]
    excess: NDArray[np.float64]
    first: list[float]

    @figure_style()
    def draw(self) -> Axes:
        """Memories against β_eff, both logarithmic; open where the limit ended growth."""
        ax = new_axes(5.6, 3.6)
        beta = np.asarray(self.beta_eff)
        for k, name in enumerate(self.names):
            color, n, stable = PALETTE[k], self.n_memories[k], self.stable[k]
            ax.plot(beta, n, MARKERS[k] + "-", color=color, linewidth=1.2, markersize=4, label=name)
            ax.plot(beta[~stable], n[~stable], MARKERS[k], color="white", markersize=2.5)
            ax.axvline(self.first[k], color=color, linestyle=":", linewidth=1.0)
        ax.set_xscale("log")
        ax.set_yscale("log", base=2)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        ax.set_xticks([t for t in (2, 3, 4, 6, 8, 12, 16, 24, 32) if beta[0] <= t <= beta[-1]])
        ax.set_xlabel(r"inverse temperature $\beta_{\rm eff}$ (dotted: first split)")
        ax.set_ylabel("memories without a saddle")
        ax.grid(color="#E5E5E5", linewidth=0.6)
        ax.legend(fontsize=7.5)
        return ax


def complexity_curve(
    sets: Mapping[str, Tensor],
    betas: Sequence[float],
    *,
    max_memories: int,
    progress: StepDone = no_progress,
) -> Complexity:
    """The smallest network without a saddle on each set of unit rows, at increasing β.

    Growth goes on from the network of the β before.
    """
    shape = (len(sets), len(betas))
    size, stable, excess = np.zeros(shape, int), np.zeros(shape, bool), np.zeros(shape)
    first = []
    for i, x in enumerate(sets.values()):
        net = single(x, 1.0)
        first.append(1.0 / float(net.split_ratio(x)[0][0]))
        for k, beta in enumerate(betas):
            progress(i * len(betas) + k, len(sets) * len(betas))
            net, stable[i, k] = grow(x, Network(net.w, net.share, float(beta)), max_memories)
            size[i, k], excess[i, k] = len(net.w), net.excess(x)
            if not stable[i, k]:
                size[i, k + 1 :] = max_memories
                break
    return Complexity(list(sets), [float(b) for b in betas], size, stable, excess, first)


def planted(n_rows: int, n: int, n_teacher: int, upsilon: float, seed: int) -> PlantedData:
    """Rows around a few vectors."""
    generator = torch.Generator().manual_seed(seed)
    teacher = sample_teacher(n_teacher, n, upsilon=upsilon, generator=generator)
    return sample_data(teacher, n_rows / (n_teacher * n), generator=generator)


def sets_of(name: str, n_rows: int, *, n_teacher: int = 8, seed: int = 0) -> dict[str, Tensor]:
    """Rows of a named data set, rows with the same mean and covariance, and planted ones."""
    x = fits.unit_rows(load(name).x_train[:n_rows], "cpu", torch.float64)
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(len(x), len(x), dtype=x.dtype, generator=generator) / len(x) ** 0.5
    return {
        name: x,
        "same mean and covariance": sphere.project(x.mean(0) + mixing @ (x - x.mean(0))),
        f"{n_teacher} planted vectors": planted(len(x), x.shape[1], n_teacher, 1.0, seed).x,
    }
