"""A geometry is one class: no other module needs to know of it, and none names one."""

from __future__ import annotations

import ast
from pathlib import Path

import mnemosphere as mn
from mnemosphere.geometry import Geometry

ROOT = Path(mn.__file__).parent
# The choice and settings, of which some are about patches.
CHOICE = {"estimators/choice.py", "estimators/cluster_selection.py", "estimators/patches.py",
          "cli/settings.py", "cli/demo.py", "cli/train.py"}  # fmt: skip


def test_no_other_module_names_a_geometry():
    """Neither by a name, alone where only a geometry is called so, nor by what only one has learned."""
    alone = {"unit", "standard", "whitened", "circles"} & Geometry.kinds.keys()
    fields = {"metric", "harmonics", "circles"}
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        if where.startswith("geometry/") or where in CHOICE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            values = [node] if isinstance(node, ast.Constant) else []
            named = any(v.value in alone for v in values if isinstance(v.value, str))
            if isinstance(node, ast.Compare):
                sides = [n for side in (node.left, *node.comparators) for n in ast.walk(side)]
                texts = {n.value for n in sides if isinstance(n, ast.Constant)}
                named = bool(texts & ({"center"} & Geometry.kinds.keys()))
            named |= isinstance(node, ast.Attribute) and node.attr in fields
            if named:
                found.append(f"{where}:{node.lineno}")
    assert found == []
