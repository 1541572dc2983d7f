"""Test accuracy of the conditional objective on MNIST or Fashion-MNIST, beside the joint one.

    python -m benchmarks.conditional --dataset mnist --memories 1000 --seeds 3 --data DIR
    python -m benchmarks.conditional --dataset mnist --memories 1000 --scan --data DIR
    python -m benchmarks.conditional --gallery docs/images/conditional-before-after.png

Every fit is `DAMClassifier(objective="conditional")` on the 60,000 training rows, of which it holds
a tenth out itself; nothing is chosen by the test rows. `--scan` never touches them at all: it
leaves the last 10,000 training rows out and compares noise levels and numbers of passes there.
`--gallery` draws memories of mnist-small before and after the refinement.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mnemosphere as mn
from benchmarks._report import made_by, write

NOISES = ("auto", 0.4, 0.8, 1.0)  # lengths relative to the row
PASSES = (30, 60)


def fidelity(model: mn.DAMClassifier, x: np.ndarray, predicted: np.ndarray) -> float:
    """Share of rows whose class is that of the single nearest memory."""
    z = torch.from_numpy(model._normalizer(x)).to(model.params_.w)
    nearest = (z @ model.params_.w.T).argmax(1).cpu().numpy()  # (B,)
    own = model.class_weights_[1:, :-1].argmax(1)
    return float((model.classes_[own[nearest]] == predicted).mean())


def measure(model: mn.DAMClassifier, x: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    predicted = model.predict(x)
    return {
        "accuracy": round(100 * float((predicted == y).mean()), 2),
        "fidelity": round(100 * fidelity(model, x, predicted), 2),
        "beta": round(model.beta_, 2),
        "varsigma": model.varsigma_,
        "passes": len(model.history_),
        "status": model.status_,
    }


def fit(x: np.ndarray, y: np.ndarray, **settings: Any) -> tuple[mn.DAMClassifier, float]:
    began = time.perf_counter()
    model = mn.DAMClassifier(normalize="center", **settings).fit(x, y)
    return model, round(time.perf_counter() - began, 1)


def run(data: mn.datasets.Dataset, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The joint and the conditional model of every seed, on the test rows."""
    rows = []
    for seed in range(args.seeds):
        for objective in ("joint", "conditional"):
            model, seconds = fit(
                data.x_train, data.y_train, n_memories=args.memories, objective=objective,
                varsigma=args.varsigma, random_state=seed, device=args.device,
            )  # fmt: skip
            row = {"objective": objective, "seed": seed, "seconds": seconds}
            row |= measure(model, data.x_test, data.y_test)
            print(row, flush=True)
            rows.append(row)
    return rows


def scan(data: mn.datasets.Dataset, args: argparse.Namespace) -> list[dict[str, Any]]:
    """Noise levels and passes, compared on the last 10,000 training rows."""
    x, y = data.x_train, data.y_train
    rows = []
    for noise, passes, seed in itertools.product(NOISES, PASSES, range(args.seeds)):
        model, seconds = fit(
            x[:-10_000], y[:-10_000], n_memories=args.memories, objective="conditional",
            varsigma=args.varsigma, input_noise=noise, max_epochs=passes, random_state=seed,
            device=args.device,
        )  # fmt: skip
        row = {"input_noise": noise, "max_epochs": passes, "seed": seed, "seconds": seconds}
        row |= measure(model, x[-10_000:], y[-10_000:])
        print(row, flush=True)
        rows.append(row)
    return rows


def gallery(path: Path) -> None:
    """The same memories before and after the refinement, with the class they stand for."""
    from mnemosphere.plots import memories, save
    from mnemosphere.plots.look import new_figure, style

    raw = mn.datasets.load("mnist-small")
    settings = {"n_memories": 200, "varsigma": 0.25, "random_state": 0, "device": "cpu"}
    shown = np.arange(0, 200, 8)  # 25 of them, whichever they are
    with style():
        figure = new_figure(8.4, 4.9)
        axes = figure.subplots(1, 2)
        models = [
            fit(raw.x_train, raw.y_train, objective=objective, **settings)[0]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", choices=["mnist", "fashion-mnist"], default="mnist")
    parser.add_argument("--memories", type=int, default=1000)
    parser.add_argument("--varsigma", type=float, default=0.25)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--scan", action="store_true")
    parser.add_argument("--gallery", type=Path, default=None)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", default=None)
    parser.add_argument("--out", type=Path, default=None)
    args = parser.parse_args()
    if args.gallery is not None:
        gallery(args.gallery)
        return
    data = mn.datasets.load(args.dataset, directory=args.data)
    rows = scan(data, args) if args.scan else run(data, args)
    if not args.scan:
        mine = [row["accuracy"] for row in rows if row["objective"] == "conditional"]
        print(f"conditional: {statistics.fmean(mine):.2f}% over {len(mine)} seeds")
    cuda = args.device == "cuda" or (args.device == "auto" and torch.cuda.is_available())
    command = (
        f"python -m benchmarks.conditional --dataset {args.dataset} --memories "
        f"{args.memories} --varsigma {args.varsigma} --seeds {args.seeds} --device {args.device} "
        f"--data DIR{' --scan' if args.scan else ''}"
    )
    head = made_by(command, "cuda" if cuda else "cpu")
    write(args.out, {**head, "dataset": args.dataset, "memories": args.memories, "rows": rows})


if __name__ == "__main__":
    main()
