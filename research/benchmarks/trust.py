"""Attacks on files, runs, inputs and commands: what was tried, and how many ended as they must not.

python -m research trust model_files --attempts 100000

A campaign goes in parts of 500 attempts, each with a seed of its own, and its report is written
after every part: an interrupted one goes on, and a longer one adds to it.
"""

from __future__ import annotations

import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from research import report
from research.benchmarks import _options
from research.trust import Tally

CAMPAIGNS = {"model_files": 100_000, "kills": 1_000, "inputs": 10_000, "commands": 0}
_PART = 500


def main(arguments: list[str]) -> None:
    """Run one campaign, or add to what there is of it."""
    made = _options.parser(__doc__, "trust")
    made.add_argument("campaign", choices=CAMPAIGNS)
    made.add_argument("--attempts", type=int, help="0: each one there is, where they are counted")
    made.add_argument("--seed", type=int, default=0)
    asked = made.parse_args(arguments)
    torch.set_num_threads(1)
    wanted = CAMPAIGNS[asked.campaign] if asked.attempts is None else asked.attempts
    command = report.command_line(["trust", *arguments])
    found: dict[str, Any] = {}
    if asked.out.exists():
        found = report.read_json(asked.out, "delete it")
    content = found.get(asked.campaign, {})
    tally = Tally.from_dict(content) if content.get("seed") == asked.seed else Tally()
    run = import_module(f"research.trust.{asked.campaign}").campaign
    while tally.tried < wanted or not tally.tried:
        part = min(_PART, wanted - tally.tried)
        with tempfile.TemporaryDirectory(dir=_memory()) as folder:
            tally.update(run(part, Path(folder), asked.seed + tally.tried))
        found[asked.campaign] = {**report.head(command), "seed": asked.seed, **tally.as_dict()}
        report.write(asked.out, found)
        print(f"{asked.campaign}: {tally.tried} tried, {tally.defects} defects", file=sys.stderr)
        if wanted == 0:
            break


def _memory() -> str | None:
    """A folder that is no disk, where there is one: most files live for a moment."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
