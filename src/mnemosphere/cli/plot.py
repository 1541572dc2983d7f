"""`mnemosphere plot`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemosphere.cli.shell import (
    Debug,
    Directory,
    ImageShape,
    Json,
    Label,
    Labels,
    Model,
    OptionalData,
    Quiet,
    Split,
    Terminal,
)

if TYPE_CHECKING:
    from mnemosphere.cli.rows import Part, Source
    from mnemosphere.estimators import DAMClassifier


class Kind(StrEnum):
    """What to draw."""

    memories = "memories"
    weights = "weights"
    curves = "curves"
    confusion = "confusion"
    histogram = "histogram"
    explanation = "explanation"
    lineage = "lineage"
    spectrum = "spectrum"


_NEED_DATA = {Kind.confusion: "test", Kind.explanation: "test", Kind.spectrum: "train"}


def plot(
    kind: Annotated[Kind, typer.Argument(help="What to draw.", show_default=False)],
    model: Model,
    data: OptionalData = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File, .png, .svg or .pdf.", show_default="KIND.png", metavar="FILE"
        ),
    ] = None,
    count: Annotated[int, typer.Option(help="Memories in a gallery.", min=1)] = 25,
    row: Annotated[int, typer.Option(help="Row of an explanation, counted from 0.")] = 0,
    image_shape: ImageShape = None,
    label: Label = None,
    labels: Labels = None,
    split: Split = None,
    directory: Directory = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Draw a model, ready to print: its memories, what it decides, how it was trained, how it grew.

    confusion, explanation and spectrum need DATA; for the others, DATA only lends the names of the
    classes and the shape of the images.
    """
    from mnemosphere.cli import pictures
    from mnemosphere.cli.record import image_shape_of, open_model, read_record
    from mnemosphere.cli.rows import parse_shape
    from mnemosphere.estimators import load_classifier

    terminal = Terminal(json_only=json_, quiet=quiet)
    path = Path(f"{kind.value}.png") if out is None else out
    if data is None and kind in _NEED_DATA:
        raise ValueError(f"plot {kind.value} needs DATA: give a data set or a file after MODEL")
    source: Source | None = None
    part: Part | None = None
    if data is None:
        clf = load_classifier(model)
        known = image_shape_of(read_record(model), clf)
    else:
        clf, source, part, remark, _ = open_model(
            model,
            data,
            label=label,
            labels=labels,
            directory=directory,
            split=split,
            default=_NEED_DATA.get(kind, "test"),
        )
        known = source.image_shape
        if remark and kind in _NEED_DATA:
            terminal.note(remark)
    image = parse_shape(image_shape, clf.n_features_in_) or known
    with terminal.err.status(f"drawing {kind.value}"):
        pictures.save(_draw(kind, clf, source, part, image, count, row), path)
    terminal.result({"picture": path, "kind": kind.value, "model": model})
    terminal.show(f"wrote {path}")


def _draw(
    kind: Kind,
    clf: DAMClassifier,
    source: Source | None,
    part: Part | None,
    image: tuple[int, ...] | None,
    count: int,
    row: int,
) -> Any:
    from mnemosphere.cli import pictures, report

    names = pictures.names_of(clf, source)
    if kind is Kind.memories:
        return pictures.memories(clf, names, image, count)
    if kind is Kind.weights:
        return pictures.weights(clf, names, count)
    if kind is Kind.curves:
        return pictures.curves(clf)
    if kind is Kind.histogram:
        return pictures.histogram(clf)
    if kind is Kind.lineage:
        return pictures.lineage(clf, names, image)
    assert source is not None
    assert part is not None
    if kind is Kind.confusion:
        return pictures.confusion(report.score(clf, part), names)
    if kind is Kind.spectrum:
        return pictures.spectrum(clf, part)
    if not -len(part) <= row < len(part):
        raise ValueError(f"--row must lie in [{-len(part)}, {len(part)}), got {row}")
    row %= len(part)
    found = pictures.explain_row(clf, part, row, 5)
    return pictures.explanation(found, source, image, pictures.truth_of(part, row))
