"""Splitting, duplication with noise, annealing and direct starts: loss reached, passes and seconds.

    python -m research splitting --seeds 10
    python -m research splitting --sets digits --memories 16 --seeds 2

The same rows, the same number of memories, exact fixed-point steps without labels at ς = 1, and the
same rule to stop. Five ways to the memories:

    splitting    from one memory, doubled level by level along the directions of least curvature
    noise        the same levels, copies moved along random directions
    annealing    all memories at the mean; β rises step by step from below the first split, with a
                 little noise (Rose's deterministic annealing), then as the others
    k-means      memories on centers of spherical k-means
    rows         memories on random rows

β is learned, held at the value that a fit from k-means learns, or held at half of it. A pass is one
product of all rows with all P memories and back; narrow levels count by their width.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from mnemosphere import theory
from mnemosphere.data import load
from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.model import Batch, Curvature, Krylov, Parameters, from_memories, initialize
from mnemosphere.model.kmeans import spherical_kmeans
from mnemosphere.numerics import sphere
from mnemosphere.training import Splitting, fit, grow
from mnemosphere.training.callbacks import PassRecord, SplitRecord
from mnemosphere.training.fixed_point import FixedPoint
from research import fits, report
from research.benchmarks._options import parser
from research.report import Json

LEVEL_PASSES = 4
ANNEALING_PASSES = 30
KMEANS_PASSES = 10
MOST, TOL = 100, 1e-6
JITTER = 1e-3
MODES = ("learned", "held", "half")


def planted(n_rows: int, n: int) -> Callable[[int], Tensor]:
    """Rows around 16 vectors, υ = 1."""

    def make(seed: int) -> Tensor:
        generator = torch.Generator().manual_seed(1000 + seed)
        teacher = theory.sample_teacher(16, n, upsilon=1.0, generator=generator)
        return theory.sample_data(teacher, n_rows / (16 * n), generator=generator).x

    return make


def stored(name: str, n_rows: int) -> Callable[[int], Tensor]:
    """Random rows of a data set."""

    def make(seed: int) -> Tensor:
        images = load(name).x_train
        chosen = np.random.default_rng(seed).permutation(len(images))[:n_rows]
        return fits.unit_rows(images[chosen], "cpu", torch.float64)

    return make


SETS = {
    "planted, N = 30, n = 1,000": planted(1000, 30),
    "planted, N = 100, n = 400": planted(400, 100),
    "planted, N = 100, n = 1,600": planted(1600, 100),
    "digits": stored("digits", 1000),
    "mnist-small": stored("mnist-small", 1000),
}


class RandomDirections:
    """Every memory is to be split, along a random direction."""

    def rows_wanted(self, n_memories: int) -> int | None:
        """Hardly any."""
        return 1

    def __call__(
        self, params: Parameters, batch: Batch, rule: object = None, *,
        generator: torch.Generator | None = None, sums: object = None,
    ) -> Curvature:  # fmt: skip
        """Directions across the memories, without a look at the rows."""
        u = torch.randn(params.w.shape, generator=generator, dtype=params.w.dtype)
        u = sphere.project(sphere.to_tangent(params.w, u))
        zero = u.new_zeros(len(u))
        return Curvature(zero - 1.0, u, zero, zero, passes=0.0)


class Trace(NamedTuple):
    """Work in passes of the full width, seconds and loss, after every pass."""

    work: list[float]
    seconds: list[float]
    loss: list[float]
    params: Parameters

    def summary(self) -> Json:
        """What is stored."""
        return {
            "loss": self.loss[-1], "passes": self.work[-1], "seconds": self.seconds[-1],
            "memories": self.params.n_memories, "beta": float(self.params.beta),
        }  # fmt: skip


def traced(
    history: tuple[PassRecord, ...], splits: tuple[SplitRecord, ...], params: Parameters, width: int,
    before: tuple[float, float] = (0.0, 0.0),
) -> Trace:  # fmt: skip
    """Work and loss from the records of a training."""
    work, seconds = before
    found: tuple[list[float], list[float], list[float]] = ([], [], [])
    done = {split.phase: split for split in splits}
    phase = 0
    for record in history:
        if record.phase != phase:
            split, phase = done[phase], record.phase
            work += split.passes * split.n_memories / width
            seconds += split.seconds
        work += record.n_memories / width
        seconds += record.seconds
        for values, value in zip(found, (work, seconds, record.loss), strict=True):
            values.append(value)
    return Trace(*found, params)


def begin(w: Tensor, beta: float | Tensor) -> Parameters:
    """Memories without labels and without a uniform component.

    With one, a single memory at the β of many would lose all rows to it.
    """
    return from_memories(w, w.new_ones(1), beta=beta, uniform_weight=0.0)


def run(way: str, x: Tensor, width: int, beta: float | None, generator: torch.Generator) -> Trace:
    """Train in one of the ways; beta None: learned."""
    rows = ArrayDataset(Batch(x, x.new_ones(len(x), 1)))
    solver = FixedPoint(None, learn_beta=beta is None, learn_weights=True, tol=0.0)
    mean = sphere.project(x.mean(0))[None]
    began = time.perf_counter()

    def slope(w: Tensor) -> float | Tensor:
        return initialize.estimate_beta(w, x, 1.0) if beta is None else beta

    if way in ("splitting", "noise"):
        splitting = (
            Splitting(curvature=Krylov()) if way == "splitting"
            else Splitting(threshold=math.inf, curvature=RandomDirections())
        )  # fmt: skip
        found = grow(
            begin(mean, slope(mean)), rows, solver, max_memories=width, splitting=splitting,
            phase_iter=LEVEL_PASSES, max_iter=MOST, tol=TOL, generator=generator,
        )  # fmt: skip
        return traced(found.history, found.splits, found.params, width)
    before = (0.0, 0.0)
    history: tuple[PassRecord, ...] = ()
    if way == "annealing":
        held = replace(solver, learn_beta=False)
        across = torch.linalg.matrix_norm(sphere.to_tangent(mean, x), 2) ** 2
        first = float(x.sum(0).norm() / across)  # β_split of the mean
        last = float(slope(x[torch.randperm(len(x), generator=generator)[:width]]))
        params = begin(mean.expand(width, -1), first)
        for value in np.geomspace(0.8 * first, max(last, first), ANNEALING_PASSES):
            noise = JITTER * torch.randn(params.w.shape, generator=generator, dtype=x.dtype)
            params = replace(
                params, w=sphere.project(params.w + noise), beta=torch.tensor(value).to(x)
            )
            part = fit(params, rows, held, max_iter=1, generator=generator)
            params, history = part.params, (*history, *part.history)
    elif way == "k-means":
        centers = spherical_kmeans(
            x, width, generator=generator, restarts=1, max_iter=KMEANS_PASSES
        ).centers
        before = (0.5 * KMEANS_PASSES, time.perf_counter() - began)  # products one way
        params = begin(centers, slope(centers))
    else:
        w = initialize.from_data(x, width, generator=generator)
        params = begin(w, slope(w))
    found_fit = fit(params, rows, solver, max_iter=MOST, tol=TOL, generator=generator)
    return traced((*history, *found_fit.history), (), found_fit.params, width, before)


WAYS = ("splitting", "noise", "annealing", "k-means", "rows")


def main(argv: list[str]) -> None:
    """Every set, width, mode of β and seed."""
    made = parser(__doc__, "splitting")
    made.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS), metavar="SET")
    made.add_argument("--memories", nargs="+", type=int, default=[16, 64])
    made.add_argument("--seeds", type=int, default=10)
    args = made.parse_args(argv)
    torch.set_num_threads(1)
    head = report.head(report.command_line(["splitting", *argv]), seeds=range(args.seeds))
    runs = []
    for name in args.sets:
        for width in args.memories:
            for seed in range(args.seeds):
                x = SETS[name](seed)
                generator = torch.Generator().manual_seed(seed)
                learned = float(run("k-means", x, width, None, generator).params.beta)
                for mode, beta in zip(MODES, (None, learned, learned / 2), strict=True):
                    for way in WAYS:
                        generator = torch.Generator().manual_seed(seed)
                        found = run(way, x, width, beta, generator)
                        runs.append({"set": name, "width": width, "mode": mode, "way": way,
                                     "seed": seed, **found.summary()})  # fmt: skip
            report.write(args.out, head | {"runs": runs})
            last = [r for r in runs if r["set"] == name and r["width"] == width]
            for mode in MODES:
                of = {
                    way: [r for r in last if (r["mode"], r["way"]) == (mode, way)] for way in WAYS
                }
                shown = "  ".join(
                    f"{way} {np.mean([r['loss'] for r in rs]):.4f} ({np.mean([r['passes'] for r in rs]):.0f})"
                    for way, rs in of.items()
                )
                print(f"{name}, P = {width}, β {mode}: {shown}", flush=True)
