"""The names of the API reference, as its pages show them, and the table of all of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from typing import Any, NamedTuple

from mnemosphere import __version__
from research.pages.marks import markdown
from research.report import ROOT

FOLDER = ROOT / "docs" / "api"
_DIRECTIVE = re.compile(r"^::: (\S+)\n((?:    .*\n)*)", re.MULTILINE)


class Public(NamedTuple):
    """A name on a page."""

    page: str
    name: str
    value: Any
    owner: type | None = None  # the class of a method or property


def public() -> Iterator[Public]:
    """Every `::: name`, and after a class its members, those that `members` lists or all."""
    for path in sorted(FOLDER.glob("*.md")):
        for name, options in _DIRECTIVE.findall(path.read_text(encoding="utf-8")):
            module, _, own = name.rpartition(".")
            value = getattr(import_module(module), own)
            yield Public(path.name, name, value)
            if inspect.isclass(value):
                shown, found = re.search(r"members: \[(.*)\]", options), _members(value)
                for n in re.findall(r"\w+", shown[1]) if shown else found:
                    yield Public(path.name, f"{name}.{n}", found[n], value)


def _members(kind: type) -> dict[str, Any]:
    """Methods and properties of a class and of its bases in the package."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("mnemosphere"):
            found |= {n: v for n, v in vars(base).items() if not n.startswith("_")}
    kinds = (property, cached_property, classmethod, staticmethod)
    return {n: v for n, v in found.items() if isinstance(v, kinds) or inspect.isfunction(v)}


def names() -> str:
    """All names with their summaries: classes with pages of their own, then page by page."""
    tables: dict[str, list[tuple[str, str]]] = {"Classes": []}
    for page, name, value, owner in public():
        if owner is None:
            short, stem = name.rpartition(".")[2], page.removesuffix(".md")
            link = page if short == stem else f"{page}#{name}"
            told = (inspect.getdoc(value) or "").splitlines()[0].replace("|", "\\|")
            head = "Classes" if short == stem else f"[{stem}]({page})"
            tables.setdefault(head, []).append((f"[`{short}`]({link})", told))
    parts = (
        f"### {head}\n\n{markdown(('name', 'summary'), rows)}" for head, rows in tables.items()
    )
    return "\n\n".join(parts)


def version() -> str:
    """Which version the pages are of."""
    return f"Version {__version__}."


TABLES = {"api names": names, "version": version}
