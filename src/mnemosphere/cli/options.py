"""Options that several commands have, and what is made of them.

A group is a dataclass whose fields are options: a command that has it as a parameter has them all.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import typer

Text = str | None
REJECT = "Give no class to novel or undecided rows: at most this share of ordinary ones."


def asked(values: str, text: str, *, default: Any = None, **more: Any) -> Any:
    """An option as the field of a group: what one types after its flag, and what it does."""
    made = typer.Option(default, metavar=values, help=text, **more)
    return field(default=default, metadata={"option": made})


def rare(values: str, text: str, **more: Any) -> Any:
    """The same, for one that `--help-all` alone shows."""
    return asked(values, text, hidden=True, **more)


def flag(text: str, *names: str, **more: Any) -> Any:
    """The same, for one that is given or not."""
    made = typer.Option(False, *names, help=text, **more)
    return field(default=False, metadata={"option": made})


def names_in(texts: Iterable[str] | None) -> tuple[str, ...]:
    """Names that stand apart by commas, of an option that may be repeated."""
    return tuple(n.strip() for text in texts or () for n in text.split(",") if n.strip())


@dataclass
class Columns:
    """What the user says about the columns of a table."""

    label: Text = asked(
        "COLUMN",
        "Label column, or a .npy file. Default: that of training, else label, target, class "
        "or y, else (train, evaluate) the last column.",
    )
    id: Text = asked("COLUMN", "Column that names the rows. Default: lines.")
    drop: list[str] = asked("A,B", "Columns to leave out.", default=(), callback=names_in)
    text: Text = asked(
        "COLUMN", "Column of texts, used alone or with --features. Default: that of training."
    )
    features: list[str] = rare("A,B", "Use these columns only.", default=(), callback=names_in)
    encoder: Text = rare(
        "MODULE:NAME",
        "For texts: a function, or an object with encode or embed. Default: wordllama.",
    )
    no_header: bool = flag(
        "The first line of a text file is a row, not names.", "--no-header", hidden=True
    )
    max_rows: int | None = rare("N", "Read the first N rows only.", min=1)


@dataclass
class Selection(Columns):
    """The same, and which rows."""

    split: Text = asked("train|test|all", "Which rows of data that have a split.")


@dataclass
class Answers:
    """What `predict` says of a row."""

    top: int = asked("N", "Memories to list per row.", default=3, min=0)
    prior: Text = asked(
        "LABEL=NUMBER,…",
        "Other class frequencies than in training: weights of all classes, or shares of some.",
    )
    reject: float | None = asked("RATE", REJECT)
    ask: bool = flag('With --reject: answer "ask" for rows between known classes.', "--ask")


@dataclass
class Changes:
    """What `explain` may change of a row for another class."""

    counterfactual: Text = asked(
        "LABEL", "Show what would have to change for this class; next: the runner-up."
    )
    fixed: list[str] = asked(
        "A,B", "Columns that --counterfactual must not change.", default=(), callback=names_in
    )
    only_rise: list[str] = asked(
        "A,B", "Columns that must not fall.", default=(), callback=names_in
    )
    only_fall: list[str] = asked(
        "A,B", "Columns that must not rise.", default=(), callback=names_in
    )
