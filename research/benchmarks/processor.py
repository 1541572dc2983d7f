"""A pass on a processor, compared with an iteration of spherical k-means by faiss.

    python -m research processor --threads 2 --data DIR
    python -m research processor --rows 60000 --data DIR

One pass over rows of MNIST on the sphere (two large products, exponentials, statistics) in
each precision the processor has units for, the two products alone, and one iteration of spherical
k-means by faiss on the same rows with as many means and threads, in a process of its own. They
take turns; each is taken at its fastest.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mnemosphere.data import NamedData, load
from mnemosphere.model import Batch, Parameters, accumulate, objectives
from mnemosphere.model.kernel import chunks
from mnemosphere.model.products import add_product, narrow, operands, product, supported
from research import fits, report
from research.benchmarks._options import add_data, parser

PEER = Path(__file__).with_name("_kmeans.py")
ITERATIONS = 3


def precisions() -> list[str]:
    """Those that the processor has units for."""
    return ["float32", *(["bfloat16"] if supported(torch.device("cpu")) else [])]


def products(params: Parameters, batch: Batch, *, narrowed: bool) -> Tensor:
    """The two large products of a pass alone, in the same chunks: (w xᵀ) x, (P, N)."""
    w = narrow(params.w).mT.contiguous() if narrowed else params.w.mT.contiguous()
    w_bar = torch.zeros_like(params.w)
    for rows in chunks(batch.n_rows, params.n_memories, batch.x.device):
        x = narrow(batch.x[rows]) if narrowed else batch.x[rows]
        add_product(w_bar, product(x, w, narrow=narrowed).mT, x, narrow=narrowed)
    return w_bar


def kmeans(rows: Path, n_memories: int) -> list[float]:
    """Seconds of some iterations."""
    words = [str(rows), str(n_memories), str(torch.get_num_threads()), str(ITERATIONS)]
    done = subprocess.run(
        [sys.executable, str(PEER), *words], check=True, capture_output=True, text=True
    )
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def passes(data: NamedData, n_rows: int, n_memories: int, repeats: int) -> dict[str, Any]:
    """Least milliseconds of each."""
    x = fits.unit_rows(data.x_train[:n_rows], "cpu")
    targets = objectives.soft_labels(torch.from_numpy(data.y_train[:n_rows]), 10, fits.SMOOTHING)
    batch = Batch(x, targets)
    start = fits.data_start(batch, n_memories, generator=torch.Generator().manual_seed(0))
    params = fits.begin(start, targets.mean(0), varsigma=fits.VARSIGMA)
    acts: dict[str, Callable[[], object]] = {}
    for name in precisions():
        acts[f"pass {name}"] = lambda: accumulate(params, batch, objectives.joint)
        acts[f"products {name}"] = lambda n=name: products(params, batch, narrowed=n != "float32")
    times: dict[str, list[float]] = {name: [] for name in [*acts, "kmeans"]}
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npy"
        np.save(rows, x.numpy())
        for repeat in range(repeats + 1):
            for name, act in acts.items():
                with operands(name.partition(" ")[2]):
                    began = time.perf_counter()
                    act()
                if repeat > 0:  # the first warms up
                    times[name].append(time.perf_counter() - began)
            times["kmeans"] += kmeans(rows, n_memories)
    best = {name: 1e3 * min(values) for name, values in times.items()}
    found: dict[str, Any] = {"rows": n_rows, "memories": n_memories, "features": x.shape[1]}
    found |= {"kmeans_milliseconds": best["kmeans"], "faiss": version("faiss-cpu")}
    for name in precisions():
        own = best[f"pass {name}"]
        found[name] = {
            "milliseconds": own,
            "products_share": best[f"products {name}"] / own,
            "gflop_per_second": 4e-6 * n_rows * n_memories * x.shape[1] / own,
            "ratio_to_kmeans": own / best["kmeans"],
        }
    return found


def main(words: list[str]) -> None:
    """Measure, print, store."""
    made = parser(__doc__, "processor")
    made.add_argument("--threads", type=int, default=torch.get_num_threads())
    made.add_argument("--rows", type=int, default=24_000)
    made.add_argument("--memories", type=int, default=1000)
    made.add_argument("--repeats", type=int, default=5)
    add_data(made)
    args = made.parse_args(words)
    torch.set_num_threads(args.threads)
    data = load("mnist", directory=args.data)
    result = report.head(report.command_line(["processor", *words]))
    result["passes"] = passes(data, args.rows, args.memories, args.repeats)
    print(result["passes"], flush=True)
    report.write(args.out, result)
