"""Growth with and without sharing out the classes between the copies of a memory.

    python -m research label_splits --device cuda --data DIR

Fixed point, grown from few memories on MNIST and Fashion-MNIST, two settings: β learned at ς = 0.25
where memories are far above β_split, and β held low at ς = 1, where they are below it. Each with
directions at fixed class weights and joint ones, and with δ = 0.25 or sought by a line search.
Every level of every growth is measured on the test rows.
"""

from __future__ import annotations

import json
import time
from typing import Any

import torch

from mnemosphere.data import load
from mnemosphere.model import Batch, Nearest
from mnemosphere.training import Splitting
from research import fits, report
from research.benchmarks._options import add_data, add_device
from research.benchmarks._options import parser as made_parser
from research.report import synchronize

SETTINGS: dict[str, dict[str, Any]] = {
    "learned": {
        "varsigma": 0.25, "beta": None, "initial": 16, "memories": 512, "phase": 1, "final": 4,
    },
    "beta=6": {
        "varsigma": 1.0, "beta": 6.0, "initial": 8, "memories": 64, "phase": 6, "final": 6,
    },
}  # fmt: skip
WAYS = ((False, False), (True, False), (True, True))  # (classes shared out, δ sought)


def run(
    data: Batch, test: Batch, setting: str, classes: bool, search: bool, seed: int
) -> report.Json:
    """One growth: what every level reaches, and what it cost so far."""
    chosen = SETTINGS[setting]
    memories = chosen["memories"]
    generator = torch.Generator().manual_seed(seed)
    held = chosen["beta"] is not None
    start = fits.data_start(
        data, chosen["initial"], varsigma=chosen["varsigma"], beta=chosen["beta"],
        generator=generator,
    )  # fmt: skip
    splitting = Splitting(
        delta=None if search else 0.25, curvature=Nearest(rows_per_memory=256, classes=classes)
    )
    synchronize(data.x.device)
    began = time.perf_counter()
    result = fits.grow_from(
        start,
        data,
        fits.fixed_point(batch_size=fits.BATCH, learn_beta=not held),
        max_memories=memories,
        splitting=splitting,
        varsigma=chosen["varsigma"],
        passes=chosen["phase"],
        final_passes=chosen["final"],
        generator=generator,
    )
    synchronize(data.x.device)
    seconds = time.perf_counter() - began
    levels, spent = [], 0.0
    for k, model in enumerate(result.lineage.models):
        spent += sum(r.n_memories for r in result.history if r.phase == k)
        levels.append(
            {
                "memories": model.n_memories,
                "accuracy": round(100 * fits.accuracy(model, test), 2),
                "loss": round(fits.mean_loss(model, data), 5),
                "cost": round(spent / memories, 3),
            }
        )
        if k < len(result.splits):
            spent += result.splits[k].passes * result.splits[k].n_memories
    return {
        "setting": setting,
        "classes": classes,
        "search": search,
        "seed": seed,
        "status": result.status,
        "seconds": round(seconds, 2),
        "levels": levels,
        "splits": [s.as_dict() for s in result.splits],
    }


def main(argv: list[str]) -> None:
    parser = made_parser(__doc__, "label_splits")
    parser.add_argument("--seeds", type=int, default=3)
    add_device(parser, "cpu")
    add_data(parser)
    parser.add_argument("--rows", type=int, help="training rows used; all if not given")
    args = parser.parse_args(argv)
    command = report.command_line(["label_splits", *argv])
    content = report.head(command, device=args.device, seeds=range(args.seeds))
    rows = []
    for name in ("mnist", "fashion-mnist"):
        data, test = fits.on_sphere(load(name, directory=args.data), args.device)
        data = data if args.rows is None else data.take(slice(0, args.rows))
        for seed in range(args.seeds):
            for setting in SETTINGS:
                for classes, search in WAYS:
                    row = run(data, test, setting, classes, search, seed)
                    rows.append({"data": name, **row})
                    last = row["levels"][-1]
                    shown = {k: v for k, v in row.items() if k not in ("levels", "splits")}
                    print(json.dumps({"data": name, **shown, **last}), flush=True)
    content["rows"] = rows
    report.write(args.out, content)
