"""`mnemosphere predict`."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from mnemosphere.cli.options import (
    Files,
    MaxMemory,
    Model,
    Overwrite,
    Request,
    command,
    option,
)  # fmt: skip
from mnemosphere.cli.output import TABLES, check_file
from mnemosphere.cli.shell import Terminal, cells
from mnemosphere.text import short_text

if TYPE_CHECKING:
    from mnemosphere.cli.rows import Opened
    from mnemosphere.cli.table_rows import Rows

_SHOWN, _CLASSES = 20, 10  # on the terminal, where each class has its column
_LETTERS = 20  # of a text on the terminal, at least
_OF_TEXT = ("prediction", "probability", "novel")  # shown beside it
_OUT = option("Table: .csv, .parquet, .json, …; .npy: probabilities alone.", "--out", "-o")
_PRIOR = option("Expect other class frequencies than in training.", metavar="LABEL=NUMBER,…")
_CERTIFY = option("How far each row may move before its class changes: a proven radius.")
_REJECT = option(
    "No prediction for rows as doubtful as this share of held-out rows.", metavar="RATE"
)


@command(rows=True, split=True)
def predict(
    request: Request,
    model: Model,
    data: Files,
    out: Annotated[Path | None, _OUT] = None,
    overwrite: Overwrite = False,
    nearest: Annotated[int, option("Deciding memories per row.", min=0)] = 3,
    prior: Annotated[str | None, _PRIOR] = None,
    reject: Annotated[float | None, _REJECT] = None,
    certify: Annotated[bool, _CERTIFY] = False,
    max_memory: MaxMemory = None,
) -> None:
    """Predict rows: class, probabilities, novelty, and the memories that decided.

    Columns are found by the names the model was trained on; others are left alone. Files that
    memory does not hold are predicted part by part, and written as it goes.
    """
    from mnemosphere.cli.rows import large, open_model, rows_for
    from mnemosphere.cli.table_writer import write_table

    terminal = request.terminal
    if out is not None:
        check_file(out, (*TABLES, ".npy"), overwrite=overwrite, inputs=(model, *data))
    settings: dict[str, Any] = {"nearest": nearest, "prior": prior, "reject": reject}
    settings["certify"] = certify
    files = large(data, request.columns, max_memory)
    opened = open_model(model, request.columns.encoder, labeled=prior is not None)
    if files is not None:
        _predict_files(request, opened, files, max_memory, out, settings)
        return
    rows = rows_for(opened, data, request.columns, request.split)
    frame, proba = _predictions(opened, rows, **settings)
    if out is not None:
        write_table(proba if out.suffix == ".npy" else frame, out)
    records = frame.to_dict("records")
    named = data[0] if len(data) == 1 else data
    terminal.result({"model": opened.path, "data": named, "predictions": records})
    if out is not None:
        terminal.say(f"wrote {out}: {len(frame)} rows, {frame.shape[1]} columns")
        return
    _show(terminal, opened, frame, rows.text)
    if len(records) > _SHOWN and not terminal.json_only:
        terminal.note(f"{len(records) - _SHOWN} more rows: write all to a file with --out")


def _frame(opened: Opened, rows: Rows, found: Any, proba: Any, more: dict[str, Any]) -> Any:
    """One row per row: its name, its class, probabilities, and more."""
    import pandas as pd

    columns: dict[str, Any] = {rows.kind: rows.names}
    columns |= {rows.text: rows.texts} if rows.text else {}
    columns["prediction"] = found
    columns |= {f"probability_{name}": proba[:, k] for k, name in enumerate(opened.classes)}
    columns |= {name: values for name, values in more.items() if values is not None}
    return pd.DataFrame(columns)


def _show(terminal: Terminal, opened: Opened, frame: Any, text: str | None = None) -> None:
    """The first rows; of many classes, and of texts, the largest probability alone."""
    first = frame[:_SHOWN]
    names = [f"probability_{name}" for name in opened.classes]
    if len(names) > _CLASSES or text:
        best = first[names].max(axis=1)
        first = first.drop(columns=names)
        first.insert(first.columns.get_loc("prediction") + 1, "probability", best)
    shown = cells(first.to_dict("records"), percent=False)
    if text:  # one line per row, as much of the text as fits
        shown = [row | {"prediction": row["prediction"] or "rejected"} for row in shown]
        head, *more = (n for k, n in enumerate(shown[0]) if k == 0 or n in _OF_TEXT)
        rest = sum(2 + max(len(n), *(len(row[n]) for row in shown)) for n in (head, *more))
        cut = [short_text(t, max(_LETTERS, terminal.width - rest - 2)) for t in first[text]]
        shown = [{head: row[head], text: own} | {n: row[n] for n in more}
                 for row, own in zip(shown, cut, strict=True)]  # fmt: skip
    terminal.table(shown)


def _predict_files(
    request: Request, opened: Opened, files: list[Path], memory: float | None, out: Path | None,
    settings: dict[str, Any],
) -> None:  # fmt: skip
    """Rows that memory does not hold: the first ones are shown, or all are written."""
    import numpy as np

    from mnemosphere.cli.rows import files_for
    from mnemosphere.cli.table_writer import table_writer
    from mnemosphere.estimators.progress import track

    terminal, rows = request.terminal, files_for(opened, files, request.columns, memory)
    if request.split is not None:
        raise ValueError(f"{rows.table.name} has no split of its own: drop --split")
    parts = (_predictions(opened, part, **settings) for part in rows.batches())
    if out is None:
        if terminal.json_only:
            raise ValueError(f"{len(rows)} rows are too many to print: write them with --out")
        frame, _ = next(parts)
        _show(terminal, opened, frame)
        terminal.note(f"{len(rows) - _SHOWN} more rows: write all to a file with --out")
        return
    first = next(parts)
    # With --reject a part may have no prediction at all.
    like = first[0].assign(prediction=np.resize(opened.model.classes_, len(first[0])))
    with (
        table_writer(out, len(rows), like) as write,
        track("predicting", len(rows), rows.x.n_bytes, shown=terminal.live) as done,
    ):
        for frame, proba in itertools.chain([first], parts):
            write(proba if out.suffix == ".npy" else frame)
            done(len(frame))
    terminal.result({"model": opened.path, "data": rows.table.name, "rows": len(rows), "out": out})
    terminal.say(f"wrote {out}: {len(rows)} rows, {like.shape[1]} columns")


def _predictions(
    opened: Opened, rows: Rows, nearest: int, prior: str | None, *, reject: float | None,
    certify: bool,
) -> tuple[Any, Any]:  # fmt: skip
    """(a frame with one row per row, the probabilities alone)."""
    import numpy as np

    from mnemosphere import interpret
    from mnemosphere.cli.estimator_settings import label_numbers
    from mnemosphere.interpret.explanation import deciding

    model = first = opened.model.model_
    if prior is not None:
        frequencies = model.votes.prior.tolist()
        weights = dict(zip(model.classes.tolist(), frequencies, strict=False))
        weights |= label_numbers(prior, weights, "--prior")
        model = interpret.with_class_prior(model, weights)
    proba = model.log_proba(rows.x).exp().cpu().numpy()
    found = model.classes[proba.argmax(axis=1)]
    # Novelty and rejection are about the rows that were trained on, whatever classes are expected.
    score, threshold = first.novelty_score(rows.x).cpu().numpy(), interpret.novelty_threshold(first)
    novel = None if threshold is None else score > threshold
    if reject is not None:
        found = np.where(interpret.is_rejected(first, rows.x, reject), None, found.astype(object))
    more: dict[str, Any] = {}
    if certify:
        opened.of_rows("--certify")
        proven = interpret.certified_radius(model, rows.x)
        more = {"certified_radius": proven.radius, "next_class": proven.other}
    more |= {"novelty": interpret.novelty(first, rows.x), "novel": novel}
    more |= deciding(model, rows.x, nearest) if nearest else {}
    return _frame(opened, rows, found, proba, more), proba
