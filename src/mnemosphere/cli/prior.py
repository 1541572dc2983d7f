"""Command that changes the class frequencies a model expects."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mnemosphere.cli.shell import Debug, Json, Model, Quiet, Terminal


def prior(
    model: Model,
    weight: Annotated[
        list[str],
        typer.Option(
            help="How frequent a class is, relative to the others; repeat for more classes. "
            "Those not named keep their share.",
            metavar="LABEL=NUMBER",
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File for the changed model.", show_default=False)
    ],
    hold: Annotated[
        bool,
        typer.Option(
            "--hold",
            help="Keep the weights of memories and change their soft labels, instead of Bayes' "
            "rule.",
        ),
    ] = False,
    json_: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Expect other class frequencies than in training: same memories, nothing is trained."""
    from rich.table import Table

    from mnemosphere.cli import record
    from mnemosphere.estimators import load_classifier

    terminal = Terminal(json_only=json_, quiet=quiet)
    clf = load_classifier(model)
    names = [str(label) for label in clf.classes_.tolist()]
    before = clf.class_prior_[:-1] / clf.class_prior_[:-1].sum()
    wanted = dict(zip(names, before.tolist(), strict=True)) | _parse(weight, names)
    changed = clf.with_class_prior(
        list(wanted.values()), memory_weights="hold" if hold else "follow"
    )
    after = changed.class_prior_[:-1] / changed.class_prior_[:-1].sum()
    record.make_folder(out.parent)
    changed.save(out)
    terminal.result(
        {
            "model": str(out),
            "memory_weights": "hold" if hold else "follow",
            "before": dict(zip(names, before.tolist(), strict=True)),
            "after": dict(zip(names, after.tolist(), strict=True)),
        }
    )
    table = Table(title="class frequencies", title_justify="left")
    for heading in ("class", "before", "after"):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    for name, old, new in zip(names, before, after, strict=True):
        table.add_row(name, f"{old:.1%}", f"{new:.1%}")
    terminal.show(table)
    if not terminal.json_only:
        terminal.out.print(f"wrote {out}", markup=False, soft_wrap=True)


def _parse(pairs: list[str], names: list[str]) -> dict[str, float]:
    """{label: weight} from LABEL=NUMBER."""
    found: dict[str, float] = {}
    for pair in pairs:
        name, mark, text = pair.rpartition("=")
        try:
            value = float(text)
        except ValueError:
            mark = ""
        if not mark:
            raise ValueError(f"--weight must be LABEL=NUMBER, such as {names[0]}=0.5, got {pair!r}")
        if name not in names:
            raise ValueError(f"the model has no class {name!r}: its classes are {', '.join(names)}")
        found[name] = value
    return found
