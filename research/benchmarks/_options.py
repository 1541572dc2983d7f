"""Options that several benchmarks share."""

from __future__ import annotations

import argparse
from pathlib import Path

from mnemosphere.base.machine import pick_device

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
