"""Attacks on files, runs, inputs and commands: what was tried, and how many ended as they must not.

python -m research trust --processes 16
python -m research trust model_files --attempts 2000

A campaign goes in parts, each in a process of its own with a seed of its own. The report is written
after every part: an interrupted campaign goes on, and a longer one adds to it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from research import report
from research.benchmarks import _options
from research.trust import Tally, commands, promises

# Attempts in all, and in one part.
CAMPAIGNS = {
    "kills": (1_000, 100),
    "restarts": (40, 1),  # of up to six kills each
    "model_files": (100_000, 4_000),
    "inputs": (10_000, 500),
    "commands": (len(commands.cases()), 100),
    "promises": (240 * len(promises.PROMISES), 20 * len(promises.PROMISES)),
    "settings": (2_500, 250),
    "checkpoints": (1_000, 125),
}
_LIMIT = 3600.0  # seconds for a part


def main(arguments: list[str]) -> None:
    """Run campaigns, or add to what there is of them."""
    made = _options.parser(__doc__, "trust")
    made.add_argument("campaign", nargs="*", help=f"of {', '.join(CAMPAIGNS)}; all of them")
    made.add_argument("--attempts", type=int, help="of each campaign; as many as are promised")
    made.add_argument("--processes", type=int, default=1)
    asked = made.parse_args(arguments)
    unknown = set(asked.campaign) - CAMPAIGNS.keys()
    if unknown:
        made.error(f"no campaign {min(unknown)!r}: choose of {', '.join(CAMPAIGNS)}")
    found: dict[str, Any] = {}
    if asked.out.exists():
        found = report.read_json(asked.out, "delete it")
    command = report.command_line(["trust", *arguments])
    todo = []
    for name in asked.campaign or CAMPAIGNS:
        wanted, size = CAMPAIGNS[name]
        wanted = asked.attempts or wanted
        done = found.get(name, {}).get("parts", [])
        parts = [[first, min(size, wanted - first)] for first in range(0, wanted, size)]
        todo += [(name, *part) for part in parts if part not in done]
    with ThreadPoolExecutor(asked.processes) as pool:
        waiting = {pool.submit(_part, *part): part for part in todo}
        for future in as_completed(waiting):
            name, *part = waiting[future]
            known = found.get(name, {"outcomes": {}, "examples": {}, "parts": []})
            tally = Tally.from_dict(known)
            tally.update(future.result())
            parts = sorted([*known["parts"], part])
            found[name] = {**report.head(command), **tally.as_dict(), "parts": parts}
            report.write(asked.out, found)
            print(f"{name}: {tally.tried} tried, {tally.defects} defects", file=sys.stderr)


def _part(name: str, first: int, size: int) -> Tally:
    """Some attempts; a process that dies or does not end is a defect itself."""
    what = f"{name} from {first}, {size} attempts"
    # Kills fork, and a forked process cannot use a GPU that its parent has used.
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "part.json"
        words = [sys.executable, "-m", "research.trust", name, str(size), str(first), str(out)]
        try:
            done = subprocess.run(
                words, cwd=report.ROOT, env=env, capture_output=True, text=True, timeout=_LIMIT
            )
        except subprocess.TimeoutExpired:
            tally = Tally()
            tally.add("hangs", what)
            return tally
        if done.returncode == 0:
            return Tally.from_dict(json.loads(out.read_text(encoding="utf-8")))
        tally = Tally()
        last = (done.stderr.splitlines() or [""])[-1]
        tally.add("crash", f"{what}: exit code {done.returncode}, {last[:300]}")
        return tally
