"""Pages with marks, and tables as Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

MARK = re.compile(r"(<!-- begin: ([\w -]+) -->)\n.*?(<!-- end: \2 -->)", re.DOTALL)

FACT = re.compile(r"(<!--=(\S+) ([^>]+?)-->).*?(<!--/-->)", re.DOTALL)


def names(text: str) -> list[str]:
    """The names of the marks on a page."""
    return [found[2] for found in MARK.finditer(text)]


def filled(text: str, body: Callable[[str], str]) -> str:
    """A page with what stands between its marks made anew, by their names."""
    return MARK.sub(lambda found: f"{found[1]}\n\n{body(found[2])}\n\n{found[3]}", text)


def told(text: str, fact: Callable[[str, str], str]) -> str:
    """A page with the numbers inside its sentences made anew, by section and name."""
    return FACT.sub(lambda found: f"{found[1]}{fact(found[2], found[3])}{found[4]}", text)


def markdown(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
