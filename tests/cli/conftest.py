"""A small table with three classes, a model trained on it, and a way to run commands."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import mnemosphere as mn
from commands import caller
from mnemosphere.cli import app

N_ROWS, N_FEATURES = 91, 7
NAMES = [f"length{k}" for k in range(N_FEATURES)]
CLASSES = ["ant", "bee", "cat"]
FAST = ["--objective", "joint", "--memories", "11", "--varsigma", "0.9", "--geometry", "standard",
        "--max-iter", "5"]  # fmt: skip


def frame(seed=0, n_rows=N_ROWS):
    """Three clouds, clearly apart but for a few rows."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_rows) % 3
    x = rng.normal(size=(n_rows, N_FEATURES))
    x[np.arange(n_rows), y] += 3.0
    table = pd.DataFrame(x.round(6), columns=NAMES)
    table.insert(0, "tag", [f"bug-{k}" for k in range(n_rows)])
    return table.assign(kind=[CLASSES[k] for k in y])


_call = caller(app)


def invoke(*arguments, code=0, env=None):
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
    """Half the time of `train` is that of its pictures."""


@pytest.fixture
def run():
    return invoke


@pytest.fixture(scope="session")
def call():
    """The same for fixtures that live longer than a test."""
    return invoke


@pytest.fixture(scope="session")
def kit():
    """The pieces the tests make data and commands from."""
    return SimpleNamespace(frame=frame, fast=FAST, names=NAMES, classes=CLASSES, n_rows=N_ROWS)


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "insects.csv"
    frame().to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def trained(tmp_path_factory, table):
    """The folder of a run on the table."""
    out = tmp_path_factory.mktemp("runs") / "run"
    invoke("train", table, "--out", out, "--label", "kind", "--id", "tag", *FAST, "--quiet")
    return out


@pytest.fixture
def model(trained):
    return mn.load(trained / "model.safetensors")


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """A model of images, grown by splitting."""
    out = tmp_path_factory.mktemp("digits") / "run"
    settings = ["--memories", "13", "--growth", "3", "--varsigma", "0.5", "--geometry", "center"]
    invoke("train", "digits", "--out", out, *settings, "--max-iter", "2", "--quiet")
    return out
