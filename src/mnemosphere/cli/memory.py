"""Commands that use a model as a memory: recall, sample, novelty."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mnemosphere.cli.shell import (
    DATA_HELP,
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

if TYPE_CHECKING:
    from mnemosphere.cli.rows import Source
    from mnemosphere.estimators import DAMClassifier

_DRAWN, _LISTED = 6, 10
_MASK = 0.5

Picture = Annotated[
    Path | None, typer.Option(help="Draw it into a .png, .svg or .pdf file.", metavar="FILE")
]
OfClass = Annotated[
    str | None,
    typer.Option("--class", help="Of this class alone.", show_default="any", metavar="LABEL"),
]
Seed = Annotated[int, typer.Option(help="Seed of all randomness.", min=0)]


class Method(StrEnum):
    """How to descend the energy."""

    fixed_point = "fixed-point"
    gradient = "gradient"


def recall(
    model: Model,
    data: Data,
    row: Annotated[
        list[int] | None,
        typer.Option(help="Rows to recall, counted from 0; may be repeated.", show_default="all"),
    ] = None,
    mask: Annotated[
        float | None,
        typer.Option(
            help="Hide this share of the features, at random.",
            show_default=f"{_MASK} without --noise",
        ),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(help="Lay noise on rows, this many times as long as they are.", min=0.0),
    ] = None,
    of_class: OfClass = None,
    method: Annotated[Method, typer.Option(help="How to descend.")] = Method.fixed_point,
    steps: Annotated[int, typer.Option(help="Steps at most.", min=1)] = 20,
    seed: Seed = 0,
    picture: Picture = None,
    image_shape: ImageShape = None,
    label: Label = None,
    labels: Labels = None,
    split: Split = None,
    directory: Directory = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Damage rows, recall them, and count how many have the right class again.

    Features that are left are held; those that are hidden are found by descending the energy. With
    --class the descent is that of one class: what of this class is most like the row?
    """
    import numpy as np
    from rich.table import Table

    from mnemosphere import plots
    from mnemosphere.cli.pictures import truth_of
    from mnemosphere.cli.record import open_model
    from mnemosphere.cli.rows import parse_shape

    terminal = Terminal(json_only=json_, quiet=quiet)
    clf, source, part, remark, _ = open_model(
        model, data, label=label, labels=labels, directory=directory, split=split, default="test"
    )
    if remark:
        terminal.note(remark)
    if mask is None:
        mask = _MASK if noise is None else 0.0
    if not 0 <= mask < 1:
        raise ValueError(f"--mask must lie in [0, 1), got {mask}")
    chosen = np.arange(len(part)) if not row else np.array(row)
    if ((chosen < -len(part)) | (chosen >= len(part))).any():
        raise ValueError(f"--row must lie in [{-len(part)}, {len(part)}), got {row}")
    chosen = chosen % len(part)
    x = part.x[chosen].astype(np.float64)
    rng = np.random.default_rng(seed)
    start = x + (noise or 0.0) * _noise(x, rng)
    known = rng.random(x.shape) >= mask
    for extreme in (x.argmin(1), x.argmax(1)):  # a row that is left constant has no direction
        known[np.arange(len(x)), extreme] = True
    start = np.where(known, start, np.nan) if mask > 0 else start
    y = None if of_class is None else np.repeat(_class_of(clf, source, of_class), len(x))
    common: dict[str, Any] = {"steps": steps, "method": method.value}
    with terminal.err.status(f"recalling {len(x)} rows"):
        found = clf.recall(start, y, **common)
        damaged = clf._normalizer.fill(start, np.isnan(start))
        verdicts = {"intact": x, "damaged": damaged, "recalled": found}
        answers = {name: clf.predict(rows) for name, rows in verdicts.items()}
        few = slice(0, min(_LISTED, len(x)))
        path = clf.recall_path(start[few], None if y is None else y[few], **common)
    truth = [None if part.y is None else truth_of(part, int(k)) for k in chosen]
    judged = np.array([value is not None for value in truth])
    right = {}
    if judged.any():
        right = {
            name: float(np.mean([a == truth[k] for k, a in enumerate(answer) if judged[k]]))
            for name, answer in answers.items()
        }
    if picture is not None:
        shape = parse_shape(image_shape, clf.n_features_in_) or source.image_shape
        n = min(_DRAWN, len(x))
        ends = answers["recalled"].tolist()
        figure = plots.recall_strips(
            path.rows[:, :n],
            path.energies[:, :n],
            shape,
            originals=x[:n] - (x[:n].mean(1, keepdims=True) if clf.normalize_ == "center" else 0.0),
            known=known[:n] if mask > 0 else None,
            names=[f"row {k}" if t is None else source.label(t)
                   for k, t in zip(chosen[:n], truth, strict=False)],
            verdicts=[f"→ {source.label(v)}" for v in ends[:n]],
        )  # fmt: skip
        plots.save(figure, picture)
    rows = [
        {
            "row": int(chosen[k]),
            "truth": truth[k],
            "damaged": answers["damaged"][k],
            "recalled": answers["recalled"][k],
            "energy_before": path.energies[0, k],
            "energy_after": path.energies[-1, k],
            "steps": path.steps[k],
        }
        for k in range(len(path.steps))
    ]
    terminal.result(
        {
            "model": str(model),
            "data": source.name,
            "rows": len(x),
            "mask": mask,
            "noise": noise or 0.0,
            "method": method.value,
            "steps": steps,
            "seed": seed,
            "right": right,
            "first_rows": rows,
            "picture": picture,
        }
    )
    if right:
        terminal.show(
            f"[bold]{right['recalled']:.1%}[/bold] of {len(x)} rows have the right class when "
            f"recalled, {right['damaged']:.1%} as damaged, {right['intact']:.1%} intact"
        )
    table = Table(title=f"the first {len(rows)} rows" if len(rows) < len(x) else None)
    for title in ("row", "truth", "damaged", "recalled", "energy", "steps"):
        table.add_column(title, justify="left" if title in ("truth", "recalled") else "right")
    for r in rows:
        table.add_row(
            str(r["row"]),
            "" if r["truth"] is None else source.label(r["truth"]),
            source.label(r["damaged"]),
            source.label(r["recalled"]),
            f"{r['energy_before']:.4g} → {r['energy_after']:.4g}",
            str(r["steps"]),
        )
    terminal.show(table)
    if picture is not None:
        terminal.note(f"wrote {picture}")


def sample(
    model: Model,
    n: Annotated[int, typer.Option("-n", help="How many patterns.", min=1)] = 25,
    of_class: Annotated[
        str | None,
        typer.Option(
            "--class", "--label", help="Of this class alone.", show_default="any", metavar="LABEL"
        ),
    ] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Save the patterns, x and y of a .npz.", metavar="NPZ"),
    ] = None,
    picture: Picture = None,
    image_shape: ImageShape = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Draw new patterns from a model, of one class or of any."""
    import io

    import numpy as np

    from mnemosphere import plots
    from mnemosphere.cli.record import image_shape_of, read_record
    from mnemosphere.cli.rows import parse_shape
    from mnemosphere.estimators import load_classifier
    from mnemosphere.training.checkpoint import write_atomically

    terminal = Terminal(json_only=json_, quiet=quiet)
    clf = load_classifier(model)
    shape = parse_shape(image_shape, clf.n_features_in_) or image_shape_of(read_record(model), clf)
    y = None if of_class is None else _class_of(clf, None, of_class)
    x, drawn = clf.sample(n, y, random_state=seed)
    names = ["none" if value is None else str(value) for value in drawn.tolist()]
    if out is not None:
        if out.suffix != ".npz":
            raise ValueError(f"cannot write {out.name!r}: end the name in .npz")
        content = io.BytesIO()
        np.savez(content, x=x, y=np.array(names) if drawn.dtype == object else drawn)
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, content.getvalue())
    if picture is not None:
        gallery = plots.memories(
            x, shape, indices=np.arange(n), named=False, labels=names,
            ncols=max(1, int(np.ceil(np.sqrt(n)))),
        )  # fmt: skip
        plots.save(gallery, picture)
    kinds, counts = np.unique(names, return_counts=True)
    share = {str(k): int(c) for k, c in zip(kinds, counts, strict=True)}
    terminal.result(
        {
            "model": str(model),
            "n": n,
            "seed": seed,
            "classes": share,
            "out": out,
            "picture": picture,
        }
    )
    of = ", ".join(f"{count} of {name}" for name, count in share.items())
    terminal.show(f"{n} patterns drawn: {of}")
    for path in (out, picture):
        if path is not None:
            terminal.note(f"wrote {path}")


def novelty(
    model: Model,
    data: Data,
    against: Annotated[
        str | None, typer.Option(help="Rows of another kind: " + DATA_HELP, metavar="DATA2")
    ] = None,
    rate: Annotated[
        float, typer.Option(help="Share of rows like DATA that may be rejected.")
    ] = 0.01,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Write the model with its threshold.", metavar="FILE"),
    ] = None,
    seed: Seed = 0,
    picture: Picture = None,
    label: Label = None,
    labels: Labels = None,
    split: Split = None,
    directory: Directory = None,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Which rows are unlike all that the model knows? Sets a threshold and tells what it rejects.

    One half of the rows of DATA, drawn at random, sets the threshold; the other half tells how
    many of their kind it rejects. With --against, so do the rows of DATA2, and the AUROC says how
    well the score tells the two kinds apart.
    """
    import numpy as np
    from sklearn.metrics import roc_auc_score

    from mnemosphere import plots
    from mnemosphere.cli import report
    from mnemosphere.cli.record import make_folder, open_model
    from mnemosphere.cli.rows import load_source, match_features

    terminal = Terminal(json_only=json_, quiet=quiet)
    clf, source, part, remark, names = open_model(
        model, data, label=label, labels=labels, directory=directory, split=split, default="test"
    )
    if remark:
        terminal.note(remark)
    if len(part) < 2:
        raise ValueError(f"{data} has {len(part)} row: a threshold needs held-out rows")
    order = np.random.default_rng(seed).permutation(len(part))
    held, fresh = order[: len(order) // 2], order[len(order) // 2 :]
    clf.calibrate_novelty(part.x[held], rate)
    inside = clf.novelty_score(part.x)
    threshold = clf.novelty_threshold_
    assert threshold is not None
    result: dict[str, Any] = {
        "model": str(model),
        "data": source.name,
        "rows": len(part),
        "rate": rate,
        "threshold": threshold,
        "rejected": float(np.mean(inside[fresh] > threshold)),
        "seed": seed,
    }
    facts = {
        "threshold": f"{threshold:.4g}, from {len(held)} rows at a rate of {rate:g}",
        f"rejected of {source.name}": f"{result['rejected']:.2%} of {len(fresh)} other rows",
    }
    outside = None
    if against is not None:
        wanted = None if names is None else tuple(map(str, names))
        strangers = match_features(
            load_source(against, directory=directory), wanted, clf.n_features_in_, str(model)
        )
        outside = clf.novelty_score(strangers.part(None, "test").x)
        truth = np.repeat([0, 1], [len(inside), len(outside)])
        result |= {
            "against": strangers.name,
            "against_rows": len(outside),
            "against_rejected": float(np.mean(outside > threshold)),
            "auroc": float(roc_auc_score(truth, np.concatenate([inside, outside]))),
        }
        facts[f"rejected of {strangers.name}"] = (
            f"{result['against_rejected']:.2%} of {len(outside)} rows"
        )
        facts["AUROC"] = f"{result['auroc']:.4f}"
    most = np.argsort(-inside, kind="stable")[:_LISTED]
    result["most_novel"] = [{"row": int(k), "score": float(inside[k])} for k in most]
    facts[f"most novel of {source.name}"] = "rows " + ", ".join(map(str, most))
    if picture is not None:
        kinds = (source.name, against or "")
        scores = (inside[fresh], outside)
        plots.save(plots.novelty_histogram(*scores, threshold=threshold, names=kinds), picture)
    if out is not None:
        make_folder(out.parent)
        if names is not None:
            clf.feature_names_in_ = names
        clf.save(out)
    terminal.result(result | {"out": out, "picture": picture})
    terminal.show(report.pairs_table("novelty", facts))
    for path in (out, picture):
        if path is not None:
            terminal.note(f"wrote {path}")


def _noise(x: Any, rng: Any) -> Any:
    """Gaussian noise as long as each row without its mean."""
    import numpy as np

    noise = rng.normal(size=x.shape)
    size = np.linalg.norm(x - x.mean(1, keepdims=True), axis=1, keepdims=True)
    return size * noise / np.linalg.norm(noise, axis=1, keepdims=True)


def _class_of(clf: DAMClassifier, source: Source | None, text: str) -> Any:
    """The class that a user calls `text`: its label, or its name in the data."""
    classes = clf.classes_.tolist()
    for value in classes:
        if text == str(value) or (source is not None and text == source.label(value)):
            return value
    known = [str(value) if source is None else source.label(value) for value in classes]
    raise ValueError(f"--class must be one of {', '.join(known)}, got {text!r}")
