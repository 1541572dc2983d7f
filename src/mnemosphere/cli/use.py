"""Commands that use a trained model: evaluate, explain, certify, shrink."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemosphere.cli.shell import (
    Data,
    Debug,
    Directory,
    ImageShape,
    Json,
    Label,
    Labels,
    Model,
    Quiet,
    Split,
    Terminal,
)

_TABLE_ROWS = 20


def evaluate(
    model: Model,
    data: Data,
    label: Label = None,
    labels: Labels = None,
    split: Split = None,
    directory: Directory = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Measure a model: accuracy, log-loss, every class, and what is taken for what.

    Data with a split are measured on their test rows. A file the model was trained on is split as
    it was then.
    """
    from mnemosphere.cli import report
    from mnemosphere.cli.record import open_model

    terminal = Terminal(json_only=json_, quiet=quiet)
    clf, source, part, remark, _ = open_model(
        model, data, label=label, labels=labels, directory=directory, split=split, default="test"
    )
    if remark:
        terminal.note(remark)
    scores = report.score(clf, part)
    if scores.n_unknown:
        terminal.note(
            f"{scores.n_unknown} rows have labels the model does not know: they count as wrong, "
            "and are left out of the log-loss and the tables"
        )
    terminal.result({"model": str(model), "data": source.name, **scores.as_dict()})
    terminal.show(
        f"[bold]{scores.accuracy:.2%}[/bold] of {scores.n_rows} rows right, "
        f"log-loss {scores.log_loss:.4f}, {clf.n_memories_} memories",
        report.class_table(scores, source),
        report.confusion_table(scores, source),
    )


def explain(
    model: Model,
    data: Data,
    row: Annotated[int, typer.Option(help="Which row, counted from 0; -1 is the last.")] = 0,
    nearest: Annotated[int, typer.Option(help="How many memories to show.", min=1)] = 5,
    picture: Annotated[
        Path | None, typer.Option(help="Draw it into a .png, .svg or .pdf file.", metavar="FILE")
    ] = None,
    image_shape: ImageShape = None,
    label: Label = None,
    labels: Labels = None,
    split: Split = None,
    directory: Directory = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Why did this row get its class? The memories that decided, their shares, their labels.

    Rows are counted within the split, the test rows by default.
    """
    from mnemosphere.cli import pictures, report
    from mnemosphere.cli.record import open_model
    from mnemosphere.cli.rows import parse_shape

    terminal = Terminal(json_only=json_, quiet=quiet)
    clf, source, part, remark, _ = open_model(
        model, data, label=label, labels=labels, directory=directory, split=split, default="test"
    )
    if remark:
        terminal.note(remark)
    if not -len(part) <= row < len(part):
        raise ValueError(f"--row must lie in [{-len(part)}, {len(part)}), got {row}")
    row %= len(part)
    shape = parse_shape(image_shape, clf.n_features_in_) or source.image_shape
    explanation = pictures.explain_row(clf, part, row, nearest)
    truth = pictures.truth_of(part, row)
    if picture is not None:
        pictures.save(pictures.explanation(explanation, source, shape, truth), picture)
    terminal.result(
        {
            "row": row,
            "truth": truth,
            "verdict": explanation.verdict[0],
            "probability": explanation.probability[0],
            "memories": [vars(reason) for reason in explanation[0]],
            "uniform_share": explanation.uniform_share[0],
            "picture": picture,
        }
    )
    terminal.show(
        report.explanation_table(
            explanation, 0, source, report.verdict_line(explanation, 0, source, row, truth)
        )
    )
    if picture is not None:
        terminal.note(f"wrote {picture}")


def certify(
    model: Model,
    data: Data,
    tol: Annotated[
        float, typer.Option(help="The largest residual that counts as converged.")
    ] = 1e-3,
    label: Label = None,
    labels: Labels = None,
    split: Split = None,
    directory: Directory = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Is every memory at rest, and is it a minimum or a saddle that could split?

    Use the data the model was trained on; its training rows are taken. A memory is a saddle if
    β_eff lies above its β_split: the network gains by growing there.
    """
    from mnemosphere.cli import report
    from mnemosphere.cli.record import open_model

    terminal = Terminal(json_only=json_, quiet=quiet)
    clf, source, part, remark, _ = open_model(
        model, data, label=label, labels=labels, directory=directory, split=split, default="train"
    )
    if remark:
        terminal.note(remark)
    with terminal.err.status("measuring residuals and curvature"):
        certificate = report.certificate(clf, part, tol)
    terminal.result({"model": str(model), "data": source.name, **report.verdicts(certificate)})
    terminal.show(*report.certificate_parts(certificate, clf, source, _TABLE_ROWS))


def shrink(
    model: Model,
    data: Data,
    memories: Annotated[int, typer.Option(help="How many memories to keep.", show_default=False)],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", help="File for the smaller model.", show_default=False),
    ],
    label: Label = None,
    labels: Labels = None,
    directory: Directory = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Merge memories until a budget is met, those first that the loss misses least.

    DATA are those the model was trained on: training rows decide what is merged, test rows tell
    what it cost.
    """
    from mnemosphere.cli import record, report

    terminal = Terminal(json_only=json_, quiet=quiet)
    clf, source, part, remark, names = record.open_model(
        model, data, label=label, labels=labels, directory=directory, split=None, default="train"
    )
    if remark:
        terminal.note(remark)
    test = part if source.test is None else source.test
    record.make_folder(out.parent)
    with terminal.err.status(f"merging {clf.n_memories_} memories to {memories}"):
        smaller = report.shrink(clf, part, memories)
        before, after = report.score(clf, test), report.score(smaller, test)
    if names is not None:
        smaller.feature_names_in_ = names
    smaller.save(out)
    terminal.result(
        {
            "model": str(out),
            "memories_before": clf.n_memories_,
            "memories": smaller.n_memories_,
            "accuracy_before": before.accuracy,
            "accuracy": after.accuracy,
            "log_loss_before": before.log_loss,
            "log_loss": after.log_loss,
            "measured_on": "all rows" if source.test is None else "test rows",
        }
    )
    terminal.show(
        report.pairs_table(
            f"shrunk to {out}",
            {
                "memories": f"{clf.n_memories_} → {smaller.n_memories_}",
                "accuracy": f"{before.accuracy:.2%} → {after.accuracy:.2%}",
                "log-loss": f"{before.log_loss:.4f} → {after.log_loss:.4f}",
                "measured on": f"{before.n_rows} rows",
            },
        )
    )
