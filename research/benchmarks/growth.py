"""Growth by splitting on MNIST: test accuracy and cost in passes of the full width.

    python -m benchmarks.growth --solver fixed-point --initial 16 --memories 1000 --data DIR
    python -m benchmarks.growth --solver sgd --initial 100 --memories 1000 --tol 0.001 --data DIR

SGD runs the authors' preset: memories uniform on the sphere, batch 1000, β from 1, the last 10%
of the training rows for early stopping with patience 1, at most 100 passes a phase, δ=0.25, τ=1.
`--tol` ends a phase sooner, when a pass changes the loss by less than that, relative: the tail of
a phase costs much and the next split undoes it.
The fixed point starts from training rows and takes a fixed number of passes over all of them.

Cost counts every product of a row with a memory, in units of a training pass over the training
rows at the full width: training, curvature, and the forward passes over validation rows.
`--curvature-cost P` instead times one curvature phase against one training pass at width P.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

import torch

from benchmarks._report import command, made_by, write
from benchmarks.accuracy_table import load
from mnemosphere.model import initialize, objectives
from mnemosphere.model.curvature import Descent, Nearest
from mnemosphere.model.kernel import accumulate
from mnemosphere.model.parameters import Parameters, from_memories
from mnemosphere.training.batches import Data, Solver
from mnemosphere.training.callbacks import Callback, Record, Split
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import GrowthResult, Splitting, grow, start
from mnemosphere.training.loop import judge, train
from mnemosphere.training.sgd import SGD

VARSIGMA = 0.25
BATCH = 3000
METHODS = {"nearest": Nearest, "descent": Descent}


class Progress(Callback):
    """One line a split."""

    def on_split(self, split: Split, params: Parameters) -> None:
        """Print what was split."""
        print(
            f"  phase {split.phase}: {split.n_memories} -> {params.n_memories} memories, "
            f"lambda_min {split.lambda_min:.2e}, delta {split.delta:g}, "
            f"{split.passes:.2f} passes, {split.seconds:.1f} s",
            flush=True,
        )


class Epochs(Callback):
    """One line a pass."""

    def on_epoch(self, record: Record, params: Parameters) -> None:
        """Print the loss."""
        print(
            f"    {record.n_memories} pass {record.epoch} loss {record.loss:.4f} "
            f"validation {record.validation_loss} beta {record.beta:.1f} {record.seconds:.2f} s",
            flush=True,
        )


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def run(
    data: Data, validation: Data | None, solver: Solver, args: argparse.Namespace, seed: int
) -> GrowthResult:
    """One growth from args.initial to args.memories."""
    generator = torch.Generator().manual_seed(seed)
    sgd = isinstance(solver, SGD)
    if sgd:
        w = initialize.uniform(
            args.initial, data.x.shape[1], generator=generator, device=data.x.device
        )
        beta = torch.tensor(1.0)
    else:
        w = initialize.from_data(data.x, args.initial, generator=generator)
        beta = initialize.estimate_beta(w, data.x, VARSIGMA, generator=generator)
    params = start(
        w, data.targets.mean(0), max_memories=args.memories, beta=beta.to(w), varsigma=VARSIGMA
    )
    return grow(
        params,
        data,
        solver,
        max_memories=args.memories,
        splitting=Splitting(
            fraction=args.fraction,
            delta=args.delta or None,
            curvature=METHODS[args.curvature](),
        ),
        max_epochs=args.phase_passes or (100 if sgd else 1),
        final_epochs=args.final_passes or (100 if sgd else 6),
        validation=validation,
        patience=1 if sgd else None,
        tol=args.tol,
        generator=generator,
        callbacks=[Progress(), *([Epochs()] if args.verbose else [])],
    )


def cost(result: GrowthResult, n_rows: int, n_validation: int) -> dict[str, float]:
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


def curvature_cost(data: Data, args: argparse.Namespace) -> dict[str, object]:
    """Seconds of one curvature phase and of one training pass, each the best of three."""
    generator = torch.Generator().manual_seed(0)
    w = initialize.from_data(data.x, args.curvature_cost, generator=generator)
    beta = initialize.estimate_beta(w, data.x, VARSIGMA, generator=generator)
    params = from_memories(w, data.targets.mean(0), beta=beta, varsigma=VARSIGMA)
    params = train(params, data, FixedPoint(BATCH), max_epochs=2, generator=generator).params

    def best(work) -> float:  # type: ignore[no-untyped-def]
        times = []
        for _ in range(3):
            synchronize(args.device)
            began = time.perf_counter()
            work()
            synchronize(args.device)
            times.append(time.perf_counter() - began)
        return min(times)

    arguments = (params, data.x, data.targets, objectives.joint)
    training = best(lambda: accumulate(*arguments))
    out: dict[str, object] = {"memories": args.curvature_cost, "training_pass_s": training}
    for name, method in METHODS.items():
        seconds = best(lambda method=method: method()(*arguments, generator=generator))
        passes = method()(*arguments, generator=generator).passes
        out[name] = {
            "seconds": round(seconds, 3),
            "in_training_passes": round(seconds / training, 3),
            "arithmetic_in_passes": round(passes, 3),
        }
    return out


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--solver", choices=["sgd", "fixed-point"], default="fixed-point")
    parser.add_argument("--initial", type=int, default=16)
    parser.add_argument("--memories", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--phase-passes", type=int, help="at most, in all phases but the last")
    parser.add_argument("--final-passes", type=int, help="at most, in the last phase")
    parser.add_argument("--tol", type=float, default=0.0, help="relative, ends a phase")
    parser.add_argument("--delta", type=float, default=0.25, help="0: by line search")
    parser.add_argument("--fraction", type=float, default=1.0, help="of the memories, at most")
    parser.add_argument("--curvature", choices=list(METHODS), default="nearest")
    parser.add_argument("--curvature-cost", type=int, metavar="P")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--rows", type=int, help="training rows used; all if not given")
    parser.add_argument("--data", help="folder of the data set")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.device == "auto":
        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    return args


def main() -> None:
    args = parse()
    data, test = load(args.data, args.device)
    data = data if args.rows is None else data.take(slice(0, args.rows))
    shown_as = {args.data: "DIR", str(args.out): "FILE.json"}
    report = made_by(command("growth", sys.argv[1:], shown_as), args.device)
    if args.curvature_cost:
        report["curvature_cost"] = curvature_cost(data, args)
        print(json.dumps(report, indent=1))
    else:
        solver: Solver = SGD.paper() if args.solver == "sgd" else FixedPoint(BATCH)
        validation = None
        if args.solver == "sgd":
            data, validation = data.split_tail(0.1)
        rows = []
        for seed in range(args.first_seed, args.first_seed + args.seeds):
            synchronize(args.device)
            began = time.perf_counter()
            result = run(data, validation, solver, args, seed)
            synchronize(args.device)
            seconds = time.perf_counter() - began
            _, accuracy = judge(result.params, test, objectives.joint)
            levels = [judge(model, test, objectives.joint)[1] for model in result.lineage.models]
            rows.append(
                {
                    "seed": seed,
                    "accuracy": round(100 * (accuracy or 0.0), 2),
                    "cost": cost(
                        result, data.n_rows, 0 if validation is None else validation.n_rows
                    ),
                    "seconds": round(seconds, 1),
                    "memories": result.params.n_memories,
                    "beta": round(float(result.params.beta), 2),
                    "status": result.status,
                    "loss": round(result.history[-1].loss, 5),
                    "levels": [
                        {
                            "memories": model.n_memories,
                            "accuracy": round(100 * (level or 0.0), 2),
                            "passes": sum(r.phase == k for r in result.history),
                        }
                        for k, (model, level) in enumerate(
                            zip(result.lineage.models, levels, strict=True)
                        )
                    ],
                    "splits": [s.as_dict() for s in result.splits],
                }
            )
            shown = {k: v for k, v in rows[-1].items() if k != "splits"}
            print(json.dumps(shown), flush=True)
        report["rows"] = rows
        report["mean_accuracy"] = round(statistics.fmean(r["accuracy"] for r in rows), 3)
        report["mean_cost"] = round(statistics.fmean(r["cost"]["total"] for r in rows), 3)
        print(f"mean accuracy {report['mean_accuracy']}%, cost {report['mean_cost']} passes")
    write(args.out, report)


if __name__ == "__main__":
    main()
