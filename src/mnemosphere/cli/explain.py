"""`mnemosphere explain`."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Any

from mnemosphere.cli import options
from mnemosphere.cli.options import Request, command, option
from mnemosphere.cli.output import PICTURES, check_file

if TYPE_CHECKING:
    from mnemosphere.cli.rows import Opened, Rows
    from mnemosphere.cli.shell import Terminal
    from mnemosphere.interpret import Explanation

_MOST = 12  # rows of one picture
_OTHER = option("What would have to change for this class; next: the runner-up.", value="LABEL")
_FEATURES = ("input, predicted, runner-up: the row and the memories of both classes, in standard "
             "units; difference: part of the log-odds")  # fmt: skip
_FIXED = option("Columns that --counterfactual must leave as they are.", value="A,B")


@command(rows=True, split=True)
def explain(
    request: Request,
    model: options.Model,
    data: options.Data,
    row: options.RowNames = None,
    top: Annotated[int, option("How many memories to show.", value="N", min=1)] = 5,
    counterfactual: Annotated[str | None, _OTHER] = None,
    fixed: Annotated[list[str] | None, _FIXED] = None,
    out: options.Picture = None,
    overwrite: options.Overwrite = False,
    image_shape: options.ImageShape = None,
) -> None:
    """Why did this row get its class, and what would have to change for another?

    The memories that decided, their shares and labels, the training rows like them, and what each
    feature did. --counterfactual finds the smallest change that changes the predicted class.

    For example:

        mnemosphere explain run irises.csv --row 78 --counterfactual next
    """
    from mnemosphere import plots
    from mnemosphere.cli.rows import open_model, rows_for
    from mnemosphere.interpret import explain_images

    terminal = request.terminal
    check_file(out, PICTURES, overwrite=overwrite, inputs=(model, data))
    opened = open_model(model, request.columns.encoder)
    rows = rows_for(opened, data, request.columns, request.split or ("all" if row else None))
    rows = rows.called(row or [rows.names[0]])
    shape = opened.shape(image_shape, rows)
    if out is not None and len(rows) > _MOST:
        raise ValueError(f"a picture shows {_MOST} rows at most, got {len(rows)}: ask for fewer")
    if opened.encoder is None:
        found = opened.model.explain(rows.x, top)
    else:
        found = explain_images(opened.whole, rows.images, top)
    other = None if counterfactual is None else _other(opened, rows, counterfactual, fixed)
    readable = opened.encoder is None and not opened.takes_texts
    proven = opened.model.certified_radius(rows.x) if readable else None
    if out is not None:
        plots.save(picture(found, rows, shape), out)
    if terminal.json_only:
        records = _records(found, rows)
        for k, record in enumerate(records):
            if proven is not None:
                record["certified_radius"] = proven.radius[k]
                record["certified_unit"] = proven.unit
            if other is not None:
                changes = {"found": other.found[k], "changes": other[k]}
                changes |= {"class": other.wanted[k], "distance": other.length(k)}
                record["counterfactual"] = changes
        terminal.result({"model": opened.path, "data": data, "rows": records})
    for k in range(len(rows)):
        show(terminal, found, rows, k)
        if proven is not None:
            away = None if other is None else other.length(k)
            terminal.prose(proven.sentence(k, away), "")
        if other is not None:
            terminal.prose(other.title(k, f"{rows.kind} {rows.names[k]}"))
            terminal.table(other.table(k))
            terminal.say("")
    terminal.say("share: P(memory | row)", "overlap: cosine with the row")
    if found.shows_features:
        terminal.prose(_FEATURES)
    if out is not None:
        terminal.say(f"wrote {out}")


def _other(opened: Opened, rows: Rows, wanted: str, fixed: list[str] | None) -> Any:
    """The smallest changes that would change the predicted classes."""
    label = None if wanted == "next" else opened.label(wanted, "--counterfactual")
    return opened.of_rows("--counterfactual").counterfactual(
        rows.x, label, hold=options.names_in(fixed)
    )


def _records(found: Explanation, rows: Rows) -> list[dict[str, Any]]:
    return [
        {
            rows.kind: str(rows.names[k]),
            "truth": _truth(rows, k),
            "prediction": found.predicted[k],
            "probability": found.probability[k],
            "probabilities": dict(zip(map(str, found.classes), found.proba[k], strict=True)),
            "uniform_share": found.uniform_share[k],
            "memories": [{"name": reason.name, **vars(reason)} for reason in found[k]],
            "runner_up": found.runner_up[k],
            **(_features(found, k) if found.shows_features else {}),
        }
        for k in range(len(rows))
    ]


def _features(found: Explanation, k: int) -> dict[str, Any]:
    why = found.features(k)
    apart = why.difference_rest + why.difference_frequencies + why.difference_constant
    apart += why.difference_missing
    return {"features": why.as_dicts(), "apart_from_features": apart, "log_odds": why.log_odds}


def show(terminal: Terminal, found: Explanation, rows: Rows, k: int, question: str = "") -> None:
    """What a row was taken for, whether that is right, and why."""
    truth = _truth(rows, k)
    right = "right" if found.predicted[k] == truth else f"wrong: it is {truth}"
    title = found.title(k, f"{question}{rows.kind} {rows.names[k]}")
    terminal.prose(title if truth is None else f"{title}; {right}")
    for heading, lines in found.tables(k, terminal.width):
        terminal.table(lines, textwrap.fill(heading, terminal.width))
        terminal.say("")


def _truth(rows: Rows, k: int) -> Any:
    return None if rows.y is None else rows.y[k]


def picture(found: Explanation, rows: Rows, shape: Any) -> Any:
    """One strip per row: the row, the memories that decided, the predicted class."""
    from mnemosphere.plots.style import new_figure

    if len(found) == 1:
        return found.plot(0, image_shape=shape, truth=_truth(rows, 0))
    figure = new_figure(9.0, (2.8 if shape is not None else 4.8) * len(found))
    parts: Any = figure.subfigures(len(found), 1)
    for k, part in enumerate(parts):
        found.plot(k, image_shape=shape, truth=_truth(rows, k), figure=part)
        part.suptitle(f"{rows.kind} {rows.names[k]}", fontsize=9, x=0.01, ha="left")
    return figure
