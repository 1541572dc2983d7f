"""Test accuracy of the conditional objective: images by pixels and by patches.

    python -m research conditional --seeds 10 --device cuda --data DIR
    python -m research conditional --only mnist-patches --seeds 10 --device cuda --data DIR

Every fit is `DAMClassifier(P, objective="conditional")` on all training rows, with the
geometry that suits them: "center" for pixels, "unit" for patches (through `PatchEncoder`,
fitted anew for each seed). Nothing is chosen by the test rows. Each data set has
a report of its own, conditional_NAME.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from mnemosphere import DAMClassifier, PatchEncoder
from mnemosphere.fitted.model import FittedModel
from mnemosphere.plots import memories
from mnemosphere.plots.style import figure_style, new_figure
from research import report
from research.benchmarks._options import add_data, add_device, parser
from research.data import load_data

MEMORIES = (100, 1000)


class Case(NamedTuple):
    """A data set, and how its rows are put on the sphere."""

    data: str
    geometry: str
    patches: bool = False


CASES = {
    "mnist": Case("mnist", "center"),
    "mnist-patches": Case("mnist", "unit", patches=True),
    "fashion-mnist": Case("fashion-mnist", "center"),
    "fashion-mnist-patches": Case("fashion-mnist", "unit", patches=True),
}


Rows = tuple[torch.Tensor, NDArray[Any]]  # on the device, and their classes


def open_rows(data: str, directory: Path | None, device: str) -> tuple[Rows, Rows]:
    """(training, test) rows on the device."""
    raw = load_data(data, directory=directory)
    parts = [(raw.x_train, raw.y_train), (raw.x_test, raw.y_test)]
    train, test = ((torch.from_numpy(x).to(device), y) for x, y in parts)
    return train, test


def evaluate(model: DAMClassifier, x: torch.Tensor, y: NDArray[Any]) -> tuple[float, float]:
    """(accuracy in percent, mean −log P(y|x))."""
    log_proba = torch.as_tensor(model.predict_log_proba(x)).cpu().numpy()
    place = np.searchsorted(model.classes_, y)
    loss = -log_proba[np.arange(len(y)), place].mean()
    return 100 * float((log_proba.argmax(1) == place).mean()), float(loss)


def fidelity(model: FittedModel, x: Any) -> float:
    """Share of rows whose predicted class is that of the single nearest memory."""
    nearest = (model.on_sphere(x)[0] @ model.votes.w.mT).argmax(1)
    own = model.votes.p[1:, :-1].argmax(1)
    return float((own[nearest] == model.log_proba(x).argmax(1)).double().mean())


def study(case: Case, train: Rows, test: Rows, args: argparse.Namespace) -> list[dict[str, Any]]:
    """One fit for each seed and each number of memories."""
    fits = []
    for seed in range(args.seeds):
        x, x_test, began = train[0], test[0], _now(args.device)
        if case.patches:
            encoder = PatchEncoder(random_state=seed, device=args.device).fit(x.cpu())
            x, x_test = (
                torch.from_numpy(encoder.transform(part.cpu())).to(args.device)
                for part in (x, x_test)
            )
        encoding = _now(args.device) - began
        for n_memories in args.memories:
            began = _now(args.device)
            model = DAMClassifier(
                n_memories, objective="conditional", geometry=case.geometry, random_state=seed,
                device=args.device,
            ).fit(x, train[1])  # fmt: skip
            seconds = _now(args.device) - began
            accuracy, log_loss = evaluate(model, x_test, test[1])
            fits.append({
                "memories": n_memories, "seed": seed, "accuracy": accuracy, "log_loss": log_loss,
                "fidelity": 100 * fidelity(model.model_, x_test), "seconds": round(seconds, 3),
                "encoding_seconds": round(encoding, 3),
                "noise": next((t["noise"] for t in model.search_ if t["chosen"]), None),
            })  # fmt: skip
            print(fits[-1], flush=True)
    return fits


def _now(device: str) -> float:
    """Seconds, the device waited for."""
    report.synchronize(device)
    return time.perf_counter()


def summary(fits: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and range over the seeds, for each number of memories."""
    found = []
    for n_memories in dict.fromkeys(fit["memories"] for fit in fits):
        own = [fit for fit in fits if fit["memories"] == n_memories]
        accuracies = [fit["accuracy"] for fit in own]
        found.append({
            "memories": n_memories, "seeds": len(own), "accuracy": statistics.fmean(accuracies),
            "lowest": min(accuracies), "highest": max(accuracies),
            **{key: statistics.fmean(fit[key] for fit in own) for key in ("log_loss", "fidelity")},
            **{key: statistics.median(fit[key] for fit in own)
               for key in ("seconds", "encoding_seconds")},
        })  # fmt: skip
    return found


def gallery() -> Figure:
    """25 of 200 memories of each objective from the same start, with the class they stand for."""
    raw = load_data("mnist-small")
    shown = np.arange(0, 200, 8)  # 25 of them, whichever they are
    with figure_style():
        figure = new_figure(8.4, 4.9)
        axes = figure.subplots(1, 2)
        objectives = ("joint", "conditional")
        models = [
            DAMClassifier(
                200, objective=objective, geometry="center", random_state=0, device="cpu"
            ).fit(raw.x_train, raw.y_train)
            for objective in objectives
        ]  # fmt: skip
        scale = max(float(np.abs(m.memories_[shown]).max()) for m in models)
        for ax, model, name in zip(axes, models, objectives, strict=True):
            memories(
                model.memories_, raw.image_shape, indices=shown, named=False, vmax=scale, ax=ax,
                labels=[str(k) for k in model.class_weights_[1:, :-1].argmax(1)[shown]],
            )  # fmt: skip
            ax.set_title(f"{name}: {model.score(raw.x_test, raw.y_test):.1%} of 1,000 test digits")
    return figure


def main(argv: list[str]) -> None:
    options = parser(__doc__, "conditional")
    options.set_defaults(out=report.STORED / "benchmarks")
    options.add_argument("--only", choices=[*CASES], help="one data set; by default all")
    options.add_argument("--memories", type=int, nargs="+", default=MEMORIES)
    options.add_argument("--seeds", type=int, default=3)
    add_device(options, "auto")
    add_data(options)
    args = options.parse_args(argv)
    command = report.command_line(["conditional", *argv])
    for name in CASES if args.only is None else [args.only]:
        case = CASES[name]
        train, test = open_rows(case.data, args.data, args.device)
        fits = study(case, train, test, args)
        for line in summary(fits):
            print(name, line, flush=True)
        head = report.head(command, device=args.device, seeds=range(args.seeds))
        content = {
            "data": name, "rows": len(train[1]), "test_rows": len(test[1]),
            "classes": len(np.unique(train[1])), "geometry": case.geometry,
            "results": summary(fits), "fits": fits,
        }  # fmt: skip
        report.write(args.out / f"conditional_{name}.json", head | content)
