"""Imports go down only and never in a circle; no module reads what another one hides.

A new module at the top of the package must be given its place here.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
from scipy.sparse.csgraph import connected_components

import mnemosphere

ROOT = Path(mnemosphere.__file__).parent
PACKAGE = "mnemosphere"
LAYERS = {
    "base": -2,
    "gpu": -1,  # plain tensors
    "numerics": 0,
    "model": 1,
    "theory": 1.5,
    "rows": 2,
    "geometry": 2.2,
    "training": 2.5,
    "fitted": 2.7,
    "images": 2.8,
    "plots": 2.9,  # arrays or a fitted model in
    "interpret": 3,
    "export": 3.1,
    "estimators": 3.2,
    "__init__": 3.5,  # the public names: gathers the estimators, used by the commands
    "cli": 5,
    "__main__": 6,
}
# Nothing imports theory but the names of the package.
USES_THEORY = {"theory", "__init__"}
CORE = {"base", "gpu", "numerics", "model", "theory", "geometry", "training"}
NOT_IN_CORE = {"sklearn", "matplotlib", "rich", "typer"}
# Imports inside functions: packages that need not be installed, and modules that need one of them.
OPTIONAL = {"matplotlib", "onnx", "pandas", "PIL", "pyarrow", "typer", "wordllama"}
NEED_ONE = "mnemosphere.plots"
# Needed before it is known whether torch, or what is large in scikit-learn, is.
START = {"base/machine.py", "rows/named.py"}
FITTED = ("interpret/", "export/", "estimators/", "plots/")
# Underscores that are part of a public protocol, of named tuples and of scikit-learn.
PROTOCOL = {"_replace", "_asdict", "_fields", "_make", "_parameter_constraints"}


class Module:
    """A source file: its dotted name and what it imports."""

    def __init__(self, path: Path) -> None:
        self.where = path.relative_to(ROOT).as_posix()
        parts = path.relative_to(ROOT).with_suffix("").parts
        self.layer = parts[0]
        self.is_package = parts[-1] == "__init__"
        self.name = ".".join([PACKAGE, *(parts[:-1] if self.is_package else parts)])
        self.tree = ast.parse(path.read_text(encoding="utf-8"))

    def imports(self, *, types: bool = True, lazy: bool = True) -> Iterator[str]:
        """Absolute dotted names of all that the file imports.

        types: those under TYPE_CHECKING too; lazy: those inside functions too.
        """
        for node in _walk(self.tree, types, lazy):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                if node.level:
                    parts = self.name.split(".")
                    parts = parts[: len(parts) - node.level + self.is_package]
                    base = ".".join([*parts, base] if base else parts)
                yield from (f"{base}.{alias.name}" for alias in node.names)


def _walk(tree: ast.AST, types: bool, lazy: bool) -> Iterator[ast.AST]:
    """Nodes that imports can be among: all but expressions."""
    left = [tree]
    while left:
        node = left.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not lazy:
            continue
        if isinstance(node, ast.If) and not types and "TYPE_CHECKING" in ast.unparse(node.test):
            left += node.orelse
        else:
            left += (n for n in ast.iter_child_nodes(node) if not isinstance(n, ast.expr))


@cache
def modules() -> list[Module]:
    return [Module(path) for path in sorted(ROOT.rglob("*.py"))]


def test_imports_go_down_only():
    tops = {p.stem if p.is_file() else p.name for p in ROOT.iterdir()}
    found = []
    for module in modules():
        layer = module.layer
        if layer not in LAYERS:
            found.append(f"{layer} has no place in LAYERS")
            continue
        for name in module.imports():
            top, *rest = name.split(".")
            if top != PACKAGE:
                continue
            target = rest[0] if rest and rest[0] in tops else "__init__"
            up = LAYERS.get(target, 99) > LAYERS[layer]
            theory = target == "theory" and layer not in USES_THEORY
            if up or theory:
                found.append(f"{module.name} imports {target}")
        if layer in CORE:
            outside = {name.split(".")[0] for name in module.imports()}
            found += [f"{module.name} imports {top}" for top in sorted(outside & NOT_IN_CORE)]
    assert found == []


def test_no_modules_import_each_other():
    """Directly or not; types alone do not count.

    A name taken from a package is the module of that name, or else whatever its `__init__` has.
    """
    found = {module.name: module for module in modules()}
    index = {name: k for k, name in enumerate(found)}
    graph = np.zeros((len(found), len(found)), dtype=np.int8)
    for name, module in found.items():
        for target in module.imports(types=False):
            while target and target not in index:  # a name in a module
                target = target.rpartition(".")[0]
            if target:
                graph[index[name], index[target]] = 1
    _, label = connected_components(graph, connection="strong")
    names = np.array(list(found))
    groups = [sorted(names[label == k].tolist()) for k in np.unique(label)]
    assert [group for group in groups if len(group) > 1] == []


def test_imports_are_at_the_top():
    """But for those inside functions that something excuses."""
    found = []
    for module in modules():
        if module.layer == "cli" or module.where in START:
            continue
        early = list(module.imports(lazy=False))
        late = [name for name in module.imports() if name not in early]
        found += [
            f"{module.where} imports {name} late" for name in late
            if name.split(".")[0] not in OPTIONAL
            and not name.startswith(NEED_ONE)
        ]  # fmt: skip
    assert found == []


def test_no_module_reads_what_another_hides():
    """Underscored attributes of an object that the module does not define."""
    found = []
    for module in modules():
        own = set(PROTOCOL)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                own.add(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                own.add(node.id)
        for node in ast.walk(module.tree):
            hidden = isinstance(node, ast.Attribute) and node.attr.startswith("_")
            if not hidden or node.attr.startswith("__") or node.attr in own:
                continue
            owner = ast.unparse(node.value)
            outside = owner.split(".")[0] in ("torch", "dist", "Tensor", "_aten")
            if owner not in ("self", "cls", "super()") and not outside:
                found.append(f"{module.where} reads {owner}.{node.attr}")
    assert found == []


def test_functions_of_a_model_say_which():
    untyped = [
        f"{module.where}: {node.name}"
        for module in modules()
        if module.where.startswith(FITTED)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef)
        for argument in (*node.args.args, *node.args.kwonlyargs)
        if argument.arg == "model" and ast.unparse(argument.annotation or ast.Name("Any")) == "Any"
    ]
    assert untyped == []


# Size of a fit


def test_a_classifier_is_thin():
    """GaussianMixture has an MRO of 8 and 12 public names."""
    assert len(mnemosphere.DAMClassifier.__mro__) <= 9
    names = {name for name in dir(mnemosphere.DAMClassifier) if "_" not in (name[0], name[-1])}
    assert len(names - mnemosphere.DAMClassifier().get_params().keys()) <= 40
    ours = [kind for kind in mnemosphere.DAMClassifier.__mro__ if PACKAGE in kind.__module__]
    assert len(ours) == 2
