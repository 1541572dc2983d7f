"""What is written by hand on the pages: it may hold no measured number.

A measured number is a percentage, a number with a unit of time or memory, "3 points", "3 times",
"3 passes", "3 of 7", "3 ± 1", "0.3 to 0.7" or a power of ten. It comes from a stored result, through a
block or a mark that `python -m research pages` fills. Settings look the same: `SETTINGS` names them.
"""

from __future__ import annotations

import re

from research.pages import marks
from research.report import ROOT

# Pages with one task and one reader each.
GUIDE = {*(ROOT / "docs" / "guide").glob("*.md")}

# Numbers that are settings, definitions or parts of a name, by the words around them.
SETTINGS = {
    "95% bootstrap interval": "the level of an interval",
    "25 / 50 / 75% known": "the protocol of TEXTOIR",
    "to 1e-9": "a tolerance that a test asserts",
    "Python 3.11 to 3.1": "versions",
    "79% stands for 78.5 to 79.5": "a number of the paper, at two digits",
    "so the 79% is": "the same number",
    "must lower it by 7%, one more cycle by 2%": "constants of the choice",
    "reaches a probability of 90%": "a parameter of the call above it",
    "less than 90% sure": "a limit in the code above it",
    "threshold for 5%": "a rate in the code above it",
    "lost 90% of their pixels": "a share in the code below it",
}

_NUMBER = r"\d[\d,.]*(?:[–-]\d[\d,.]*)?"
_MEASURED = re.compile(
    rf"{_NUMBER}\s?%|{_NUMBER}\s(?:s|ms|µs|seconds?|minutes?|hours?|kB|MB|GB|TB|points?|times|passes)\b"
    rf"|\b\d[\d,]* of (?:the |its )?\d[\d,]*\b"
    r"|\d(?:e|·10)[-−⁻]?[\d⁰¹²³⁴⁵⁶⁷⁸⁹]+|\d ± \d|\d\.\d+ to \d"
)
# What is no sentence, and what is left of it: code and formulas inside of one count as a word.
_ASIDE = {
    r"^```.*?^```": "", r"<!--.*?-->": "", r"\$\$.*?\$\$": "", r"`[^`]*`": "code", r"\$[^$\n]+\$": "formula",
    r"\]\([^)]*\)": "]", r"^#.*?$": "", r"(?<=\n\n)(?: {4}.*?\n|\n)+": "", r"<[^>]+>": "", r"\{[^}]*\}": "",
}  # fmt: skip


def by_hand(text: str) -> str:
    """A page without what is generated, and without code, formulas and headings."""
    text = marks.told(marks.filled(text, lambda name: ""), lambda section, what: "")
    for pattern, left in _ASIDE.items():
        text = re.sub(pattern, left, text, flags=re.M | re.S)
    return text


def typed_numbers(text: str) -> list[str]:
    """Measured numbers that were typed by hand, with the words around them."""
    text = by_hand(text)
    for setting in SETTINGS:
        text = text.replace(setting, "")
    return [
        re.sub(r"\s+", " ", text[max(0, found.start() - 40) : found.end() + 30]).strip()
        for found in _MEASURED.finditer(text)
    ]
