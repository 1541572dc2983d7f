"""What the command lines of benchmarks share."""

from __future__ import annotations

import argparse
from pathlib import Path

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
