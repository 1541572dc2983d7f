"""Lines of code of each package, without docstrings, comments and blank lines, within a budget.

A budget may move from one package to another; the sum may not grow.
"""

import ast
from pathlib import Path

import pytest

import mnemosphere

ROOT = Path(mnemosphere.__file__).parent
BUDGET = {
    "base": 300, "cli": 650, "estimators": 2158, "export": 710, "fitted": 660, "geometry": 892, "gpu": 47,
    "images": 301, "interpret": 1784, "model": 1453, "numerics": 592, "plots": 942, "rows": 1724,
    "theory": 1290, "training": 1633, "": 70,
}  # fmt: skip
MOST = 15_300
RESEARCH = ROOT.parents[1] / "research"
MOST_OF_RESEARCH = 8_000


def lines_of_code(path: Path) -> int:
    text = path.read_text(encoding="utf-8")
    told: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            told.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return sum(1 for number, line in lines if line and line[0] != "#" and number not in told)


def package(path: Path) -> str:
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else ""


@pytest.mark.parametrize("name", BUDGET)
def test_a_package_keeps_to_its_budget(name):
    size = sum(lines_of_code(path) for path in ROOT.rglob("*.py") if package(path) == name)
    assert size <= BUDGET[name], f"{name or 'the root'} has {size} lines: take some away"


def test_every_package_has_a_budget_and_the_sum_is_kept():
    assert {package(path) for path in ROOT.rglob("*.py")} == set(BUDGET)
    assert sum(BUDGET.values()) <= MOST


def test_research_keeps_to_its_budget():
    size = sum(map(lines_of_code, RESEARCH.rglob("*.py")))
    assert size <= MOST_OF_RESEARCH, f"research has {size} lines: take some away"


def test_docstrings_comments_and_blank_lines_do_not_count(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        '"""Two\nlines."""\n\n# why\nx = """\nnot one\n"""\n\ndef f():\n    "One."\n    return x\n'
    )
    assert lines_of_code(path) == 5
