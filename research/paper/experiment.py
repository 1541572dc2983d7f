"""What every reproduction shares: folders, parts that are never redone, the record, the pictures.

An `Experiment` says what is computed and drawn, `reproduce` does it. One run has one folder,
OUT/<name>/<quick|full>-<8 hex digits>/, whose digits stand for everything that decides the numbers:
settings, seeds, kind of device, data. A finished run leaves result.json, arrays.npz and pictures
there; an unfinished one has a folder `parts` with its finished parts and checkpoints, and goes on.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from mnemosphere import datasets
from mnemosphere.experiments.paper.files import (
    ARRAYS,
    PARTS,
    RESULT,
    Arrays,
    Clock,
    Json,
    choose_device,
    device_name,
    finished_folders,
    load_arrays,
    pack,
    read_arrays,
    read_json,
    read_result,
    save_picture,
    to_json,
    versions,
)
from mnemosphere.model import objectives
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.batches import Data
from mnemosphere.training.callbacks import Callback, Record
from mnemosphere.training.checkpoint import write_atomically

# What a quick run has instead: nothing that needs a file or a network. It does without the rest.
EMBEDDED = {"mnist": "mnist-small"}
_INSTALL = {"umap": "umap-learn, pip install 'mnemosphere[umap]'"}

Stored = TypeVar("Stored")

__all__ = [
    "Comparison",
    "Experiment",
    "Json",
    "MissingPackageError",
    "Outcome",
    "Run",
    "load_arrays",
    "redraw",
    "reproduce",
    "save_picture",
]


class MissingPackageError(ValueError):
    """An optional package is not installed; the message says how to get it."""


class Reporter(Protocol):
    """Shows how far a run is."""

    def __call__(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """What is being done, and how far."""
        ...


def _silent(text: str, done: float | None = None, total: float | None = None) -> None:
    """Show nothing."""


@dataclass(frozen=True)
class Comparison:
    """One number beside the paper's.

    `low` and `high` bound what agrees with the paper, given how it rounds and how much seeds
    differ; both None where the paper gives no number to hold against.
    """

    what: str
    measured: float
    paper: str = ""  # as the paper has it: "79%"; "" where it has none
    low: float | None = None
    high: float | None = None
    unit: str = "%"
    spread: float | None = None  # standard deviation over seeds
    digits: int = 2  # decimals that are worth showing
    note: str = ""  # what it cost, and the like

    def as_dict(self, *, quick: bool) -> Json:
        """Plain values, and whether they agree: None where there is nothing to hold against."""
        within: bool | None = None
        if not quick and self.low is not None and self.high is not None:
            within = self.low <= self.measured <= self.high
        return {**asdict(self), "within": within}


@dataclass(frozen=True)
class Experiment:
    """A table or figure of the paper.

    `settings(quick)` holds every number that defines the run. `run` does the work and returns the
    measured values; both are plain JSON. `draw(result, folder)` gets what is in result.json, reads
    `load_arrays(folder)`, writes pictures with `save_picture` and returns their paths: a pure
    function of the folder. `compare(measured)` puts numbers beside the paper's.
    """

    name: str
    title: str
    settings: Callable[[bool], Json]
    run: Callable[[Run], Json]
    draw: Callable[[Json, Path], list[Path]]
    compare: Callable[[Json], Sequence[Comparison]] = lambda measured: ()
    datasets: tuple[str, ...] = ("mnist",)  # by their full-size names
    needs: tuple[str, ...] = ()  # optional modules
    seeds: int = 1  # by default; a quick run takes one
    also: tuple[str, ...] = ()  # other names: figures that come with it


@dataclass
class Run:
    """What an experiment works with."""

    name: str
    settings: Json
    seeds: list[int]
    device: torch.device
    quick: bool
    folder: Path
    loaded: dict[str, datasets.Dataset]
    report: Reporter = _silent
    remarks: list[str] = field(default_factory=list)

    @property
    def parts(self) -> Path:
        """Where parts and checkpoints are, until the run is finished."""
        return self.folder / PARTS

    def data(self, name: str) -> datasets.Dataset:
        """A data set as stored; the embedded one that stands in for it if the run is quick."""
        return self.loaded[name]

    def rows(self, name: str, smoothing: float = 0.1) -> tuple[Data, Data]:
        """(training, test) rows on the sphere with soft labels, on the device of the run.

        As the paper has them: pixel/255, minus the row mean, divided by the row norm.
        """
        stored = self.data(name)
        n_classes = len(stored.class_names)
        parts = []
        for images, classes in (
            (stored.x_train, stored.y_train),
            (stored.x_test, stored.y_test),
        ):
            x = torch.from_numpy(images).to(self.device, torch.float32)
            x = x / (255.0 if images.dtype == np.uint8 else 1.0)
            x = x - x.mean(1, keepdim=True)
            x = x / x.norm(dim=1, keepdim=True)
            y = torch.from_numpy(classes).to(self.device)
            parts.append(Data(x, objectives.soft_labels(y, n_classes, smoothing).to(x)))
        return parts[0], parts[1]

    def step(self, key: str, function: Callable[[], Stored]) -> Stored:
        """The JSON value of a part: read where it is finished, else computed and stored."""
        path = self.parts / f"{key}.json"
        if path.exists():
            stored: Stored = read_json(path, "delete it to have that part done again")
            return stored
        value = function()
        content = to_json(value)
        write_atomically(path, content)
        for rest in self.parts.glob(f"{key}.checkpoint*"):
            rest.unlink()
        # What a run that goes on would read: the same types either way.
        same: Stored = json.loads(content)
        return same

    def save_part(self, key: str, **arrays: NDArray[Any]) -> None:
        """Store arrays of a part, atomically; call it inside the part's function."""
        write_atomically(self.parts / f"{key}.npz", pack(arrays))

    def load_part(self, key: str) -> Arrays:
        """The arrays of a finished part."""
        return read_arrays(self.parts / f"{key}.npz")

    def save_arrays(self, **arrays: NDArray[Any]) -> None:
        """Write arrays.npz, all that `draw` will have beside the result. Keep it under 1 MB."""
        write_atomically(self.folder / ARRAYS, pack(arrays))

    def checkpoint(self, key: str) -> Path | None:
        """Where `train` or `grow` may save a long training of part `key`; None on a GPU.

        There a whole training takes less time than its checkpoints would, and an interrupted run
        goes on from its last finished part.
        """
        return None if self.device.type == "cuda" else self.parts / f"{key}.checkpoint"

    def finished(self, status: str) -> None:
        """Pass Ctrl-C on, which `train` and `grow` turn into a status: call it after them."""
        if status == "interrupted":
            raise KeyboardInterrupt

    def progress(self, text: str, done: float | None = None, total: float | None = None) -> None:
        """Say what is being done, and how far."""
        self.report(text, done, total)

    def watch(self, text: str) -> Callback:
        """A callback of training that moves the bar."""
        return _Watch(self.report, text)

    def remark(self, text: str) -> None:
        """Keep a remark in the record. Not inside a part: a finished part is not run again."""
        if text not in self.remarks:
            self.remarks.append(text)


class _Watch(Callback):
    def __init__(self, report: Reporter, text: str) -> None:
        self._report, self._text, self._total = report, text, 1

    def on_start(self, params: Parameters, max_epochs: int) -> None:
        self._total = max_epochs
        self._report(self._text, 0.0, float(max_epochs))

    def on_epoch(self, record: Record, params: Parameters) -> None:
        note = f"{self._text}, pass {record.epoch}, β {record.beta:.3g}"
        if record.validation_accuracy is not None:
            note += f", {record.validation_accuracy:.1%}"
        self._report(note, float(record.epoch), float(self._total))


@dataclass(frozen=True)
class Outcome:
    """A finished run."""

    folder: Path
    result: Json
    reused: bool  # it was finished before


def reproduce(
    experiment: Experiment,
    *,
    out: Path,
    quick: bool = False,
    device: str = "auto",
    seeds: int | None = None,
    directory: Path | None = None,
    report: Reporter | None = None,
) -> Outcome:
    """Run an experiment, or go on with it, or find that it is finished."""
    for module in experiment.needs:
        if find_spec(module) is None:
            raise MissingPackageError(
                f"{experiment.name} needs {_INSTALL.get(module, module)}: install it and run again"
            )
    n_seeds = (1 if quick else experiment.seeds) if seeds is None else seeds
    if n_seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {n_seeds}")
    chosen = choose_device(device)
    settings = experiment.settings(quick)
    report = _silent if report is None else report
    report("reading the data")
    loaded = {
        name: datasets.load(EMBEDDED[name] if quick else name, directory=directory)
        for name in experiment.datasets
        if not quick or name in EMBEDDED
    }
    digits = _configuration(settings, n_seeds, chosen.type, loaded)
    folder = out / experiment.name / f"{'quick' if quick else 'full'}-{digits}"
    if (folder / RESULT).exists():
        # There still where a run was killed in its very last act.
        shutil.rmtree(folder / PARTS, ignore_errors=True)
        return Outcome(folder, read_result(folder), reused=True)

    (folder / PARTS).mkdir(parents=True, exist_ok=True)
    seeds_used = list(range(n_seeds))
    run = Run(experiment.name, settings, seeds_used, chosen, quick, folder, loaded, report)
    if quick:
        run.remark(
            "quick run: small data and few passes, to see that everything works; "
            "not the paper's experiment"
        )
        for name, small in loaded.items():
            run.remark(f"{small.name} in the place of {name}")
    spent = Clock(folder / PARTS / "seconds.json")
    try:
        measured = json.loads(to_json(experiment.run(run)))
    except BaseException:
        spent.stop()
        raise
    result: Json = {
        "name": experiment.name,
        "title": experiment.title,
        "quick": quick,
        "command": _command(experiment, quick, chosen.type, seeds),
        "settings": settings,
        "seeds": run.seeds,
        "data": {name: f"{d.name}, {_rows_of(d)}" for name, d in loaded.items()},
        "device": device_name(chosen),
        "versions": versions(),
        "seconds": round(spent.stop(), 1),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "measured": measured,
        "paper": [c.as_dict(quick=quick) for c in experiment.compare(measured)],
        "remarks": run.remarks,
    }
    run.report("drawing")
    result["pictures"] = [path.name for path in experiment.draw(result, folder)]
    write_atomically(folder / RESULT, to_json(result))
    shutil.rmtree(folder / PARTS)
    return Outcome(folder, read_result(folder), reused=False)


def redraw(experiment: Experiment, out: Path) -> list[Path]:
    """Draw the pictures of every finished run anew, from the files in its folder alone."""
    pictures = []
    for folder in finished_folders(out, experiment.name):
        pictures += experiment.draw(read_result(folder), folder)
    return pictures


def _configuration(
    settings: Json, n_seeds: int, device: str, loaded: dict[str, datasets.Dataset]
) -> str:
    """8 hex digits for everything that decides the numbers."""
    sums = {
        name: [d.name] + [zlib.crc32(np.ascontiguousarray(a).data) for a in _arrays_of(d)]
        for name, d in loaded.items()
    }
    text = json.dumps([settings, n_seeds, device, sums], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _arrays_of(d: datasets.Dataset) -> tuple[NDArray[Any], ...]:
    return d.x_train, d.y_train, d.x_test, d.y_test


def _rows_of(d: datasets.Dataset) -> str:
    return f"{len(d.x_train)} + {len(d.x_test)} rows"


def _command(experiment: Experiment, quick: bool, device: str, seeds: int | None) -> str:
    """What was run, less the places of files on one machine."""
    words = ["mnemosphere reproduce", experiment.name]
    words += ["--quick"] if quick else []
    words += ["--device", device]
    words += [] if seeds is None else ["--seeds", str(seeds)]
    words += ["--data", "DIR"] if experiment.datasets and not quick else []
    return " ".join(words)
