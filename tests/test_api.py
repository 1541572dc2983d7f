"""The API reference is complete and right: every public name is on a page, described, with an example that runs.

Public is what the pages of docs/api show: `::: name` and, for a class, its members. Examples run after the code blocks of
docs/api/index.md and of their own page.
"""

import copy
import doctest
import inspect
import re
import warnings
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import pytest
import torch

import mnemosphere as mn
from research.pages.api import FOLDER, Public, public

griffe = pytest.importorskip("griffe")

MODULES = (mn.interpret, mn.export, mn.plots, mn.theory)
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def text(page: str) -> str:
    return (FOLDER / page).read_text(encoding="utf-8")


NAMES = list(public())
PROPERTIES = [p for p in NAMES if isinstance(p.value, (property, cached_property))]
CALLABLE = [p for p in NAMES if p not in PROPERTIES]


def plain(value: Any) -> Callable[..., Any]:
    return getattr(value, "__func__", value)


def sections(value: Any) -> dict[str, Any]:
    """Sections of a numpydoc docstring; parameters and attributes by name."""
    parsed = griffe.Docstring(inspect.getdoc(plain(value)) or "").parse("numpy", warnings=False)
    named = ("parameters", "attributes")
    found = {s.kind.value: s.value for s in parsed}
    return {kind: [e.name for e in v] if kind in named else v for kind, v in found.items()}


def arguments(shown: Public) -> list[str]:
    own = list(inspect.signature(plain(shown.value)).parameters.values())
    drop = shown.owner is not None and not isinstance(shown.value, staticmethod)
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    return [stars.get(p.kind, "") + p.name for p in own[drop:]]


def test_every_public_name_is_on_one_page():
    modules = {id(m): m.__name__ for m in MODULES}
    listed = {id(v): n for n in mn.__all__ if not isinstance(v := getattr(mn, n), str)}
    listed |= {id(getattr(m, n)): f"{m.__name__}.{n}" for m in MODULES for n in m.__all__}
    shown = [id(p.value) for p in NAMES if p.owner is None]
    assert len(shown) == len(set(shown))
    assert {n for k, n in listed.items() if k not in shown and k not in modules} == set()
    assert {p.name for p in NAMES if p.owner is None and id(p.value) not in listed} == set()


def test_result_classes_are_public():
    """A class of ours that a public function returns is public itself."""
    known = tuple(p.value for p in NAMES if inspect.isclass(p.value))
    for p in CALLABLE:
        told = getattr(plain(p.value), "__annotations__", {}).get("return", "")
        for name in re.findall(r"\b[A-Z]\w+", str(told)):
            found = getattr(inspect.getmodule(plain(p.value)), name, None)
            ours = inspect.isclass(found) and found.__module__.startswith("mnemosphere")
            assert not ours or issubclass(found, known), (p.name, name)


@pytest.mark.parametrize("shown", CALLABLE, ids=lambda p: p.name)
def test_docstring_is_complete(shown):
    told = sections(shown.value)
    summary = inspect.getdoc(plain(shown.value)).splitlines()[0]
    assert summary.endswith("."), summary
    assert "examples" in told
    if not inspect.isclass(shown.value):
        assert told.get("parameters", []) == arguments(shown)
        answer = plain(shown.value).__annotations__.get("return")
        assert ("returns" in told or "yields" in told) == (answer not in (None, "None"))
    elif is_dataclass(shown.value) and "parameters" not in told and "attributes" in told:
        assert told["attributes"] == list(vars(shown.value)["__annotations__"])
    else:
        own = vars(shown.value).get("__init__", lambda self: None)
        assert told.get("parameters", []) == list(inspect.signature(own).parameters)[1:]


@pytest.mark.parametrize("shown", PROPERTIES, ids=lambda p: p.name)
def test_property_has_one_sentence(shown):
    told = inspect.getdoc(shown.value)
    assert told.endswith(".")
    assert "\n\n" not in told


def test_fitted_attributes_are_described(namespaces):
    names = namespaces("index.md")
    for estimator in (names["clf"], names["clusterer"]):
        fitted = {n for n in dir(estimator) if n[0] != "_" == n[-1] and hasattr(estimator, n)}
        assert set(sections(type(estimator))["attributes"]) == fitted


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
        shared = (ModuleType, type, type(len), type(copied), torch.Generator)
        kept = {n: v for n, v in names.items() if n.startswith("__") or isinstance(v, shared)}
        return kept | copy.deepcopy({n: v for n, v in names.items() if n not in kept})

    return lambda page: copied(start(page))


@pytest.mark.parametrize(
    "shown", {plain(p.value): p for p in CALLABLE}.values(), ids=lambda p: p.name
)
def test_example_runs(shown, namespaces, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = inspect.getdoc(plain(shown.value))
    example = doctest.DocTestParser().get_doctest(told, namespaces(shown.page), shown.name, None, 0)
    assert example.examples
    if shown.name.endswith("register_converter"):
        pytest.importorskip("skl2onnx")
    lines: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        assert runner.run(example, out=lines.append).failed == 0, "".join(lines)
