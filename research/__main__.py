"""Measure the paper again, study its theory, run benchmarks, write the pages made from them.

python -m research                       everything there is, one line each
python -m research NAME [options]        one of them; --help shows its options
python -m research reproduce fig1 fig2   tables and figures of the paper; `all` for every one
python -m research theory overlaps       a study of the theory, with its picture
python -m research field                 ours and the peers on small real data sets
python -m research pages --check         are the tables of README and docs those of the results?
"""

from __future__ import annotations

import ast
import difflib
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

FOLDER = Path(__file__).parent
COMMANDS = {
    "reproduce": "research.paper.command",
    "theory": "research.theory.commands",
    "field": "research.field.command",
    "gallery": "research.pages.gallery",
    "pages": "research.pages",
}  # fmt: skip


@cache
def benchmarks() -> dict[str, str]:
    """First line of the docstring of every benchmark. Imports none of them."""
    found = {}
    for path in sorted((FOLDER / "benchmarks").glob("[!_]*.py")):
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        found[path.stem] = text.partition("\n")[0]
    return found


def listing() -> dict[str, str]:
    """Everything there is: what to type, and what it does."""
    from research.paper import REGISTRY
    from research.theory.commands import STUDIES

    studies = {name: (s.run.__doc__ or "").partition("\n")[0] for name, s in STUDIES.items()}
    return {
        **{f"reproduce {name}": e.title for name, e in REGISTRY.items()},
        "reproduce all": "All of these; --quick for small ones, on data inside the package",
        **{f"theory {name}": text for name, text in studies.items()},
        **benchmarks(),
        "field": "Ours and the peers on small real data sets, with ranks and plots",
        "gallery": "Scripts of examples/, run and written as pages of the docs",
        "pages": "Tables and pictures of README and docs from the stored results",
    }


def main(arguments: list[str]) -> int:
    """Do what the command line asks; returns the exit code."""
    if not arguments or arguments[0] in ("--list", "-l", "--help", "-h"):
        known = listing()
        width = max(map(len, known))
        for name, text in known.items():
            print(f"{name:<{width}}  {text}")
        return 0
    name, *options = arguments
    modules = COMMANDS | {own: f"research.benchmarks.{own}" for own in benchmarks()}
    if name not in modules:
        near = difflib.get_close_matches(name, modules, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else "python -m research lists all"
        print(f"error: no {name!r}: {hint}", file=sys.stderr)
        return 2
    try:
        return import_module(modules[name]).main(options) or 0
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted: finished parts are kept, give the same command", file=sys.stderr)
        return 130


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show β shows a question mark instead of a traceback.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    sys.exit(main(sys.argv[1:]))
