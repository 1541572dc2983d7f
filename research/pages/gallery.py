"""The gallery: scripts of examples/ are run, and become pages and notebooks with their output.

    python -m research gallery [NAME ...] [--jobs N]    run all or some, write their pages to docs/gallery

The docstring of a script is the title and the introduction. A line `# %%` begins a cell, and the
comments below it are its text. Figures are what a cell saves as PNG, and the comment `# Figure:` below
is its caption; a notebook displays them.
"""

from __future__ import annotations

import argparse
import ast
import base64
import contextlib
import io
import json
import re
import shutil
import tempfile
from pathlib import Path

from matplotlib import rc_context

from research import jobs
from research.report import ROOT

SCRIPTS = {path.stem: path for path in sorted((ROOT / "examples").glob("*.py"))}
FOLDER = ROOT / "docs" / "gallery"
_CAPTION = re.compile(r"\n *# Figure: (.*)")
_IN_THE_GUIDE = {"novelty": "novelty_at_a_rate", "recall": "recall_damaged_digits"}
_ABOUT = """# Gallery

Short scripts on real data, in `examples/` of the source. Pages show what they print and draw; each can be downloaded as a notebook. The
tests run them; slow ones on request.
"""


def cells(name: str) -> tuple[str, str, list[tuple[str, str]]]:
    """Title and introduction of a script, then the text and the code of its cells."""
    source = SCRIPTS[name].read_text(encoding="utf-8")
    title, _, about = (ast.get_docstring(ast.parse(source)) or "").partition("\n")
    parts = []
    for cell in re.split(
        r"^# %%\n", _CAPTION.sub("", source.split('"""', 2)[2]), flags=re.MULTILINE
    ):
        lines = cell.splitlines()
        n = next((k for k, line in enumerate(lines) if not line.startswith("#")), len(lines))
        text = "\n".join(line[1:].strip() for line in lines[:n])
        parts.append((text, "\n".join(lines[n:]).strip()))
    return title, about.strip(), parts


def captions(name: str) -> dict[str, str]:
    """The caption of each figure that a script saves."""
    source = SCRIPTS[name].read_text(encoding="utf-8")
    return dict(re.findall(r'savefig\("(.*)"\)' + _CAPTION.pattern, source))


def displayed(code: str) -> str:
    """The code of a cell, which displays its figures where the script saves them."""
    for call in ast.walk(ast.parse(code)):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            saved, figure = (ast.get_source_segment(code, n) or "" for n in (call, call.func.value))
            code = (
                code.replace(saved, f"display({figure})") if call.func.attr == "savefig" else code
            )
    return code


def notebook(name: str) -> str:
    """The page of a script as a notebook: its text, code, output and figures."""
    title, about, parts = cells(name)
    page = (FOLDER / f"{name}.md").read_text(encoding="utf-8")
    outputs = re.split(r"^```python\n.*?^```$", page, flags=re.MULTILINE | re.DOTALL)[1:]
    found: list[dict[str, object]] = [_markdown(f"# {title}\n\n{about}")]
    start = "%matplotlib inline\n" * ("savefig" in SCRIPTS[name].read_text(encoding="utf-8"))
    for k, ((text, code), output) in enumerate(zip(parts, outputs, strict=True), 1):
        results: list[dict[str, object]] = []
        for printed in re.findall(r"^```text\n(.*?)^```$", output, re.MULTILINE | re.DOTALL):
            results.append({"output_type": "stream", "name": "stdout", "text": printed})
        for figure in re.findall(rf"\(({name}-.*?\.png)\)", output):
            png = base64.b64encode((FOLDER / figure).read_bytes()).decode()
            results.append(
                {"output_type": "display_data", "data": {"image/png": png}, "metadata": {}}
            )
        found += [_markdown(text)] * bool(text)
        found.append({"cell_type": "code", "execution_count": k, "metadata": {}, "outputs": results,
                      "source": start + displayed(code)})  # fmt: skip
        start = ""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    head = {"metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps({"cells": found, **head}, indent=1, ensure_ascii=False) + "\n"


def _markdown(text: str) -> dict[str, object]:
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def write(name: str) -> None:
    """Run a script, write its page, its notebook and its figures."""
    title, about, parts = cells(name)
    link = f"[Download as a notebook]({name}.ipynb)"
    lines, namespace = [f"# {title}", about, link], {"__name__": "__main__"}
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
                lines.append(f"*{captions(name)[figure.name]}*")
    page = "\n\n".join(line for line in lines if line)
    (FOLDER / f"{name}.md").write_text(page + "\n", encoding="utf-8")
    (FOLDER / f"{name}.ipynb").write_text(notebook(name), encoding="utf-8")


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
    """Pages that are missing or whose code is not that of their script, and other notebooks than theirs."""
    found = [FOLDER / "index.md"] * ((FOLDER / "index.md").read_text(encoding="utf-8") != index())
    for name in SCRIPTS:
        page = FOLDER / f"{name}.md"
        text = page.read_text(encoding="utf-8") if page.exists() else ""
        codes = [f"```python\n{code}\n```" for _, code in cells(name)[2]]
        if re.findall(r"^```python\n.*?^```$", text, re.MULTILINE | re.DOTALL) != codes:
            found.append(page)
        elif not (book := page.with_suffix(".ipynb")).exists() or book.read_text() != notebook(
            name
        ):
            found.append(book)
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
