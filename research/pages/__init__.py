"""Tables and pictures of README and docs, made from the stored results; measures nothing.

    python -m research pages            write them
    python -m research pages --check    write nothing; exit code 1 if something is wrong

What stands between `<!-- begin: NAME -->` and `<!-- end: NAME -->` on a page is replaced: by a
table of the benchmarks in README.md and in pages of docs, by the tables and pictures of the latest
full run of an experiment in docs/research/paper-reproduced.md. A number in a sentence of the theory's pages
or of that one stands between `<!--=SECTION NAME-->` and `<!--/-->`, and is replaced too. The options
that the command line has of the estimators' settings are written too.

`--check` looks at tables, numbers, options, the copies of the experiments' pictures and the code of the
gallery; counts words; finds measured numbers that were typed by hand (`prose`); and refuses tables whose
results are of several machines, or of another version or other defaults than the package (`stored.problems`).
"""

from __future__ import annotations

import argparse

from mnemosphere.plots import save
from research.field import page as field
from research.pages import api, gallery, marks, open_world, pictures, prose, stored, tables, theory
from research.paper import page as reproduced
from research.plots import idea
from research.report import ROOT, STORED
from research.theory import facts

PAPER_PAGE, PAPER_RESULTS = ROOT / "docs" / "research" / "paper-reproduced.md", STORED / "paper"
PAGES = (ROOT / "README.md", *sorted({*(ROOT / "docs").rglob("*.md")} - {PAPER_PAGE}))
TABLES = tables.TABLES | field.TABLES | open_world.TABLES | api.TABLES | theory.TABLES
PICTURES = pictures.PICTURES | idea.PICTURES | field.PICTURES
IMAGES = ROOT / "docs" / "images"


def made(text: str) -> str:
    """A page with its tables and the numbers inside its sentences made anew."""
    return marks.told(marks.filled(text, table), facts.fact)


def table(name: str) -> str:
    """The table of this name."""
    found = TABLES[name]()
    return found if isinstance(found, str) else found.text


def refused() -> list[str]:
    """Tables on pages whose results may not be shown together, or no longer."""
    found = []
    for page in PAGES:
        for name in marks.names(page.read_text(encoding="utf-8")):
            made = TABLES[name]()
            found += [] if isinstance(made, str) else stored.problems(name, made.runs)
    return list(dict.fromkeys(found))


def stale() -> list[str]:
    """What is out of date, by its path from the root."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if made(text) != text:
            found.append(page)
    found += reproduced.stale(PAPER_PAGE, PAPER_RESULTS)
    found += gallery.stale()  # written by `python -m research gallery`, which runs the scripts
    return [str(path.relative_to(ROOT)) for path in found]


def write() -> None:
    """Bring every page up to date, and draw the pictures of the benchmarks."""
    for page in PAGES:
        page.write_text(made(page.read_text(encoding="utf-8")), encoding="utf-8")
    reproduced.write(PAPER_PAGE, PAPER_RESULTS)
    for name, draw in PICTURES.items():
        save(draw(), IMAGES / f"{name}.png", dpi=150)
    pictures.demo_mistake(IMAGES / "mistake.png")
    pictures.texts_page(IMAGES / "texts.png")
    pictures.live_page(IMAGES.parent / "live.html", IMAGES / "explorer.png")


def main(arguments: list[str]) -> int:
    """Write the pages, or say what of them is out of date."""
    parser = argparse.ArgumentParser(
        prog="python -m research pages", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args(arguments).check
    found = stale()
    for name in found:
        print(f"{name} {'is out of date' if check else 'brought up to date'}")
    if check:
        typed = [n for page in PAGES for n in prose.typed_numbers(page.read_text(encoding="utf-8"))]
        wrong = refused() + [f"typed by hand: {number}" for number in typed]
        print("\n".join(wrong))
        return int(bool(found + wrong))
    write()
    return 0
