"""`mnemosphere train`."""

from __future__ import annotations

import math
import shlex
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mnemosphere import plots
from mnemosphere.base.machine import pick_device
from mnemosphere.cli import report
from mnemosphere.cli.build import build
from mnemosphere.cli.options import Columns
from mnemosphere.cli.output import CHECKPOINT, COLUMNS, MODEL, Folder
from mnemosphere.cli.rows import (
    Opened,
    Rows,
    about_data,
    open_rows,
    parse_shape,
    text_encoder,
)
from mnemosphere.cli.settings import Classifier, ClassTraining, typed
from mnemosphere.cli.shell import Interrupted, Terminal, cell
from mnemosphere.estimators import save
from mnemosphere.estimators.from_files import scan
from mnemosphere.interpret import name_rows
from mnemosphere.plots.curves import learning_curves
from mnemosphere.plots.fitted import memories_of
from mnemosphere.rows.texts import PACKAGED
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.few_labels import PHASE

_NAMED = 5  # classes of the first line


def run(
    terminal: Terminal, data: list[str], columns: Columns, settings: Classifier,
    training: ClassTraining, folder: Folder, test: str | None, seed: int, test_fraction: float,
    category: list[str] | None, max_memory: float | None, image_shape: str | None,
) -> None:  # fmt: skip
    """Train a model, and write its folder."""
    told = typed(settings, training)
    build("DAMClassifier", told)  # says what is wrong before a file is read
    rows, held_out = _load(columns, data, test, test_fraction, seed, max_memory, image_shape)
    classes, counts = _classes(rows, columns.label)
    model = build("DAMClassifier", told, classes.tolist())
    model.random_state = seed
    model.categories = category or ()
    if rows.y is not None and rows.y.dtype == object:
        model.unlabeled = math.nan
    pick_device(model.device)
    if columns.text is not None:
        set_text_encoder(model, columns, rows)
    _describe(terminal, rows, classes, counts)
    with folder.writing() as draft:
        began = time.perf_counter()
        fit(model, rows, terminal, draft / CHECKPOINT)
        seconds = time.perf_counter() - began
        opened = Opened(model, {}, draft / MODEL)
        interrupted(opened, folder)
        share = test_fraction if test is None else 0.0
        content = write(terminal, opened, rows, held_out, seconds, seed, share, columns.id)
        wrote = folder.finish(content)
    show(terminal, model, content, wrote)
    terminal.note(f"next: mnemosphere explain {folder.shown} {shlex.quote(data[0])}")


def _load(
    columns: Columns, data: list[str], test: str | None, test_fraction: float, seed: int,
    max_memory: float | None, image_shape: str | None,
) -> tuple[Rows, Rows | None]:  # fmt: skip
    """(rows to train on, held-out rows)."""
    rows = open_rows(data, columns, max_memory)
    if not rows.labeled.any() if rows.in_memory else rows.label is None:
        raise ValueError(f"{rows.name} has no labels: name their column with --label")
    if columns.encoder is not None and columns.text is None:
        raise ValueError("--encoder is for texts: name their column with --text")
    shape = parse_shape(image_shape, rows.n_features) or rows.image_shape
    rows = replace(rows, image_shape=shape)
    if test is None:
        if rows.is_test is None:
            rows = rows.hold_out(test_fraction, seed)
        held = rows.part(None)
        return rows.part(None, "train"), None if held is rows else held
    used = rows.columns or columns.features
    held = open_rows(test, replace(columns, label=rows.label, features=used), 1e12)
    if held.n_features != rows.n_features:
        raise ValueError(f"{test} has {held.n_features} features, {rows.name} "
                         f"{rows.n_features}: use the same columns")  # fmt: skip
    return rows, held


def _classes(rows: Rows, named: str | None) -> tuple[Any, Any]:
    """(the labels there are, how many rows have each); ValueError if they can hardly be labels."""
    if rows.in_memory:
        found, counts = np.unique(np.asarray(rows.take(rows.labeled).y), return_counts=True)
    else:
        scanned = scan(rows.x, None)
        found, counts = scanned.classes, scanned.mass.numpy()
    where = "labels" if rows.label is None else f"column {rows.label!r}, taken for the label,"
    hint = "name the label column with --label"
    if named is None and len(found) == 1 and len(rows) > 1:
        raise ValueError(f"{where} says {str(found[0])!r} in every row: {hint}")
    if found.dtype.kind == "f" and (found % 1).any():
        raise ValueError(f"{where} holds measured numbers such as {found[0]}: {hint}")
    return found, counts


def set_text_encoder(model: Any, columns: Columns, rows: Rows) -> None:
    """Give the model what turns its texts into vectors."""
    encoder = text_encoder(columns.encoder or PACKAGED)
    model.encoder = encoder if rows.text else {columns.text: encoder}


def _describe(terminal: Terminal, rows: Rows, classes: Any, counts: Any) -> None:
    """Rows, features and classes, in one line."""
    order = np.argsort(-counts, kind="stable")[:_NAMED]
    some = ", ".join(f"{classes[k]} {counts[k] / counts.sum():.0%}" for k in order)
    where, n = "", rows.n_features
    if not rows.in_memory:
        n_files = len(rows.x.files.readers)
        where = f" in {n_files} file{'s' * (n_files > 1)}"
    label = f" in {rows.label!r}" if rows.label else ""
    features = f"texts in {rows.text!r}" if rows.text else f"{n} feature{'s' * (n != 1)}"
    named = f"{len(classes)} class{'es' * (len(classes) != 1)}"
    more = ", …" if len(classes) > _NAMED else ""
    terminal.note(f"{len(rows)} rows to train on{where}, {features}, {named}{label}: {some}{more}")


def fit(model: Any, rows: Rows, terminal: Terminal, checkpoint: Path | None = None) -> float:
    """Fit, with a line of progress; returns the seconds. Rows are named as the user does."""
    model.callbacks = [] if checkpoint is None else [Checkpoint(checkpoint)]
    model.verbose = int(terminal.live)
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        model.fit(rows.x, rows.y)
    seconds = time.perf_counter() - began
    model.callbacks, model.verbose = (), 0
    if model.typical_rows_ is not None and not rows.text:
        model.model_ = name_rows(model.model_, rows.names_of(model.typical_rows_))
    for warning in caught:
        text = str(warning.message)
        if "set aside" in text and rows.in_memory:
            at = np.flatnonzero(model.model_.on_sphere(rows.x)[1].cpu().numpy())
            names = ", ".join(rows.names[at[:5]]) + (", …" if len(at) > 5 else "")
            text = f"{len(at)} rows have no direction and were set aside: {rows.kind} {names}"
        terminal.note(f"note: {text}")
    return seconds


def interrupted(opened: Opened, folder: Folder) -> None:
    """Save the model so far, and leave, if Ctrl-C has ended its training; else it is over."""
    if opened.model.status_ == "interrupted":
        save(opened.model, opened.path)
        raise Interrupted(
            f"interrupted after {opened.model.n_iter_} passes: the model so far is in "
            f"{folder.shown}.partial, go on with the same command and --resume"
        )
    folder.trained = True


def write(
    terminal: Terminal, opened: Opened, rows: Rows, held_out: Rows | None, seconds: float, seed: int,
    test_fraction: float, id: str | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Measure a fitted model, write it and its pictures; what the record says."""
    model, folder = opened.model, opened.path.parent
    missing = len(rows) - int(rows.labeled.sum()) if rows.in_memory else 0
    if missing:
        used = any(record["phase"] == PHASE for record in model.history_)
        how = "used unlabeled" if used else "left out"
        terminal.note(f"{missing} of {len(rows)} rows have no label: they were {how}")
    content = report.score(model, rows if held_out is None else held_out)
    if held_out is not None:
        model.calibrate(held_out.x)
    save(opened.model, opened.path)
    gallery = memories_of(model.model_, rows.image_shape)
    plots.save(gallery, folder / "memories.png")
    plots.save(learning_curves(model.history_), folder / "history.png")
    shown = next(iter((rows if held_out is None else held_out).batches())).x
    importance = report.importance(model, shown)
    if importance:
        plots.save(plots.column_curves(model.model_, shown), folder / COLUMNS)
    return {
        **content,
        "importance": importance,
        "measured_on": "training rows" if held_out is None else "held-out rows",
        "seconds": seconds,
        "seed": seed,
        "command": terminal.command,
        **report.about_model(model),
        "search": list(model.search_),
        "novelty": {"threshold": model.novelty_threshold_},
        "data": about_data(
            rows, id=id, rows=len(rows), seed=seed, test_fraction=test_fraction,
            test_rows=0 if held_out is None else len(held_out),
        ),
    }  # fmt: skip


def show(terminal: Terminal, model: Any, content: dict[str, Any], wrote: str) -> None:
    """What was found and written."""
    terminal.result(content)
    terminal.prose(wrote, "")
    trials = report.best_trials(model)
    if trials:
        terminal.table(trials)
        terminal.say("")
    terminal.facts(
        report.model_facts(model)
        | {
            "time": f"{content['seconds']:.1f} s",
            "accuracy": f"{content['accuracy']:.2%} of {content['rows']} {content['measured_on']}",
            "log-loss": cell(content["log_loss"]),
        }
        | report.strongest(content)
        | report.ranks(content)
    )
    report.remark(terminal, model, content)
