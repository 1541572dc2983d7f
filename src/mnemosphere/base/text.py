"""Tables as plain text that fits a terminal, and as HTML."""

from __future__ import annotations

import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from textwrap import fill

_WIDTH, _WIDTH_HTML = 100, 1000  # letters of a line as text, and in a notebook
_FIRST = 5  # rows in a notebook

_HUNDREDTH, _LEAST_SHARE = 0.01, 0.001  # shares with a digit more, and that are not told closely

Table = list[dict[str, str]]


class Shown(ABC):
    """A result that shows itself as sentences and tables, in a terminal and in a notebook."""

    @abstractmethod
    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """Sentences and tables in order, for people; most: rows of the result to show."""

    def as_text(self, width: int) -> str:
        """The same as lines of so many letters."""
        lines = [
            _wrapped(part, width) if isinstance(part, str) else format_table(part, width) + "\n"
            for part in map(_printable, self.parts(width))
        ]
        return "\n".join(lines).rstrip()

    def __str__(self) -> str:
        return self.as_text(_WIDTH)

    def _repr_html_(self) -> str:
        """The same for a notebook, of the first few rows."""
        return "".join(
            f"<p>{escape(part)}</p>" if isinstance(part, str) else html_table(part)
            for part in map(_printable, self.parts(_WIDTH_HTML, _FIRST))
        )


def _wrapped(text: str, width: int) -> str:
    return fill(text, width, break_long_words=False, break_on_hyphens=False)


def printable(text: str, keep: str = "") -> str:
    r"""A text whose signs all show: others, which may command a terminal or turn a line, are \x.."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text
    )


def _printable(part: str | Table) -> str | Table:
    """A sentence, or all cells of a table, whose signs all show."""
    if isinstance(part, str):
        return printable(part, keep="\n")
    return [{printable(name): printable(cell) for name, cell in row.items()} for row in part]


def cell_len(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.category(c) in ("Mn", "Me", "Cf") for c in text)


def format_table(rows: Sequence[Mapping[str, str]], width: int) -> str:
    """Columns side by side; those that do not fit into `width` below, after the first one again."""
    names = list(rows[0])
    wide = {n: max(cell_len(n), *(cell_len(row[n]) for row in rows)) for n in names}
    left = width - wide[names[0]]
    blocks: list[list[str]] = [[]]
    for name in names[1:]:
        left -= 2 + wide[name]
        if left < 0 and blocks[-1]:
            blocks.append([])
            left = width - wide[names[0]] - 2 - wide[name]
        blocks[-1].append(name)
    return "\n\n".join(_block(rows, [names[0], *block], wide, width) for block in blocks)


def _block(
    rows: Sequence[Mapping[str, str]], names: list[str], wide: Mapping[str, int], width: int
) -> str:
    right = {n for n in names if all(_is_figure(row[n]) for row in rows)}
    lines = []
    for row in [{n: n for n in names}, *rows]:
        parts = (
            " " * (wide[n] - cell_len(row[n])) + row[n]
            if n in right
            else row[n] + " " * (wide[n] - cell_len(row[n]))
            for n in names
        )
        lines.append("  ".join(parts).rstrip())
    return "\n".join([lines[0], "─" * min(width, max(map(cell_len, lines))), *lines[1:]])


def _is_figure(cell: str) -> bool:
    return not cell.strip("0123456789.,%+-−–·#e ")


def short_text(text: str | None, most: int = 60) -> str:
    """A text in quotes, on one line."""
    line = " ".join((text or "").split())
    return f'"{line if len(line) <= most else line[: most - 1] + "…"}"'


def middle_cut(text: str, most: int) -> str:
    """A name on one line; a long one is cut in the middle, since names often differ at their ends."""
    line, tail = " ".join(text.split()), most // 3
    return line if len(line) <= most else f"{line[: most - 1 - tail]}…{line[-tail:]}"


def percent(share: float) -> str:
    """A share for people: 59%, 99.6%, 0.4%; what is not all or nothing is not called so."""
    if 0 < share < _LEAST_SHARE:
        return f"<{_LEAST_SHARE:.1%}"
    if 1 - _LEAST_SHARE < share < 1:
        return f">{1 - _LEAST_SHARE:.1%}"
    return f"{share:.0%}" if _HUNDREDTH <= share <= 1 - _HUNDREDTH else f"{share:.1%}"


def html_table(rows: Sequence[Mapping[str, str]]) -> str:
    """The same for a notebook."""

    def line(tag: str, cells: Iterable[str]) -> str:
        shown = (f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)
        return f"<tr>{''.join(shown)}</tr>"

    body = "".join(line("td", row.values()) for row in rows)
    return f"<table>{line('th', rows[0])}{body}</table>"
