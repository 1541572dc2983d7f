"""`mnemosphere explain`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mnemosphere import plots
from mnemosphere.cli.options import Changes, Selection
from mnemosphere.cli.output import PICTURES, check_file
from mnemosphere.cli.rows import Rows, open_model, rows_for
from mnemosphere.cli.shell import Terminal
from mnemosphere.interpret import Explanation
from mnemosphere.plots.style import new_figure

_MOST = 12  # rows of one picture
_LEGEND = (
    "pull: change of the log-odds if the row were typical of the other class there, all else as it is",
    "typical of: the values of training rows that the memories of a class stand for",
)
_MEMORIES = (
    "familiar: how many known rows are less like the memories than this one",
    "memories: the class each says, its part of the vote, the training rows most like it, and, where "
    "held-out rows had labels, how often it was right on those that it decided",
)


def run(
    terminal: Terminal, columns: Selection, model: Path, data: str, row: list[str] | None, top: int,
    changes: Changes, out: Path | None, image_shape: str | None,
) -> None:  # fmt: skip
    """Show why rows got their class, and what would change it."""
    check_file(out, PICTURES, terminal.overwrite, model, data)
    opened = open_model(model, columns.encoder)
    rows = rows_for(opened, data, columns, row or ())
    rows = rows if row else rows.take(np.arange(1))
    shape = opened.shape(image_shape, rows.image_shape)
    if out is not None and len(rows) > _MOST:
        raise ValueError(f"a picture shows {_MOST} rows at most, got {len(rows)}: ask for fewer")
    found = opened.model.explain(rows.x, top)
    other, wanted = None, changes.counterfactual
    if wanted is not None:
        label = None if wanted == "next" else opened.label(wanted, "--counterfactual")
        other = opened.of_rows("--counterfactual").counterfactual(
            rows.x, label, fixed=changes.fixed, only_rise=changes.only_rise,
            only_fall=changes.only_fall,
        )  # fmt: skip
    if out is not None:
        plots.save(picture(found, rows, shape), out)
    if terminal.json:
        records = [_record(found, rows, k, other) for k in range(len(rows))]
        terminal.result({"model": opened.path, "data": data, "rows": records})
    for k in range(len(rows)):
        show(terminal, found, rows, k)
        if other is not None:
            terminal.prose(other.title(k, f"{rows.kind} {rows.names[k]}"))
            terminal.table(other.table(k))
            terminal.say("")
    terminal.prose(*(_LEGEND if found.shows_features else ()), *_MEMORIES)
    if out is not None:
        terminal.say(f"wrote {out}")


def _record(found: Explanation, rows: Rows, k: int, other: Any) -> dict[str, Any]:
    """All that is known of a row."""
    record = {
        rows.kind: str(rows.names[k]),
        "truth": _truth(rows, k),
        "prediction": found.predicted[k],
        "probability": found.probability[k],
        "probabilities": dict(zip(map(str, found.classes), found.proba[k], strict=True)),
        "uniform_share": found.uniform_share[k],
        "rejected": found.rejected[k],
        "familiarity": found.familiarity(k),
        "memories": [{"name": reason.name, **vars(reason)} for reason in found[k]],
        "runner_up": found.runner_up[k],
    }
    if found.shows_features:
        record["columns"] = [pull._asdict() for pull in found.pulls(k)]
    if other is not None:
        changes = {"found": other.found[k], "changes": [own._asdict() for own in other[k]]}
        changes |= {"class": other.wanted[k]}
        record["counterfactual"] = changes
    return record


def show(terminal: Terminal, found: Explanation, rows: Rows, k: int, question: str = "") -> None:
    """What a row was taken for, whether that is right, and why."""
    truth = _truth(rows, k)
    right = "right" if found.predicted[k] == truth else f"wrong: it is {truth}"
    title = found.title(k, f"{question}{rows.kind} {rows.names[k]}")
    terminal.prose(title if truth is None else f"{title}; {right}")
    for part in found.tables(k, terminal.width):
        if isinstance(part, str):
            terminal.prose(part)
        else:
            terminal.table(part)
        terminal.say("")


def _truth(rows: Rows, k: int) -> Any:
    return None if rows.y is None else rows.y[k]


def picture(found: Explanation, rows: Rows, shape: Any) -> Any:
    """One strip per row: the row, the memories that decided, the predicted class."""
    if len(found) == 1:
        return found.plot(0, image_shape=shape, truth=_truth(rows, 0))
    figure = new_figure(9.0, (2.8 if shape is not None else 4.8) * len(found))
    parts: Any = figure.subfigures(len(found), 1)
    for k, part in enumerate(parts):
        found.plot(k, image_shape=shape, truth=_truth(rows, k), figure=part)
        part.suptitle(f"{rows.kind} {rows.names[k]}", fontsize=9, x=0.01, ha="left")
    return figure
