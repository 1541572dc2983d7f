"""The single pass: share of its time in its two large matrix products, and its peak memory.

    python -m research one_pass
    python -m research one_pass --threads 2 --memories 1000 4000 --repeats 50

Speed: `accumulate` in float32 on random rows, against its two large products alone (x wᵀ and
rᵀ x, the same chunks, the same operations, nothing between them). The two are timed in turn, many
short times over, and each is taken at its fastest: the times at which no other process disturbed
it. The ratio products/pass is what is to be near 1. On a machine that is never quiet the ratio of
processor times, printed next to it, is the better witness.

Memory: a child process builds the rows and parameters in place, notes how much memory it holds,
makes one pass, and reports how far its peak lies above that. Results of the pass count too.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time

import torch
from torch import Tensor

from mnemosphere.model import Batch, Parameters, accumulate, from_memories, objectives
from mnemosphere.model.kernel import chunk_rows, chunks
from research import report
from research.benchmarks._options import parser

N_FEATURES, N_CLASSES = 784, 10
TARGET_RATIO, TARGET_MEGABYTES = 0.85, 300.0


def random_rows(n: int, generator: torch.Generator) -> Tensor:
    """Unit rows (n, N) in float32, made in place: no peak above the result."""
    x = torch.empty(n, N_FEATURES)
    for start in range(0, n, 1024):
        part = x[start : start + 1024]
        part.normal_(generator=generator)
        part /= part.norm(dim=1, keepdim=True)
    return x


def problem(n_rows: int, n_memories: int) -> tuple[Parameters, Batch]:
    """Parameters, and rows with smoothed labels, all random."""
    generator = torch.Generator().manual_seed(0)
    x = random_rows(n_rows, generator)
    classes = torch.randint(N_CLASSES, (n_rows,), generator=generator)
    targets = objectives.soft_labels(classes, N_CLASSES, 0.1)
    p_q = torch.full((N_CLASSES + 1,), 1 / (N_CLASSES + 1))
    w = random_rows(n_memories, generator)
    return from_memories(w, p_q, beta=160.0, varsigma=0.25), Batch(x, targets)


def products(params: Parameters, x: Tensor) -> Tensor:
    """The two large matrix products of a pass, chunk by chunk, and nothing else."""
    scaled_w = (params.beta_eff * params.w).T.contiguous()
    w_bar = torch.zeros_like(params.w)
    for rows in chunks(x.shape[0], params.n_memories, x.device):
        xb = x[rows]
        e = xb @ scaled_w  # (B, P)
        w_bar.addmm_(e.T, xb)  # (P, N)
    return w_bar


def speed(n_memories: int, n_rows: int | None, repeats: int) -> dict[str, float]:
    """Fastest pass, fastest products, and their ratio."""
    n_rows = n_rows or 4 * chunk_rows(n_memories, torch.device("cpu"))
    params, batch = problem(n_rows, n_memories)
    times: dict[str, list[float]] = {"products": [], "pass": []}
    processor_times: dict[str, list[float]] = {"products": [], "pass": []}
    for repeat in range(repeats + 1):
        for name in times:
            began, began_processor = time.perf_counter(), time.process_time()
            if name == "products":
                products(params, batch.x)
            else:
                accumulate(params, batch, objectives.joint)
            if repeat > 0:  # the first warms up
                times[name].append(time.perf_counter() - began)
                processor_times[name].append(time.process_time() - began_processor)
    best = {name: min(values) for name, values in times.items()}
    least = {name: min(values) for name, values in processor_times.items()}
    pairs = [a / b for a, b in zip(times["products"], times["pass"], strict=True)]
    flops = 4.0 * n_rows * n_memories * N_FEATURES
    return {
        "memories": n_memories,
        "rows": n_rows,
        "chunk_rows": chunk_rows(n_memories, batch.x.device),
        "seconds_products": best["products"],
        "seconds_pass": best["pass"],
        "gflop_per_second_products": flops / best["products"] / 1e9,
        "ratio": best["products"] / best["pass"],
        "ratio_median_of_pairs": statistics.median(pairs),
        "ratio_processor_time": least["products"] / least["pass"],
    }


def resident() -> int:
    """Bytes of memory this process holds now."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak() -> int:
    """Bytes of memory this process has held at most."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure_memory(n_memories: int, n_rows: int) -> dict[str, float]:
    """In a fresh process: peak of one pass above what rows and parameters take."""
    warm = problem(64, 10)
    accumulate(*warm, objectives.joint)  # libraries and thread pools
    params, batch = problem(n_rows, n_memories)
    before = resident()
    accumulate(params, batch, objectives.joint)
    return {
        "memories": n_memories,
        "rows": n_rows,
        "megabytes_before": before / 1e6,
        "megabytes_input": batch.x.nbytes / 1e6,
        "megabytes_extra": (peak() - before) / 1e6,
    }


def memory(n_memories: int, n_rows: int, threads: int) -> dict[str, float]:
    """`measure_memory` in a child process."""
    command = [sys.executable, "-m", "research", "one_pass", "--threads", str(threads)]
    command += ["--measure-memory", str(n_memories), str(n_rows)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=report.ROOT)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    options = parser(__doc__, "one_pass")
    options.add_argument("--memories", type=int, nargs="+", default=[1000, 4000], metavar="P")
    options.add_argument("--rows", type=int, help="default: four chunks")
    options.add_argument("--repeats", type=int, default=25)
    options.add_argument("--threads", type=int, default=2)
    options.add_argument("--memory-at", type=int, nargs=2, default=[8000, 60_000],
                        metavar=("P", "ROWS"))  # fmt: skip
    options.add_argument("--measure-memory", type=int, nargs=2, help=argparse.SUPPRESS)
    return options.parse_args(argv)


def main(argv: list[str]) -> None:
    """Measure, print, store."""
    args = parse(argv)
    torch.set_num_threads(args.threads)
    if args.measure_memory:
        print(json.dumps(measure_memory(*args.measure_memory)))
        return
    rows = []
    for n_memories in args.memories:
        row = speed(n_memories, args.rows, args.repeats)
        rows.append(row)
        print(
            f"P={n_memories}: products {row['seconds_products']:.3f} s "
            f"({row['gflop_per_second_products']:.0f} GFLOP/s), pass {row['seconds_pass']:.3f} s, "
            f"ratio {row['ratio']:.3f} (target {TARGET_RATIO}; median of pairs "
            f"{row['ratio_median_of_pairs']:.3f}, by processor time "
            f"{row['ratio_processor_time']:.3f})",
            flush=True,
        )
    used = memory(*args.memory_at, args.threads)
    print(
        f"P={used['memories']}, {used['rows']} rows ({used['megabytes_input']:.0f} MB): "
        f"peak extra memory {used['megabytes_extra']:.0f} MB (target {TARGET_MEGABYTES:.0f})"
    )
    content = {
        **report.head(report.command_line(["one_pass", *argv])),
        "features": N_FEATURES,
        "dtype": "float32",
        "targets": {"ratio": TARGET_RATIO, "megabytes_extra": TARGET_MEGABYTES},
        "load_average": os.getloadavg()[0],
        "speed": rows,
        "memory": used,
    }
    report.write(args.out, content)
