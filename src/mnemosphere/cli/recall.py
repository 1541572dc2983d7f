"""`mnemosphere recall`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mnemosphere import plots
from mnemosphere.cli.options import Selection
from mnemosphere.cli.output import PICTURES, TABLES, check_file
from mnemosphere.cli.rows import Rows, open_model, rows_for
from mnemosphere.cli.shell import Terminal, cells
from mnemosphere.cli.table_writer import write_table
from mnemosphere.fitted.model import as_numpy
from mnemosphere.interpret import decode, encode, recall
from mnemosphere.plots.fitted import recall_of
from mnemosphere.rows.stored import StoredRows

_SHOWN, _DRAWN = 10, 6  # rows in the terminal, in the picture
_HALVES = ("top", "bottom", "left", "right")


def run(
    terminal: Terminal, columns: Selection, model: Path, data: str, hide: str | None,
    row: list[str] | None, of_class: str | None, out: Path | None, seed: int,
    image_shape: str | None,
) -> None:  # fmt: skip
    """Complete rows by the density of the model."""
    check_file(out, (*TABLES, *PICTURES), terminal.overwrite, model, data)
    opened = open_model(model, columns.encoder)
    opened.of_rows("recall")
    rows = rows_for(opened, data, columns, row or ())
    shape = opened.shape(image_shape, rows.image_shape)
    y = None if of_class is None else np.repeat(opened.label(of_class, "--class"), len(rows))
    fitted = opened.model.model_
    rows = replace(rows, x=np.asarray(encode(fitted, rows.x)), image_shape=shape)
    known = _known(rows, hide, seed)
    damaged = np.where(known, rows.x, np.nan)
    gaps: Any = StoredRows.of(damaged, fitted.device)
    path = recall(fitted, gaps, y, path=True)
    completed = fitted.geometry.complete(damaged, path.rows[-1])
    found = fitted.log_proba(StoredRows.of(completed, fitted.device))
    answers = fitted.classes[as_numpy(found.argmax(1))]
    if out is not None and out.name.lower().endswith(PICTURES):
        few = rows.take(np.arange(min(_DRAWN, len(rows))))
        strips = recall_of(fitted, few.x, path, known, shape, names=few.names.tolist(),
                           predictions=answers[:_DRAWN])  # fmt: skip
        plots.save(strips, out)
    elif out is not None:
        table = pd.DataFrame(decode(fitted, completed))
        table = table.add_prefix("x") if fitted.features.names is None else table
        table.insert(0, rows.kind, rows.names, allow_duplicates=True)
        write_table(out, [table], table)
    truth = None if rows.y is None else rows.y.tolist()
    lines = [
        {
            rows.kind: str(rows.names[k]),
            **({} if truth is None else {"truth": truth[k]}),
            "class": answers[k],
            "missing": int((~known[k]).sum()),
            "energy_before": float(path.energies[0, k]),
            "energy_after": float(path.energies[-1, k]),
            "steps": int(path.steps[k]),
        }
        for k in range(len(rows))
    ]
    terminal.result({"model": opened.path, "data": data, "rows": lines, "completed": completed})
    right = [line["class"] == line["truth"] for line in lines if line.get("truth") is not None]
    if right:
        terminal.say(f"{np.mean(right):.1%} of {len(right)} rows have their class when completed")
    own = "the memories that decide" if fitted.is_joint else "its own memories"
    terminal.note(f"completed by the density of the rows: {own}, {fitted.density.n_memories}")
    terminal.table(cells(lines[:_SHOWN], percent=False))
    if len(lines) > _SHOWN and not terminal.json:
        terminal.note(f"{len(lines) - _SHOWN} more rows: write all to a table with --out")
    if out is not None:
        terminal.say(f"wrote {out}")


def _known(rows: Rows, hide: str | None, seed: int) -> NDArray[Any]:
    """Which features are neither missing nor hidden, (n, N)."""
    x, shape = rows.x, rows.image_shape
    hidden = np.zeros(x.shape, dtype=bool)
    if hide in _HALVES:
        if shape is None:
            raise ValueError(f"--hide {hide} is for images: give their --image-shape, or a share")
        axis, half = (1, shape[0] // 2) if hide in ("top", "bottom") else (2, shape[1] // 2)
        first, second = np.split(hidden.reshape(len(x), *shape), [half], axis=axis)
        (first if hide in ("top", "left") else second)[:] = True
    elif hide is not None:
        try:
            share = float(hide)
        except ValueError:
            share = -1.0
        if not 0 < share < 1:
            raise ValueError(
                f"--hide must be {', '.join(_HALVES)} or a share in (0, 1), got {hide}"
            )
        hidden = np.random.default_rng(seed).random(x.shape) < share
        for extreme in (np.nan_to_num(x, nan=np.inf).argmin(1), np.nan_to_num(x).argmax(1)):
            hidden[np.arange(len(x)), extreme] = False  # a constant row would have no direction
    known: NDArray[Any] = ~np.isnan(x) & ~hidden
    if known.all():
        raise ValueError(f"no value is missing in {rows.name}: hide features with --hide")
    empty = np.flatnonzero(~known.any(axis=1))
    if len(empty):
        raise ValueError(f"{rows.kind} {rows.names[empty[0]]} has no known feature: leave it out")
    return known
