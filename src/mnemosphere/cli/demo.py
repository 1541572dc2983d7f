"""`mnemosphere demo`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemosphere.cli.shell import Debug, Json, Quiet, Terminal, command_line, to_json

if TYPE_CHECKING:
    from mnemosphere.cli.rows import Part, Source
    from mnemosphere.estimators import DAMClassifier

_DATA = "mnist-small"
_SHOWN, _NCOLS = 15, 5


def demo(
    ctx: typer.Context,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the pictures, the model and results.")
    ] = Path("mnemosphere-demo"),
    seed: Annotated[int, typer.Option(help="Same seed, same bits.")] = 0,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """See it work in half a minute: learn handwritten digits, look at the memories, ask why.

    Needs nothing but this package: 5,000 training and 1,000 test digits are built in.
    """
    terminal = Terminal(json_only=json_, quiet=quiet)
    clock = Clock()
    with clock("starting up"), terminal.err.status("starting up"):
        from mnemosphere.cli import record, report
        from mnemosphere.cli.progress import Live
        from mnemosphere.cli.rows import load_source
        from mnemosphere.estimators import DAMClassifier

        record.make_folder(out)
        source = load_source(_DATA)
    assert source.test is not None
    terminal.note(
        f"{len(source.train)} handwritten digits to learn, {len(source.test)} to judge by"
    )
    live = Live(terminal.err, source.test)
    model = DAMClassifier(random_state=seed, callbacks=[live])
    began = time.perf_counter()
    with live.watch(model):
        model.fit(source.train.x, source.train.labels)
    ended = time.perf_counter()
    assert live.training_began is not None
    clock.add("choosing ς and normalization", live.training_began - began)
    clock.add("training", ended - live.training_began)
    with clock("judging"):
        scores = report.score(model, source.test)
        right, wrong = _rows_to_explain(model, source.test)
    with clock("pictures"), terminal.err.status("drawing pictures"):
        files = _write_pictures(out, model, source, scores, right, wrong)
    model.save(out / record.MODEL)
    content = {
        "accuracy": scores.accuracy,
        "log_loss": scores.log_loss,
        "chosen": report.chosen(model),
        "passes": len(model.history_),
        "status": model.status_,
        "seconds": clock.seconds,
        "seed": seed,
        "device": report.device_name(model),
        "command": command_line(ctx),
        "versions": report.versions(),
        "data": {
            "name": source.name,
            "checksum": source.checksum,
            "image_shape": source.image_shape,
        },
        "scores": scores.as_dict(),
        "history": model.history_,
        "selection": model.selection_,
        "files": [*files, record.MODEL, record.RESULTS],
    }
    _write(out / record.RESULTS, content)
    terminal.result(content)
    if not json_:
        _show(terminal, out, model, source, scores, right, clock, files)
    if model.status_ == "interrupted":
        from mnemosphere.cli.shell import Interrupted

        raise Interrupted(f"interrupted: the model so far is in {out / record.MODEL}")


class Clock:
    """Where the time went, by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, name: str, seconds: float) -> None:
        """Book a time."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Book the time of a block."""
        began = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - began)

    def __str__(self) -> str:
        parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        return f"{sum(self.seconds.values()):.1f} s: {parts}"


def _rows_to_explain(model: DAMClassifier, test: Part) -> tuple[int, int | None]:
    """A digit recognized with some doubt, by several memories; the mistake made without doubt."""
    import numpy as np

    found = model.explain(test.x)
    right = found.verdict == test.labels
    several = np.abs(found.share[:, 0] - 0.4) + np.abs(found.probability - 0.75)
    recognized = int(np.where(right, several, np.inf).argmin())
    sure = np.where(right, -1.0, found.probability)
    return recognized, None if right.all() else int(sure.argmax())


def _write_pictures(
    out: Path,
    model: DAMClassifier,
    source: Source,
    scores: Any,
    right: int,
    wrong: int | None,
) -> list[str]:
    from mnemosphere.cli import pictures

    assert source.test is not None
    names, shape = pictures.names_of(model, source), source.image_shape
    drawn = {
        "memories.png": pictures.memories(model, names, shape, 25),
        "confusion.png": pictures.confusion(scores, names),
        "curves.png": pictures.curves(model),
        "histogram.png": pictures.histogram(model),
    }
    for name, row in (("explanation.png", right), ("mistake.png", wrong)):
        if row is not None:
            found = pictures.explain_row(model, source.test, row, 5)
            truth = pictures.truth_of(source.test, row)
            drawn[name] = pictures.explanation(found, source, shape, truth)
    for name, picture in drawn.items():
        pictures.save(picture, out / name)
    return list(drawn)


def _write(path: Path, content: dict[str, Any]) -> None:
    from mnemosphere.training.checkpoint import write_atomically

    write_atomically(path, (to_json(content) + "\n").encode())


def _show(
    terminal: Terminal,
    out: Path,
    model: DAMClassifier,
    source: Source,
    scores: Any,
    right: int,
    clock: Clock,
    files: list[str],
) -> None:
    from mnemosphere.cli import pictures, record, report
    from mnemosphere.plots import terminal_gallery

    assert source.test is not None
    indices = report.representative(model, _SHOWN)
    paper = ", blue: paper" if model.normalize_ == "center" else ""
    terminal.show(f"\n{_SHOWN} of the {model.n_memories_} memories (amber: ink{paper})\n")
    terminal.draw(
        terminal_gallery(
            model.memories_,
            source.image_shape,
            min(terminal.out.width, 100),
            ncols=_NCOLS,
            indices=indices,
            color=terminal.color,
        )
    )
    terminal.show("\n" + report.soft_label_lines(model, indices, source, _NCOLS) + "\n")
    explanation = pictures.explain_row(model, source.test, right, 5)
    title = report.verdict_line(
        explanation, 0, source, right, pictures.truth_of(source.test, right)
    )
    terminal.show(
        report.explanation_table(explanation, 0, source, "why is test " + title),
        "",
        report.class_table(scores, source),
        "",
        report.model_table(
            "what was learned",
            model,
            {
                "time": str(clock),
                "test accuracy": f"{scores.accuracy:.2%} of {scores.n_rows} digits",
                "log-loss": f"{scores.log_loss:.4f}",
            },
        ),
        "",
        f"in {out}: {', '.join([*files, record.MODEL, record.RESULTS])}",
        f"ask why: mnemosphere explain {out / record.MODEL} {_DATA} --row 3",
        "your data: mnemosphere train YOUR.csv --out run",
    )
