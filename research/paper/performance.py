"""Fig. (performance): accuracy and training time against P_max, with and without splitting.

SGD is the authors' preset on both sides: memories uniform on the sphere, β from 1, ς = 0.25, the
last tenth of the training rows for early stopping with patience 1. Without splitting it takes at
most 100 + P_max/10 passes. With splitting it starts from 100 memories and takes at most 100 passes
per phase; directions come from one pass of the authors' descent, δ = 0.25, τ = 1. A phase also ends
where a pass changes the loss by less than `tolerance`, relative: the tail of a phase costs much,
and the next split undoes it. Beside them the fixed point, from training rows and grown.

Every memory is split in each phase, as the authors do. Copies keep the velocity of their memory;
the authors' start at rest while the original keeps its own. δ is halved where a split would raise
the loss; the smallest of a run is recorded.

A part is one (data set, method, P_max, seed); means and deviations are those over seeds. Times hold
everything from the first memories to the last pass, validation and curvature included. Next to
seconds stands `work`, the products of a row with a memory in millions: what a machine that is not
busy with small things would need.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from mnemosphere.model.batch import Batch
from mnemosphere.model.curvature import nearest
from mnemosphere.model.mixture import Mixture
from mnemosphere.training import SGD, FixedPoint, PassRecord, Solver, SplitRecord, Splitting
from research import fits
from research.paper.descent import Descent
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


_WIDTHS = [1000, 1100, 1200, 1300, 1400, 1500, 1600, 1625, 1750, 1875, 2000]
_FEW = [1000, 1250, 1500, 1600, 1625, 2000]


def _settings(quick: bool) -> Json:
    rate = {"learning_rate": 1.0, "momentum": 0.9} if quick else {"learning_rate": 0.1**2}
    return {
        # P_max for each method, and how many of the seeds it runs with at most. The fifth doubling
        # comes after 1600. A processor does less; the paper has one, too, but days.
        "sizes": {"mnist": {method: [[20, 44, 80], 1] for method in METHODS}}
        if quick
        else {
            "mnist": {
                "sgd": [_WIDTHS, 10],
                "sgd-split": [_WIDTHS, 10],
                "fixed-point": [_FEW[::2], 1],
                "fixed-point-split": [_FEW[::2], 1],
            },
            "fashion-mnist": {"sgd": [_WIDTHS, 10], "sgd-split": [_WIDTHS, 10]},
        },
        "sizes_on_cpu": None
        if quick
        else {"mnist": {"sgd": [[1000, 1250], 1], "sgd-split": [_FEW, 1]}},
        "rows": 1200 if quick else None,
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
            "threshold": -0.001 if quick else None,  # None: every memory is split
            # Too few batches in a quick run for the authors' descent: the default method.
            "eigenvectors": None if quick else {"epochs": 1, "batch_size": 1000},
            "solver": {**rate, "batch_size": 250 if quick else 1000},
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

    def measure(self, rows: Batch, validation: Batch, test: Batch) -> Json:
        """Train; the row of the record."""
        text = f"{self.data}, {NAMES[self.method]}, P_max {self.p_max}, seed {self.seed}"
        self.run.progress(text)
        synchronize(self.run.device)
        began = time.perf_counter()
        params, history, splits, status = self._train(rows, validation)
        synchronize(self.run.device)
        seconds = round(time.perf_counter() - began, 4)
        self.run.finished(status)
        return {
            "data": self.data,
            "method": self.method,
            "p_max": self.p_max,
            "seed": self.seed,
            "memories": params.n_memories,
            "accuracy": round(100 * fits.accuracy(params, test), 3),
            "passes": len(history),
            "splits": len(splits),
            "delta": min((split.delta for split in splits), default=None),
            "work": round(
                work_of(history, splits, rows.n_rows, validation.n_rows if self.sgd else 0), 3
            ),
            "beta": round(float(params.beta), 3),
            "status": status,
            "seconds": seconds,
        }

    def _train(
        self, rows: Batch, validation: Batch
    ) -> tuple[Mixture, Sequence[PassRecord], Sequence[SplitRecord], str]:
        chosen = self.run.settings
        own = _own(chosen, self.method)
        generator = torch.Generator().manual_seed(self.seed)
        n_first = min(own["initial"], self.p_max) if self.split else self.p_max
        solver: Solver
        if self.sgd:
            patience, tol = own["patience"], own["tolerance"][self.method]
            solver = SGD(**own["solver"], tol=tol, patience=patience or 1)
            start = fits.uniform_start(rows, n_first, beta=own["beta"], generator=generator)
        else:
            solver = FixedPoint(batch_size=own["batch_size"], tol=0)
            start = fits.data_start(rows, n_first, varsigma=chosen["varsigma"], generator=generator)
        options: Json = {"varsigma": chosen["varsigma"], "generator": generator}
        if self.sgd:
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
                threshold=math.inf if own["threshold"] is None else own["threshold"],
                delta=own["delta"],
                curvature=Descent(**own["eigenvectors"]) if own["eigenvectors"] else nearest,
                rows_per_memory=None if own["eigenvectors"] else 64,
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

    def stored(self) -> Json:
        """The row, from a run before where it is there."""
        return self.run.parts.step(
            self.key, lambda: self.measure(*_prepared_once(self.run, self.data))
        )


_DATA: dict[tuple[Path, str], tuple[Batch, Batch, Batch]] = {}


def _warm_up(run: Run, parts: Sequence[_Part]) -> None:
    """On a GPU the first launches are slow: a small training of each kind that is timed."""
    for data, method in dict.fromkeys((part.data, part.method) for part in parts):
        if run.device.type == "cuda":
            rows, validation, test = _prepared_once(run, data)
            few = rows.take(slice(0, 4000))
            _Part(run, data, method, 128, 0).measure(few, validation, test)


def _prepared_once(run: Run, name: str) -> tuple[Batch, Batch, Batch]:
    key = (run.folder, name)
    if key not in _DATA:
        _DATA[key] = _prepared(run, name)
    return _DATA[key]


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
    parts = [
        _Part(run, name, method, width, seed)
        for name, methods in sizes.items()
        for method, (widths, n_seeds) in methods.items()
        for width in widths
        for seed in run.seeds[:n_seeds]
    ]
    _warm_up(run, parts)
    rows = [part.stored() for part in parts]
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
        laws, fashion = measured["fits"][data], data == "fashion-mnist"
        for method in ("sgd", "sgd-split"):
            sweep = methods[method]
            for k in (0, -1):
                compared = data == "mnist" and sweep["p_max"][k] == 1000
                found.append(
                    Comparison(
                        f"{data}, {NAMES[method]}, P_max {sweep['p_max'][k]}",
                        sweep["accuracy"][k],
                        "about 96%" if compared else "",
                        95.5 if compared else None,
                        96.5 if compared else None,
                        spread=sweep["accuracy_std"][k],
                    )
                )
        plain, split = methods["sgd"], methods["sgd-split"]
        common = sorted(set(plain["p_max"]) & set(split["p_max"]))

        def at(sweep: Json, what: str, width: int) -> float:
            value: float = sweep[what][sweep["p_max"].index(width)]
            return value

        gaps = [at(split, "accuracy", w) - at(plain, "accuracy", w) for w in common]
        found.append(
            Comparison(
                f"{data}: points gained by splitting",
                float(np.mean(gaps)),
                "slightly higher" if fashion else "about 0",
                0.2 if fashion else -0.2,
                3.0 if fashion else 0.2,
                "",
            )
        )
        # A machine that is not busy with small things takes time in proportion to the work.
        for what in ("work", "seconds"):
            compared = what == "work"
            found.append(
                Comparison(
                    f"{data}: {what} without splitting ∝ P_max to the power of",
                    laws["sgd"][what]["power"]["b"],
                    "1" if compared else "",
                    0.8 if compared else None,
                    1.2 if compared else None,
                    "",
                )
            )
            if "staircase" in laws["sgd-split"][what]:
                for form, words in (
                    ("staircase", "a + b ⌈log₂(P_max/P_0)⌉"),
                    ("line", "a + b P_max"),
                ):
                    r2 = laws["sgd-split"][what][form]["r2"] or 0.0
                    text = f"{data}: {what} with splitting, R² of {words}"
                    found.append(Comparison(text, r2, unit="", digits=3))
            widest = common[-1]
            ratios = [at(plain, what, w) / at(split, what, w) for w in (common[0], widest)]
            text = f"{data}: {what} without over with splitting, P_max {widest}"
            found.append(Comparison(text, ratios[1], unit="×"))
            if len(common) > 1:
                found.append(
                    Comparison(
                        f"{data}: that advantage over the one at {common[0]}",
                        ratios[1] / ratios[0],
                        "grows with P_max",
                        1.1,
                        4.0,
                        "×",
                    )
                )
        first = next((w for w, n in zip(split["p_max"], split["splits"], strict=True) if n > 4.5),
                     0)  # fmt: skip
        if {1600, 1625} <= set(split["p_max"]):
            found.append(
                Comparison(
                    f"{data}: smallest P_max with five splits",
                    first,
                    "1501 to 1625",
                    1501,
                    1625,
                    "",
                    digits=0,
                )
            )
            jump = at(split, "seconds", 1625) / at(split, "seconds", 1600)
            text = f"{data}: seconds at 1625 over those at 1600"
            found.append(Comparison(text, jump, "a jump", 1.03, 1.5, "×"))
    return found


def _draw(result: Json, folder: Path) -> list[Path]:
    measured, chosen = result["measured"], result["settings"]
    figure = performance(
        measured["sweeps"],
        measured["fits"],
        initial={name: _own(chosen, name)["initial"] for name in METHODS},
        names=NAMES,
        titles=result["data"],
    )
    return [save_picture(figure, folder, "fig6", result)]


EXPERIMENTS = (
    Experiment(
        "fig6",
        "Fig. (performance): accuracy and training time against P_max",
        _settings,
        _run,
        _draw,
        _compare,
        datasets=("mnist", "fashion-mnist"),
        seeds=5,
    ),
)
