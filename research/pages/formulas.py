"""Formulas of the site as MathML, made when it is built: no script, no network.

MkDocs calls it as a hook, see mkdocs.yml.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)

# The name of a function stands apart from what follows, unless that is in brackets.
_NAME = re.compile(r"(<mi>(?!&)[a-z]{2,}</mi>)(?!<mo[^>]*>(?:&#x00028;|\(|\[))")


def on_page_content(html: str, **_: Any) -> str:
    """The page with its formulas drawn."""
    return _FORMULA.sub(_drawn, html)


def _drawn(found: re.Match[str]) -> str:
    kind, source = found[1], unescape(found[2])
    display = "block" if kind == "div" else "inline"
    drawn = _NAME.sub(r'\1<mspace width="0.17em" />', convert(source, display=display))
    return f'<{kind} class="arithmatex">{drawn}</{kind}>'
