"""The exact maximizer over the polytope at 1,000 memories and 10 classes, on one thread.

    python -m research maximize

Weights p̄: log-normal ones, even to sharp, and the statistics of the first exact passes over the
embedded digits, which span ever more decades. Each call is timed many times and taken at its
fastest, next to the two large matrix products of one batch of 1,000 rows (float32, one thread).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from mnemosphere.data import load
from mnemosphere.model import accumulate, maximize_bound, objectives
from mnemosphere.numerics import polytope
from research import fits, report
from research.benchmarks._options import parser
from research.benchmarks._random import problem, products

N_MEMORIES, N_CLASSES = 1000, 10


def random_weights(seed: int, spread: float) -> tuple[Tensor, Tensor, Tensor]:
    """Log-normal p̄ and uneven marginals, as many as a model of this size has."""
    generator = torch.Generator().manual_seed(seed)
    shape = (N_MEMORIES + 1, N_CLASSES + 1)
    p_bar = torch.randn(shape, generator=generator, dtype=torch.float64).mul(spread).exp()
    rows, cols = (torch.rand(n, generator=generator, dtype=torch.float64) + 0.1 for n in shape)
    return p_bar, rows / rows.sum(), cols / cols.sum()


def trained_weights(seed: int, passes: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Statistics p̄ of the first passes over the embedded digits, with the model's marginals."""
    rows, _ = fits.on_sphere(load("mnist-small"), "cpu", dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    start = fits.data_start(rows, N_MEMORIES, beta=160.0, generator=generator)
    params = fits.begin(start, rows.targets.mean(0), varsigma=fits.VARSIGMA)
    for _ in range(passes):
        found = accumulate(params, rows, objectives.joint)
        yield found.p_bar, params.p_h, params.p_q
        params = maximize_bound(params, found.w_bar, found.p_bar)


def fastest(act: Callable[[], object], repeats: int) -> float:
    """Milliseconds of the fastest of many calls."""
    act()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        act()
        times.append(time.perf_counter() - began)
    return 1e3 * min(times)


def main(argv: list[str]) -> None:
    """Measure, print, store."""
    options = parser(__doc__, "maximize")
    options.add_argument("--repeats", type=int, default=30)
    options.add_argument("--passes", type=int, default=8)
    options.add_argument("--seed", type=int, default=0)
    args = options.parse_args(argv)
    problems = [
        (f"random, log-normal({s:g})", random_weights(args.seed, s)) for s in (0.3, 1.0, 3.0)
    ]
    trained = enumerate(trained_weights(args.seed, args.passes), start=1)
    problems += [(f"digits, pass {number}", weights) for number, weights in trained]
    torch.set_num_threads(1)
    params, random_rows = problem(1000, N_MEMORIES)
    rows = []
    for name, (p_bar, r, c) in problems:
        found = polytope.maximize(p_bar, r, c).raise_if_failed()
        took = fastest(lambda w=(p_bar, r, c): polytope.maximize(*w), args.repeats)
        batch = fastest(lambda: products(params, random_rows.x), 5)
        decades = float(torch.log10(p_bar.max() / p_bar[p_bar > 0].min()))
        row = {
            "weights": name,
            "decades": round(decades, 1),
            "iterations": found.iterations,
            "marginal_error": float(found.error),
            "milliseconds": round(took, 2),
            "milliseconds_products": round(batch, 2),
            "ratio": round(took / batch, 3),
        }
        rows.append(row)
        print(
            f"{name}: {decades:.1f} decades, {found.iterations} iterations, {took:.1f} ms, "
            f"{row['ratio']:.2f} of the products of a batch ({batch:.1f} ms)",
            flush=True,
        )
    content = {
        **report.head(report.command_line(["maximize", *argv]), seeds=[args.seed]),
        "load_average": os.getloadavg()[0],
        "rows": rows,
    }
    report.write(args.out, content)
