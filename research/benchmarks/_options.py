"""Options that several benchmarks share."""

from __future__ import annotations

import argparse
import itertools
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mnemosphere.base.machine import pick_device
from research import report
from research.jobs import finished
from research.report import Json

Part = tuple[Any, ...]  # (name of the set, …, seed)
Measure = Callable[..., Json]
OUT = Path("runs") / "benchmarks"


def parser(doc: str | None, name: str) -> argparse.ArgumentParser:
    """A parser that knows where the report goes."""
    made = argparse.ArgumentParser(
        prog=f"python -m research {name}", description=(doc or "").splitlines()[0]
    )
    made.add_argument(
        "--out", "--output", type=Path, default=OUT / f"{name}.json", help="file of the report"
    )
    return made


def add_data(made: argparse.ArgumentParser) -> None:
    """--data."""
    made.add_argument("--data", type=Path, help="folder with the IDX files")


def add_device(made: argparse.ArgumentParser, default: str) -> None:
    """--device, "auto" already decided."""

    def choose(name: str) -> str:
        try:
            return str(pick_device(name))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    made.add_argument("--device", type=choose, default=default, help="auto, cpu or cuda")


def add_vectors(made: argparse.ArgumentParser, sets: Sequence[str], seeds: int) -> None:
    """--vectors, --sets, --seeds and --jobs."""
    made.add_argument("--vectors", type=Path, required=True, help="folder with the npz files")
    made.add_argument("--sets", nargs="+", default=list(sets), choices=sets)
    made.add_argument("--seeds", type=int, default=seeds)
    made.add_argument("--jobs", type=int, default=1, help="processes of one thread each")


def all_parts(measure: Measure, args: argparse.Namespace, parts: Sequence[Part]) -> list[Json]:
    """What measure(vectors, name, …, seed) finds of each part, several at a time, each done once."""
    folder = args.out.with_suffix("")
    report.make_folder(folder)
    work = [(measure, args.vectors, folder, part) for part in parts]
    for done, ((*_, part), _) in enumerate(finished(_step, work, args.jobs), 1):
        print(f"{done} of {len(parts)}:", *part, flush=True)
    return [_step(measure, args.vectors, folder, part) for part in parts]


def run_parts(
    argv: list[str], doc: str | None, name: str, measure: Measure, sets: Sequence[str], seeds: int,
    **between: Sequence[Any],
) -> None:  # fmt: skip
    """A whole benchmark: a part for each set, each value of what is between, and each seed."""
    made = parser(doc, name)
    add_vectors(made, sets, seeds)
    args = made.parse_args(argv)
    parts = list(itertools.product(args.sets, *between.values(), range(args.seeds)))
    keys, runs = ("set", *between, "seed"), all_parts(measure, args, parts)
    found = [
        dict(zip(keys, part, strict=True)) | run for part, run in zip(parts, runs, strict=True)
    ]
    head = report.head(report.command_line([name, *argv]), seeds=range(args.seeds))
    report.write(args.out, {**head, "results": found})


def _step(measure: Measure, vectors: Path, folder: Path, part: Part) -> Json:
    warnings.simplefilter("ignore")  # of rare classes, and of solvers that stop early
    return report.Parts(folder).step("-".join(map(str, part)), lambda: measure(vectors, *part))
