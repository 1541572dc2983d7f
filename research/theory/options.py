"""Options that several studies of the theory share."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Annotated

import typer


class Along(StrEnum):
    """The axis of a phase diagram beside β."""

    upsilon = "upsilon"
    rho = "rho"


class Parameter(StrEnum):
    """What an overlap is drawn against."""

    beta = "beta"
    upsilon = "upsilon"
    rho = "rho"


class Kind(StrEnum):
    """Whose patterns the student learns."""

    uniform = "uniform"
    tree = "tree"


Teachers = Annotated[int, typer.Option("--teacher", help="P*, memories of the teacher.", min=1)]
Memories = Annotated[int, typer.Option("--memories", help="P, memories of the student.", min=1)]
Beta = Annotated[float, typer.Option(help="β, inverse temperature of the student.")]
Rho = Annotated[float, typer.Option(help="ϱ = M/(P* N), examples per parameter of the teacher.")]
Upsilon = Annotated[float, typer.Option(help="υ = β*/N, signal to noise of the examples.")]
Features = Annotated[int, typer.Option("--features", help="N, dimension of the data.", min=2)]
Uniform = Annotated[
    float, typer.Option("--uniform-share", help="p_0, share of the student's uniform component.")
]
SoftLabels = Annotated[
    str | None,
    typer.Option(
        help="Labels of the teacher's memories, C+1 numbers each: '0.9,0.1;0.1,0.9'.",
        show_default="no labels",
        metavar="ROWS",
    ),
]
BETA_RANGE = "Smallest and largest β."


def read_labels(text: str | None) -> tuple[tuple[float, ...], ...] | None:
    """Rows of numbers from '0.9,0.1;0.1,0.9'."""
    if text is None:
        return None
    try:
        return tuple(tuple(float(v) for v in row.split(",")) for row in text.split(";"))
    except ValueError:
        raise ValueError(
            f"--soft-labels must be numbers such as '0.9,0.1;0.1,0.9', got {text!r}"
        ) from None


def check_range(limits: tuple[float, float], flag: str) -> tuple[float, float]:
    """Two numbers, the second larger."""
    low, high = limits
    if not 0.0 < low < high < math.inf:
        raise ValueError(f"{flag} must be two numbers 0 < LOW < HIGH, got {low:g} {high:g}")
    return limits
