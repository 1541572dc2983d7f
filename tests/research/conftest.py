"""What `reproduce NAME --quick` leaves, made once for all test files and processes."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from commands import caller
from research.app import app


@dataclass(frozen=True)
class Quick:
    root: Path

    def row(self, name: str) -> dict[str, Any]:
        """What the command says of an experiment, run by whichever process comes first to it."""
        report = self.root / f"{name}.json"
        try:
            (self.root / name).mkdir(parents=True)
        except FileExistsError:
            for _ in range(6000):
                if report.exists():
                    break
                time.sleep(0.1)
        else:
            options = ["--quick", "--json", "--device", "cpu", "--out", str(self.root)]
            done = CliRunner().invoke(app, ["reproduce", name, *options])
            draft = report.with_suffix(".draft")
            draft.write_text(json.dumps([done.exit_code, done.stdout, done.stderr]))
            draft.rename(report)
        code, shown, errors = json.loads(report.read_text())
        assert shown, errors
        (row,) = json.loads(shown)["runs"]
        assert row["status"] == "skipped" or (code, row["status"]) == (0, "done"), errors
        return row

    def folder(self, name: str) -> Path:
        """The folder of a run; the test is skipped where it could not be done here."""
        row = self.row(name)
        if row["status"] == "skipped":
            assert "needs" in row["reason"]  # an optional package; data are all embedded
            pytest.skip(row["reason"])
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
    """The quick runs of this test run, whose processes have folders of their own inside one."""
    base = tmp_path_factory.getbasetemp()
    return Quick((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "quick")
