"""Imports go down only. A new module at the top of the package must be given its place here.

`research` stands beside the package and may import all of it; the package never imports `research`.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mnemosphere

PACKAGE = "mnemosphere"
LAYERS = {
    "numerics": 0,
    "model": 1,
    "theory": 1,
    "training": 2,
    "datasets": 2,
    "estimators": 3,
    "plots": 3,
    "__init__": 3.5,  # the public names: gathers the estimators
    "cli": 4,
    "__main__": 5,
}
APART = {("theory", "training"), ("training", "theory"), ("model", "theory")}
CORE = {"numerics", "model", "theory", "training"}
BESIDE = {"research", "tests"}
NOT_IN_CORE = {"sklearn", "matplotlib", "rich", "typer"}


def imported(path: Path, module: str, is_package: bool) -> list[str]:
    """Absolute dotted names of all that a file imports, wherever in the file it does."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parts = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parts, base] if base else parts)
            names += [f"{base}.{alias.name}" for alias in node.names]
    return names


def violations(root: Path) -> list[str]:
    """One line for each import of the package at `root` that breaks a rule."""
    modules = {p.stem if p.is_file() else p.name for p in root.iterdir()}
    found = []
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        layer = parts[0]
        if layer not in LAYERS:
            found.append(f"{layer} has no place in LAYERS")
            continue
        is_package = parts[-1] == "__init__"
        module = ".".join([PACKAGE, *(parts[:-1] if is_package else parts)])
        for name in imported(path, module, is_package):
            top, *rest = name.split(".")
            if top != PACKAGE:
                if top in BESIDE:
                    found.append(f"{module} imports {top}")
                if layer in CORE and top in NOT_IN_CORE:
                    found.append(f"{module} imports {top}")
                continue
            target = rest[0] if rest and rest[0] in modules else "__init__"
            up = LAYERS.get(target, 99) > LAYERS[layer]
            if up or (layer, target) in APART:
                found.append(f"{module} imports {target}")
    return found


def test_imports_go_down_only():
    assert violations(Path(mnemosphere.__file__).parent) == []


@pytest.mark.parametrize(
    ("file", "line", "message"),
    [
        ("numerics/a.py", "from mnemosphere.model import kernel", "numerics.a imports model"),
        ("numerics/a.py", "from mnemosphere import model", "numerics.a imports model"),
        ("numerics/a.py", "import mnemosphere.model.kernel", "numerics.a imports model"),
        ("numerics/a.py", "from ..model.kernel import x", "numerics.a imports model"),
        ("numerics/__init__.py", "from ..model import x", "numerics imports model"),
        ("numerics/a.py", "from .. import model", "numerics.a imports model"),
        ("model/a.py", "def f():\n    import mnemosphere.training", "model.a imports training"),
        ("model/a.py", "from mnemosphere.theory import x", "model.a imports theory"),
        ("theory/a.py", "from mnemosphere.training import x", "theory.a imports training"),
        ("training/a.py", "from mnemosphere.theory import x", "training.a imports theory"),
        ("training/a.py", "import mnemosphere", "training.a imports __init__"),
        ("training/a.py", "import sklearn.mixture", "training.a imports sklearn"),
        ("theory/a.py", "from matplotlib import pyplot", "theory.a imports matplotlib"),
        ("estimators.py", "from mnemosphere import cli", "estimators imports cli"),
        ("cli.py", "from research import report", "cli imports research"),
        ("cli.py", "def f():\n    import research.fits", "cli imports research"),
        ("gadget.py", "import torch", "gadget has no place in LAYERS"),
    ],
)
def test_each_rule_is_enforced(tmp_path, file, line, message):
    for name in ("numerics", "model", "theory", "training"):
        (tmp_path / name).mkdir()
    (tmp_path / "cli.py").write_text("")
    (tmp_path / file).write_text(line)
    (found,) = violations(tmp_path)
    assert found.removeprefix("mnemosphere.") == message


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("cli.py", "import rich\nfrom mnemosphere.training import loop\nimport mnemosphere"),
        ("training/a.py", "from ..model.kernel import x\nfrom . import b\nimport torch"),
        ("theory/a.py", "from mnemosphere.model import kernel"),
    ],
)
def test_downward_imports_pass(tmp_path, file, line):
    for name in ("numerics", "model", "theory", "training"):
        (tmp_path / name).mkdir()
    (tmp_path / file).write_text(line)
    assert violations(tmp_path) == []
