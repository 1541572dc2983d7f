"""Fig. (performance): accuracy and training time against P_max, with and without splitting.

SGD is the authors' preset on both sides: memories uniform on the sphere, β from 1, ς = 0.25, the
last tenth of the training rows for early stopping with patience 1. Without splitting it takes at
most 100 + P_max/10 passes. With splitting it starts from 100 memories and takes at most 100 passes
per phase; directions come from one pass of the authors' descent, δ = 0.25, τ = 1. A phase also ends
where a pass changes the loss by less than `tolerance`, relative: the tail of a phase costs much,
and the next split undoes it. Beside them the fixed point, from training rows and grown.

A part is one (data set, method, P_max, seed). As in the paper SGD is repeated with the same seed,
and the least time counts; means and deviations are those over seeds. Times hold everything from the
first memories to the last pass, validation and curvature included. Next to seconds stands `work`,
the products of a row with a memory in millions: what a machine that is not busy with small things
would need.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from mnemosphere.model import Batch, Nearest, Parameters
from mnemosphere.model.curvature import Descent
from mnemosphere.training import PassRecord, Solver, SplitRecord, Splitting
from research import fits
from research.paper.experiment import Experiment, Run, save_picture
from research.paper.laws import best_fit, sweeps, work_of
from research.plots.performance import performance
from research.report import Comparison, Json, synchronize

METHODS = ("sgd", "sgd-split", "fixed-point", "fixed-point-split")
NAMES = {
    "sgd": "SGD",
    "sgd-split": "SGD with splitting",
    "fixed-point": "fixed point",
    "fixed-point-split": "fixed point with splitting",
}


def _settings(quick: bool) -> Json:
    rate = {"learning_rate": 1.0, "momentum": 0.9} if quick else {"learning_rate": 0.1**2}
    return {
        # Widths on each side of 1600, where the fifth doubling comes. A processor does less; the
        # paper has one, too, but days.
        "sizes": {"mnist": [[20, 32, 44, 80], 1]}
        if quick
        else {"mnist": [[1000, 1250, 1625, 2000], 2], "fashion-mnist": [[1000, 1625, 2000], 1]},
        "sizes_on_cpu": None if quick else {"mnist": [[1000, 1250, 1500], 1]},
        "rows": 1200 if quick else None,
        "methods": list(METHODS),
        "varsigma": 0.25,
        "smoothing": 0.1,
        "validation": 0.1,
        "sgd": {
            "initial": 12 if quick else 100,
            "beta": 60.0 if quick else 1.0,
            "epochs": [10, 0.05] if quick else [100, 0.1],
            "phase_epochs": 6 if quick else 100,
            "patience": None if quick else 1,
            "tolerance": {"sgd": 0.0, "sgd-split": 0.04 if quick else 0.001},
            "delta": 0.25,
            "threshold": -0.001,
            # Too few batches in a quick run for the authors' descent: the default method.
            "eigenvectors": None if quick else {"epochs": 1, "batch_size": 1000},
            "solver": {**rate, "batch_size": 250 if quick else 1000, "tolerance": None},
        },
        "fixed_point": {
            "initial": 8 if quick else 16,
            "epochs": 4 if quick else 5,
            "phase_epochs": 1,
            "batch_size": 500 if quick else 3000,
        },
    }


class _Part:
    """One (data set, method, P_max, seed)."""

    def __init__(self, run: Run, data: str, method: str, p_max: int, seed: int) -> None:
        self.run, self.data, self.method, self.p_max, self.seed = run, data, method, p_max, seed
        self.sgd, self.split = method.startswith("sgd"), method.endswith("split")
        self.key = f"{data}-{method}-{p_max}-{seed}"

    def measure(self, rows: Batch, validation: Batch, test: Batch, repeats: int) -> Json:
        """Train `repeats` times with the same seed; the row of the record."""
        seconds: list[float] = []
        found: Json = {}
        for repeat in range(repeats):
            self.run.progress(
                f"{self.data}, {NAMES[self.method]}, P_max {self.p_max}, seed {self.seed}",
                repeat,
                repeats,
            )
            synchronize(self.run.device)
            began = time.perf_counter()
            params, history, splits, status = self._train(rows, validation)
            synchronize(self.run.device)
            seconds.append(round(time.perf_counter() - began, 4))
            self.run.finished(status)
            accuracy = fits.accuracy(params, test)
            found = {
                "data": self.data,
                "method": self.method,
                "p_max": self.p_max,
                "seed": self.seed,
                "memories": params.n_memories,
                "accuracy": round(100 * accuracy, 3),
                "passes": len(history),
                "splits": len(splits),
                "work": round(
                    work_of(history, splits, rows.n_rows, validation.n_rows if self.sgd else 0), 3
                ),
                "beta": round(float(params.beta), 3),
                "status": status,
            }
        return {**found, "seconds": min(seconds), "all_seconds": seconds}

    def _train(
        self, rows: Batch, validation: Batch
    ) -> tuple[Parameters, Sequence[PassRecord], Sequence[SplitRecord], str]:
        chosen = self.run.settings
        own = _own(chosen, self.method)
        generator = torch.Generator().manual_seed(self.seed)
        n_first = min(own["initial"], self.p_max) if self.split else self.p_max
        solver: Solver
        if self.sgd:
            solver = fits.sgd(**own["solver"])
            start = fits.uniform_start(rows, n_first, beta=own["beta"], generator=generator)
        else:
            solver = fits.fixed_point(batch_size=own["batch_size"])
            start = fits.data_start(rows, n_first, varsigma=chosen["varsigma"], generator=generator)
        options: Json = {"varsigma": chosen["varsigma"], "generator": generator}
        if self.sgd:
            patience = own["patience"]
            options |= {"tol": own["tolerance"][self.method], "patience": patience}
            options["validation"] = None if patience is None else validation
        if not self.split:
            limit = own["epochs"]
            if self.sgd:
                limit = round(limit[0] + limit[1] * self.p_max)
            result = fits.train_from(start, rows, solver, passes=limit, **options)
            return result.params, result.history, (), result.status
        splitting = Splitting()
        if self.sgd:
            splitting = Splitting(
                threshold=own["threshold"],
                delta=own["delta"],
                curvature=Descent(**own["eigenvectors"]) if own["eigenvectors"] else Nearest(),
            )
        grown = fits.grow_from(
            start,
            rows,
            solver,
            max_memories=self.p_max,
            splitting=splitting,
            passes=own["phase_epochs"],
            final_passes=own["phase_epochs"] if self.sgd else own["epochs"],
            **options,
        )
        return grown.params, grown.history, grown.splits, grown.status


def _prepared(run: Run, name: str) -> tuple[Batch, Batch, Batch]:
    """(training, validation, test) rows on the device."""
    rows, test = run.rows(name, run.settings["smoothing"])
    if run.settings["rows"] is not None:
        rows = rows.take(slice(0, run.settings["rows"]))
    return (*fits.split_tail(rows, run.settings["validation"]), test)


def _run(run: Run) -> Json:
    chosen = run.settings
    sizes = chosen["sizes"]
    if run.device.type == "cpu" and chosen["sizes_on_cpu"] is not None:
        sizes = chosen["sizes_on_cpu"]
        run.remark(f"on a processor: {', '.join(sizes)} alone, and fewer values of P_max")
    counts = ", ".join(f"{repeats} on {name}" for name, (_, repeats) in sizes.items())
    run.remark(f"runs of SGD with each seed, of which the fastest counts: {counts}")
    rows: list[Json] = []
    for name, (p_max, repeats) in sizes.items():
        data = _prepared(run, name)
        if run.device.type == "cuda":  # the first launches are slow
            few = data[0].take(slice(0, 4000))
            for method in chosen["methods"]:
                _Part(run, name, method, 128, 0).measure(few, data[1], data[2], 1)
        for width in p_max:
            for method in chosen["methods"]:
                n = repeats if method.startswith("sgd") else 1
                for seed in run.seeds:
                    part = _Part(run, name, method, width, seed)
                    rows.append(run.parts.step(part.key, partial(part.measure, *data, n)))
    tolerance = chosen["sgd"]["tolerance"]["sgd-split"]
    descent = chosen["sgd"]["eigenvectors"]
    method = "one pass of the authors' descent" if descent else "Rayleigh–Ritz on the nearest rows"
    run.remark(
        f"directions of splits by {method}; a phase of splitting also ends "
        f"where a pass changes the loss by less than {tolerance:g} relative; the weights kept are "
        "those of the lowest validation loss"
    )
    return {"rows": rows, "sweeps": sweeps(rows), "fits": _laws(run, rows)}


def _own(chosen: Json, method: str) -> Json:
    """The settings of a method's solver."""
    own: Json = chosen["sgd"] if method.startswith("sgd") else chosen["fixed_point"]
    return own


def _laws(run: Run, rows: Sequence[Json]) -> Json:
    found: Json = {}
    for data, methods in sweeps(rows).items():
        for method, sweep in methods.items():
            initial = _own(run.settings, method)["initial"]
            found.setdefault(data, {})[method] = {
                what: best_fit(sweep["p_max"], sweep[what], initial) for what in ("seconds", "work")
            }
    return found


def _compare(measured: Json) -> list[Comparison]:
    found = []
    for data, methods in measured["sweeps"].items():
        fits = measured["fits"][data]
        for method in ("sgd", "sgd-split"):
            sweep = methods[method]
            for k in (0, -1):
                found.append(
                    Comparison(
                        f"{data}, {NAMES[method]}, P_max {sweep['p_max'][k]}",
                        sweep["accuracy"][k],
                        "about 96%" if data == "mnist" and k == 0 else "",
                        95.5 if data == "mnist" and k == 0 else None,
                        97.5 if data == "mnist" and k == 0 else None,
                        spread=sweep["accuracy_std"][k],
                    )
                )
        gaps = [
            b - a
            for a, b in zip(
                methods["sgd"]["accuracy"], methods["sgd-split"]["accuracy"], strict=True
            )
        ]
        fashion = data == "fashion-mnist"
        found.append(
            Comparison(
                f"{data}: points gained by splitting",
                float(np.mean(gaps)),
                "slightly higher" if fashion else "about 0",
                0.0 if fashion else -0.5,
                4.0 if fashion else 0.5,
                "",
            )
        )
        for what in ("seconds", "work"):
            plain = fits["sgd"][what]["line"]
            found.append(
                Comparison(
                    f"{data}: {what} without splitting, R² of a + b P_max",
                    plain["r2"] or 0.0,
                    "proportional to P_max",
                    unit="",
                    digits=3,
                )
            )
            if "staircase" in fits["sgd-split"][what]:
                for form, words in (
                    ("staircase", "a + b ⌈log₂(P_max/P_0)⌉"),
                    ("line", "a + b P_max"),
                ):
                    found.append(
                        Comparison(
                            f"{data}: {what} with splitting, R² of {words}",
                            fits["sgd-split"][what][form]["r2"] or 0.0,
                            unit="",
                            digits=3,
                        )
                    )
            last = [methods[m][what][-1] for m in ("sgd", "sgd-split")]
            widest = methods["sgd"]["p_max"][-1]
            found.append(
                Comparison(
                    f"{data}: {what} without over with splitting, P_max {widest}",
                    last[0] / last[1],
                    "above 1",
                    1.0,
                    1e9,
                    "×",
                )
            )
    return found


def _draw(result: Json, folder: Path) -> list[Path]:
    measured, chosen = result["measured"], result["settings"]
    pictures = []
    for what, name, words in (
        ("seconds", "fig6", "training time"),
        ("work", "fig6-work", "rows × memories"),
    ):
        figure = performance(
            measured["sweeps"],
            measured["fits"],
            what=what,
            words=words,
            initial={name: _own(chosen, name)["initial"] for name in METHODS},
            names=NAMES,
            titles=result["data"],
        )
        pictures.append(save_picture(figure, folder, name, result))
    return pictures


EXPERIMENTS = (
    Experiment(
        "fig6",
        "Fig. (performance): accuracy and training time against P_max",
        _settings,
        _run,
        _draw,
        _compare,
        datasets=("mnist", "fashion-mnist"),
        seeds=3,
    ),
)
