"""Time of a whole pass beside the peak of the device and a step of k-means, and the error of its sums.

    python -m research passes --device cuda
    python -m research passes --device cpu

A pass counts (4·features + 6·classes)·rows·memories operations: the products with rows, forward and
backward, and three with soft labels. On a processor one thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import Mixture, from_memories
from mnemosphere.model.one_pass import accumulate, operands
from mnemosphere.training import stacked
from research import report
from research.benchmarks._options import add_device, parser
from research.report import Json

# problems side by side, rows, features, memories, classes
ON_GPU = (
    (1, 60_000, 784, 4000, 10), (1, 1_000_000, 768, 1000, 100), (1, 500_000, 768, 8192, 100),
    (1, 200_000, 768, 65_536, 1000),
)  # fmt: skip
ON_PROCESSOR = (
    (10, 1000, 20, 8, 10), (10, 1000, 20, 60, 10), (1, 1000, 784, 200, 10),
    (1, 1000, 784, 1000, 10), (1, 1000, 384, 300, 77),
)  # fmt: skip
RULES = {"joint": objectives.joint, "conditional": objectives.conditional}
SPREAD = 0.7  # length of the noise around a center
WRONG = 0.2  # of the labels
CHECKED = 2000, 4096  # rows and memories at most, in float64
CHUNK = 1 << 29  # elements of rows × memories that a k-means step holds at once on a GPU
LARGEST = 8192  # side of the products that the peak is measured by


def main(arguments: list[str]) -> None:
    """Measure, and write the report."""
    made = parser(__doc__, "passes")
    add_device(made, "auto")
    made.add_argument("--repeats", type=int, default=5, help="runs, of which the median counts")
    args = made.parse_args(arguments)
    device = torch.device(args.device)
    on_gpu = device.type == "cuda"
    torch.set_num_threads(torch.get_num_threads() if on_gpu else 1)
    peak = measured_peak(device, args.repeats)
    print(f"peak {peak / 1e12:.3g} TFLOP/s", flush=True)
    cases = []
    for sizes in ON_GPU if on_gpu else ON_PROCESSOR:
        cases += measure(sizes, device, peak, args.repeats)
    found: Json = {
        **report.head(report.command_line(["passes", *arguments]), device=device),
        "peak": peak,
    }
    found["cases"] = cases
    report.write(args.out, found)


def median_seconds(act: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Of so many runs, after two that do not count."""
    spent = []
    for k in range(repeats + 2):
        began = time.perf_counter()
        act()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        if k >= 2:
            spent.append(time.perf_counter() - began)
    return sorted(spent)[len(spent) // 2]


def measured_peak(device: torch.device, repeats: int) -> float:
    """Operations per second of a large product: bfloat16 on a GPU, else float32."""
    on_gpu = device.type == "cuda"
    side = LARGEST if on_gpu else LARGEST // 4
    a = torch.randn(side, side, device=device, dtype=torch.bfloat16 if on_gpu else torch.float32)
    return 2 * side**3 / median_seconds(lambda: a @ a, device, repeats)


def problem(sizes: tuple[int, int, int, int, int], device: torch.device) -> tuple[Mixture, Batch]:
    """Rows around as many centers as there are memories, which start on rows."""
    n_problems, n_rows, n, n_memories, n_classes = sizes
    generator = torch.Generator(device).manual_seed(0)
    # Its own memory has about half of a row: were it all, conditional sums would be nothing.
    slope = math.log(n_memories) * (1 + SPREAD**2)

    def one() -> tuple[Mixture, Batch]:
        centers = unit(n_memories, n)
        center = torch.randint(n_memories, (n_rows,), device=device, generator=generator)
        x = centers[center] + SPREAD * unit(n_rows, n)
        x /= x.norm(dim=1, keepdim=True)
        label = center % n_classes
        wrong = torch.rand(n_rows, device=device, generator=generator) < WRONG
        label = torch.where(wrong, label.roll(1), label)
        targets = objectives.soft_labels(label, n_classes, 0.1).to(x)
        w = centers + SPREAD * unit(n_memories, n)
        w /= w.norm(dim=1, keepdim=True)
        m = from_memories(w, targets.mean(0), beta=slope, varsigma=1.0)
        label = objectives.soft_labels(
            torch.arange(n_memories, device=device) % n_classes, n_classes, 0.1
        )
        p = torch.cat([m.p[:1], m.p_h[1:, None] * label.to(x)])
        return m.replace(p=p / p.sum(), p_h=p.sum(1) / p.sum(), p_q=p.sum(0) / p.sum()), Batch(
            x, targets
        )

    def unit(rows: int, features: int) -> Tensor:
        x = torch.randn(rows, features, device=device, generator=generator)
        return x / x.norm(dim=1, keepdim=True)

    mixtures, batches = zip(*(one() for _ in range(n_problems)), strict=True)
    stack: tuple[Mixture, Batch] = stacked.stack(mixtures, batches)
    return stack


def measure(
    sizes: tuple[int, int, int, int, int], device: torch.device, peak: float, repeats: int
) -> list[Json]:
    """The joint and the conditional pass over one problem."""
    n_problems, n_rows, n, n_memories, n_classes = sizes
    m, batch = problem(sizes, device)
    operations = (4.0 * n + 6.0 * n_classes) * n_problems * n_rows * n_memories
    found = []
    with torch.inference_mode(), operands("auto"):
        kmeans = median_seconds(lambda: kmeans_step(batch.x, m.w), device, repeats)
        for name, rule in RULES.items():
            seconds = median_seconds(lambda rule=rule: accumulate(m, batch, rule), device, repeats)
            row = {
                "objective": name, "problems": n_problems, "rows": n_rows, "features": n,
                "memories": n_memories, "classes": n_classes, "milliseconds": 1e3 * seconds,
                "share_of_peak": operations / seconds / peak,
                "kmeans_milliseconds": 1e3 * kmeans, "of_kmeans": seconds / kmeans,
                **(errors(m, batch, rule) if n_problems == 1 else {}),
            }  # fmt: skip
            found.append(row)
            print(row, flush=True)
    return found


def kmeans_step(x: Tensor, w: Tensor) -> Tensor:
    """Sums of the rows nearest to each memory, chunk by chunk; bfloat16 operands on a GPU."""
    if x.ndim > 2:
        return torch.stack([kmeans_step(*pair) for pair in zip(x, w, strict=True)])
    low = x.dtype if not x.is_cuda else torch.bfloat16
    total, centers = torch.zeros_like(w), w.to(low).T
    size = max(128, CHUNK // len(w)) if x.is_cuda else len(x)
    for rows in x.split(size):
        nearest = (rows.to(low) @ centers).max(1).indices
        total.index_add_(0, nearest, rows)
    return total / total.norm(dim=1, keepdim=True).clamp_min(1e-12)


def errors(m: Mixture, batch: Batch, rule: objectives.LabelRule) -> Json:
    """Relative errors of w̄ and of the loss against float64, on some rows and memories."""
    most_rows, most_memories = CHECKED
    k = min(m.n_memories, most_memories)
    p = m.p[: k + 1] / m.p[: k + 1].sum()
    m = m.replace(w=m.w[:k], p=p, p_h=p.sum(1), p_q=p.sum(0))
    rows = batch.take(slice(0, most_rows))
    found = accumulate(m, rows, rule)
    exact = accumulate(m.to(dtype=torch.float64), rows.to(dtype=torch.float64), rule)
    # Of memories that rows belong to: the others' sums are those of what is rounded away.
    size = exact.w_bar.norm(dim=1)
    error = (found.w_bar.double() - exact.w_bar).norm(dim=1) / size
    error = error[size > 1e-3 * size.max()]
    return {
        "largest_error": float(error.max()), "median_error": float(error.median()),
        "loss_error": abs(float(found.loss / exact.loss) - 1),
    }  # fmt: skip
