"""A study of the theory as a command: its options, and the picture and the numbers it leaves.

A study is a function of a generator and its own options; their defaults are in its signature, what they
mean is in OPTIONS. It returns `Found`.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from mnemosphere import plots
from mnemosphere.theory import NotConvergedError, ValidityWarning
from research import report
from research.report import Json

PICTURES = (".png", ".svg", ".pdf")
OPTIONS: dict[str, dict[str, Any]] = {
    "along": {"choices": ["beta", "upsilon", "rho"], "help": "the horizontal axis"},
    "teacher": {"type": int, "help": "P*, memories of the teacher"},
    "memories": {"type": int, "help": "P, memories of the student"},
    "beta": {"type": float, "help": "β, inverse temperature of the student"},
    "beta_eff": {"type": float, "help": "β_eff of the student"},
    "rho": {"type": float, "help": "ϱ = M/(P* N), examples per parameter of the teacher"},
    "upsilon": {"type": float, "help": "υ = β*/N, signal to noise of the examples"},
    "features": {"type": int, "help": "N, dimension of the data"},
    "uniform_share": {"type": float, "help": "p_0, share of the student's uniform component"},
    "x_range": {"type": float, "nargs": 2, "help": "smallest and largest value on the axis"},
    "beta_range": {"type": float, "nargs": 2, "help": "smallest and largest β"},
    "grid": {"type": int, "help": "cells per side of the map"},
    "steps": {"type": int, "help": "solved values on the axis"},
    "points": {"type": int, "help": "sampled points; 0 for theory alone"},
    "teachers": {"type": int, "help": "teachers drawn for a point"},
    "sweeps": {"type": int, "help": "Gibbs sweeps after a burn-in of half"},
    "patterns": {"choices": ["uniform", "tree"], "help": "a teacher's memories, or clusters"},
    "depth": {"type": int, "help": "levels of the tree, 2^depth patterns"},
    "starts": {"type": int, "help": "starts of the solver"},
    "splits": {"type": int, "help": "random splits of each set"},
}


@dataclass(frozen=True)
class Found:
    """The numbers of a study, its picture, and what there is to say."""

    data: Json
    axes: Any = None
    lines: Sequence[str] = ()
    remarks: list[str] = field(default_factory=list)


class Study(NamedTuple):
    """How it is run, and whether it draws."""

    run: Callable[..., Found]
    draws: bool


STUDIES: dict[str, Study] = {}


def study(name: str, *, draws: bool = True) -> Callable[[Callable[..., Found]], None]:
    """A function as a command."""

    def register(function: Callable[..., Found]) -> None:
        STUDIES[name] = Study(function, draws)

    return register


def parser() -> argparse.ArgumentParser:
    """Every study with its options."""
    made = argparse.ArgumentParser(
        prog="python -m research theory",
        description="A teacher with P* memories draws M = ϱ P* N examples of concentration υN; a student with P "
        "memories samples its posterior at inverse temperature β.",
    )  # fmt: skip
    commands = made.add_subparsers(dest="name", required=True, metavar="STUDY")
    for name, (function, draws) in STUDIES.items():
        doc = inspect.getdoc(function) or ""
        command = commands.add_parser(name, help=doc.partition("\n")[0], description=doc)
        for key, default in _options(function).items():
            flag = f"--{key.replace('_', '-')}"
            command.add_argument(flag, default=default, **OPTIONS[key])
        what = "picture; its numbers go next to it" if draws else "file of the numbers"
        out = Path(f"{name}.png") if draws else None
        command.add_argument("--out", "-o", type=Path, default=out, help=what)
        command.add_argument("--seed", type=int, default=0, help="same seed, same bits")
        command.add_argument("--quiet", "-q", action="store_true", help="no remarks")
    return made


def main(argv: list[str]) -> None:
    """Solve, and write the numbers and the picture."""
    args = parser().parse_args(argv)
    function, draws = STUDIES[args.name]
    *others, last = PICTURES if draws else (".json",)
    if args.out is not None and args.out.suffix.lower() not in (*others, last):
        known = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"--out must end in {known}, got {args.out.name!r}")
    record = args.out and args.out.with_suffix(".json")
    if record:
        report.make_folder(record.parent)
    settings = {key: getattr(args, key) for key in _options(function)}
    began = time.perf_counter()
    with _one_thread(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ValidityWarning)
        try:
            found = function(torch.Generator().manual_seed(args.seed), **settings)
        except NotConvergedError as error:
            raise ValueError(str(error)) from error
    told = [str(w.message).replace("n_features", "features") for w in caught]
    remarks = list(dict.fromkeys([*told, *found.remarks]))
    for remark in [] if args.quiet else remarks:
        print(f"note: {remark}", file=sys.stderr)
    print("\n".join(found.lines))
    if not record:
        return
    if draws:
        plots.save(found.axes, args.out)
    content = {
        **report.head(report.command_line(["theory", *argv]), seeds=[args.seed]),
        "settings": settings, "seconds": time.perf_counter() - began, "remarks": remarks, "data": found.data,
    }  # fmt: skip
    report.write(record, content)
    print(f"wrote {' and '.join(dict.fromkeys(map(str, (args.out, record))))}")


def _options(function: Callable[..., Found]) -> Json:
    _, *own = inspect.signature(function).parameters.values()
    return {option.name: option.default for option in own}


@contextmanager
def _one_thread() -> Iterator[None]:
    """The matrices are small: more threads cost more than they bring."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
