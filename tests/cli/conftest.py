"""A small table with three classes, a model trained on it, and a way to run commands."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from commands import caller
from mnemosphere.cli import app

N_ROWS, N_FEATURES = 91, 7
NAMES = [f"length{k}" for k in range(N_FEATURES)]
CLASSES = ["ant", "bee", "cat"]
FAST = ["--memories", "11", "--varsigma", "0.9", "--normalize", "standard", "--epochs", "5"]


def rows(seed=0, n_rows=N_ROWS):
    """Three clouds, clearly apart but for a few rows."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_rows) % 3
    x = rng.normal(size=(n_rows, N_FEATURES))
    x[np.arange(n_rows), y] += 3.0
    return x.round(6), y


def write_csv(path, x, labels, names=NAMES, label="kind"):
    with Path(path).open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow([*names, label])
        writer.writerows([*map(str, row), value] for row, value in zip(x, labels, strict=True))
    return path


@pytest.fixture(scope="session")
def kit():
    """The pieces the tests make data and commands from."""
    return SimpleNamespace(
        rows=rows, write_csv=write_csv, fast=FAST, names=NAMES, classes=CLASSES, n_rows=N_ROWS
    )


@pytest.fixture
def run():
    """Run a command of the package."""
    return caller(app)


@pytest.fixture(scope="session")
def table(tmp_path_factory):
    x, y = rows()
    path = tmp_path_factory.mktemp("data") / "insects.csv"
    return write_csv(path, x, [CLASSES[k] for k in y])


@pytest.fixture(scope="session")
def trained(tmp_path_factory, table):
    """The folder of a run on the table."""
    out = tmp_path_factory.mktemp("run")
    arguments = ["train", table, "--out", out, "--label", "kind", *FAST, "--quiet"]
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return out


@pytest.fixture(scope="session")
def digits_model(tmp_path_factory):
    """A model of images, grown by splitting."""
    out = tmp_path_factory.mktemp("digits")
    arguments = ["train", "digits", "--out", out, "--memories", "13", "--growth", "split"]
    arguments += ["--n-initial", "3", "--varsigma", "0.5", "--normalize", "unit", "--epochs", "2"]
    result = CliRunner().invoke(app, [*map(str, arguments), "--quiet"])
    assert result.exit_code == 0, result.output
    return out / "model.safetensors"
