"""Other packages that work with ours: which version, and what was run with it.

    python -m research works_with

Runs tests/test_works_with.py and the examples with other packages; a package that is not installed is left out. Also the
opset and the size of some ONNX graphs.
"""

from __future__ import annotations

import re
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris

import mnemosphere as mn
from mnemosphere.base.machine import import_extra
from research import report
from research.benchmarks._options import parser

_TESTS = report.ROOT / "tests"
_EXAMPLES = {
    "bertopic": "bertopic_clusters", "semantic-router": "semantic_router_routes", "setfit": "setfit_head",
}  # fmt: skip
_DATA = {"iris": load_iris, "breast cancer": load_breast_cancer, "digits": load_digits}


class _Told:
    """Notes down what pytest runs."""

    def __init__(self) -> None:
        self.doc: dict[str, str] = {}
        self.passed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Function]) -> None:
        """What each test says of itself."""
        self.doc = {item.nodeid: (item.function.__doc__ or "").partition("\n")[0] for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Which ones passed."""
        if report.when == "call" and report.passed:
            self.passed.append(report.nodeid)


def tested() -> list[dict[str, str]]:
    """(package, version, what was run) of all that passed."""
    told, scripts = _Told(), {f"[{script}]": name for name, script in _EXAMPLES.items()}
    chosen = [f"{_TESTS / 'test_examples.py'}::test_a_script_runs{own}" for own in scripts]
    words = ["-q", "-p", "no:cacheprovider", str(_TESTS / "test_works_with.py"), *chosen]
    pytest.main(words, plugins=[told])
    found = []
    for test in told.passed:
        script = next((own for own in scripts if test.endswith(own)), None)
        name = scripts[script] if script else re.sub(".*::test_", "", test).replace("_", "-")
        what = f"[the example](../gallery/{script[1:-1]}.md)" if script else told.doc[test]
        found.append({"package": name, "version": version(name), "what": what})
    return sorted(found, key=lambda row: row["package"])


def graphs() -> list[report.Json]:
    """Opsets and kilobytes of the graphs and files of default models."""
    found = []
    for name, load in _DATA.items():
        clf = mn.DAMClassifier(random_state=0).fit(*load(return_X_y=True))
        with tempfile.TemporaryDirectory() as folder:
            graph, file = Path(folder) / "m.onnx", Path(folder) / "m.safetensors"
            mn.to_onnx(clf, graph)
            clf.save(file)
            loaded = import_extra("onnx", "onnx").load(graph)
            found.append({
                "data": name, "memories": clf.n_memories_, "nodes": len(loaded.graph.node),
                "opset": ", ".join(f"{o.domain or 'ai.onnx'} {o.version}" for o in loaded.opset_import),
                "graph": graph.stat().st_size / 1e3, "file": file.stat().st_size / 1e3,
            })  # fmt: skip
    return found


def main(argv: list[str]) -> None:
    """Run what is here, and store it."""
    args = parser(__doc__, "works_with").parse_args(argv)
    head = report.head(report.command_line(["works_with", *argv]))
    report.write(args.out, {**head, "tested": tested(), "graphs": graphs()})
