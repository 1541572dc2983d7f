"""One step of the paper's SGD: plain, and replayed from a CUDA graph.

    python -m research sgd_step --device cuda

Random unit rows of 784 features, float32. Milliseconds per step, each the median of several runs of
many steps, next to the two large matrix products of a step alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from mnemosphere.data import ArrayDataset
from mnemosphere.model import Batch
from mnemosphere.model.objectives import joint
from mnemosphere.training.steps import Steps, steps_for
from research import fits, report
from research.benchmarks._options import add_device, parser
from research.benchmarks._random import problem, products
from research.report import synchronize


def milliseconds(act: Callable[[], object], device: torch.device, steps: int, runs: int) -> float:
    """Median over runs of the mean time of `act` over many calls."""
    times = []
    for run in range(runs + 1):
        synchronize(device)
        began = time.perf_counter()
        for _ in range(steps):
            act()
        synchronize(device)
        if run > 0:  # the first warms up
            times.append(1e3 * (time.perf_counter() - began) / steps)
    return statistics.median(times)


def measure(
    n_memories: int, batch_size: int, device: torch.device, steps: int, runs: int
) -> dict[str, float]:
    """Milliseconds of a step, plain and as the training loop takes it, and of its products."""
    params, made = problem(10 * batch_size, n_memories)
    params = params.to(device=device)
    rows = Batch(made.x.to(device), made.targets.to(device))
    solver = fits.sgd(learning_rate=0.01, momentum=0.99, batch_size=batch_size, sweeps=10)
    generator = torch.Generator().manual_seed(0)
    chosen = torch.randperm(rows.n_rows, generator=generator)[:batch_size].to(device)
    share = batch_size / rows.n_rows
    plain = Steps(params, solver.start(params), solver, joint)
    used = steps_for(params, solver.start(params), ArrayDataset(rows), solver, joint)
    x = rows.x[chosen]

    def step(steps: Steps) -> None:
        """With the choice of its rows, as in training."""
        steps(rows.take(chosen), share, generator)

    return {
        "memories": n_memories,
        "batch": batch_size,
        "plain": milliseconds(lambda: step(plain), device, steps, runs),
        "in training": milliseconds(lambda: step(used), device, steps, runs),
        "products": milliseconds(lambda: products(params, x), device, steps, runs),
    }


def main(argv: list[str]) -> None:
    """Measure, print, write the result."""
    options = parser(__doc__, "sgd_step")
    add_device(options, "cuda")
    options.add_argument("--memories", type=int, nargs="+", default=[1000, 2000])
    options.add_argument("--batch-size", type=int, default=1000)
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--runs", type=int, default=7)
    args = options.parse_args(argv)
    device = torch.device(args.device)
    found = [measure(p, args.batch_size, device, args.steps, args.runs) for p in args.memories]
    for row in found:
        print(
            f"P={row['memories']:5d}  plain {row['plain']:.3f} ms  "
            f"in training {row['in training']:.3f} ms  products alone {row['products']:.3f} ms"
        )
    head = report.head(report.command_line(["sgd_step", *argv]), device=device)
    report.write(args.out, {**head, "milliseconds": found})
