"""Training time against the number of memories, with and without growth, for both solvers.

    python -m benchmarks.training_time --device auto --data DIR --out FILE.json

One stopping rule for all: training ends with the first pass at the full width after which the
accuracy on the last 10% of the training rows (not trained on) reaches the target of that width.
The target is what five passes of the fixed point without growth reach there with another seed,
less `--margin` points. So the times compared are those to equal accuracy.

Phases of growth before the full width: one pass for the fixed point, from 16 memories; for SGD,
from 100, until the validation loss rises, at most `--sgd-phase` passes. Settings as in
benchmarks.growth. Next to seconds, `products` counts rows times memories, curvature and
validation included, in units of a million; the exponents are least-squares slopes of the
logarithm of either against that of P.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
import time
from pathlib import Path

import torch

from benchmarks._report import command, made_by, write
from benchmarks.accuracy_table import load
from mnemosphere.model import initialize, objectives
from mnemosphere.model.parameters import Parameters, from_memories
from mnemosphere.training.batches import Data, Solver
from mnemosphere.training.callbacks import Callback, Record
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import grow, start
from mnemosphere.training.loop import judge, train
from mnemosphere.training.sgd import SGD

VARSIGMA = 0.25
BATCH = 3000
INITIAL = {"fixed-point": 16, "sgd": 100}
METHODS = [(solver, growth) for solver in ("fixed-point", "sgd") for growth in (False, True)]


def first_memories(
    solver: str, data: Data, n_memories: int, generator: torch.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """Memories and β to start from."""
    if solver == "sgd":
        w = initialize.uniform(
            n_memories, data.x.shape[1], generator=generator, device=data.x.device
        )
        return w, torch.ones((), device=w.device)
    w = initialize.from_data(data.x, n_memories, generator=generator)
    return w, initialize.estimate_beta(w, data.x, VARSIGMA, generator=generator)


def make_solver(name: str) -> Solver:
    return SGD.paper() if name == "sgd" else FixedPoint(BATCH)


def target(data: Data, validation: Data, n_memories: int, args: argparse.Namespace) -> float:
    """The accuracy that counts as trained."""
    generator = torch.Generator().manual_seed(args.seed + 1000)
    w, beta = first_memories("fixed-point", data, n_memories, generator)
    params = from_memories(w, data.targets.mean(0), beta=beta, varsigma=VARSIGMA)
    result = train(params, data, FixedPoint(BATCH), max_epochs=5, generator=generator)
    return (judge(result.params, validation, objectives.joint)[1] or 0.0) - args.margin / 100


class Reached(Exception):  # noqa: N818 (no error)
    """The accuracy asked for is there."""


class Watch(Callback):
    """Keeps the last parameters, and ends training with `Reached`."""

    def __init__(self, params: Parameters, goal: float) -> None:
        self.params, self.goal = params, goal
        self.accuracy, self.passes = 0.0, 0

    def on_epoch(self, record: Record, params: Parameters) -> None:
        """Keep what there is; end training where it is enough."""
        self.params, self.accuracy = params, record.validation_accuracy or 0.0
        self.passes += 1
        if self.accuracy >= self.goal:
            raise Reached


def run(
    name: str,
    growth: bool,
    n_memories: int,
    goal: float,
    data: Data,
    validation: Data,
    args: argparse.Namespace,
) -> tuple[dict[str, object], Parameters]:
    """Train to the goal: what it took, and the model."""
    generator = torch.Generator().manual_seed(args.seed)
    solver = make_solver(name)
    forward_share = 0.5 * validation.n_rows / data.n_rows
    synchronize(args.device)
    began = time.perf_counter()
    params: Parameters
    state = None
    products = 0.0  # in passes × memories
    reached, passes, total = 0.0, 0, 0
    initial = INITIAL[name] if growth else n_memories
    w, beta = first_memories(name, data, min(initial, n_memories), generator)
    if growth:
        params = start(
            w, data.targets.mean(0), max_memories=n_memories, beta=beta, varsigma=VARSIGMA
        )
        grown = grow(
            params,
            data,
            solver,
            max_memories=n_memories,
            max_epochs=args.sgd_phase if name == "sgd" else 1,
            final_epochs=1,
            validation=validation,
            patience=1 if name == "sgd" else None,
            generator=generator,
        )
        params, state = grown.params, grown.state
        products += sum(r.n_memories * (1 + forward_share) for r in grown.history)
        products += sum(s.n_memories * s.passes for s in grown.splits)
        reached = grown.history[-1].validation_accuracy or 0.0
        passes, total = 1, len(grown.history)
    else:
        params = from_memories(w, data.targets.mean(0), beta=beta, varsigma=VARSIGMA)
    if reached < goal and passes < args.max_passes:
        watch = Watch(params, goal)
        with contextlib.suppress(Reached):
            train(
                params,
                data,
                solver,
                max_epochs=args.max_passes - passes,
                validation=validation,
                generator=generator,
                state=state,
                callbacks=[watch],
            )
        params, reached = watch.params, watch.accuracy
        products += watch.passes * params.n_memories * (1 + forward_share)
        passes, total = passes + watch.passes, total + watch.passes
    synchronize(args.device)
    row = {
        "solver": name,
        "growth": growth,
        "memories": n_memories,
        "reached_target": reached >= goal,
        "seconds": round(time.perf_counter() - began, 3),
        "products": round(products * data.n_rows / 1e6, 1),
        "passes_at_full_width": passes,
        "passes": total,
        "cost_in_full_passes": round(products / n_memories, 2),
        "validation_accuracy": round(100 * reached, 3),
        "grown_to": params.n_memories,
    }
    return row, params


def slope(sizes: list[int], values: list[float]) -> float | None:
    """Least-squares slope of log value against log size."""
    if len(sizes) < 2:
        return None
    x, y = ([math.log(v) for v in column] for column in (sizes, values))
    mx, my = sum(x) / len(x), sum(y) / len(y)
    top = sum((a - mx) * (b - my) for a, b in zip(x, y, strict=True))
    return round(top / sum((a - mx) ** 2 for a in x), 3)


def synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=[250, 500, 1000, 2000, 4000, 8000], metavar="P"
    )
    parser.add_argument("--solvers", nargs="+", choices=list(INITIAL), default=list(INITIAL))
    parser.add_argument("--margin", type=float, default=0.3, help="points below the reference")
    parser.add_argument("--max-passes", type=int, default=1000, help="at the full width")
    parser.add_argument("--sgd-phase", type=int, default=20, help="passes a phase of growth")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, help="training rows used; all if not given")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--data", help="folder of the data set")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.device == "auto":
        args.device = "cuda" if torch.cuda.is_available() else "cpu"
    return args


def main() -> None:
    args = parse()
    data, test = load(args.data, args.device)
    data = data if args.rows is None else data.take(slice(0, args.rows))
    data, validation = data.split_tail(0.1)
    methods = [m for m in METHODS if m[0] in args.solvers]
    for method in methods:  # the first run of each kind of step is slow on some devices
        run(*method, 128, 0.0, data.take(slice(0, 6000)), validation, args)
    rows = []
    for n_memories in args.sizes:
        goal = target(data, validation, n_memories, args)
        for method in methods:
            row, params = run(*method, n_memories, goal, data, validation, args)
            row["target"] = round(100 * goal, 3)
            row["test_accuracy"] = round(100 * (judge(params, test, objectives.joint)[1] or 0.0), 2)
            rows.append(row)
            print(json.dumps(row), flush=True)
    exponents = []
    for name, growth in methods:
        done = [r for r in rows if (r["solver"], r["growth"]) == (name, growth)]
        done = [r for r in done if r["reached_target"]]
        sizes = [r["memories"] for r in done]
        exponents.append(
            {
                "solver": name,
                "growth": growth,
                "sizes": sizes,
                "seconds": slope(sizes, [r["seconds"] for r in done]),
                "products": slope(sizes, [r["products"] for r in done]),
            }
        )
        print(json.dumps(exponents[-1]))
    shown = {args.data: "DIR", str(args.out): "FILE.json"}
    head = made_by(command("training_time", sys.argv[1:], shown), args.device)
    write(args.out, {**head, "seed": args.seed, "rows": rows, "exponents": exponents})


if __name__ == "__main__":
    main()
