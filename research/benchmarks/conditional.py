"""Test accuracy of the conditional objective on MNIST or Fashion-MNIST, beside the joint one.

    python -m research conditional --dataset mnist --memories 1000 --seeds 3 --data DIR
    python -m research conditional --dataset mnist --memories 1000 --scan --data DIR
    python -m research conditional --gallery docs/images/conditional-before-after.png

Every fit is `DAMClassifier(objective="conditional")` on the 60,000 training rows, of which it holds
a tenth out itself; nothing is chosen by the test rows. `--scan` never touches them at all: it
leaves the last 10,000 training rows out and compares noise levels and numbers of passes there.
`--gallery` draws memories of mnist-small before and after the refinement.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mnemosphere import DAMClassifier, Refinement
from mnemosphere.data import NamedData, load
from mnemosphere.plots import memories, save
from mnemosphere.plots.style import figure_style, new_figure
from research import report
from research.benchmarks._options import add_data, add_device, parser
from research.fits import VARSIGMA, fit_classifier

NOISES: tuple[float | Literal["auto"], ...] = ("auto", 0.4, 0.8, 1.0)  # relative to the row
PASSES = (30, 60)


def fidelity(model: DAMClassifier, x: np.ndarray, predicted: np.ndarray) -> float:
    """Share of rows whose class is that of the single nearest memory."""
    # Shares over weights: the largest is that of the nearest memory.
    nearest = (model.transform(x) / model.memory_prior_[1:]).argmax(1)
    own = model.class_weights_[1:, :-1].argmax(1)
    return float((model.classes_[own[nearest]] == predicted).mean())


def measure(model: DAMClassifier, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    predicted = model.predict(x)
    return {
        "accuracy": round(100 * float((predicted == y).mean()), 2),
        "fidelity": round(100 * fidelity(model, x, predicted), 2),
        "beta": round(model.beta_, 2),
        "varsigma": model.varsigma_,
        "passes": len(model.history_),
        "status": model.status_,
    }


def run(data: NamedData, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The joint and the conditional model of every seed, on the test rows."""
    rows = []
    for seed in range(args.seeds):
        for objective in ("joint", "conditional"):
            model, seconds = fit_classifier(
                data.x_train, data.y_train, n_memories=args.memories, objective=objective,
                varsigma=args.varsigma, normalize="center", seed=seed, device=args.device,
            )  # fmt: skip
            row = {"objective": objective, "seed": seed, "seconds": seconds}
            row |= measure(model, data.x_test, data.y_test)
            print(row, flush=True)
            rows.append(row)
    return rows


def scan(data: NamedData, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Noise levels and passes, compared on the last 10,000 training rows."""
    x, y = data.x_train, data.y_train
    rows = []
    for noise, passes, seed in itertools.product(NOISES, PASSES, range(args.seeds)):
        model, seconds = fit_classifier(
            x[:-10_000], y[:-10_000], n_memories=args.memories,
            objective=Refinement(noise=noise, max_iter=passes),
            varsigma=args.varsigma, normalize="center", seed=seed, device=args.device,
        )  # fmt: skip
        row = {"noise": noise, "passes_allowed": passes, "seed": seed, "seconds": seconds}
        row |= measure(model, x[-10_000:], y[-10_000:])
        print(row, flush=True)
        rows.append(row)
    return rows


def gallery(path: Path) -> None:
    """The same memories before and after the refinement, with the class they stand for."""
    raw = load("mnist-small")
    settings: dict[str, Any] = {"n_memories": 200, "varsigma": VARSIGMA, "normalize": "center"}
    shown = np.arange(0, 200, 8)  # 25 of them, whichever they are
    with figure_style():
        figure = new_figure(8.4, 4.9)
        axes = figure.subplots(1, 2)
        models = [
            fit_classifier(
                raw.x_train, raw.y_train, objective=objective, seed=0, device="cpu", **settings
            )[0]
            for objective in ("joint", "conditional")
        ]
        scale = max(float(np.abs(m.memories_[shown]).max()) for m in models)
        for ax, model, name in zip(axes, models, ("before", "after"), strict=True):
            memories(
                model.memories_, raw.image_shape, indices=shown, named=False, vmax=scale, ax=ax,
                labels=[str(k) for k in model.class_weights_[1:, :-1].argmax(1)[shown]],
            )  # fmt: skip
            accuracy = model.score(raw.x_test, raw.y_test)
            ax.set_title(f"{name}: {accuracy:.1%} of 1,000 test digits")
        save(figure, path)


def main(argv: list[str]) -> None:
    options = parser(__doc__, "conditional")
    options.add_argument("--dataset", choices=["mnist", "fashion-mnist"], default="mnist")
    options.add_argument("--memories", type=int, default=1000)
    options.add_argument("--varsigma", type=float, default=0.25)
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--scan", action="store_true")
    options.add_argument("--gallery", type=Path, default=None)
    add_device(options, "auto")
    add_data(options)
    args = options.parse_args(argv)
    if args.gallery is not None:
        gallery(args.gallery)
        return
    data = load(args.dataset, directory=args.data)
    rows = scan(data, args) if args.scan else run(data, args)
    if not args.scan:
        mine = [row["accuracy"] for row in rows if row["objective"] == "conditional"]
        print(f"conditional: {statistics.fmean(mine):.2f}% over {len(mine)} seeds")
    command = report.command_line(["conditional", *argv])
    head = report.head(command, device=args.device, seeds=range(args.seeds))
    content = {"dataset": args.dataset, "memories": args.memories, "rows": rows}
    report.write(args.out, {**head, **content})
