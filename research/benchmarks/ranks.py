"""Passes by several processes against one: efficiency, and the share of time spent exchanging.

    python -m research ranks --ranks 1 2 4 8

Exact and incremental passes of the fixed point over the same rows, one thread per process, each
number of processes started by torchrun; the baseline is one process without a group. Incremental
passes take the steps that `fit` takes: twenty by one process, ten by several. They take
turns, `--repeats` times, and each is taken at its fastest. Efficiency is time of one / (processes x
time of all). Exchange is the time that rank 0 spends in collectives, waiting for others included.

--one starts a group of one process on the device, under NCCL on a GPU, and
compares what every solver finds there with what it finds without a group.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mnemosphere.data import ArrayDataset
from mnemosphere.model import (
    Parameters,
    from_memories,
    initialize,
    objectives,
)
from mnemosphere.numerics import sphere
from mnemosphere.training import SGD, Adam, FixedPoint, alone, fit, grow
from mnemosphere.training.distributed import Processes, current
from research import report
from research.benchmarks._options import add_device, parser
from research.benchmarks._random import N_FEATURES, problem


def measure(n_rows: int, n_memories: int, passes: int) -> dict[str, Any]:
    """Fastest pass in seconds and the share of it spent exchanging, in this process."""
    torch.set_num_threads(1)
    params, batch = problem(n_rows, n_memories)
    dataset = ArrayDataset(batch)
    spent = [0.0]
    plain: Callable[..., None] = Processes._try

    def timed(self: Processes, exchange: Callable[[], Any]) -> None:
        began = time.perf_counter()
        plain(self, exchange)
        spent[0] += time.perf_counter() - began

    Processes._try = timed  # type: ignore[method-assign]
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


def differences(device: str) -> dict[str, Any]:
    """Largest difference of the parameters in a group and without, in float64, by solver."""
    generator = torch.Generator().manual_seed(0)
    x = sphere.sample_uniform(2003, 29, generator=generator, dtype=torch.float64, device="cpu")
    targets = objectives.soft_labels(x[:, :3].argmax(1), 3, 0.1, dtype=torch.float64).to(device)
    dataset = ArrayDataset.of(x.to(device), targets)
    w = initialize.from_data(x, 13, generator=generator).to(device)
    first = from_memories(w, targets.mean(0), beta=5.0, varsigma=0.9)
    params = fit(first, dataset, FixedPoint(None), max_iter=1).params
    conditional = objectives.JointConditional(1.0)
    cases: dict[str, Callable[[], Parameters]] = {
        "fixed point, exact": lambda: fit(params, dataset, FixedPoint(None), max_iter=5).params,
        "fixed point, batches": lambda: fit(params, dataset, FixedPoint(200), max_iter=3).params,
        "SGD": lambda: fit(params, dataset, SGD(batch_size=200), max_iter=3).params,
        "Adam": lambda: (
            fit(params, dataset, Adam(33, batch_size=200), rule=conditional, max_iter=3).params
        ),
        "growth": lambda: grow(params, dataset, FixedPoint(None), max_memories=20).params,
    }
    found: dict[str, Any] = {"backend": str(torch.distributed.get_backend_config())}
    for name, train in cases.items():
        together = train().to(device="cpu").to_tensors()
        with alone():
            by_itself = train().to(device="cpu").to_tensors()
        gaps = [float((together[k] - by_itself[k]).abs().max()) for k in by_itself]
        found[name] = max(gaps)
    return found


def group_of_one(asked: Any) -> dict[str, Any]:
    """`differences` in a group of one process."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "found.json"
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
                 "1", "-m", "research", "ranks", "--one", "--device", asked.device, "--measure",
                 str(out)]  # fmt: skip
        subprocess.run(words, check=True, cwd=report.ROOT)
        return dict(json.loads(out.read_text(encoding="utf-8")))


def main(arguments: list[str]) -> None:
    """Measure, and add to what the report has."""
    made = parser(__doc__, "ranks")
    made.add_argument("--ranks", type=int, nargs="*", default=[1, 2])
    made.add_argument("--rows", type=int, default=20_000)
    made.add_argument("--memories", type=int, default=1000)
    made.add_argument("--passes", type=int, default=3)
    made.add_argument("--repeats", type=int, default=2)
    made.add_argument("--one", action="store_true")
    made.add_argument("--measure", type=Path)
    add_device(made, "auto")
    asked = made.parse_args(arguments)
    if asked.measure is not None:
        current()
        found = (
            differences(asked.device)
            if asked.one
            else measure(asked.rows, asked.memories, asked.passes)
        )
        if current().first:
            asked.measure.write_text(json.dumps(found), encoding="utf-8")
        return
    content = report.read_json(asked.out, "delete it") if asked.out.exists() else {}
    head = report.head(report.command_line(["ranks", *arguments]), device=asked.device)
    if asked.one:
        content["one"] = {**head, **group_of_one(asked)}
        print(content["one"], file=sys.stderr)
    else:
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
        head = report.head(report.command_line(["ranks", *arguments]))
        size = {"rows": asked.rows, "memories": asked.memories, "features": N_FEATURES}
        content["passes"] = {**head, "threads": 1, **size, "measured": rows}
        for row in rows:
            print(row, file=sys.stderr)
    report.write(asked.out, content)
