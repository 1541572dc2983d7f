"""`mnemosphere train`."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemosphere.cli.shell import (
    Debug,
    Directory,
    ImageShape,
    Interrupted,
    Json,
    Label,
    Labels,
    OptionalData,
    Quiet,
    Terminal,
    command_line,
    to_json,
)

if TYPE_CHECKING:
    from mnemosphere.cli.rows import Source
    from mnemosphere.cli.settings import Settings
    from mnemosphere.estimators import DAMClassifier

_CHECKPOINT = "checkpoint.safetensors"
_MODEL, _HOW, _DATA = "Model", "Training", "Data"


def _option(help: str, default: str, panel: str, **more: Any) -> Any:
    return typer.Option(help=help, show_default=default, rich_help_panel=panel, **more)


def train(
    ctx: typer.Context,
    data: OptionalData = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for the model and its record.")
    ] = Path("mnemosphere-run"),
    config: Annotated[
        Path | None,
        typer.Option(help="Settings in a TOML file, such as a run's config.toml; flags win."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the interrupted run in the folder --out.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a model that is in the folder already.")
    ] = False,
    label: Label = None,
    labels: Labels = None,
    test: Annotated[
        str | None, _option("File with test rows.", "none", _DATA, metavar="FILE")
    ] = None,
    test_fraction: Annotated[
        float | None, _option("Share of a file's rows held out for the test.", "0.2", _DATA)
    ] = None,
    directory: Directory = None,
    image_shape: ImageShape = None,
    memories: Annotated[
        str | None, _option("Number of memories.", "auto", _MODEL, metavar="INT|auto")
    ] = None,
    growth: Annotated[
        str | None,
        _option(
            "split: grow from a few memories by splitting saddles.",
            "none",
            _MODEL,
            metavar="split|none",
        ),
    ] = None,
    n_initial: Annotated[int | None, _option("Memories to grow from.", "16", _MODEL)] = None,
    varsigma: Annotated[
        str | None, _option("Regulariser ς in (0, 1].", "auto", _MODEL, metavar="FLOAT|auto")
    ] = None,
    beta: Annotated[
        str | None,
        _option("Inverse temperature; a number is held.", "learn", _MODEL, metavar="FLOAT|learn"),
    ] = None,
    objective: Annotated[
        str | None,
        _option(
            "Likelihood to maximize, or the weight in [0, 1] of its conditional part.",
            "joint",
            _MODEL,
            metavar="joint|conditional|FLOAT",
        ),
    ] = None,
    input_noise: Annotated[
        str | None,
        _option(
            "Length of the noise on rows, of the conditional objective.",
            "auto",
            _MODEL,
            metavar="FLOAT|auto",
        ),
    ] = None,
    label_smoothing: Annotated[float | None, _option("In [0, 1).", "0.1", _MODEL)] = None,
    normalize: Annotated[
        str | None,
        _option(
            "How rows are put on the sphere.",
            "auto",
            _MODEL,
            metavar="auto|center|unit|standard|none",
        ),
    ] = None,
    uniform_weight: Annotated[
        float | None, _option("Weight of the uniform component.", "1", _MODEL)
    ] = None,
    class_weight: Annotated[
        str | None, _option("Weights of the classes.", "none", _MODEL, metavar="balanced|none")
    ] = None,
    solver: Annotated[
        str | None, _option("How to train.", "fixed-point", _HOW, metavar="fixed-point|sgd")
    ] = None,
    epochs: Annotated[
        str | None,
        _option("Passes over the data, at most.", "auto", _HOW, metavar="INT|auto"),
    ] = None,
    tol: Annotated[
        float | None, _option("Stop at this relative change of the loss.", "0.0001", _HOW)
    ] = None,
    batch_size: Annotated[
        str | None, _option("Rows a step.", "auto", _HOW, metavar="INT|all|auto")
    ] = None,
    learning_rate: Annotated[float | None, _option("Of sgd.", "0.01", _HOW)] = None,
    momentum: Annotated[float | None, _option("Of sgd.", "0.99", _HOW)] = None,
    validation_fraction: Annotated[
        float | None, _option("Training rows watched for early stopping.", "0.1", _HOW)
    ] = None,
    patience: Annotated[
        int | None, _option("Passes without improvement before stopping.", "3", _HOW)
    ] = None,
    seed: Annotated[int | None, _option("Same seed, same bits.", "0", _HOW)] = None,
    device: Annotated[
        str | None, _option("Such as cpu or cuda.", "auto: a GPU where there is one", _HOW)
    ] = None,
    dtype: Annotated[
        str | None, _option("Precision.", "auto", _HOW, metavar="auto|float32|float64")
    ] = None,
    checkpoint: Annotated[
        bool,
        typer.Option(help="Save every pass, so that --resume can go on.", rich_help_panel=_HOW),
    ] = True,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Train a model on your data and write it with everything needed to make it again.

    The folder gets model.safetensors, config.toml (every setting, as resolved: train again with
    --config) and results.json (accuracy, history, versions, seed, device, command, checksum of the
    data). Rows without a label are used unlabelled. Ctrl-C saves a usable model, exit code 130.
    """
    from mnemosphere.cli import record
    from mnemosphere.cli.rows import load_source, parse_shape
    from mnemosphere.cli.settings import Settings

    terminal = Terminal(json_only=json_, quiet=quiet)
    if resume and config is None and (out / record.CONFIG).exists():
        config = out / record.CONFIG
    settings = Settings.gather(config, ctx.params)
    source = load_source(
        settings.data,
        label=settings.label,
        labels=settings.labels,
        test=settings.test,
        directory=settings.directory,
    ).with_test(settings.test_fraction, settings.seed)
    source.train.labels  # noqa: B018 (complains now, not after the folder is made)
    if settings.image_shape is not None:
        shape = parse_shape(settings.image_shape, source.train.x.shape[1])
        source = replace(source, image_shape=shape)
    saved = out / _CHECKPOINT
    if (out / record.MODEL).exists() and not (overwrite or resume):
        raise ValueError(
            f"{out} holds a model already: choose another folder with --out, or pass --overwrite"
        )
    if resume and not list(out.glob(f"{_CHECKPOINT}*")):
        raise ValueError(f"nothing to resume in {out}: train without --resume")
    record.make_folder(out)
    if not resume:
        _remove(saved)
    settings = _absolute(settings)
    _write_config(out / record.CONFIG, settings)

    model, seconds = _fit(settings, source, terminal, saved if checkpoint else None)
    settings = _resolved(settings, model)
    interrupted = model.status_ == "interrupted"
    content = _results(ctx, settings, source, model, seconds)
    _save(out, source, model, settings, content)
    if not interrupted:
        _remove(saved)
    terminal.result(content)
    _show(terminal, out, source, model, content)
    if interrupted:
        more = "; go on with --resume" if checkpoint else ""
        raise Interrupted(f"interrupted: the model so far is in {out / record.MODEL}{more}")


def _fit(
    settings: Settings, source: Source, terminal: Terminal, checkpoint: Path | None
) -> tuple[DAMClassifier, float]:
    from mnemosphere.cli.progress import Live

    part = source.train
    missing = int(part.missing.sum())
    if missing:
        terminal.note(f"{missing} of {len(part)} rows have no label: they are used unlabelled")
    live = Live(terminal.err, source.test)
    model = settings.classifier([live], checkpoint)
    model.unlabeled = part.unlabeled
    began = time.perf_counter()
    with live.watch(model):
        model.fit(part.x, part.labels)
    return model, time.perf_counter() - began


def _absolute(settings: Settings) -> Settings:
    """Paths that mean the same from any folder."""
    from mnemosphere.datasets import NAMES

    changes: dict[str, Any] = {}
    for name in ("data", "labels", "test", "directory"):
        value = getattr(settings, name)
        if value is not None and not (name == "data" and value in NAMES):
            changes[name] = str(Path(value).resolve())
    return replace(settings, **changes)


def _resolved(settings: Settings, model: DAMClassifier) -> Settings:
    """The settings with what was chosen in place of "auto"."""
    # Growth that ended early has fewer memories than it aimed at: the aim stays "auto" then.
    whole = settings.growth == "none" or model.status_ == "grown"
    return replace(
        settings,
        memories=model.n_memories_ if settings.memories == "auto" and whole else settings.memories,
        varsigma=model.varsigma_,
        normalize=model.normalize_,
        device=str(model.params_.w.device),
    )


def _results(
    ctx: typer.Context,
    settings: Settings,
    source: Source,
    model: DAMClassifier,
    seconds: float,
) -> dict[str, Any]:
    from mnemosphere.cli import report

    scores = report.score(model, source.train if source.test is None else source.test)
    return {
        "accuracy": scores.accuracy,
        "log_loss": scores.log_loss,
        "measured_on": "training rows" if source.test is None else "test rows",
        "seconds": seconds,
        "status": model.status_,
        "chosen": report.chosen(model),
        "seed": settings.seed,
        "device": report.device_name(model),
        "command": command_line(ctx),
        "versions": report.versions(),
        "data": {
            "name": source.name,
            "checksum": source.checksum,
            "rows": len(source.train),
            "test_rows": 0 if source.test is None else len(source.test),
            "features": source.train.x.shape[1],
            "image_shape": source.image_shape,
        },
        "settings": asdict(settings),
        "scores": scores.as_dict(),
        "history": model.history_,
        "selection": model.selection_,
    }


def _save(
    out: Path,
    source: Source,
    model: DAMClassifier,
    settings: Settings,
    content: dict[str, Any],
) -> None:
    import numpy as np

    from mnemosphere.cli import record
    from mnemosphere.training.checkpoint import write_atomically

    # The model file keeps the names, so that columns in another order are noticed later.
    if source.feature_names is not None:
        model.feature_names_in_ = np.array(source.feature_names, dtype=object)
    model.save(out / record.MODEL)
    _write_config(out / record.CONFIG, settings)
    write_atomically(out / record.RESULTS, (to_json(content) + "\n").encode())


def _write_config(path: Path, settings: Settings) -> None:
    from mnemosphere import __version__
    from mnemosphere.training.checkpoint import write_atomically

    remark = f"mnemosphere {__version__}: train again with\nmnemosphere train --config {path.name}"
    write_atomically(path, settings.to_toml(remark).encode())


def _remove(checkpoint: Path) -> None:
    """A checkpoint with the files that growth and refinement put beside it."""
    for path in checkpoint.parent.glob(f"{checkpoint.name}*"):
        path.unlink()


def _show(
    terminal: Terminal, out: Path, source: Source, model: DAMClassifier, content: dict[str, Any]
) -> None:
    from mnemosphere.cli import record, report

    if terminal.json_only:
        return
    accuracy = f"{content['accuracy']:.2%} of {content['scores']['rows']} {content['measured_on']}"
    more = {
        "time": f"{content['seconds']:.1f} s on {content['device']}",
        "accuracy": accuracy,
        "log-loss": f"{content['log_loss']:.4f}",
    }
    model_file = out / record.MODEL
    terminal.show(report.model_table(f"trained on {source.name}", model, more))
    terminal.show("")
    # A path is to be copied: never broken at the edge of the screen.
    terminal.out.print(
        f"wrote {model_file}, {record.CONFIG}, {record.RESULTS}", markup=False, soft_wrap=True
    )
    if not terminal.quiet:
        terminal.note(f"next: mnemosphere explain {model_file} {source.name} --row 0")
