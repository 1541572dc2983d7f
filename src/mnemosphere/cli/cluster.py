"""`mnemosphere cluster`: latent classes of rows without labels."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemosphere.cli.shell import (
    Data,
    Debug,
    Directory,
    ImageShape,
    Interrupted,
    Json,
    Label,
    Labels,
    Quiet,
    Split,
    Terminal,
    command_line,
    to_json,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from mnemosphere.cli.rows import Part, Source
    from mnemosphere.estimators import DAMClusterer

_ROWS = "rows.csv"


def cluster(
    ctx: typer.Context,
    data: Data,
    classes: Annotated[
        int | None,
        typer.Option(
            help="Latent classes to find.", min=1, show_default="10, or fewer if rows are few"
        ),
    ] = None,
    memories: Annotated[str, typer.Option(help="Number of memories.", metavar="INT|auto")] = "auto",
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder for the model, the class of every row, a record."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a model that is in the folder already.")
    ] = False,
    picture: Annotated[
        Path | None,
        typer.Option(
            help="Draw the memories, sorted by class, into a .png, .svg or .pdf file.",
            metavar="FILE",
        ),
    ] = None,
    class_prior: Annotated[
        str,
        typer.Option(help="Proportions of the classes, as 3,2,1.", metavar="auto|NUMBERS"),
    ] = "auto",
    varsigma: Annotated[float, typer.Option(help="Regulariser ς in (0, 1].")] = 1.0,
    beta: Annotated[
        str, typer.Option(help="Inverse temperature; a number is held.", metavar="FLOAT|learn")
    ] = "learn",
    smoothing: Annotated[float, typer.Option(help="Softness of the classes, in [0, 1).")] = 0.1,
    solver: Annotated[
        str, typer.Option(help="How to train.", metavar="fixed-point|sgd")
    ] = "fixed-point",
    growth: Annotated[
        str,
        typer.Option(
            help="split: grow from a few memories by splitting saddles.", metavar="split|none"
        ),
    ] = "none",
    normalize: Annotated[
        str,
        typer.Option(
            help="How rows are put on the sphere.", metavar="auto|center|unit|standard|none"
        ),
    ] = "auto",
    epochs: Annotated[
        int | None,
        typer.Option(help="Passes for memories, and again for classes.", show_default="auto"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same bits.")] = 0,
    device: Annotated[str, typer.Option(help="Such as cpu or cuda.")] = "auto",
    label: Label = None,
    labels: Labels = None,
    split: Split = None,
    directory: Directory = None,
    image_shape: ImageShape = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Find latent classes in rows without labels, each held by a few memories you can look at.

    Labels that the data have are never trained on; they only tell how far the classes agree with
    them. Built-in data are taken by their training rows.
    """
    from mnemosphere.cli import record
    from mnemosphere.cli.rows import load_source, parse_shape
    from mnemosphere.estimators import DAMClusterer

    terminal = Terminal(json_only=json_, quiet=quiet)
    source = load_source(data, label=label, labels=labels, directory=directory)
    part = source.part(split, "train")
    shape = parse_shape(image_shape, part.x.shape[1]) or source.image_shape
    if out is not None:
        if (out / record.MODEL).exists() and not overwrite:
            raise ValueError(
                f"{out} holds a model already: choose another folder with --out, or pass "
                "--overwrite"
            )
        record.make_folder(out)
    model = DAMClusterer(
        _number(memories, "--memories", int, "auto"),
        "auto" if classes is None else classes,
        class_prior=_proportions(class_prior),
        varsigma=varsigma,
        beta=_number(beta, "--beta", float, "learn"),
        smoothing=smoothing,
        solver=solver,
        growth=None if growth == "none" else growth,
        normalize=normalize,
        max_epochs=epochs,
        random_state=seed,
        device=device,
    )
    seconds = _fit(model, part, terminal)
    content = _content(ctx, model, source, part, seconds)
    if out is not None:
        _save(out, source, part, model, content)
    if picture is not None:
        _draw(model, shape, picture)
    terminal.result(content)
    _show(terminal, model, source, part, shape, content)
    for path in (out, picture):
        if path is not None:
            terminal.note(f"wrote {path}")
    if model.status_ == "interrupted":
        raise Interrupted("interrupted: the classes are those of the memories so far")


def _number(text: str, flag: str, kind: Any, word: str) -> Any:
    if text == word:
        return word
    try:
        return kind(text)
    except ValueError as error:
        raise ValueError(f"{flag} must be a number or {word}, got {text!r}") from error


def _proportions(text: str) -> Any:
    if text == "auto":
        return text
    try:
        return [float(number) for number in text.split(",")]
    except ValueError as error:
        raise ValueError(f"--class-prior must look like 3,2,1, got {text!r}") from error


def _fit(model: DAMClusterer, part: Part, terminal: Terminal) -> float:
    from mnemosphere.cli.progress import Live

    live = Live(terminal.err, None)
    model.callbacks = [live]
    watched: Any = model
    began = time.perf_counter()
    with live.watch(watched):
        model.fit(part.x)
    model.callbacks = ()
    return time.perf_counter() - began


def _content(
    ctx: typer.Context, model: DAMClusterer, source: Source, part: Part, seconds: float
) -> dict[str, Any]:
    """The result for machines."""
    import numpy as np
    import torch

    from mnemosphere.cli import report
    from mnemosphere.training.latent import coherence

    about: Any = model
    found = coherence(
        model.params_.w,
        torch.from_numpy(model.memory_labels_),
        generator=torch.Generator().manual_seed(0),
    )
    sure = model.predict_proba(part.x).max(axis=1)
    counts = np.bincount(model.labels_, minlength=len(model.classes_))
    held = np.bincount(model.memory_labels_, minlength=len(model.classes_) + 1)
    return {
        "classes": [
            {
                "class": y,
                "rows": int(counts[y]),
                "memories": int(held[y]),
                "probability": float(sure[model.labels_ == y].mean()) if counts[y] else None,
            }
            for y in range(len(model.classes_))
        ],
        "coherence": found._asdict(),
        "mean_log_density": model.score(part.x),
        "bic": model.bic(part.x) if model.varsigma_ == 1 else None,
        "agreement": _agreement(model, part),
        "chosen": report.chosen(about),
        "seconds": seconds,
        "status": model.status_,
        "device": report.device_name(about),
        "command": command_line(ctx),
        "versions": report.versions(),
        "data": {
            "name": source.name,
            "checksum": source.checksum,
            "rows": len(part),
            "features": part.x.shape[1],
            "image_shape": source.image_shape,
        },
        "history": model.history_,
    }


def _known(part: Part) -> NDArray[Any] | None:
    """Which rows have a label; None where there are none."""
    if part.y is None or part.missing.all():
        return None
    known: NDArray[Any] = ~part.missing
    return known


def _agreement(model: DAMClusterer, part: Part) -> float | None:
    """Adjusted Rand index between the classes and the labels, 0 for chance and 1 for the same."""
    from sklearn.metrics import adjusted_rand_score

    known = _known(part)
    if known is None:
        return None
    return float(adjusted_rand_score(part.judged().labels, model.labels_[known]))


def _save(
    out: Path, source: Source, part: Part, model: DAMClusterer, content: dict[str, Any]
) -> None:
    import numpy as np

    from mnemosphere.cli import record
    from mnemosphere.training.checkpoint import write_atomically

    if source.feature_names is not None:
        model.feature_names_in_ = np.array(source.feature_names, dtype=object)
    model.save(out / record.MODEL)
    model.__dict__.pop("feature_names_in_", None)
    sure = model.predict_proba(part.x).max(axis=1)
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["row", "class", "probability"])
    for row, (y, p) in enumerate(zip(model.labels_.tolist(), sure.tolist(), strict=True)):
        writer.writerow([row, y, f"{p:.6g}"])
    write_atomically(out / _ROWS, table.getvalue().encode())
    write_atomically(out / record.RESULTS, (to_json(content) + "\n").encode())


def _draw(model: DAMClusterer, shape: tuple[int, ...] | None, path: Path) -> None:
    import numpy as np

    from mnemosphere import plots

    w = model.memories_
    scale = float(np.quantile(np.abs(w), 0.99)) or None
    axes = plots.latent_classes(
        w, model.class_weights_, model.memory_prior_, image_shape=shape, vmax=scale
    )
    plots.save(axes, path)


def _show(
    terminal: Terminal,
    model: DAMClusterer,
    source: Source,
    part: Part,
    shape: tuple[int, ...] | None,
    content: dict[str, Any],
) -> None:
    if terminal.json_only:
        return
    import numpy as np
    from rich.table import Table

    from mnemosphere.cli import report
    from mnemosphere.plots import latent_order, terminal_gallery

    about: Any = model
    found = content["coherence"]
    more = {
        "time": f"{content['seconds']:.1f} s on {content['device']}",
        "overlap of memories": f"{found['within']:.2f} within a class, {found['across']:.2f} "
        f"across, {found['shuffled']:.2f} if shuffled",
    }
    if content["agreement"] is not None:
        more["agreement with labels"] = f"{content['agreement']:.3f} (adjusted Rand index)"
    terminal.show(report.model_table(f"latent classes of {source.name}", about, more), "")
    table = Table(title_justify="left")
    named = _names_of_classes(model, source, part)
    for head in ("class", "rows", "share", "memories", "probability"):
        table.add_column(head, justify="right")
    if named:
        table.add_column("labels, most frequent first")
    for row in content["classes"]:
        sure = "" if row["probability"] is None else f"{row['probability']:.1%}"
        share = f"{row['rows'] / len(part):.1%}"
        cells = [str(row["class"]), str(row["rows"]), share, str(row["memories"]), sure]
        table.add_row(*cells, *([named[row["class"]]] if named else []))
    terminal.show(table)
    if shape is not None:
        order = latent_order(model.class_weights_, model.memory_prior_)
        first = np.unique(model.memory_labels_[order], return_index=True)[1]
        terminal.show("", "the surest memory of each class")
        terminal.draw(
            terminal_gallery(
                model.memories_, shape, min(terminal.out.width, 100), indices=order[first],
                color=terminal.color,
            )
        )  # fmt: skip


def _names_of_classes(model: DAMClusterer, source: Source, part: Part) -> list[str]:
    """For each class its most frequent labels; nothing where the data have none."""
    import numpy as np

    known = _known(part)
    if known is None:
        return []
    y, label = part.judged().labels, model.labels_[known]
    named = []
    for latent in range(len(model.classes_)):
        values, counts = np.unique(y[label == latent], return_counts=True)
        best = np.argsort(-counts, kind="stable")[:3]
        total = max(int(counts.sum()), 1)
        parts = [
            f"{source.label(values[k].item())} {counts[k] / total:.0%}"
            for k in best
            if counts[k] / total >= 0.05
        ]
        named.append(", ".join(parts))
    return named
