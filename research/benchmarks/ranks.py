"""Passes by several processes against one: efficiency, and the share of time spent exchanging.

    python -m research ranks --ranks 1 2 4 8

Exact and incremental passes of the fixed point over the same rows, one thread per process, each
number of processes started by torchrun; the baseline is one process without a group. Incremental
passes take the steps that `fit` takes: twenty by one process, ten by several. They take
turns, `--repeats` times, and each is taken at its fastest. Efficiency is time of one / (processes x
time of all). Exchange is the time that rank 0 spends in collectives, waiting for others included.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from mnemosphere.model import Batch, Mixture, from_memories, objectives
from mnemosphere.numerics import sphere
from mnemosphere.training import FixedPoint, distributed, fit
from mnemosphere.training.dataset import ArrayDataset
from research import report
from research.benchmarks._options import parser

N_FEATURES, N_CLASSES = 784, 10


def problem(n_rows: int, n_memories: int) -> tuple[Mixture, Batch]:
    """Mixture, and rows with smoothed labels."""
    generator = torch.Generator().manual_seed(0)
    x, w = (
        sphere.sample_uniform(n, N_FEATURES, generator=generator, dtype=torch.float32, device="cpu")
        for n in (n_rows, n_memories)
    )
    classes = torch.randint(N_CLASSES, (n_rows,), generator=generator)
    p_q = torch.full((N_CLASSES + 1,), 1 / (N_CLASSES + 1))
    targets = objectives.soft_labels(classes, N_CLASSES, 0.1)
    return from_memories(w, p_q, beta=160.0, varsigma=0.25), Batch(x, targets)


def measure(n_rows: int, n_memories: int, passes: int) -> dict[str, Any]:
    """Fastest pass in seconds and the share of it spent exchanging, in this process."""
    torch.set_num_threads(1)
    params, batch = problem(n_rows, n_memories)
    dataset = ArrayDataset(batch)
    spent = [0.0]
    plain = distributed._exchange

    def timed(*given: Any) -> Any:
        began = time.perf_counter()
        found = plain(*given)
        spent[0] += time.perf_counter() - began
        return found

    distributed._exchange = timed
    found = {}
    incremental = FixedPoint().resolve(n_rows, learn_beta=True, device=batch.x.device)
    for name, solver in (("exact", FixedPoint(None)), ("incremental", incremental)):
        fit(params, dataset, solver, max_iter=1)  # warms up
        best = (float("inf"), 0.0)
        for _ in range(passes):
            spent[0] = 0.0
            result = fit(params, dataset, solver, max_iter=1)
            best = min(best, (result.history[0].seconds, spent[0]))
        found[name] = {"seconds": best[0], "exchange": min(1.0, best[1] / best[0])}
    return found


def start(ranks: int, asked: Any) -> dict[str, Any]:
    """`measure` in so many processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        options = ["--measure", str(out), "--rows", str(asked.rows), "--memories",
                   str(asked.memories), "--passes", str(asked.passes)]  # fmt: skip
        words = [sys.executable, "-m", "research", "ranks", *options]
        if ranks > 1:
            words[2:2] = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks),
                          "-m"]  # fmt: skip
        env = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        subprocess.run(words, check=True, cwd=report.ROOT, env=env, capture_output=True)
        return dict(json.loads(out.read_text(encoding="utf-8")))


def main(arguments: list[str]) -> None:
    """Measure, and write the report."""
    made = parser(__doc__, "ranks")
    made.add_argument("--ranks", type=int, nargs="*", default=[1, 2])
    made.add_argument("--rows", type=int, default=20_000)
    made.add_argument("--memories", type=int, default=1000)
    made.add_argument("--passes", type=int, default=3)
    made.add_argument("--repeats", type=int, default=2)
    made.add_argument("--measure", type=Path)
    asked = made.parse_args(arguments)
    if asked.measure is not None:
        found = measure(asked.rows, asked.memories, asked.passes)
        if distributed.current().first:
            asked.measure.write_text(json.dumps(found), encoding="utf-8")
        return
    runs = [(ranks, start(ranks, asked)) for _ in range(asked.repeats) for ranks in asked.ranks]
    found = {}
    for ranks in asked.ranks:
        mine = [run for n, run in runs if n == ranks]
        found[ranks] = {
            name: min((run[name] for run in mine), key=lambda kind: kind["seconds"])
            for name in mine[0]
        }
    one = found[asked.ranks[0]]
    rows = [
        {"ranks": ranks, "pass": name, **kind,
         "efficiency": one[name]["seconds"] / (ranks * kind["seconds"])}
        for ranks, kinds in found.items() for name, kind in kinds.items()
    ]  # fmt: skip
    size = {"rows": asked.rows, "memories": asked.memories, "features": N_FEATURES}
    words = report.command_line(["ranks", *arguments])
    head = report.head(words)
    for row in rows:
        print(row, file=sys.stderr)
    report.write(asked.out, {"passes": {**head, "threads": 1, **size, "measured": rows}})
