"""Everything the command `reproduce all --quick` leaves, made once for all test files."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from commands import caller
from research.app import app


class Quick(NamedTuple):
    out: Path
    report: dict[str, Any]  # what the command printed with --json
    code: int
    errors: str

    def row(self, name: str) -> dict[str, Any]:
        """The line of an experiment in the report."""
        (row,) = [row for row in self.report["runs"] if row["name"] == name]
        return row

    def folder(self, name: str) -> Path:
        """The folder of a run; the test is skipped where it could not be done here."""
        row = self.row(name)
        if row["status"] == "skipped":
            pytest.skip(row["reason"])
        assert "folder" in row, row
        return Path(row["folder"])

    def result(self, name: str) -> dict[str, Any]:
        """result.json of a run."""
        return json.loads((self.folder(name) / "result.json").read_text(encoding="utf-8"))


@pytest.fixture
def run():
    """Run `reproduce` or a study of the theory."""
    return caller(app)


@pytest.fixture(scope="session")
def quick_runs(tmp_path_factory) -> Quick:
    """`python -m research reproduce all --quick`, by whichever test process comes first."""
    base = tmp_path_factory.getbasetemp()
    # Parallel workers have folders of their own inside one of the whole test run.
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    report = root / "reproduce-all-quick.json"
    try:
        (root / "reproduce-all-quick").mkdir()
    except FileExistsError:
        for _ in range(6000):
            if report.exists():
                break
            time.sleep(0.1)
    else:
        out = root / "reproduce-all-quick"
        arguments = ["reproduce", "all", "--quick", "--json", "--device", "cpu", "--out", str(out)]
        done = CliRunner().invoke(app, arguments)
        content = {"code": done.exit_code, "stdout": done.stdout, "stderr": done.stderr}
        draft = root / "reproduce-all-quick.draft"
        draft.write_text(json.dumps(content), encoding="utf-8")
        draft.rename(report)
    content = json.loads(report.read_text(encoding="utf-8"))
    assert content["stdout"], content["stderr"]
    return Quick(
        root / "reproduce-all-quick",
        json.loads(content["stdout"]),
        content["code"],
        content["stderr"],
    )
