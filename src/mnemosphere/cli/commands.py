"""The commands: what one can type, and what they do.

What is large is imported when a command runs, so that `--help` loads neither torch nor pandas.
"""

from __future__ import annotations

import hashlib
import json
import math
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemosphere.cli.shell import Interrupted, Shell, note, say

if TYPE_CHECKING:
    import pandas as pd

MODEL, RESULTS = "model.safetensors", "results.json"  # in the folder of a run
_SHOWN = 20  # rows on the terminal
_LABELS = ("label", "target", "class", "y")

app = typer.Typer(
    cls=Shell,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def _names(text: str | None) -> list[str]:
    """Names that stand apart by commas."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _show_version(value: bool) -> None:
    if value:
        from mnemosphere import __version__

        typer.echo(f"mnemosphere {__version__}")
        raise typer.Exit


Model = Annotated[Path, typer.Argument(help="Folder of a run, or a model file.")]
Data = Annotated[
    Path,
    typer.Argument(help="Table: .csv, .tsv (or .gz), .parquet, .xlsx, .jsonl."),
]
Label = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the labels. Default: label, target, class or y, else the last one.",
    ),
]
Id = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column that names the rows. Default: that of training, else row numbers from 0.",
    ),
]
Columns = Annotated[str | None, typer.Option(metavar="A,B", help="Use these columns only.")]
Drop = Annotated[str | None, typer.Option(metavar="A,B", help="Columns to leave out.")]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Random seed.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, nothing else.")]


@app.callback()
def _every_command(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Dense associative memory on the sphere: a classifier with memories you can look at.

    Every prediction is the vote of a few memories, each a pattern with a soft label. Try it:

        mnemosphere demo

        mnemosphere train my-table.csv --label species --out run

        mnemosphere train tickets.csv --text message --label intent --out run

        mnemosphere predict run new.csv --out predictions.csv

    Exit codes: 0 success, 2 wrong usage or bad input, 130 interrupted, 141 closed pipe.
    """


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="OUT", help="Folder for the model and pictures.")
    ] = Path("mnemosphere-demo"),
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Learn handwritten digits, look at the memories, ask why.

    It takes half a minute and needs only this package: 5,000 training and 1,000 test digits are
    built in.
    """
    _check_out(out, overwrite)
    import numpy as np

    from mnemosphere import DAMClassifier, load_data, plots
    from mnemosphere.plots.fitted import memories_of

    digits = load_data("mnist-small")
    x, y, shape = digits.x_test, digits.y_test, digits.image_shape
    note(f"{len(digits.x_train)} handwritten digits to learn, {len(x)} held out")
    # So few memories and passes that it takes half a minute on two slow cores.
    model = DAMClassifier(400, objective="joint", geometry="center", max_iter=8, random_state=seed,
                          verbose=sys.stderr.isatty())  # fmt: skip
    model.fit(digits.x_train, digits.y_train)
    found = model.explain(x)
    # A digit recognized with some doubt, by several memories.
    doubt = np.abs(found.share[:, 0] - 0.4) + np.abs(found.probability - 0.75)
    k = int(np.where(found.predicted == y, doubt, np.inf).argmin())
    why = model.explain(x[k : k + 1])
    plots.save(memories_of(model.model_, shape), out / "memories.png")
    plots.save(why.plot(image_shape=shape, truth=y[k]), out / "explanation.png")
    model.explore(out / "page.html", x, y, image_shape=shape, title="Handwritten digits")
    model.save(out / MODEL)
    say(why)
    say(f"\naccuracy   {model.score(x, y):.2%} of {len(x)} held-out digits")
    say(f"look:      {out / 'memories.png'}, {out / 'explanation.png'}")
    say(f"play:      open {out / 'page.html'} in a browser")
    say("your data: mnemosphere train YOUR.csv --out run")


@app.command()
def train(
    data: Data,
    label: Label = None,
    id: Id = None,
    text: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of texts, used alone or with --features."),
    ] = None,
    features: Columns = None,
    drop: Drop = None,
    memories: Annotated[
        str, typer.Option(metavar="N|auto", help="Number of memories; auto: by held-out rows.")
    ] = "auto",
    objective: Annotated[
        str,
        typer.Option(
            metavar="auto|joint|conditional",
            help="joint: memories look like typical rows; conditional: trained for accuracy.",
        ),
    ] = "auto",
    geometry: Annotated[
        str,
        typer.Option(
            metavar="auto|center|unit|standard|whitened|circles",
            help="How rows are put on the sphere; auto: by held-out rows.",
        ),
    ] = "auto",
    test: Annotated[
        Path | None, typer.Option(metavar="DATA", help="Held-out rows in another file.")
    ] = None,
    seed: Seed = 0,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="OUT", help="Folder to write.")
    ] = Path("run"),
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Train a model on a table, measure it on held-out rows, and write it to a folder.

    A fifth of each class is held out to measure accuracy, unless --test has the rows for that. OUT
    gets model.safetensors, results.json (settings and figures) and memories.png. After Ctrl-C it
    gets the model so far. Files larger than memory are for mn.Dataset, in Python.

    For example:

        mnemosphere train irises.csv --label species --out run
    """
    _check_out(out, overwrite)
    from mnemosphere import DAMClassifier, __version__, plots
    from mnemosphere.base.files import to_json, write_atomically
    from mnemosphere.cli import tables
    from mnemosphere.plots.fitted import memories_of

    frame = tables.named_rows(tables.read_table(data), id)
    label = label or next((name for name in _LABELS if name in frame), frame.columns[-1])
    used = [*_names(features), *([text] if text else [])]
    tables.check_columns(frame, [label, *used, *_names(drop)])
    used = used or [name for name in frame.columns if name not in {label, *_names(drop)}]
    if not used or label in used:
        raise ValueError(f"no column is left to learn from besides the label {label!r}")
    x, y = frame[used], frame[label].convert_dtypes()
    held = tables.held_out(y, seed) & (test is None)
    kept = ~held & frame.notna().any(axis=1).to_numpy()  # an empty line teaches nothing
    x_test, y_test = x[held], y[held]
    if test is not None:
        other = tables.named_rows(tables.read_table(test), id)
        tables.check_columns(other, [label, *used])
        other = other[other[label].notna()]
        x_test, y_test = other[used], other[label].convert_dtypes()
        if new := sorted(map(str, {*y_test} - {*y.dropna()})):
            raise ValueError(f"{test} has classes that {data} lacks: {', '.join(new[:5])}")
    x, y = x[kept], y[kept]
    note(f"{len(x)} rows to train on, {len(x_test)} held out, {len(used)} columns, "
         f"{y.nunique()} classes in {label!r}")  # fmt: skip
    encoder = "wordllama" if text else None
    model = DAMClassifier(
        int(memories) if memories.isdigit() else memories, objective=objective, geometry=geometry,
        unlabeled=math.nan, encoder=encoder if len(used) == 1 or not text else {text: encoder},
        random_state=seed, verbose=sys.stderr.isatty(),
    )  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)  # what is wrong with it is said before the fit
    began = time.perf_counter()
    model.fit(x, y.to_numpy(dtype=object, na_value=None))
    seconds = time.perf_counter() - began
    figures, report = _measured(model, x_test, y_test)
    record = {
        "data": str(data), "sha256": _digest(data), "label": label, "id": id, "rows": len(x),
        "held_out": held.nonzero()[0].tolist(),
        "memories": model.n_memories_, "objective": model.objective_, "geometry": model.geometry_,
        "status": model.status_, "seconds": seconds, **figures,
        "settings": model.get_params(deep=False), "search": list(model.search_ or ()),
        "command": shlex.join(["mnemosphere", *sys.argv[1:]]), "version": __version__,
    }  # fmt: skip
    plots.save(memories_of(model.model_), out / "memories.png")
    write_atomically(out / RESULTS, (to_json(record) + "\n").encode())
    model.save(out / MODEL)
    if model.status_ == "interrupted":
        raise Interrupted(f"interrupted after {model.n_iter_} passes: {out} has the model so far")
    if as_json:
        typer.echo(to_json(record))
        return
    say(f"{model.n_memories_} memories, objective {model.objective_}, geometry {model.geometry_}, "
        f"{seconds:.1f} s\n\n{report}\nwrote {out}: {MODEL}, {RESULTS}, memories.png")  # fmt: skip
    note(f"next: mnemosphere explain {out} {shlex.quote(str(data))}")


@app.command()
def predict(
    model: Model,
    data: Data,
    id: Id = None,
    reject: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            help="No class for novel or undecided rows: at most this share of ordinary ones.",
        ),
    ] = None,
    ask: Annotated[
        bool,
        typer.Option("--ask", help='With --reject: "ask" for rows between known classes.'),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Table: .csv, .tsv (or .gz), .parquet."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Predict the class of each row, and whether it is novel.

    There is one answer per row, with probabilities and novelty scores. Columns are found by the
    names the model was trained on; others are ignored.

    For example:

        mnemosphere predict run new.csv --out predictions.csv
    """
    _check_out(out, overwrite, model, data)
    if ask and reject is None:
        raise ValueError("--ask is about rejected rows: say how many with --reject RATE")
    import pandas as pd

    from mnemosphere import interpret
    from mnemosphere.base.files import to_json
    from mnemosphere.cli import tables

    if out is not None and not out.name.lower().endswith(tables.TABLES):
        raise ValueError(f"cannot write {out.name!r}: end the name in {', '.join(tables.TABLES)}")
    estimator, record = _opened(model)
    x = _rows(estimator, _table(data, id, record))
    proba = estimator.predict_proba(x)
    if reject is None:
        answers: dict[str, Any] = {"prediction": estimator.classes_[proba.argmax(axis=1)]}
    else:
        told = interpret.rejections(estimator.model_, x, reject)
        said = pd.Series(told.said(ask), dtype="string" if ask else object)  # "ask" beside numbers
        said = said.to_numpy(dtype=object, na_value=None)
        answers = {"prediction": said, "reason": told.reasons}
    answers |= {f"probability_{name}": proba[:, k] for k, name in enumerate(estimator.classes_)}
    answers["novelty_score"] = estimator.novelty_score(x)
    if estimator.novelty_threshold_ is not None:
        answers["novel"] = answers["novelty_score"] > estimator.novelty_threshold_
    if x.index.name in answers:
        raise ValueError(f"predictions have a column {x.index.name!r}: name rows by another --id")
    table = pd.DataFrame(answers, index=x.index)
    if out is not None:
        tables.write_table(table, out)
        say(f"wrote {out}: {len(table)} rows")
    elif as_json:
        typer.echo(to_json(table.reset_index().to_dict("records")))
    else:
        shown = table.filter(regex="^(prediction|reason|novel)$").assign(
            probability=[f"{p:.1%}" for p in proba.max(axis=1)]
        )
        say(shown.head(_SHOWN).reset_index().to_string(index=False))
        if len(table) > _SHOWN:
            note(f"{len(table) - _SHOWN} more rows: write all to a file with --out")


@app.command()
def explain(
    model: Model,
    data: Data,
    row: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Row, by its id or number; may be repeated."),
    ] = None,
    id: Id = None,
    counterfactual: Annotated[
        str | None,
        typer.Option(
            metavar="LABEL", help="What would have to change for this class; next: the runner-up."
        ),
    ] = None,
    fixed: Annotated[
        str | None,
        typer.Option(metavar="A,B", help="Columns that --counterfactual must not change."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Picture of one row: .png, .svg, .pdf."),
    ] = None,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Why did this row get its class? What would change it?

    It shows how much each column pulls, the memories that decided, their shares and labels, and the
    training rows like them. Without --row it is the first row.

    For example:

        mnemosphere explain run irises.csv --row 77 --counterfactual next
    """
    _check_out(out, overwrite, model, data)
    from mnemosphere import plots
    from mnemosphere.base.files import to_json
    from mnemosphere.cli import tables

    estimator, record = _opened(model)
    frame = _table(data, id, record)
    frame = tables.rows_called(frame, row) if row else frame.head(1)
    x = _rows(estimator, frame)
    why, other = estimator.explain(x), None
    if counterfactual is not None:
        classes = {str(name): name for name in estimator.classes_.tolist()}
        if counterfactual not in (*classes, "next"):
            raise ValueError(f"--counterfactual must be next or one of {', '.join(classes)}")
        other = estimator.counterfactual(x, classes.get(counterfactual), fixed=_names(fixed))
    if out is not None:
        if len(x) > 1:
            raise ValueError(f"a picture shows one row, got {len(x)}: ask for one")
        plots.save(why.plot(), out)
    if as_json:
        typer.echo(to_json(why.table().to_dict("records")))
        return
    say(why)
    if other is not None:
        say("")
        say(other)


@app.command()
def explore(
    model: Model,
    data: Annotated[Path | None, typer.Argument(help="Table to measure on.")] = None,
    label: Label = None,
    id: Id = None,
    rows: Annotated[int, typer.Option(metavar="N", min=1, help="Rows in the page, at most.")] = 500,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="Page to write.")] = Path(
        "page.html"
    ),
    overwrite: Overwrite = False,
) -> None:
    """Write one HTML page in which the model runs.

    Look at the memories, change rows, ask why. The page needs no server and no network, and
    contains rows of DATA. If the model was trained on DATA, these are the held-out rows.

    For example:

        mnemosphere explore run irises.csv --out page.html
    """
    _check_out(out, overwrite, model, *([data] if data else []))
    estimator, record = _opened(model)
    x, y = None, None
    if data is not None:
        from mnemosphere.cli import tables

        frame, label = _table(data, id, record), label or record.get("label")
        if record.get("held_out") and record["sha256"] == _digest(data):
            frame = frame.iloc[record["held_out"]]
        if label is not None:
            tables.check_columns(frame, [label])
            y = frame[label].convert_dtypes().to_numpy(dtype=object, na_value=None)
        x = _rows(estimator, frame)
    title = model.resolve().name if model.is_dir() else model.stem
    estimator.explore(out, x, y, max_rows=rows, title=title)
    say(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB): open it in a browser")


# What several commands do.


def _check_out(out: Path | None, overwrite: bool, *inputs: Path) -> None:
    """Raise where a file or a folder must not be written, before anything is read."""
    if out is None or not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if any(path.exists() and out.samefile(path) for path in inputs):
        raise ValueError(f"{out} is what is read: choose another name with --out")
    if not overwrite:
        raise ValueError(f"{out} exists: choose another name with --out, or pass --overwrite")


def _opened(path: Path) -> tuple[Any, dict[str, Any]]:
    """A model, and what its run noted: empty for a file alone."""
    from mnemosphere import load

    if not path.is_dir():
        return load(path), {}
    model, notes = load(path / MODEL), path / RESULTS
    try:
        record = dict(json.loads(notes.read_text(encoding="utf-8"))) if notes.is_file() else {}
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{notes} is damaged: train again, or move it away") from error
    return model, record


def _table(data: Path, id: str | None, record: dict[str, Any]) -> pd.DataFrame:
    """The rows of a file, called by a column: the one named, or that of training if it is there."""
    from mnemosphere.cli import tables

    frame = tables.read_table(data)
    noted = record.get("id")
    return tables.named_rows(frame, id or (noted if noted in frame else None))


def _rows(estimator: Any, frame: pd.DataFrame) -> pd.DataFrame:
    """The columns that a model takes; those that a table lacks count as missing."""
    from mnemosphere.rows.containers import listed

    names = list(getattr(estimator, "feature_names_in_", frame.columns))
    lost = [name for name in names if name not in frame]
    if len(lost) == len(names):
        raise ValueError(f"the table has none of the columns of the model, such as {listed(lost)}")
    if lost:
        note(f"note: the table lacks {listed(lost)}: they count as missing")
    return frame.reindex(columns=names)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _measured(model: Any, x: pd.DataFrame, y: pd.Series[Any]) -> tuple[dict[str, Any], str]:
    """(figures on held-out rows, the same for people); none if there are no such rows."""
    if len(x) == 0:
        return {}, "no class has enough rows to hold some out: there are no figures\n"
    import numpy as np
    from sklearn import metrics

    classes, truth, proba = model.classes_, np.array(y.tolist()), model.predict_proba(x)
    answer = classes[proba.argmax(axis=1)]
    figures = {
        "accuracy": metrics.accuracy_score(truth, answer),
        "most_frequent": float(y.value_counts(normalize=True).iloc[0]),
        "log_loss": metrics.log_loss(truth, proba, labels=classes),
    }
    lines = [
        f"accuracy {figures['accuracy']:.1%} of {len(x)} held-out rows (the most frequent class: "
        f"{figures['most_frequent']:.1%})",
        f"log-loss {figures['log_loss']:.4g}",
    ]
    if len(classes) == len(set(truth)) == 2:
        figures["auroc"] = metrics.roc_auc_score(truth == classes[1], proba[:, 1])
        lines.append(f"AUROC {figures['auroc']:.4f}")
    text = metrics.classification_report(truth, answer, zero_division=0)
    figures["classes"] = metrics.classification_report(
        truth, answer, output_dict=True, zero_division=0
    )
    return figures, "\n".join([*lines, "", str(text)])
