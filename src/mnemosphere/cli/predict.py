"""`mnemosphere predict`."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mnemosphere import interpret
from mnemosphere.base.text import short_text
from mnemosphere.cli.build import label_numbers
from mnemosphere.cli.options import Answers, Selection
from mnemosphere.cli.output import TABLES, check_file
from mnemosphere.cli.rows import Opened, Rows, open_model, rows_for
from mnemosphere.cli.shell import Terminal, cells
from mnemosphere.cli.table_writer import counted, write_table
from mnemosphere.fitted.model import FittedModel
from mnemosphere.interpret.explanation import deciding

_SHOWN, _CLASSES = 20, 10  # on the terminal, where each class has its column


def run(
    terminal: Terminal, columns: Selection, model: Path, data: list[str], out: Path | None,
    answers: Answers, max_memory: float | None,
) -> None:  # fmt: skip
    """Predict rows, part by part if memory does not hold them."""
    check_file(out, TABLES, terminal.overwrite, model, *data)
    opened = open_model(model, columns.encoder, labeled=answers.prior is not None)
    rows = rows_for(opened, data, columns, memory=max_memory)
    if not rows.in_memory and out is None and terminal.json:
        raise ValueError(f"{len(rows)} rows are too many to print: write them with --out")
    parts = (_predictions(opened, part, answers) for part in rows.batches())
    frame = next(parts)
    named = {"model": opened.path, "data": data[0] if len(data) == 1 else data}
    if out is not None:
        # With --reject a part may have no prediction at all.
        like = frame.assign(prediction=np.resize(opened.model.classes_, len(frame)))
        like = like.assign(reason="") if "reason" in like else like
        every = itertools.chain([frame], parts)
        write_table(out, counted(terminal, "predicting rows", rows, every), like)
    if rows.in_memory:
        terminal.result({**named, "predictions": frame.to_dict("records")})
    else:
        terminal.result({**named, "rows": len(rows), "out": out})
    if out is not None:
        terminal.say(f"wrote {out}: {len(rows)} rows, {frame.shape[1]} columns")
        return
    _show(terminal, opened, frame, rows.text)
    if len(rows) > _SHOWN and not terminal.json:
        terminal.note(f"{len(rows) - _SHOWN} more rows: write all to a file with --out")


def _predictions(opened: Opened, rows: Rows, asked: Answers) -> pd.DataFrame:
    """A frame with one row per row."""
    model = first = opened.model.model_
    if asked.prior is not None:
        model = interpret.with_class_prior(model, _weights(model, asked.prior))
    proba = model.log_proba(rows.x).exp().cpu().numpy()
    found = model.classes[proba.argmax(axis=1)]
    # Novelty and rejection are about the rows that were trained on, whatever classes are expected.
    threshold = interpret.rejection.novelty_threshold(first)
    if asked.ask and asked.reject is None:
        raise ValueError("--ask is about rejected rows: say how many with --reject RATE")
    told = None if asked.reject is None else interpret.rejections(first, rows.x, asked.reject)
    if told is not None:
        found = np.where(told.rejected, told.said(asked.ask), found.astype(object))
    columns: dict[str, Any] = {rows.kind: rows.names}
    columns |= {rows.text: rows.texts} if rows.text else {}
    columns["prediction"] = found
    columns["reason"] = None if told is None else told.reasons
    columns |= {f"probability_{name}": proba[:, k] for k, name in enumerate(opened.classes)}
    columns["novelty_score"] = first.novelty_score(rows.x).cpu().numpy()
    if threshold is not None:
        columns["novel"] = columns["novelty_score"] > threshold
    columns |= deciding(model, rows.x, asked.top) if asked.top else {}
    return pd.DataFrame({k: v for k, v in columns.items() if v is not None})


def _weights(model: FittedModel, prior: str) -> dict[Any, float]:
    """The weight of every class: all of them, or shares of some, with what is left for the others."""
    frequencies = dict(zip(model.classes.tolist(), model.votes.prior.tolist(), strict=False))
    given = label_numbers(prior, frequencies, "--prior")
    others = {name: part for name, part in frequencies.items() if name not in given}
    left, whole = 1 - math.fsum(given.values()), math.fsum(others.values())
    if others and left < 0:
        raise ValueError(
            f"--prior gives some of the classes {1 - left:g} of 1: name all, or give less"
        )
    return given | {name: left * part / (whole or 1.0) for name, part in others.items()}


def _show(terminal: Terminal, opened: Opened, frame: Any, text: str | None = None) -> None:
    """The first rows; of many classes, and of texts, the largest probability alone."""
    first = frame[:_SHOWN]
    proba = first[[f"probability_{name}" for name in opened.classes]]
    proba = proba.set_axis([f"P({name})" for name in opened.classes], axis=1)
    if proba.shape[1] > _CLASSES or text:
        proba = proba.max(axis=1).to_frame("probability")
    known = (first.columns[0], text, "prediction", "reason")
    shown = first[[name for name in known if name in first]]
    if text:
        shown[text] = [short_text(value, terminal.width // 3) for value in first[text]]
    if "reason" in shown:
        shown = shown.fillna({"prediction": "rejected", "reason": ""})
    shown = shown.rename(columns={"prediction": "class"}).join(proba)
    if "novel" in first:
        shown["novel"] = np.where(first["novel"], "yes", "")
    terminal.table(cells(shown.to_dict("records")))
