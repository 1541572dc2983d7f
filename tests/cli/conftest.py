"""Irises with names, a model trained on them, and a way to run commands."""

from __future__ import annotations

import pytest
from sklearn.datasets import load_iris

import mnemosphere as mn
from commands import FAST, caller
from mnemosphere.cli import app

_call = caller(app)


def call(*arguments, code=0, env=None):
    """Run a command in this process; bad input is one line on standard error."""
    result = _call(*arguments, code=code, env=env)
    if code == 2:
        lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
        assert len(lines) == 1, result.stderr
        assert result.stdout == "", result.stdout
        result.error = lines[0]
    return result


@pytest.fixture(scope="module", autouse=True)
def quick(small_pictures):
    """Half the time of `train` is that of its picture."""


@pytest.fixture
def run():
    return call


@pytest.fixture(scope="session")
def irises():
    iris = load_iris(as_frame=True)
    table = iris.data.assign(species=iris.target_names[iris.target])
    table.insert(0, "flower", [f"f{k}" for k in range(150)])
    return table


@pytest.fixture(scope="session")
def table(tmp_path_factory, irises):
    path = tmp_path_factory.mktemp("data") / "irises.csv"
    irises.to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def trained(tmp_path_factory, table):
    """The folder of a run on the table."""
    out = tmp_path_factory.mktemp("runs") / "run"
    call("train", table, "--label", "species", "--id", "flower", "--out", out, *FAST)
    return out


@pytest.fixture
def model(trained):
    return mn.load(trained / "model.safetensors")
