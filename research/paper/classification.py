"""Digits with labels: the authors' SGD and the fixed point, trained on the same rows.

SGD is the authors' preset: memories uniform on the sphere, the last tenth of the training rows for
early stopping with patience 1, the last weights kept. The fixed point starts on training rows, sees
the same nine tenths, needs no validation and takes a fixed, small number of passes.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import log_joint
from mnemosphere.training import SGD, Callback, FixedPoint, Solver
from mnemosphere.training import Run as Fit
from research import fits
from research.paper.experiment import Run
from research.report import Comparison, Json

SOLVERS = ("sgd", "fixed-point")
NAMES = {"sgd": "SGD", "fixed-point": "fixed point"}
# A few hundred steps: a larger rate, a shorter memory and smaller batches than the authors'.
_QUICK_SGD = {"learning_rate": 0.5, "momentum": 0.9, "batch_size": 250}
_SGD = ("learning_rate", "momentum", "batch_size")  # β is of each case
SHOWN = 25  # memories in a gallery of the paper


def settings(
    cases: Sequence[Json], memories: int, *, quick: bool, quick_memories: int, quick_passes: int
) -> Json:
    """All that decides the numbers. A case: name, ς, β (None: learned, from `start`)."""
    preset = SGD.paper()
    sgd = {name: getattr(preset, name) for name in _SGD}
    return {
        "memories": quick_memories if quick else memories,
        "smoothing": 0.1,
        "validation": 0.1,
        "patience": quick_passes if quick else 1,
        "max_epochs": quick_passes if quick else 300,
        "sgd": sgd | (_QUICK_SGD if quick else {}),
        "fixed_point": {"batch_size": 500 if quick else 3000, "max_epochs": 3 if quick else 10},
        "cases": list(cases),
    }


def held(beta: float) -> Json:
    """The plain likelihood at a fixed inverse temperature, Eq. (loss)."""
    return {"name": f"beta={beta:g}", "varsigma": 1.0, "beta": float(beta)}


def learned(varsigma: float, start: float = 1.0) -> Json:
    """The effective likelihood with β trained, Eq. (effective_loss)."""
    return {"name": f"varsigma={varsigma:g}", "varsigma": varsigma, "beta": None, "start": start}


def label(name: str) -> str:
    """A case in words."""
    kind, _, value = name.partition("=")
    if kind == "beta":
        return f"β = {value} held, ς = 1"
    return f"ς = {value}" if "," in value else f"ς = {value}, β learned"


def train_all(run: Run) -> list[Json]:
    """Every case by both solvers with every seed: one row each."""
    rows, test = run.rows("mnist", run.settings["smoothing"])
    rows, validation = fits.split_tail(rows, run.settings["validation"])
    found = []
    for case in run.settings["cases"]:
        for solver in SOLVERS:
            for seed in run.seeds:
                part = _Training(run, case, solver, seed)
                work = partial(part.train, rows, validation, test)
                found.append(run.parts.step(part.key, work))
    return found


def key(row: Json) -> str:
    """The name of a row's part, and of its arrays."""
    return f"{row['case']}-{row['solver']}-{row['seed']}"


def gather(run: Run, rows: Iterable[Json], *, galleries: Iterable[Json] = ()) -> None:
    """Store the curves of all rows and the galleries of some."""
    arrays: dict[str, NDArray[Any]] = {}
    for row in rows:
        arrays[f"curve {key(row)}"] = run.parts.load(key(row))["curve"]
    for row in galleries:
        part = run.parts.load(key(row))
        arrays |= {f"{name} {key(row)}": part[name] for name in ("w", "soft")}
    run.save_arrays(**arrays)


def train_and_gather(run: Run) -> Json:
    """Train everything; galleries are those of the first seed."""
    rows = train_all(run)
    gather(run, rows, galleries=[row for row in rows if row["seed"] == run.seeds[0]])
    return {"rows": rows}


class _Training:
    """One training and all that is measured on it."""

    def __init__(self, run: Run, case: Json, solver: str, seed: int) -> None:
        self.run, self.case, self.solver, self.seed = run, case, solver, seed
        self.key = f"{case['name']}-{solver}-{seed}"

    def train(self, rows: Batch, validation: Batch, test: Batch) -> Json:
        """The row of this training; its arrays are stored beside it."""
        run, case = self.run, self.case
        curve = Curve(test)
        run.progress(f"{label(case['name'])}, {self.solver}, seed {self.seed}")
        generator = torch.Generator().manual_seed(self.seed)
        result = self._fit(rows, validation, generator, curve)
        run.finished(result.status)
        last = curve.last
        accuracy, seconds = curve.finish(result)
        run.parts.save(
            self.key,
            curve=np.stack([accuracy, seconds]).astype(np.float32),
            w=last.w[:SHOWN].cpu().numpy().astype(np.float16),
            soft=soft_labels(last)[:SHOWN].astype(np.float16),
        )
        return {
            "case": case["name"],
            "solver": self.solver,
            "seed": self.seed,
            "memories": last.n_memories,
            "accuracy": round(100 * float(accuracy[-1]), 2),
            "accuracy_best_validation": round(100 * fits.accuracy(result.params, test), 2),
            "passes": len(result.history),
            "status": result.status,
            "beta": round(float(last.beta), 3),
            "loss": round(fits.mean_loss(last, rows), 5),
            "seconds": round(float(seconds[-1]), 2),
            "accuracy_true": round(100 * fits.accuracy(true_model(last), test), 2),
            "fidelity": fidelity(last, test),
            "memory": memory_quality(last, run.data("mnist").image_shape),
        }

    def _shares(self) -> torch.Tensor | None:
        """Of the memories in p_h; None: equal."""
        ranks = torch.arange(self.run.settings["memories"], dtype=torch.float64)
        kinds = {"halved": 1 - 0.5 * (ranks % 2), "falling": 1 / (1 + ranks)}
        return kinds.get(self.case.get("shares", "equal"))

    def _fit(self, rows: Batch, validation: Batch, generator: torch.Generator, curve: Curve) -> Fit:
        chosen, case = self.run.settings, self.case
        fixed, size = case["beta"] is not None, chosen["memories"]
        solver: Solver
        if self.solver == "sgd":
            beta = case["beta"] if fixed else case["start"]
            start = fits.uniform_start(rows, size, beta=beta, generator=generator)
            solver = SGD(**chosen["sgd"], learn_beta=not fixed, patience=chosen["patience"], tol=0)
            own = {"passes": chosen["max_epochs"], "validation": validation}
        else:
            start = fits.data_start(
                rows, size, varsigma=case["varsigma"], beta=case["beta"], generator=generator
            )
            solver = FixedPoint(chosen["fixed_point"]["batch_size"], not fixed, tol=0)
            own = {"passes": chosen["fixed_point"]["max_epochs"]}
        return fits.train_from(
            start, rows, solver, varsigma=case["varsigma"], shares=self._shares(),
            generator=generator, callbacks=[curve], **own,
        )  # fmt: skip


class Curve(Callback):
    """Test accuracy before training and after every pass, and the last weights.

    Looking costs time that is not counted: seconds are those of training and validation.
    """

    def __init__(self, test: Batch) -> None:
        self._test = test
        self._accuracy: list[float] = []

    def on_start(self, run: Fit) -> None:
        """Training starts."""
        self.last = run.params
        self._accuracy = [fits.accuracy(run.params, self._test)]

    def on_pass(self, run: Fit) -> None:
        """A pass is done."""
        self.last = run.params
        self._accuracy.append(fits.accuracy(run.params, self._test))

    def finish(self, result: Fit) -> tuple[NDArray[Any], NDArray[Any]]:
        """(accuracy, seconds of work so far) at 0, 1, … passes."""
        seconds = np.cumsum([0.0, *(record.seconds for record in result.history)])
        return np.array(self._accuracy[: len(seconds)]), seconds


def true_model(params: Mixture) -> Mixture:
    """The same memories read by the normalized density: ς = 1 in the exponent."""
    return dataclasses.replace(params, varsigma=1.0)


def soft_labels(params: Mixture) -> NDArray[np.float64]:
    """p^μ/p_h(μ) of the memories, (P, C+1)."""
    soft = params.p[1:] / params.p_h[1:, None]
    found: NDArray[np.float64] = soft.double().cpu().numpy()
    return found


def fidelity(params: Mixture, test: Batch) -> Json:
    """How often the model says what its nearest memory says, in percent (Sec. interpretability).

    The nearest memory's word is the class with the largest entry of its soft label.
    """
    predicted = log_joint(params, test.x)[:, :-1].argmax(1)
    nearest = (test.x @ params.w.T).argmax(1)  # (B, P) -> (B,)
    agrees = params.p[1:].argmax(1)[nearest] == predicted
    right = predicted == test.targets[:, :-1].argmax(1)

    def percent(rows: torch.Tensor) -> float | None:
        return round(100 * float(agrees[rows].float().mean()), 2) if bool(rows.any()) else None

    return {"all": percent(right | ~right), "correct": percent(right), "wrong": percent(~right)}


def memory_quality(params: Mixture, image_shape: tuple[int, int]) -> Json:
    """Noise and variety of the memories, in percent and as an overlap.

    noisy: memories whose neighboring pixels correlate by less than a half (1/2 lies between
    white noise, 0, and a digit, about 0.9). twin: the median over memories of the overlap with the
    most similar other one; near 1, many memories are copies.
    """
    images = params.w.reshape(-1, *image_shape)
    pairs = (images[:, 1:] * images[:, :-1]).sum((1, 2)) + (
        images[:, :, 1:] * images[:, :, :-1]
    ).sum((1, 2))
    noisy = pairs / 2 < 0.5  # unit norm: each sum is a correlation, up to the border
    overlap = params.w @ params.w.T  # (P, P)
    overlap.fill_diagonal_(-1.0)
    return {
        "noisy": round(100 * float(noisy.float().mean()), 1),
        "twin": round(float(overlap.amax(1).median()), 4),
    }


def values(rows: Iterable[Json], case: str, solver: str, *path: str) -> list[float]:
    """One figure of a case and solver over its seeds."""
    found = []
    for row in rows:
        if row["case"] == case and row["solver"] == solver:
            value: Any = row
            for name in path:
                value = value[name]
            if value is not None:
                found.append(float(value))
    return found


def mean(found: Sequence[float]) -> float:
    """Over seeds."""
    return statistics.fmean(found)


def deviation(found: Sequence[float]) -> float | None:
    """Standard deviation over seeds; None for one."""
    return round(statistics.stdev(found), 4) if len(found) > 1 else None


def cost(rows: Sequence[Json], case: str, solver: str) -> str:
    """What a training takes, in the mean over seeds, and what the best weights would give."""
    passes = mean(values(rows, case, solver, "passes"))
    seconds = mean(values(rows, case, solver, "seconds"))
    text = (
        f"{passes:.0f} passes, {seconds:.3g} s, β = {mean(values(rows, case, solver, 'beta')):.4g}"
    )
    if solver == "sgd":
        best = mean(values(rows, case, solver, "accuracy_best_validation"))
        text += f"; best weights {best:.2f}%"
    return text


def compared(
    measured: Json, case: str, solver: str, what: str, *path: str, **more: object
) -> list[Comparison]:
    """One number over seeds; nothing where no seed has it."""
    found = values(measured["rows"], case, solver, *path)
    if not found:
        return []
    text = f"{NAMES[solver]}, {what}"
    numbers = {"measured": round(mean(found), 4), "spread": deviation(found)}
    return [Comparison(text, **numbers, **more)]  # type: ignore[arg-type]


def galleries(result: Json) -> dict[tuple[str, str], Json]:
    """Rows that have a gallery, by (case, solver)."""
    first = result["seeds"][0]
    rows = result["measured"]["rows"]
    return {(row["case"], row["solver"]): row for row in rows if row["seed"] == first}
