"""The API reference is complete and right: every public name is on a page, described, with an example that runs.

Public is what the pages of docs/api show: `::: name` and, for a class, its members. Examples run after the code blocks of
docs/api/index.md and of their own page.
"""

from __future__ import annotations

import copy
import doctest
import inspect
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import yaml

import mnemosphere as mn

griffe = pytest.importorskip("griffe")

FOLDER = Path(__file__).parents[1] / "docs" / "api"
MODULES = (mn.interpret, mn.export, mn.data, mn.plots, mn.theory)
_DIRECTIVE = re.compile(r"^::: (\S+)\n((?:    .*\n|\n(?=    ))*)", re.MULTILINE)
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Public(NamedTuple):
    page: str
    name: str
    value: Any
    owner: type | None = None


def text(page: str) -> str:
    return (FOLDER / page).read_text(encoding="utf-8") + "\n"


def members(kind: type) -> dict[str, Any]:
    """Public methods and properties of a class and of its bases in this package."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("mnemosphere"):
            found |= {n: v for n, v in vars(base).items() if not n.startswith("_")}
    kinds = (property, cached_property, classmethod, staticmethod)
    return {n: v for n, v in found.items() if isinstance(v, kinds) or inspect.isfunction(v)}


def public() -> Iterator[Public]:
    for path in sorted(FOLDER.glob("*.md")):
        for name, options in _DIRECTIVE.findall(text(path.name)):
            module, _, own_name = name.rpartition(".")
            value = getattr(import_module(module), own_name)
            yield Public(path.name, name, value)
            if inspect.isclass(value):
                shown = (yaml.safe_load(options) or {}).get("options", {}).get("members")
                own = members(value)
                for n in own if shown is None else shown:
                    yield Public(path.name, f"{name}.{n}", own[n], value)


NAMES = list(public())
CALLABLE = [p for p in NAMES if not isinstance(p.value, (property, cached_property, str, tuple))]


def plain(value: Any) -> Callable[..., Any]:
    return getattr(value, "__func__", value)


def sections(value: Any) -> dict[str, Any]:
    """Sections of a numpydoc docstring; parameters and attributes by name."""
    parsed = griffe.Docstring(inspect.getdoc(plain(value)) or "").parse("numpy", warnings=False)
    return {
        s.kind.value: [e.name for e in s.value] if s.kind.value in ("parameters", "attributes") else s.value
        for s in parsed
    }


def arguments(public: Public) -> list[str]:
    own = list(inspect.signature(plain(public.value)).parameters.values())
    drop = public.owner is not None and not isinstance(public.value, staticmethod)
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [stars.get(p.kind, "") + p.name for p in own[drop:]]


def test_every_public_name_is_on_one_page():
    modules = {id(m): m.__name__ for m in MODULES}
    listed = {id(getattr(mn, n)): n for n in mn.__all__ if n != "__version__"}
    listed |= {id(getattr(m, n)): f"{m.__name__}.{n}" for m in MODULES for n in m.__all__}
    shown = [id(p.value) for p in NAMES if p.owner is None]
    assert len(shown) == len(set(shown))
    assert {n for k, n in listed.items() if k not in shown and k not in modules} == set()
    assert {p.name for p in NAMES if p.owner is None and id(p.value) not in listed} == set()


def test_result_classes_are_public():
    """A class of ours that a public function returns is public itself."""
    known = {p.value.__name__ for p in NAMES if inspect.isclass(p.value)}
    for p in CALLABLE:
        told = "" if inspect.isclass(p.value) else str(plain(p.value).__annotations__.get("return", ""))
        for name in re.findall(r"\b[A-Z]\w+", told):
            found = getattr(inspect.getmodule(plain(p.value)), name, None)
            ours = inspect.isclass(found) and found.__module__.startswith("mnemosphere")
            assert not ours or name in known, (p.name, name)


@pytest.mark.parametrize("public", CALLABLE, ids=lambda p: p.name)
def test_docstring_is_complete(public):
    told = sections(public.value)
    summary = inspect.getdoc(plain(public.value)).splitlines()[0]
    assert summary.endswith("."), summary
    assert "examples" in told
    if not inspect.isclass(public.value):
        assert told.get("parameters", []) == arguments(public)
        answer = plain(public.value).__annotations__.get("return")
        assert ("returns" in told or "yields" in told) == (answer not in (None, "None"))
    elif is_dataclass(public.value) and "attributes" in told:
        assert told["attributes"] == list(vars(public.value)["__annotations__"])
    else:
        given = [n for n in inspect.signature(public.value).parameters if n not in ("args", "kwargs")]
        assert told.get("parameters", []) == given


@pytest.mark.parametrize("public", [p for p in NAMES if isinstance(p.value, (property, cached_property))], ids=lambda p: p.name)
def test_property_has_one_sentence(public):
    told = inspect.getdoc(public.value)
    assert told.endswith(".")
    assert "\n\n" not in told


@pytest.fixture(scope="module")
def namespaces() -> Callable[[str], dict[str, Any]]:
    """Names that examples of a page start with: fresh copies, as some change them."""
    made: dict[str, dict[str, Any]] = {}

    def start(page: str) -> dict[str, Any]:
        if page not in made:
            made[page] = copied(start("index.md")) if page != "index.md" else {}
            for block in _BLOCK.findall(text(page)):
                exec(block, made[page])
        return made[page]

    def copied(names: dict[str, Any]) -> dict[str, Any]:
        shared = (ModuleType, type, type(len), type(copied))
        kept = {n: v for n, v in names.items() if n.startswith("__") or isinstance(v, shared)}
        return kept | copy.deepcopy({n: v for n, v in names.items() if n not in kept})

    return lambda page: copied(start(page))


@pytest.mark.parametrize("public", {plain(p.value): p for p in CALLABLE}.values(), ids=lambda p: p.name)
def test_example_runs(public, namespaces, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = inspect.getdoc(plain(public.value))
    example = doctest.DocTestParser().get_doctest(told, namespaces(public.page), public.name, None, 0)
    assert example.examples
    lines: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        failed = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=lines.append).failed
    assert failed == 0, "".join(lines)
