"""A table or figure of the paper: how it is run, and the folder that a run leaves.

An `Experiment` says what is computed and drawn, `reproduce` does it. One run has one folder,
OUT/<name>/<quick|full>-<8 hex digits>/, whose digits stand for everything that decides the numbers:
settings, seeds, kind of device, data. A finished run leaves result.json, arrays.npz and pictures
there; an unfinished one has a folder `parts` with its finished parts, and goes on.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mnemosphere.base.machine import pick_device
from mnemosphere.model.batch import Batch
from mnemosphere.plots import save
from mnemosphere.plots.style import VERMILLION, root_figure
from mnemosphere.rows.named import NamedData
from research import report as reports
from research.data import load_data
from research.fits import on_sphere
from research.report import Arrays, Comparison, Json, Parts, read_json

RESULT, ARRAYS, PARTS = "result.json", "arrays.npz", "parts"
# What a quick run has instead: nothing that needs a file or a network. It does without the rest.
EMBEDDED = {"mnist": "mnist-small"}


class MissingPackageError(ValueError):
    """An optional package is not installed; the message says how to get it."""


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
    draw: Callable[[Json, Path], list[Path]] = lambda result, folder: []
    compare: Callable[[Json], Sequence[Comparison]] = lambda measured: ()
    datasets: tuple[str, ...] = ("mnist",)  # by their full-size names
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
    loaded: dict[str, NamedData]
    remarks: list[str] = field(default_factory=list)

    @property
    def parts(self) -> Parts:
        """Finished parts, until the run is finished."""
        return Parts(self.folder / PARTS)

    def data(self, name: str) -> NamedData:
        """A data set as stored; the embedded one that stands in for it if the run is quick."""
        return self.loaded[name]

    def rows(
        self, name: str, smoothing: float = 0.1, dtype: torch.dtype = torch.float32
    ) -> tuple[Batch, Batch]:
        """(training, test) rows on the sphere with soft labels, on the device of the run.

        As the paper has them: minus the row mean, divided by the row norm.
        """
        return on_sphere(self.data(name), self.device, smoothing, dtype=dtype)

    def save_arrays(self, **arrays: NDArray[Any]) -> None:
        """Write arrays.npz, all that `draw` will have beside the result. Keep it under 1 MB."""
        reports.write_arrays(self.folder / ARRAYS, arrays)

    def finished(self, status: str) -> None:
        """Pass Ctrl-C on, which `fit` and `grow` turn into a status: call it after them."""
        if status == "interrupted":
            raise KeyboardInterrupt

    def progress(self, text: str) -> None:
        """Say what is being done."""
        print(f"{self.name}: {text}", file=sys.stderr, flush=True)

    def remark(self, text: str) -> None:
        """Keep a remark in the record. Not inside a part: a finished part is not run again."""
        if text not in self.remarks:
            self.remarks.append(text)


@dataclass(frozen=True)
class FinishedRun:
    """What `reproduce` leaves."""

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
) -> FinishedRun:
    """Run an experiment, or go on with it, or find that it is finished."""
    n_seeds = (1 if quick else experiment.seeds) if seeds is None else seeds
    if n_seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {n_seeds}")
    chosen = pick_device(device)
    settings = experiment.settings(quick)
    loaded = {
        name: load_data(EMBEDDED[name] if quick else name, directory=directory)
        for name in experiment.datasets
        if not quick or name in EMBEDDED
    }
    digits = _configuration(settings, n_seeds, chosen.type, loaded)
    folder = out / experiment.name / f"{'quick' if quick else 'full'}-{digits}"
    if (folder / RESULT).exists():
        # There still where a run was killed in its very last act.
        shutil.rmtree(folder / PARTS, ignore_errors=True)
        return FinishedRun(folder, read_result(folder), reused=True)

    (folder / PARTS).mkdir(parents=True, exist_ok=True)
    seeds_used = list(range(n_seeds))
    run = Run(experiment.name, settings, seeds_used, chosen, quick, folder, loaded)
    if quick:
        run.remark(
            "quick run: small data and few passes, to see that everything works; "
            "not the paper's experiment"
        )
        for name, small in loaded.items():
            run.remark(f"{small.name} in the place of {name}")
    began = time.perf_counter()
    measured = json.loads(reports.to_json(experiment.run(run)))
    result: Json = {
        "name": experiment.name,
        "title": experiment.title,
        "quick": quick,
        **reports.head(
            _command(experiment, quick, chosen.type, seeds), device=chosen, seeds=run.seeds
        ),
        "settings": settings,
        "data": {name: f"{d.name}, {_rows_of(d)}" for name, d in loaded.items()},
        "seconds": round(time.perf_counter() - began, 1),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        "measured": measured,
        "paper": [c.as_dict(quick=quick) for c in experiment.compare(measured)],
        "remarks": run.remarks,
    }
    result["pictures"] = [path.name for path in experiment.draw(result, folder)]
    reports.write(folder / RESULT, result)
    shutil.rmtree(folder / PARTS)
    return FinishedRun(folder, read_result(folder), reused=False)


def finished_folders(out: Path, name: str) -> list[Path]:
    """The folders of finished runs, oldest first."""
    found = [path.parent for path in (out / name).glob(f"*/{RESULT}")]
    return sorted(found, key=lambda folder: (read_result(folder)["finished"], folder.name))


def read_result(folder: Path) -> Json:
    """What a finished run left."""
    result = read_json(folder / RESULT, "delete its folder to run it again")
    missing = [
        key
        for key in ("name", "settings", "measured", "paper", "finished", "pictures")
        if not isinstance(result, dict) or key not in result
    ]
    if missing:
        raise ValueError(
            f"{folder / RESULT} lacks {', '.join(missing)}: delete its folder to run it again"
        )
    content: Json = result
    return content


def load_arrays(folder: Path) -> Arrays:
    """What `Run.save_arrays` wrote."""
    return reports.read_arrays(folder / ARRAYS)


def save_picture(picture: Any, folder: Path, name: str, result: Json, *, dpi: float = 150) -> Path:
    """Write FOLDER/NAME.png; a quick run's carries a line that says what it is."""
    if result["quick"]:
        sources = ", ".join(dict.fromkeys(d.partition(",")[0] for d in result["data"].values()))
        text = "quick run" + (f" on {sources}" if sources else "")
        root_figure(picture).text(
            0.0,
            -0.005,
            f"{text}: not the paper's experiment",
            color=VERMILLION,
            fontsize=8,
            va="top",
        )
    return save(picture, folder / f"{name}.png", dpi=dpi)


def _configuration(settings: Json, n_seeds: int, device: str, loaded: dict[str, NamedData]) -> str:
    """8 hex digits for everything that decides the numbers."""
    sums = {
        name: [d.name] + [zlib.crc32(np.ascontiguousarray(a).data) for a in _arrays_of(d)]
        for name, d in loaded.items()
    }
    text = json.dumps([settings, n_seeds, device, sums], sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _arrays_of(d: NamedData) -> tuple[NDArray[Any], ...]:
    return d.x_train, d.y_train, d.x_test, d.y_test


def _rows_of(d: NamedData) -> str:
    return f"{len(d.x_train)} + {len(d.x_test)} rows"


def _command(experiment: Experiment, quick: bool, device: str, seeds: int | None) -> str:
    """What was run, less the places of files on one machine."""
    words = ["reproduce", experiment.name]
    words += ["--quick"] if quick else []
    words += ["--device", device]
    words += [] if seeds is None else ["--seeds", str(seeds)]
    words += ["--data", "DIR"] if experiment.datasets and not quick else []
    return reports.command_line(words)
