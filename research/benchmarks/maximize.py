"""The exact maximiser over the polytope at 1,000 memories and 10 classes, on one thread.

    python -m benchmarks.maximize

Weights p̄: log-normal ones, even to sharp, and the statistics of the first exact passes over the
embedded digits, which span ever more decades. Each call is timed many times and taken at its
fastest, next to the two large matrix products of one batch of 1,000 rows (float32, one thread).
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks._report import command, made_by, write
from benchmarks.one_pass import problem, products
from mnemosphere import datasets
from mnemosphere.model import initialize, objectives
from mnemosphere.model.kernel import accumulate
from mnemosphere.model.parameters import from_memories
from mnemosphere.numerics import polytope, sphere
from mnemosphere.training.fixed_point import maximize_bound

RESULT = Path(__file__).parent / "results" / "maximize.json"
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
    data = datasets.load("mnist-small")
    x = torch.from_numpy(np.asarray(data.x_train, dtype=np.float64)).flatten(1)
    x = sphere.project(x - x.mean(1, keepdim=True))
    classes = torch.from_numpy(np.asarray(data.y_train, dtype=np.int64))
    q = objectives.soft_labels(classes, N_CLASSES, 0.1, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    memories = initialize.from_data(x, N_MEMORIES, generator=generator)
    params = from_memories(memories, q.mean(0), beta=160.0, varsigma=0.25)
    for _ in range(passes):
        found = accumulate(params, x, q, objectives.joint)
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--passes", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, default=RESULT)
    args = parser.parse_args(argv)
    problems = [
        (f"random, log-normal({s:g})", random_weights(args.seed, s)) for s in (0.3, 1.0, 3.0)
    ]
    trained = enumerate(trained_weights(args.seed, args.passes), start=1)
    problems += [(f"digits, pass {number}", weights) for number, weights in trained]
    torch.set_num_threads(1)
    params, x, _ = problem(1000, N_MEMORIES)
    rows = []
    for name, (p_bar, r, c) in problems:
        found = polytope.maximize(p_bar, r, c).raise_if_failed()
        took = fastest(lambda w=(p_bar, r, c): polytope.maximize(*w), args.repeats)
        batch = fastest(lambda: products(params, x), 5)
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
        **made_by(command("maximize", argv, {str(args.output): "FILE.json"})),
        "seed": args.seed,
        "load_average": os.getloadavg()[0],
        "rows": rows,
    }
    write(args.output, content)


if __name__ == "__main__":
    main(sys.argv[1:])
