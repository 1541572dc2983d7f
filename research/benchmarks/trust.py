"""Trials of the four promises of docs/contribute/trust.md, and the defects that they find.

    python -m research trust               all tests, slow ones too, with few examples each
    python -m research trust --campaign    all examples, new ones in every run: takes hours

A trial is one example of Hypothesis, or one test without random examples. A defect is a test that fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

from research import report
from research.benchmarks._options import parser

SUITES = {
    "files that were damaged": "tests/estimators/test_damaged_files.py",
    "runs that were killed": "tests/trust/test_runs.py",
    "rows, settings and labels": "tests/trust/test_inputs.py",
    "commands on bad files": "tests/trust/test_commands.py",
}
_EXAMPLES = re.compile(r"(\d+) passing, (\d+) failing")
_TEST = re.compile(r"^\S+::.*:$", re.MULTILINE)  # with examples, in the statistics


def counted(output: str) -> tuple[int, int]:
    """(trials, defects) in what pytest prints with --hypothesis-show-statistics."""
    last = output.rstrip().rpartition("\n")[2]
    ended = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", last)}
    defects = ended.get("failed", 0) + ended.get("error", 0)
    drawn = sum(int(n) for found in _EXAMPLES.findall(output) for n in found)
    return drawn + ended.get("passed", 0) + defects - len(_TEST.findall(output)), defects


def main(argv: list[str]) -> None:
    options = parser(__doc__, "trust")
    options.add_argument("--campaign", action="store_true", help="all examples")
    args = options.parse_args(argv)
    rows = []
    for name, path in SUITES.items():
        words = ["-m", "pytest", "-q", "-m", "", "--hypothesis-show-statistics", path]
        more = {"CAMPAIGN": "1"} if args.campaign else {}
        began = time.perf_counter()
        done = subprocess.run(
            [sys.executable, *words], cwd=report.ROOT, env=os.environ | more, capture_output=True,
            text=True,
        )  # fmt: skip
        if done.returncode not in (0, 1):  # it was broken off
            raise RuntimeError(f"{path}: pytest ended with {done.returncode}: {done.stderr[-500:]}")
        trials, defects = counted(done.stdout)
        seconds = round(time.perf_counter() - began)
        rows.append({"what": name, "suite": path.removeprefix("tests/"), "trials": trials,
                     "defects": defects, "seconds": seconds})  # fmt: skip
        print(rows[-1], flush=True)
    head = report.head(report.command_line(["trust", *argv]))
    report.write(args.out, {**head, "rows": rows})
