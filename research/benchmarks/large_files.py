"""Rows larger than memory: resident memory and throughput of a pass over .npy files.

A subprocess makes one incremental pass over all rows of the files and reports its largest resident
memory. Another goes over the first rows twice, from the file and from memory, in one run, which
gives the ratio of throughputs.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

import mnemosphere as mn
from mnemosphere.data import ArrayDataset
from mnemosphere.data.dataset import FileDataset
from mnemosphere.estimators.cluster_training import ClusterTraining
from mnemosphere.estimators.from_files import learn_rows
from mnemosphere.model import Parameters, objectives
from mnemosphere.training import FixedPoint, fit
from research import fits, report
from research.benchmarks._options import parser

N_FEATURES, MEMORIES, CENTERS = 128, 256, 64
PART, NOISE = 1_000_000, 100_000


def make(folder: Path, n_rows: int) -> list[Path]:
    """Rows around random centers, a million per file; files that are there stay."""
    centers = np.random.default_rng(0).normal(size=(CENTERS, N_FEATURES)).astype(np.float32)
    # Noise of one file is that of others in another order: it takes long to draw.
    noise = np.random.default_rng(0).standard_normal((NOISE, N_FEATURES), dtype=np.float32)
    paths = []
    for part, first in enumerate(range(0, n_rows, PART)):
        path, n = folder / f"rows{part:03}.npy", min(PART, n_rows - first)
        paths.append(path)
        if path.exists() and path.stat().st_size > n * N_FEATURES * 4:
            continue
        rng = np.random.default_rng(part + 1)
        x = noise[rng.integers(0, len(noise), n)]
        x += centers[rng.integers(0, CENTERS, n)]
        np.save(path, x)
    return paths


def begun(source: mn.Dataset) -> FileDataset:
    """The rows of files as the training of a clusterer sees them."""
    model = mn.DAMClusterer(
        8, n_memories=MEMORIES, normalize="unit", device="cpu", max_iter=1, random_state=0
    )
    training = ClusterTraining(model.get_params())
    return learn_rows(training, source, None, 0, torch.device("cpu")).dataset


def start(dataset: FileDataset) -> Parameters:
    """Random rows as memories."""
    generator = torch.Generator().manual_seed(0)
    some = dataset.sample(8192, generator=generator)
    found = fits.data_start(some, MEMORIES, varsigma=1.0, generator=generator)
    return fits.begin(found, torch.ones(1, dtype=some.x.dtype), varsigma=1.0)


def resident_megabytes() -> float:
    """The most that this program has held; what getrusage tells counts the one that started it."""
    told = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(told.split("VmHWM:")[1].split()[0]) / 1024


def one_pass(paths: list[Path]) -> dict[str, float]:
    """One incremental pass over everything."""
    source = mn.Dataset.open(paths)
    began = time.perf_counter()
    dataset = begun(source)
    prepared = time.perf_counter() - began
    params = start(dataset)
    began = time.perf_counter()
    solver = FixedPoint().resolve(dataset.n_rows, learn_beta=True, device=dataset.device)
    fit(params, dataset, solver, rule=objectives.marginal, max_iter=1,
        generator=torch.Generator().manual_seed(0))  # fmt: skip
    seconds = time.perf_counter() - began
    return {
        "rows": source.n_rows, "gigabytes": source.n_bytes / 1e9, "sampling_seconds": prepared,
        "pass_seconds": seconds, "rows_per_second": source.n_rows / seconds,
        "resident_megabytes": resident_megabytes(),
    }  # fmt: skip


def both_ways(path: Path) -> dict[str, float]:
    """Seconds per pass over one file, read as it goes and held in memory, by turns."""
    source = mn.Dataset.open(path)
    dataset = begun(source)
    x = torch.cat([batch.x for batch in dataset.batches(None)])
    held = ArrayDataset.of(x, x.new_zeros(1, 1).expand(len(x), -1))
    params = start(dataset)
    solver = FixedPoint(source.files.batch_rows)
    seconds: dict[str, list[float]] = {"file": [], "memory": []}
    for _ in range(3):
        for name, rows in (("file", dataset), ("memory", held)):
            began = time.perf_counter()
            fit(params, rows, solver, rule=objectives.marginal, max_iter=1,
                generator=torch.Generator().manual_seed(0))  # fmt: skip
            seconds[name].append(time.perf_counter() - began)
    best = {name: min(values) for name, values in seconds.items()}
    return {"rows": source.n_rows, **{f"{n}_seconds": v for n, v in best.items()},
            "throughput_ratio": best["memory"] / best["file"]}  # fmt: skip


def main(argv: list[str]) -> None:
    """Measure, print, store."""
    made = parser(__doc__, "large_files")
    made.add_argument("--rows", type=int, default=20_000_000)
    made.add_argument("--data", type=Path, required=True, help="folder for the files")
    made.add_argument("--measure", choices=["one_pass", "both_ways"], help="used by itself")
    args = made.parse_args(argv)
    torch.set_num_threads(2)
    paths = make(args.data, args.rows)
    if args.measure == "one_pass":
        print(json.dumps(one_pass(paths)))
        return
    if args.measure == "both_ways":
        print(json.dumps(both_ways(paths[0])))
        return
    found = {}
    for name in ("one_pass", "both_ways"):
        words = [sys.executable, "-m", "research", "large_files", *argv, "--measure", name]
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        found[name] = json.loads(told.splitlines()[-1])
        print(name, found[name])
    command = report.command_line(["large_files", *argv])
    settings = {"memories": MEMORIES, "features": N_FEATURES, "dtype": "float32"}
    targets = {"resident_megabytes": 1500, "throughput_ratio": 0.7}
    report.write(args.out, {**report.head(command), **settings, "targets": targets, **found})
