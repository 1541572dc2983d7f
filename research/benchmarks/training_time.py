"""Training time against the number of memories, with and without growth, for both solvers.

    python -m research training_time --device auto --data DIR --out FILE.json

One stopping rule for all: training ends with the first pass at the full width after which the
accuracy on the last 10% of the training rows (not trained on) reaches the target of that width.
The target is what five passes of the fixed point without growth reach there with another seed,
less `--margin` points. So the times compared are those to equal accuracy.

Phases of growth before the full width: one pass for the fixed point, from 16 memories; for SGD,
from 100, until the validation loss rises, at most `--sgd-phase` passes. Settings as in
the benchmark `growth`. Next to seconds, `products` counts rows times memories, curvature and
validation included, in units of a million; the exponents are least-squares slopes of the
logarithm of either against that of P.
"""

from __future__ import annotations

import argparse
import json
import math
import time

import torch

from mnemosphere.model import Batch, Parameters
from mnemosphere.training import Callback, Run, Solver
from research import fits, report
from research.benchmarks._options import add_data, add_device, parser
from research.report import synchronize

INITIAL = {"fixed-point": 16, "sgd": 100}
METHODS = [(solver, growth) for solver in ("fixed-point", "sgd") for growth in (False, True)]


def make_solver(name: str) -> Solver:
    return fits.paper_sgd() if name == "sgd" else fits.fixed_point(batch_size=fits.BATCH)


def target(data: Batch, validation: Batch, n_memories: int, args: argparse.Namespace) -> float:
    """The accuracy that counts as trained."""
    generator = torch.Generator().manual_seed(args.seed + 1000)
    start = fits.data_start(data, n_memories, generator=generator)
    solver = make_solver("fixed-point")
    result = fits.train_from(start, data, solver, passes=5, generator=generator)
    return fits.accuracy(result.params, validation) - args.margin / 100


class StopAtGoal(Callback):
    """Ends training where the accuracy on validation rows is there; keeps the last parameters."""

    def __init__(self, goal: float) -> None:
        self.goal, self.accuracy = goal, 0.0

    def on_pass(self, run: Run) -> None:
        """Keep what there is."""
        self.params, self.accuracy = run.params, run.history[-1].validation_accuracy or 0.0

    def stop_reason(self, run: Run) -> str | None:
        """'reached', or None."""
        return "reached" if run.history and self.accuracy >= self.goal else None


def run(
    name: str,
    growth: bool,
    n_memories: int,
    goal: float,
    data: Batch,
    validation: Batch,
    args: argparse.Namespace,
) -> tuple[report.Json, Parameters]:
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
    begin = fits.uniform_start if name == "sgd" else fits.data_start
    start = begin(data, min(initial, n_memories), generator=generator)
    if growth:
        grown = fits.grow_from(
            start,
            data,
            solver,
            max_memories=n_memories,
            passes=args.sgd_phase if name == "sgd" else 1,
            final_passes=1,
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
        params = fits.begin(start, data.targets.mean(0), varsigma=fits.VARSIGMA)
    if reached < goal and passes < args.max_passes:
        watch = StopAtGoal(goal)
        result = fits.continue_training(
            params,
            data,
            solver,
            passes=args.max_passes - passes,
            validation=validation,
            generator=generator,
            state=state,
            callbacks=[watch],
        )
        params, reached, more = watch.params, watch.accuracy, len(result.history)
        products += more * params.n_memories * (1 + forward_share)
        passes, total = passes + more, total + more
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


def parse(argv: list[str]) -> argparse.Namespace:
    options = parser(__doc__, "training_time")
    options.add_argument(
        "--sizes", type=int, nargs="+", default=[250, 500, 1000, 2000, 4000, 8000], metavar="P"
    )
    options.add_argument("--solvers", nargs="+", choices=list(INITIAL), default=list(INITIAL))
    options.add_argument("--margin", type=float, default=0.3, help="points below the reference")
    options.add_argument("--max-passes", type=int, default=1000, help="at the full width")
    options.add_argument("--sgd-phase", type=int, default=20, help="passes per phase of growth")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--rows", type=int, help="training rows used; all if not given")
    add_device(options, "auto")
    add_data(options)
    return options.parse_args(argv)


def main(argv: list[str]) -> None:
    args = parse(argv)
    data, test = fits.mnist_rows(args.data, args.device)
    data = data if args.rows is None else data.take(slice(0, args.rows))
    data, validation = fits.split_tail(data, 0.1)
    methods = [m for m in METHODS if m[0] in args.solvers]
    for method in methods:  # the first run of each kind of step is slow on some devices
        run(*method, 128, 1e-6, data.take(slice(0, 6000)), validation, args)
    rows = []
    for n_memories in args.sizes:
        goal = target(data, validation, n_memories, args)
        for method in methods:
            row, params = run(*method, n_memories, goal, data, validation, args)
            row["target"] = round(100 * goal, 3)
            row["test_accuracy"] = round(100 * fits.accuracy(params, test), 2)
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
    command = report.command_line(["training_time", *argv])
    head = report.head(command, device=args.device, seeds=[args.seed])
    report.write(args.out, {**head, "rows": rows, "exponents": exponents})
