"""Two layers, `PatchEncoder` and `DAMClassifier`: what to choose, and what it comes to.

python -m research patches study --device cuda    choices, judged by the last training rows alone
python -m research patches final --device cuda    test accuracy, with 100 and 1000 memories
python -m research patches deeper --device cuda   what else might help, judged like the study
python -m research patches small --device cuda    few rows
python -m research patches labels --device cuda   few labels among many rows
python -m research patches peers --device cuda    other classifiers on the same rows
python -m research patches whole --device cpu     seconds and peak memory of one fit from pixels
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
    Adam,
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
from research.benchmarks.one_pass import peak
from research.image_peers import SVM_ROWS, Rows, convolutional, neighbors, svm

FULL, QUICK = ("mnist", "fashion-mnist"), ("mnist-small",)
QUICK_ROWS = 1000
HELD = 10_000  # last training rows, by which choices are judged
LABELS = (10, 100, 1000)  # per class
CLASSIFIER: dict[str, Any] = {"objective": "conditional"}
ENCODED: dict[str, Any] = {"normalize": "unit"}  # soft counts lie on the sphere already
WITHOUT: dict[str, Any] = {"objective": "joint", "unlabeled": -1}
FEW_PASSES: dict[str, Any] = {"max_iter": 6}  # of five times as many rows

# One setting at a time away from the defaults.
ENCODERS: dict[str, dict[str, Any]] = {
    "defaults": {},
    **{f"patch {k}": {"patch": k} for k in (4, 6, 8)},
    "patches 4 and 8, 80 memories each": {"patch": (4, 8), "n_memories": 80},
    **{f"{k} patch memories": {"n_memories": k} for k in (64, 256)},
    **{f"grid {k}": {"grid": k} for k in (4, 6)},
    **{f"beta {k}": {"beta": float(k)} for k in (20, 45)},
    **{f"power {k}": {"power": k} for k in (0.35, 0.75)},
    "not centered": {"normalize": "unit"},
    "stride 2": {"stride": 2},
}
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "classifier: joint": {"objective": "joint"},
    **{f"classifier: noise {k}": {"solver": Adam(noise=k)} for k in (0.0, 0.5, 1.5)},
    "classifier: 30 passes": {"max_iter": 30},
    **{f"classifier: {kind}": {"normalize": kind} for kind in ("center", "standard")},
}


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
    """(rows to learn from, the last ones to judge by): the study never sees a test row."""
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


def judge(model: DAMClassifier, x: Tensor, y: NDArray[np.int64]) -> tuple[float, float]:
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
    accuracy, loss = judge(model, *test)
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
    """Rows to learn from and rows to judge by, as an encoder sees them."""

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


def study(job: Job) -> None:
    """Settings one at a time, judged by rows held back from training."""
    encoders = dict(list(ENCODERS.items())[:3]) if job.quick else ENCODERS
    classifiers = dict(list(CLASSIFIERS.items())[:1]) if job.quick else CLASSIFIERS
    for name, everything, _ in job.each():
        train, held = held_back(everything)
        for n_memories in job.memories:
            for seed in job.seeds:
                for what, settings in encoders.items():
                    coded = encode(train.x, train, held, seed, **settings)
                    _tell(job, name, what, n_memories, seed, coded, train, held, settings, {})
                    if settings:
                        continue
                    for kind, other in classifiers.items():
                        _tell(job, name, kind, n_memories, seed, coded, train, held, {}, other)


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


def final(job: Job) -> None:
    """The defaults, shifted rows too, and one layer on all training rows, judged by test rows."""
    for name, train, test in job.each():
        for seed in job.seeds:
            coded = encode(train.x, train, test, seed)
            for n_memories in job.memories:
                _tell(job, name, "two layers", n_memories, seed, coded, train, test, {}, {})
        for seed in job.seeds:
            _shifts(job, name, "two layers, shifted rows too", seed, train, test)
        for seed in job.seeds:
            for n_memories in job.memories:
                _one_layer(job, name, n_memories, seed, train, test)


def _shifts(job: Job, name: str, what: str, seed: int, train: Rows, test: Rows) -> None:
    """Rows moved by a pixel to learn from as well, so five times as many."""
    more = shifted(train)
    coded = encode(train.x, more, test, seed)
    _tell(job, name, what, job.memories[-1], seed, coded, more, test, {}, FEW_PASSES)


def deeper(job: Job) -> None:
    """An encoder on top of another, shifted rows, four times the memories; judged alike."""
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


def small(job: Job) -> None:
    """Small data sets."""
    for name in ("mnist-small", "digits"):
        train, test = job.rows(name)
        for seed in job.seeds:
            coded = encode(train.x, train, test, seed)
            for n_memories in ("auto", 100):
                _tell(job, name, "two layers", n_memories, seed, coded, train, test, {}, {})
                _one_layer(job, name, n_memories, seed, train, test)
            _neighbors_and_svm(job, name, seed, train, test)


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


def whole(job: Job) -> None:
    """One fit of both layers from pixels: its parts in seconds, its peak memory."""
    for name, train, test in job.each():
        for seed in job.seeds:
            coded = encode(train.x, train, test, seed)
            _tell(job, name, "two layers", job.memories[-1], seed, coded, train, test, {}, {})
            job.add(f"{name} seed {seed}: {peak() / 1e9:.2f} GB at most",
                    data=name, what="peak memory", seed=seed, bytes=peak())  # fmt: skip


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
    "study": study,
    "final": final,
    "deeper": deeper,
    "small": small,
    "labels": labels,
    "peers": peers,
    "whole": whole,
    "pictures": pictures,
}
_SEEDS = {"study": 1, "final": 3, "deeper": 1, "small": 3, "labels": 3, "peers": 1, "whole": 1,
          "pictures": 1}  # fmt: skip
_MEMORIES = {
    "study": [200], "final": [100, 1000], "deeper": [1000], "small": [1000], "labels": [1000],
    "peers": [1000], "whole": [1000], "pictures": [100],
}  # fmt: skip


def main(words: list[str]) -> None:
    made = argparse.ArgumentParser(
        prog="python -m research patches",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("part", choices=[*PARTS])
    made.add_argument("--quick", action="store_true", help="small ones, data inside the package")
    made.add_argument("--seeds", type=int, help="how many; 3 for figures, 1 for the study")
    made.add_argument("--memories", type=int, nargs="+", help="of the second layer")
    made.add_argument("--sets", nargs="+", default=FULL, help="data sets")
    made.add_argument("--out", type=Path, help="file of the report")
    _options.add_device(made, "auto")
    _options.add_data(made)
    options = made.parse_args(words)
    options.device = _options.pick_device(options.device).type
    options.seeds = options.seeds or _SEEDS[options.part]
    options.memories = options.memories or _MEMORIES[options.part]
    options.out = options.out or _options.OUT / f"patches-{options.part}.json"
    PARTS[options.part](Job(options, words))
    print(f"report: {options.out}", file=sys.stderr)
