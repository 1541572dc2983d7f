"""List the benchmarks, run one, or (by default) run the quick ones.

python -m benchmarks                 the quick ones
python -m benchmarks --list          all of them, a line each
python -m benchmarks NAME [options]  one of them; --help shows its options
"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
QUICK = ("one_pass", "maximize")  # about a minute each, no data needed


def summaries() -> dict[str, str]:
    """First line of the docstring of every benchmark."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        if not path.stem.startswith("_"):
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            found[path.stem] = text.partition("\n")[0]
    return found


def run(name: str, options: list[str]) -> int:
    """Run one benchmark in a process of its own: none warms the caches of another."""
    command = [sys.executable, "-m", f"benchmarks.{name}", *options]
    return subprocess.call(command, cwd=FOLDER.parent)


def main(arguments: list[str]) -> int:
    """Do what the command line asks."""
    known = summaries()
    if arguments[:1] in (["--list"], ["-l"], ["--help"], ["-h"]):
        width = max(map(len, known))
        for name, summary in known.items():
            print(f"{name:<{width}}  {summary}{'  [quick]' if name in QUICK else ''}")
        return 0
    if arguments:
        name = arguments[0]
        if name not in known:
            print(f"no benchmark {name!r}: try one of {', '.join(known)}", file=sys.stderr)
            return 2
        return run(name, arguments[1:])
    return max(run(name, []) for name in QUICK)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
