"""Recall of damaged MNIST test digits: how often the recalled pattern has the right class.

    python -m research recall --data DIR
    python -m research recall --device cuda --seeds 3 --data DIR

Pixels are hidden at random, or noise is laid on the digit. Hidden pixels start at the mean of those
left. Recall descends the energy for at most 20 steps, the pixels left held ("completed") or not
("recalled"); the predictions on the damaged digits themselves stand beside.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mnemosphere import interpret
from mnemosphere.data import load
from research import report
from research.benchmarks._options import digits_parser
from research.fits import CLASSIFIER, digit_models

STEPS = 20
HIDDEN = (0.3, 0.5, 0.7, 0.8)
NOISE = (1.0, 2.0)  # length of the noise over that of the digit


def hide(
    x: NDArray[np.float64], share: float, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Each pixel hidden with that probability, and set to the mean of the pixels left."""
    known = rng.random(x.shape) >= share
    known[np.arange(len(x)), x.argmax(1)] = True  # of a digit without ink nothing is left
    mean = (x * known).sum(1, keepdims=True) / known.sum(1, keepdims=True)
    return np.where(known, x, mean), known


def disturb(x: NDArray[np.float64], length: float, rng: np.random.Generator) -> Any:
    """Gaussian noise of `length` times the norm of the centered digit."""
    noise = rng.normal(size=x.shape)
    size = np.linalg.norm(x - x.mean(1, keepdims=True), axis=1, keepdims=True)
    return x + length * size * noise / np.linalg.norm(noise, axis=1, keepdims=True)


def main(argv: list[str]) -> None:
    options = digits_parser(__doc__, "recall", seeds=1)
    options.add_argument("--rows", type=int, default=10_000, help="test digits to damage")
    args = options.parse_args(argv)
    data = load("mnist", args.data)
    x, y = data.x_test[: args.rows].astype(np.float64), data.y_test[: args.rows]
    runs = []
    for seed, model in digit_models(data, args):
        rng = np.random.default_rng(seed)

        def right(rows: Any, model: Any = model) -> float:
            return round(100 * float(np.mean(model.predict(rows) == y)), 2)

        run: dict[str, Any] = {"seed": seed, "intact": right(x), "hidden": [], "noise": []}
        for share in HIDDEN:
            damaged, known = hide(x, share, rng)
            row: dict[str, Any] = {"share": share, "damaged": right(damaged)}
            for method in ("fixed-point", "gradient"):
                began = time.perf_counter()
                common: dict[str, Any] = {"steps": STEPS, "method": method}
                row[method] = {
                    "completed": right(model.recall(damaged, known=known, **common)),
                    "recalled": right(model.recall(damaged, **common)),
                    "completed, class given": right(
                        model.recall(damaged, y, known=known, **common)
                    ),
                    "seconds": round(time.perf_counter() - began, 2),
                }
            run["hidden"].append(row)
            print(seed, row, flush=True)
        for length in NOISE:
            noisy = disturb(x, length, rng)
            row = {"length": length, "damaged": right(noisy)}
            row["recalled"] = right(model.recall(noisy, steps=STEPS))
            run["noise"].append(row)
            print(seed, row, flush=True)
        path = interpret.recall_path(model.model_, hide(x[:1000], 0.5, rng)[0], steps=STEPS)
        rise = float(np.diff(path.energies, axis=0).max())
        run["largest rise of an energy in a step, float32"] = rise
        runs.append(run)
    command = report.command_line(["recall", *argv])
    content = {
        **report.head(command, device=args.device, seeds=range(args.seeds)),
        "settings": {"memories": args.memories, **CLASSIFIER},
        "steps": STEPS,
        "rows": len(y),
        "runs": runs,
    }
    report.write(args.out, content)
