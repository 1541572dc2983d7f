"""Test accuracy on MNIST: Table (accuracy_table) by SGD, and the fixed point beside it.

    python -m research accuracy_table --solver sgd --device cuda --data DIR
    python -m research accuracy_table --solver fixed-point --seeds 3 --data DIR

SGD runs the authors' preset: memories uniform on the sphere, batch 1000, the last 10% of the
training rows for early stopping with patience 1, at most 300 passes. The fixed point starts from
training rows and takes 5 passes over all of them.
"""

from __future__ import annotations

import time

import torch

from mnemosphere.model import Batch
from mnemosphere.training import FitResult
from research import fits, report
from research.benchmarks._options import digits_parser

SETTINGS = {  # name: (β, ς); β None is learned
    "beta=6": (6.0, 1.0),
    "beta=10": (10.0, 1.0),
    "beta=14": (14.0, 1.0),
    "beta=18": (18.0, 1.0),
    "varsigma=0.25": (None, 0.25),
}


def run_sgd(
    data: Batch, beta: float | None, varsigma: float, memories: int, seed: int
) -> FitResult:
    """The authors' preset."""
    generator = torch.Generator().manual_seed(seed)
    rows, validation = fits.split_tail(data, 0.1)
    start = fits.uniform_start(
        rows, memories, beta=1.0 if beta is None else beta, generator=generator
    )
    return fits.train_from(
        start,
        rows,
        fits.paper_sgd(learn_beta=beta is None),
        varsigma=varsigma,
        passes=300,
        validation=validation,
        patience=1,
        generator=generator,
    )


def run_fixed_point(
    data: Batch, beta: float | None, varsigma: float, memories: int, seed: int
) -> FitResult:
    """Five passes of incremental fixed-point steps from training rows."""
    generator = torch.Generator().manual_seed(seed)
    start = fits.data_start(data, memories, varsigma=varsigma, beta=beta, generator=generator)
    return fits.train_from(
        start,
        data,
        fits.fixed_point(batch_size=fits.BATCH, learn_beta=beta is None),
        varsigma=varsigma,
        passes=5,
        generator=generator,
    )


def summary(result: FitResult, test: Batch) -> report.Json:
    """What is kept of a training."""
    return {
        "accuracy": round(100 * fits.accuracy(result.params, test), 2),
        "passes": len(result.history),
        "beta": round(float(result.params.beta), 2),
        "status": result.status,
        "loss": round(result.history[-1].loss, 5),
        "seconds": round(sum(r.seconds for r in result.history), 1),
    }


def main(argv: list[str]) -> None:
    parser = digits_parser(__doc__, "accuracy_table", seeds=1)
    parser.add_argument("--solver", choices=["sgd", "fixed-point"], default="fixed-point")
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=None)
    args = parser.parse_args(argv)
    names = args.settings or (list(SETTINGS) if args.solver == "sgd" else ["varsigma=0.25"])
    data, test = fits.mnist_rows(args.data, args.device)
    run = run_sgd if args.solver == "sgd" else run_fixed_point
    rows = []
    for name in names:
        for seed in range(args.seeds):
            began = time.perf_counter()
            result = run(data, *SETTINGS[name], args.memories, seed)
            row = {"setting": name, "seed": seed, **summary(result, test)}
            print(row, f"wall {time.perf_counter() - began:.1f} s", flush=True)
            rows.append(row)
    command = report.command_line(["accuracy_table", *argv])
    head = report.head(command, device=args.device, seeds=range(args.seeds))
    report.write(args.out, {**head, "memories": args.memories, "rows": rows})
