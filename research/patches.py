"""Two layers, `PatchEncoder` and `DAMClassifier`: what to choose, and what it comes to.

python -m research patches deeper --device cuda   what else might help, on held-out rows
python -m research patches labels --device cuda   few labels among many rows
python -m research patches peers --device cuda    other classifiers on the same rows
python -m research patches pictures               two layers of the data inside the package, drawn

Each writes a report after every line, so that an interrupted one is of use. --quick takes the data
inside the package and a few minutes on a processor.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from torch import Tensor, nn

from mnemosphere import (
    DAMClassifier,
    PatchEncoder,
    explain_images,
    memory_pictures,
    plots,
)
from mnemosphere.data import NamedData, load
from mnemosphere.plots.fitted import memories_of
from research import report
from research.benchmarks import _options
from research.image_peers import SVM_ROWS, Rows, convolutional, neighbors, svm

FULL, QUICK = ("mnist", "fashion-mnist"), ("mnist-small",)
QUICK_ROWS = 1000
HELD = 10_000  # last training rows, by which choices are made
LABELS = (10, 100, 1000)  # per class
CLASSIFIER: dict[str, Any] = {"objective": "conditional"}
ENCODED: dict[str, Any] = {"normalize": "unit"}  # soft counts lie on the sphere already
WITHOUT: dict[str, Any] = {"objective": "joint", "unlabeled": -1}
FEW_PASSES: dict[str, Any] = {"max_iter": 6}  # of five times as many rows


class Fitted(NamedTuple):
    """What two layers came to on rows they were not fitted on, and what they cost."""

    accuracy: float  # percent
    log_loss: float
    seconds: dict[str, float]
    chosen: dict[str, Any]


# --- rows


def rows_of(stored: NamedData, device: str) -> tuple[Rows, Rows]:
    """(training, test) rows."""
    return (
        Rows(torch.from_numpy(stored.x_train).to(device), stored.y_train),
        Rows(torch.from_numpy(stored.x_test).to(device), stored.y_test),
    )


def held_back(train: Rows) -> tuple[Rows, Rows]:
    """(rows to learn from, the last ones held out): the study never sees a test row."""
    cut = len(train.y) - min(HELD, len(train.y) // 5)
    return train.take(slice(0, cut)), train.take(slice(cut, None))


def some_of_each(train: Rows, per_class: int, seed: int) -> Rows:
    """So many random rows of each class."""
    rng = np.random.default_rng(seed)
    chosen = [
        rng.permutation(np.flatnonzero(train.y == label))[:per_class]
        for label in np.unique(train.y)
    ]
    return train.take(rng.permutation(np.concatenate(chosen)))


def shifted(rows: Rows) -> Rows:
    """The rows, and the same moved by one pixel to each of four sides."""
    side = int(rows.x.shape[1] ** 0.5)
    images = nn.functional.pad(rows.x.view(-1, side, side), (1, 1, 1, 1))
    moved = [
        images[:, top : top + side, left : left + side].reshape(rows.x.shape)
        for top, left in ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))
    ]
    return Rows(torch.cat(moved), np.tile(rows.y, len(moved)))


# --- two layers


class Watch:
    """Seconds of each part of a run, the device waited for."""

    def __init__(self, device: str) -> None:
        self.device, self.seconds = device, dict[str, float]()
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Name the part that just ended."""
        report.synchronize(self.device)
        now = time.perf_counter()
        self.seconds[name] = round(now - self._last, 3)
        self._last = now


def evaluate(model: DAMClassifier, x: Tensor, y: NDArray[np.int64]) -> tuple[float, float]:
    """(accuracy in percent, mean −log P(y|x)) after no calibration."""
    log_proba = torch.as_tensor(model.predict_log_proba(x)).cpu().numpy()
    place = np.searchsorted(model.classes_, y)
    loss = -log_proba[np.arange(len(y)), place].mean()
    return 100 * float((log_proba.argmax(1) == place).mean()), float(loss)


def classify(
    train: tuple[Tensor, NDArray[np.int64]],
    test: tuple[Tensor, NDArray[np.int64]],
    n_memories: int | str,
    seed: int,
    watch: Watch,
    **settings: Any,
) -> Fitted:
    """A classifier on rows that lie on the sphere, or on pixels."""
    settings = {**CLASSIFIER, "device": watch.device, **settings}
    model = DAMClassifier(n_memories, random_state=seed, **settings)
    model.fit(*train)
    watch.lap("classifier")
    accuracy, loss = evaluate(model, *test)
    watch.lap("predict")
    chosen = {
        "normalize": model.normalize_,
        "varsigma": model.varsigma_,
        "beta": model.beta_,
        "n_memories": model.n_memories_,
        "n_features": model.n_features_in_,
        "objective": model.objective_,
    }
    return Fitted(accuracy, loss, watch.seconds, chosen)


class Encoded(NamedTuple):
    """Rows to learn from and held-out rows, as an encoder sees them."""

    train: Tensor
    test: Tensor
    seconds: dict[str, float]


def encode(everything: Tensor, train: Rows, test: Rows, seed: int, **settings: Any) -> Encoded:
    """Patch memories of all images, and what they make of the rows."""
    watch = Watch(str(train.x.device))
    if everything.shape[0] <= QUICK_ROWS:
        settings = {"n_patches": 50_000, **settings}
    encoder = PatchEncoder(random_state=seed, device=str(train.x.device), **settings)
    encoder.fit(everything)
    watch.lap("patch memories")
    x = encoder.transform(train.x)
    watch.lap("encode")
    return Encoded(x, encoder.transform(test.x), watch.seconds)


def line(name: str, fitted: Fitted) -> str:
    """One line of progress."""
    seconds = " + ".join(f"{value:.1f}" for value in fitted.seconds.values())
    figures = f"{fitted.accuracy:7.3f}%  log-loss {fitted.log_loss:.4f}"
    return f"{name:<56} {figures}  {fitted.chosen['objective']:<11}  {seconds} s"


# --- the parts


class Job:
    """A part of the study: its rows, its report, its progress."""

    def __init__(self, options: argparse.Namespace, words: list[str]) -> None:
        self.quick, self.device = options.quick, options.device
        self.seeds = range(1 if options.quick else options.seeds)
        self.names: tuple[str, ...] = QUICK if options.quick else tuple(options.sets)
        self.memories = [20] if options.quick else options.memories
        self._directory, self._path = options.data, options.out
        self._results: list[report.Json] = []
        self._head = report.head(
            report.command_line(["patches", *words]), device=self.device, seeds=self.seeds
        )
        self._began = time.perf_counter()

    def rows(self, name: str) -> tuple[Rows, Rows]:
        """(training, test) rows of a data set."""
        train, test = rows_of(load(name, directory=self._directory), self.device)
        if self.quick:
            train, test = train.take(slice(0, QUICK_ROWS)), test.take(slice(0, 500))
        return train, test

    def beside(self, name: str) -> Path:
        """A file in the folder of the report."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return Path(self._path.parent / name)

    def add(self, text: str, **values: Any) -> None:
        """Tell, and store."""
        print(f"[{time.perf_counter() - self._began:6.1f} s] {text}", flush=True)
        self._results.append(values)
        report.write(self._path, {**self._head, "quick": self.quick, "results": self._results})

    def each(self) -> Iterable[tuple[str, Rows, Rows]]:
        """Every data set."""
        for name in self.names:
            yield (name, *self.rows(name))


def _tell(
    job: Job,
    name: str,
    what: str,
    n_memories: int | str,
    seed: int,
    coded: Encoded,
    train: Rows,
    test: Rows,
    encoder: Mapping[str, Any],
    classifier: Mapping[str, Any],
) -> None:
    """Fit the second layer, and report."""
    watch = Watch(job.device)
    watch.seconds |= coded.seconds
    fitted = classify(
        (coded.train, train.y), (coded.test, test.y), n_memories, seed, watch,
        **{**ENCODED, **classifier},
    )  # fmt: skip
    settings = {key: str(value) for key, value in {**encoder, **classifier}.items()}
    job.add(
        line(f"{name} P={n_memories} seed {seed}: {what}", fitted),
        data=name, what=what, memories=n_memories, seed=seed, settings=settings,
        rows=len(train.y), **fitted._asdict(),
    )  # fmt: skip


def _shifts(job: Job, name: str, what: str, seed: int, train: Rows, test: Rows) -> None:
    """Rows moved by a pixel to learn from as well, so five times as many."""
    more = shifted(train)
    coded = encode(train.x, more, test, seed)
    _tell(job, name, what, job.memories[-1], seed, coded, more, test, {}, FEW_PASSES)


def deeper(job: Job) -> None:
    """An encoder on top of another, shifted rows, four times the memories; measured alike."""
    for name, everything, _ in job.each():
        train, held = held_back(everything)
        for seed in job.seeds:
            coded = encode(train.x, train, held, seed)
            most = job.memories[-1]
            for what, n_memories in (("two layers", most), ("two layers, at once", 4 * most)):
                _tell(job, name, what, n_memories, seed, coded, train, held, {}, {})
            _shifts(job, name, "two layers, shifted rows too", seed, train, held)
            fine = {"grid": 12, "n_memories": 32}
            below = encode(train.x, train, held, seed, **fine)
            top = {"image_shape": (12, 12, 32), "patch": 3, "grid": 4}
            coded = encode(below.train, Rows(below.train, train.y), Rows(below.test, held.y), seed,
                           **top)  # fmt: skip
            _tell(job, name, "three layers", most, seed, coded, train, held, top, {})


def labels(job: Job) -> None:
    """A few labels, with patch memories of all rows."""
    for name, train, test in job.each():
        encoded = {seed: encode(train.x, train, test, seed) for seed in job.seeds}
        for per_class in LABELS[:1] if job.quick else LABELS:
            for seed, coded in encoded.items():
                few = some_of_each(train, per_class, seed)
                at = _places(train, few)
                some = coded._replace(train=coded.train[at])
                label = f"{per_class} labels per class, "
                _tell(job, name, f"{label}two layers", "auto", seed, some, few, test, {}, {})
                _one_layer(job, name, "auto", seed, few, test, label)
                _neighbors_and_svm(job, name, seed, few, test, label)
                if per_class < LABELS[-1]:
                    mostly = Rows(train.x, np.full_like(train.y, -1))
                    mostly.y[at.cpu().numpy()] = few.y
                    _tell(job, name, f"{label}others without, two layers", job.memories[-1], seed,
                          coded, mostly, test, {}, WITHOUT)  # fmt: skip


def _places(train: Rows, few: Rows) -> Tensor:
    """Which rows the `few` are, found by their images."""
    place = {row.tobytes(): i for i, row in enumerate(train.x.cpu().numpy())}
    at = [place[row.tobytes()] for row in few.x.cpu().numpy()]
    return torch.tensor(at, device=train.x.device)


def _one_layer(
    job: Job, name: str, n_memories: int | str, seed: int, train: Rows, test: Rows, label: str = ""
) -> None:
    fitted = classify((train.x, train.y), (test.x, test.y), n_memories, seed, Watch(job.device))
    job.add(
        line(f"{name} P={n_memories} seed {seed}: {label}one layer", fitted),
        data=name, what=f"{label}one layer", memories=n_memories, seed=seed, rows=len(train.y),
        **fitted._asdict(),
    )  # fmt: skip


def peers(job: Job) -> None:
    """Other classifiers on the same rows; the network gets the time that two layers took."""
    for name, train, test in job.each():
        for seed in job.seeds:
            watch = Watch(job.device)
            coded = encode(train.x, train, test, seed)
            n_memories = job.memories[-1]
            _tell(job, name, "two layers", n_memories, seed, coded, train, test, {}, {})
            watch.lap("all")
            budget = watch.seconds["all"]
            accuracy, passes = convolutional(train, test, budget, seed, job.device)
            job.add(
                f"{name} seed {seed}: convolutional network, {budget:.1f} s, {passes:.0f} passes: "
                f"{accuracy:.3f}%",
                data=name, what="convolutional network", seed=seed, accuracy=accuracy,
                seconds=budget, passes=passes, rows=len(train.y),
            )  # fmt: skip
            if seed == 0:
                _neighbors_and_svm(job, name, seed, train, test)


def pictures(job: Job) -> None:
    """Ten memories of the second layer, an image in doubt, a mistake; beside the report."""
    train, test = job.rows("mnist-small")
    layers = make_pipeline(
        PatchEncoder(random_state=0, n_patches=100_000, device=job.device),
        DAMClassifier(100, random_state=0, device=job.device, **ENCODED),
    ).fit(train.x.cpu().numpy(), train.y)
    x, model = test.x.cpu().numpy(), layers[-1]
    proba = layers.predict_proba(x)
    sure, right = proba.max(1), model.classes_[proba.argmax(1)] == test.y
    gallery = memories_of(model.model_, (28, 28), 10, memory_pictures(layers))
    plots.save(gallery, job.beside("second-layer.png"))
    doubted = np.where(right, np.abs(sure - 0.7), np.inf).argmin()
    mistaken = np.where(right, np.inf, np.abs(sure - 0.8)).argmin()
    for name, k in (("image-explanation", doubted), ("image-mistake", mistaken)):
        found = explain_images(layers, x[k : k + 1], 4)
        plots.save(found.plot(0, truth=int(test.y[k])), job.beside(f"{name}.png"))
    job.add(f"accuracy {100 * right.mean():.2f}%", data="mnist-small", accuracy=100 * right.mean())


def _neighbors_and_svm(
    job: Job, name: str, seed: int, train: Rows, test: Rows, label: str = ""
) -> None:
    fits: dict[str, Callable[[], float]] = {
        "3 nearest neighbors": lambda: neighbors(train, test),
        "SVM, radial": lambda: svm(train, test),
    }
    for what, run in fits.items():
        began = time.perf_counter()
        accuracy = run()
        seconds = time.perf_counter() - began
        rows = min(len(train.y), SVM_ROWS) if "SVM" in what else len(train.y)
        job.add(
            f"{name} seed {seed}: {label}{what}, {rows} rows: {accuracy:.3f}%  {seconds:.1f} s",
            data=name, what=label + what, seed=seed, accuracy=accuracy, seconds=seconds, rows=rows,
        )  # fmt: skip


# --- the command

PARTS: dict[str, Callable[[Job], None]] = {
    "deeper": deeper,
    "labels": labels,
    "peers": peers,
    "pictures": pictures,
}


def main(words: list[str]) -> None:
    made = argparse.ArgumentParser(
        prog="python -m research patches",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("part", choices=[*PARTS])
    made.add_argument("--quick", action="store_true", help="small ones, data inside the package")
    made.add_argument("--seeds", type=int, default=1)
    made.add_argument("--memories", type=int, nargs="+", default=[1000])
    made.add_argument("--sets", nargs="+", default=FULL, help="data sets")
    made.add_argument("--out", type=Path, help="file of the report")
    _options.add_device(made, "auto")
    _options.add_data(made)
    options = made.parse_args(words)
    options.device = _options.pick_device(options.device).type
    options.out = options.out or _options.OUT / f"patches-{options.part}.json"
    PARTS[options.part](Job(options, words))
    print(f"report: {options.out}", file=sys.stderr)
