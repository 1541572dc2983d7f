"""Training time against the number of memories: how many passes, and what a pass costs.

    python -m research training_time --seeds 2
    python -m research training_time --data DIR --rows 60000 --batch 1000 --device cuda --memories 256 512 1024 2048 4096

Time is the number of passes times the cost of one. SGD is the authors' preset but for the size of
a batch: memories uniform on the sphere, β from 1, ς = 0.25, the last tenth of the rows for early
stopping with patience 1. With splitting it starts from `--first` memories, doubles them, and a
phase also ends where a pass changes the loss by less than a thousandth. The fixed point starts from
training rows, or grows from as many; it takes exact steps until a pass changes the loss by less
than 1e-4, relative. Work counts every product of a row with a memory, in passes of the full width.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from mnemosphere.data import load
from mnemosphere.model import Batch, Nearest
from mnemosphere.training import Splitting
from research import fits, report
from research.benchmarks._options import add_data, add_device, parser
from research.report import Json, synchronize

METHODS = ("sgd", "sgd-split", "fixed-point", "fixed-point-split")
RATE = 0.1**2  # the authors, in the usual convention
MOST_PASSES, PHASE_PASSES, STEPS = 2000, 100, 200


def train(method: str, rows: Batch, validation: Batch, width: int, args: object, seed: int) -> Json:
    """One training, in passes, work and seconds."""
    first, batch = args.first, args.batch  # type: ignore[attr-defined]
    generator = torch.Generator().manual_seed(seed)
    sgd, split = method.startswith("sgd"), method.endswith("split")
    n = min(first, width) if split else width
    if sgd:
        solver = fits.sgd(learning_rate=RATE, batch_size=batch)
        start = fits.uniform_start(rows, n, generator=generator)
        limits = {"validation": validation, "patience": 1, "tol": 1e-3 if split else 0.0}
    else:
        solver = fits.fixed_point()  # type: ignore[assignment]
        start = fits.data_start(rows, n, generator=generator)
        limits = {"tol": 1e-4}
    synchronize(rows.x.device)
    began = time.perf_counter()
    if split:
        found = fits.grow_from(
            start, rows, solver, max_memories=width, splitting=Splitting(curvature=Nearest()),
            passes=PHASE_PASSES if sgd else 2, final_passes=MOST_PASSES if sgd else STEPS,
            generator=generator, **limits,
        )  # fmt: skip
        history, splits = found.history, found.splits
        params = found.params
    else:
        result = fits.train_from(
            start, rows, solver, passes=MOST_PASSES if sgd else STEPS, generator=generator, **limits
        )
        history, splits, params = result.history, (), result.params
    synchronize(rows.x.device)
    seconds = time.perf_counter() - began
    work = sum(r.n_memories for r in history) + sum(s.passes * s.n_memories for s in splits)
    full = [r.seconds for r in history if r.n_memories == width]
    return {
        "passes": len(history), "full_passes": len(full), "work": work / width, "phases": len(splits) + 1,
        "pass_seconds": statistics.median(full) if full else None, "seconds": seconds,
        "memories": params.n_memories, "loss": fits.mean_loss(params, validation),
        "accuracy": fits.accuracy(params, validation),
    }  # fmt: skip


def exponent(width: list[float], value: list[float], *, draws: int = 2000) -> Json:
    """Slope of log value against log width, with a 95% interval over resampled runs."""
    x, y = np.log(width), np.log(value)
    rng = np.random.default_rng(0)
    slopes = []
    while len(slopes) < draws:
        k = rng.integers(len(x), size=len(x))
        if len(np.unique(x[k])) > 2:
            slopes.append(float(np.polyfit(x[k], y[k], 1)[0]))
    low, high = np.percentile(slopes, [2.5, 97.5])
    return {"slope": float(np.polyfit(x, y, 1)[0]), "low": float(low), "high": float(high)}


def laws(runs: list[Json]) -> list[Json]:
    """Exponents of passes, of seconds per pass, of work and of seconds, for every method."""
    found = []
    for method in METHODS:
        own = [r for r in runs if r["method"] == method and r["pass_seconds"]]
        if len({r["width"] for r in own}) < 3:
            continue
        width = [float(r["width"]) for r in own]
        values = {
            "passes": [r["passes"] for r in own], "pass_seconds": [r["pass_seconds"] for r in own],
            "work": [r["work"] * r["width"] for r in own], "seconds": [r["seconds"] for r in own],
        }  # fmt: skip
        found.append({"method": method, **{k: exponent(width, v) for k, v in values.items()}})
    return found


def main(argv: list[str]) -> None:
    """Every width, seed and method."""
    made = parser(__doc__, "training_time")
    made.add_argument("--memories", nargs="+", type=int, default=[32, 64, 128, 256, 512])
    made.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    made.add_argument("--rows", type=int, default=2500, help="training rows, a tenth held out")
    made.add_argument("--batch", type=int, default=50, help="rows of a step of SGD")
    made.add_argument("--first", type=int, default=16, help="memories before the first split")
    made.add_argument("--seeds", type=int, default=2)
    add_device(made, "cpu")
    add_data(made)
    args = made.parse_args(argv)
    raw = load("mnist", args.data / "mnist") if args.data else load("mnist-small")
    rows, _ = fits.on_sphere(raw, args.device)
    rows = rows.take(slice(0, args.rows))
    rows, validation = fits.split_tail(rows, 0.1)
    command = report.command_line(["training_time", *argv])
    head = report.head(command, device=args.device, seeds=range(args.seeds))
    runs: list[Json] = []
    for width in args.memories:
        for method in args.methods:
            for seed in range(args.seeds):
                try:
                    line = train(method, rows, validation, width, args, seed)
                except ValueError as error:  # class weights that SGD left off their marginals
                    print(width, method, seed, f"failed: {error}", flush=True)
                    continue
                runs.append({"width": width, "method": method, "seed": seed, **line})
                print({k: v if isinstance(v, str) else round(v, 4) for k, v in runs[-1].items() if v is not None},
                      flush=True)  # fmt: skip
                report.write(
                    args.out, head | {"rows": rows.n_rows, "runs": runs, "laws": laws(runs)}
                )
