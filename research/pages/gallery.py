"""The gallery: scripts of examples/ are run, and become pages with their code, output and figures.

    python -m research gallery [NAME ...] [--jobs N]    run all or some, write their pages to docs/gallery

The docstring of a script is the title and the introduction. A line `# %%` begins a cell, and the
comments below it are its text. Figures are what a cell saves as PNG.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import re
import shutil
import tempfile
from pathlib import Path

from matplotlib import rc_context

from research import jobs
from research.report import ROOT

SCRIPTS = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
FOLDER = ROOT / "docs" / "gallery"
_IN_THE_GUIDE = {"novelty": "novelty_at_a_rate", "recall": "recall_damaged_digits"}
_ABOUT = """# Gallery

Short scripts on real data, in `examples/` of the source. Pages show what they print and draw. The tests run them; slow ones on request.
"""


def cells(name: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Title and introduction of a script, then the text and the code of its cells."""
    source = SCRIPTS[name].read_text(encoding="utf-8")
    title, _, about = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
    parts = []
    for cell in re.split(r"^# %%\n", source.split('"""', 2)[2], flags=re.MULTILINE):
        lines = cell.splitlines()
        n = next((k for k, line in enumerate(lines) if not line.startswith("#")), len(lines))
        text = "\n".join(line[1:].strip() for line in lines[:n])
        parts.append((text, "\n".join(lines[n:]).strip()))
    return title, about.strip(), parts


def write(name: str) -> None:
    """Run a script, write its page and its figures."""
    title, about, parts = cells(name)
    lines, namespace = [f"# {title}", about], {"__name__": "__main__"}
    for old in FOLDER.glob(f"{name}-*.png"):
        old.unlink()
    with (
        tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder),
        rc_context({"savefig.dpi": 150}),
    ):  # fmt: skip
        for text, code in parts:
            before, printed = set(Path().glob("*.png")), io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, SCRIPTS[name].name, "exec"), namespace)
            lines += [text, f"```python\n{code}\n```"]
            lines += [f"```text\n{printed.getvalue().rstrip()}\n```"] * bool(printed.getvalue())
            for figure in sorted(set(Path().glob("*.png")) - before):
                (FOLDER / f"{name}-{figure}").write_bytes(figure.read_bytes())
                lines.append(f"![{title}]({name}-{figure})")
    page = "\n\n".join(line for line in lines if line)
    (FOLDER / f"{name}.md").write_text(page + "\n", encoding="utf-8")


def write_if_possible(name: str) -> str | None:
    """The package that is missing, if one is."""
    try:
        write(name)
    except ModuleNotFoundError as error:
        return error.name
    return None


def index() -> str:
    """All scripts by title, each with its last figure."""
    lines = [_ABOUT, '<div class="grid cards" markdown>', ""]
    for name in SCRIPTS:
        title, about, _ = cells(name)
        lines.append(f"-   [**{title}**]({name}.md)\n\n    {' '.join(about.split())}\n")
        for figure in sorted(FOLDER.glob(f"{name}-*.png"))[-1:]:
            lines.append(f"    [![{title}]({figure.name})]({name}.md)\n")
    return "\n".join([*lines, "</div>", ""])


def stale() -> list[Path]:
    """Pages that are missing, or whose code is not that of their script."""
    found = [FOLDER / "index.md"] * ((FOLDER / "index.md").read_text(encoding="utf-8") != index())
    for name in SCRIPTS:
        page = FOLDER / f"{name}.md"
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        codes = [f"```python\n{code}\n```" for _, code in cells(name)[2]]
        if re.findall(r"^```python\n.*?^```$", text, re.MULTILINE | re.DOTALL) != codes:
            found.append(page)
    return found


def main(arguments: list[str]) -> int:
    """Write the pages of these scripts, or of all, and the index."""
    parser = argparse.ArgumentParser(prog="python -m research gallery")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SCRIPTS))
    parser.add_argument("--jobs", type=int, default=1, help="processes, one thread each")
    args = parser.parse_args(arguments)
    FOLDER.mkdir(exist_ok=True)
    work = [(name,) for name in args.names or SCRIPTS]
    for (name,), missing in jobs.finished(write_if_possible, work, args.jobs):
        print(f"{name} stays: it needs {missing}" if missing else f"wrote {name}", flush=True)
    for figure, name in _IN_THE_GUIDE.items():
        shutil.copy(FOLDER / f"{name}-{figure}.png", FOLDER.parent / "images" / f"{figure}.png")
    (FOLDER / "index.md").write_text(index(), encoding="utf-8")
    return 0
