"""One step of the paper's SGD: plain, and replayed from a CUDA graph.

    python -m benchmarks.sgd_step --device cuda

Random unit rows of 784 features, float32. Milliseconds a step, each the median of several runs of
many steps, next to the two large matrix products of a step alone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks._report import command, made_by, write
from benchmarks.one_pass import problem, products
from mnemosphere.model.objectives import joint
from mnemosphere.training.batches import Data
from mnemosphere.training.sgd import SGD
from mnemosphere.training.steps import Steps, steps_for

RESULT = Path(__file__).parent / "results" / "sgd_step.json"


def milliseconds(act: Callable[[], object], device: torch.device, steps: int, runs: int) -> float:
    """Median over runs of the mean time of `act` over many calls."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    times = []
    for run in range(runs + 1):
        wait()
        began = time.perf_counter()
        for _ in range(steps):
            act()
        wait()
        if run > 0:  # the first warms up
            times.append(1e3 * (time.perf_counter() - began) / steps)
    return statistics.median(times)


def measure(
    n_memories: int, batch_size: int, device: torch.device, steps: int, runs: int
) -> dict[str, float]:
    """Milliseconds of a step, plain and as the training loop takes it, and of its products."""
    params, x, targets = problem(10 * batch_size, n_memories)
    params = params.to(device=device)
    data = Data(x.to(device), targets.to(device))
    solver = SGD(0.01, 0.99, batch_size, tolerance=None)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randperm(data.n_rows, generator=generator)[:batch_size].to(device)
    plain = Steps(params, solver.start(params), data, solver, joint)
    used = steps_for(params, solver.start(params), data, solver, joint)
    batch = data.x[rows]
    return {
        "memories": n_memories,
        "batch": batch_size,
        "plain": milliseconds(lambda: plain(rows, generator), device, steps, runs),
        "in training": milliseconds(lambda: used(rows, generator), device, steps, runs),
        "products": milliseconds(lambda: products(params, batch), device, steps, runs),
    }


def main() -> None:
    """Measure, print, write the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--memories", type=int, nargs="+", default=[1000, 2000])
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    found = [
        measure(p, arguments.batch_size, device, arguments.steps, arguments.runs)
        for p in arguments.memories
    ]
    for row in found:
        print(
            f"P={row['memories']:5d}  plain {row['plain']:.3f} ms  "
            f"in training {row['in training']:.3f} ms  products alone {row['products']:.3f} ms"
        )
    words = command("sgd_step", sys.argv[1:], {str(arguments.out): "FILE.json"})
    write(arguments.out, {**made_by(words, device.type), "milliseconds": found})


if __name__ == "__main__":
    main()
