"""A pass and a fit on a processor: beside an iteration of faiss's k-means, and where time goes.

    python -m research processor passes profile --threads 2 --data DIR
    python -m research processor passes --rows 60000 --data DIR

passes: one pass over rows of MNIST on the sphere (two large products, exponentials, statistics) in
each precision the processor has units for, the two products alone, and one iteration of spherical
k-means by faiss on the same rows with as many means and threads, in a process of its own. They
take turns; each is taken at its fastest.

profile: a fit with the settings of the other benchmarks, and the share of its time in large
products, exponentials, small products (with class weights), other operations on tensors, and
outside of them (the exact maximizer, which is NumPy, and Python).
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
from torch.profiler import ProfilerActivity

from mnemosphere import DAMClassifier
from mnemosphere.data import NamedData, load
from mnemosphere.model import Batch, Parameters, accumulate, objectives
from mnemosphere.model.kernel import chunks
from mnemosphere.model.products import add_product, narrow, operands, product, supported
from research import fits, report
from research.benchmarks._options import add_data, parser

PEER = Path(__file__).with_name("_kmeans.py")
ITERATIONS = 3
LARGE = 64  # the least side of a large product


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


def kind_of(name: str, shapes: list[list[int]]) -> str:
    """To which share an operation counts."""
    if name in ("aten::mm", "aten::addmm", "aten::addmm_"):
        sides = [side for shape in shapes if len(shape) == 2 for side in shape]
        return "large products" if min(sides) >= LARGE else "small products"
    if name.rstrip("_") in ("aten::exp", "aten::exp2", "aten::_softmax"):
        return "exponentials"
    return "other operations"


def profile(data: NamedData, n_rows: int, n_memories: int, precision: str) -> dict[str, Any]:
    """Seconds of a fit, its accuracy, and shares of its time."""
    x, y = data.x_train[:n_rows], data.y_train[:n_rows]
    settings = {**fits.CLASSIFIER, "precision": precision, "objective": "joint"}
    model = DAMClassifier(n_memories, **settings, random_state=0, device="cpu")
    seconds = []
    for _ in range(2):  # the first warms up
        began = time.perf_counter()
        model.fit(x, y)
        seconds.append(time.perf_counter() - began)
    with torch.profiler.profile(activities=[ProfilerActivity.CPU], record_shapes=True) as run:
        began = time.perf_counter()
        model.fit(x, y)
        whole = time.perf_counter() - began
    shares = dict.fromkeys(("large products", "exponentials", "small products"), 0.0)
    shares |= {"other operations": 0.0, "outside of tensors": 1.0}
    for event in run.key_averages(group_by_input_shape=True):
        share = 1e-6 * event.self_cpu_time_total / whole
        shares[kind_of(event.key, event.input_shapes)] += share
        shares["outside of tensors"] -= share
    right = float(np.mean(model.predict(data.x_test) == data.y_test))
    return {
        "rows": n_rows, "memories": n_memories, "precision": precision,
        "seconds": seconds[-1], "accuracy": 100 * right, "shares": shares,
    }  # fmt: skip


def main(words: list[str]) -> None:
    """Run the parts that are asked for."""
    made = parser(__doc__, "processor")
    made.add_argument("parts", nargs="+", choices=["passes", "profile"])
    made.add_argument("--threads", type=int, default=torch.get_num_threads())
    made.add_argument("--rows", type=int, default=24_000)
    made.add_argument("--memories", type=int, default=1000)
    made.add_argument("--repeats", type=int, default=5)
    add_data(made)
    args = made.parse_args(words)
    torch.set_num_threads(args.threads)
    data = load("mnist", directory=args.data)
    result = report.head(report.command_line(["processor", *words]))
    if "passes" in args.parts:
        result["passes"] = passes(data, args.rows, args.memories, args.repeats)
        print(result["passes"], flush=True)
        report.write(args.out, result)
    if "profile" in args.parts:
        result["profile"] = []
        for precision in precisions():
            result["profile"].append(profile(data, args.rows, args.memories, precision))
            print(result["profile"][-1], flush=True)
        report.write(args.out, result)
