"""Growth by splitting on MNIST: test accuracy and cost in passes of the full width.

    python -m research growth --solver fixed-point --initial 16 --memories 1000 --data DIR
    python -m research growth --solver sgd --initial 100 --memories 1000 --tol 0.001 --data DIR

SGD runs the authors' preset: memories uniform on the sphere, batch 1000, β from 1, the last 10%
of the training rows for early stopping with patience 1, at most 100 passes per phase, δ=0.25, τ=1.
`--tol` ends a phase sooner, when a pass changes the loss by less than that, relative: the tail of
a phase costs much and the next split undoes it.
The fixed point starts from training rows and takes a fixed number of passes over all of them.

Cost counts every product of a row with a memory, in units of a training pass over the training
rows at the full width: training, curvature, and the forward passes over validation rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch

from mnemosphere.model import Batch, Nearest, Parameters
from mnemosphere.training import Callback, FitResult, Solver, SplitRecord, Splitting
from research import fits, report
from research.benchmarks._options import digits_parser
from research.report import synchronize


class PrintSplits(Callback):
    """One line per split."""

    def on_split(self, split: SplitRecord, params: Parameters) -> None:
        """Print what was split."""
        print(
            f"  phase {split.phase}: {split.n_memories} -> {params.n_memories} memories, "
            f"lambda_min {split.lambda_min:.2e}, delta {split.delta:g}, "
            f"{split.passes:.2f} passes, {split.seconds:.1f} s",
            flush=True,
        )


def run(data: Batch, validation: Batch | None, args: argparse.Namespace, seed: int) -> FitResult:
    """One growth from args.initial to args.memories."""
    generator = torch.Generator().manual_seed(seed)
    sgd = args.solver == "sgd"
    solver: Solver = fits.paper_sgd() if sgd else fits.fixed_point(batch_size=fits.BATCH)
    start = fits.uniform_start if sgd else fits.data_start
    return fits.grow_from(
        start(data, args.initial, generator=generator),
        data,
        solver,
        max_memories=args.memories,
        splitting=Splitting(delta=0.25, curvature=Nearest()),
        passes=100 if sgd else 1,
        final_passes=100 if sgd else 6,
        validation=validation,
        patience=1 if sgd else None,
        tol=args.tol,
        generator=generator,
        callbacks=[PrintSplits()],
    )


def cost(result: FitResult, n_rows: int, n_validation: int) -> dict[str, float]:
    """Passes of the full width, by what they were spent on."""
    width = result.params.n_memories
    training = sum(r.n_memories for r in result.history) / width
    curvature = sum(s.passes * s.n_memories for s in result.splits) / width
    validation = 0.5 * training * n_validation / n_rows
    return {
        "training": round(training, 3),
        "curvature": round(curvature, 3),
        "validation": round(validation, 3),
        "total": round(training + curvature + validation, 3),
    }


def parse(argv: list[str]) -> argparse.Namespace:
    parser = digits_parser(__doc__, "growth", seeds=1)
    parser.set_defaults(device="auto")
    parser.add_argument("--solver", choices=["sgd", "fixed-point"], default="fixed-point")
    parser.add_argument("--initial", type=int, default=16)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--tol", type=float, default=0.0, help="relative, ends a phase")
    parser.add_argument("--rows", type=int, help="training rows used; all if not given")
    return parser.parse_args(argv)


def row_of(result: FitResult, test: Batch, seed: int, seconds: float) -> report.Json:
    """What is kept of a growth, less its cost."""
    models = result.lineage.models
    return {
        "seed": seed,
        "accuracy": round(100 * fits.accuracy(result.params, test), 2),
        "seconds": round(seconds, 1),
        "memories": result.params.n_memories,
        "beta": round(float(result.params.beta), 2),
        "status": result.status,
        "loss": round(result.history[-1].loss, 5),
        "levels": [
            {
                "memories": model.n_memories,
                "accuracy": round(100 * fits.accuracy(model, test), 2),
                "passes": sum(r.phase == k for r in result.history),
            }
            for k, model in enumerate(models)
        ],
        "splits": [s.as_dict() for s in result.splits],
    }


def main(argv: list[str]) -> None:
    args = parse(argv)
    data, test = fits.mnist_rows(args.data, args.device)
    data = data if args.rows is None else data.take(slice(0, args.rows))
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    command = report.command_line(["growth", *argv])
    content = report.head(command, device=args.device, seeds=seeds)
    validation = None
    if args.solver == "sgd":
        data, validation = fits.split_tail(data, 0.1)
    n_validation = 0 if validation is None else validation.n_rows
    rows = []
    for seed in seeds:
        synchronize(args.device)
        began = time.perf_counter()
        result = run(data, validation, args, seed)
        synchronize(args.device)
        row = row_of(result, test, seed, time.perf_counter() - began)
        row["cost"] = cost(result, data.n_rows, n_validation)
        rows.append(row)
        shown = {k: v for k, v in row.items() if k != "splits"}
        print(json.dumps(shown), flush=True)
    content["rows"] = rows
    content["mean_accuracy"] = round(statistics.fmean(r["accuracy"] for r in rows), 3)
    content["mean_cost"] = round(statistics.fmean(r["cost"]["total"] for r in rows), 3)
    print(f"mean accuracy {content['mean_accuracy']}%, cost {content['mean_cost']} passes")
    report.write(args.out, content)
