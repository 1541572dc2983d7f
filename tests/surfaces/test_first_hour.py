"""A user's first hour: tables from packages, through the command line alone."""

import json

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

from commands import caller
from mnemosphere.cli import app
from problems import slow_but
from surfaces.kinds import table

pytestmark = pytest.mark.filterwarnings("ignore")
call = caller(app)
TABLES = {  # where it is from, label, least accuracy on held-out rows
    "penguins": (("palmerpenguins", "penguins"), "species", 0.93),
    "titanic": (("carData", "TitanicSurvival"), "survived", 0.72),
    "salaries": (("carData", "Salaries"), "rank", 0.75),
    "tips": (("reshape2", "tips"), "time", 0.85),
}


def write_rows(name, folder):
    """Write rows to a file; (the file, its label column, the least accuracy)."""
    if name in TABLES:
        where, label, least = TABLES[name]
        frame, y = table(*where, label)
        frame.assign(**{label: y}).to_csv(folder / f"{name}.csv", index=False)
        return f"{name}.csv", label, least
    x, y = load_breast_cancer(return_X_y=True, as_frame=True)
    x.assign(ill=np.where(y == 0, "yes", "no")).to_parquet(folder / "cancer.parquet")
    return "cancer.parquet", "ill", 0.93


def run(*words, code=0):
    """A command in a terminal of 80 columns; what it prints."""
    found = call(*words, code=code, env={"COLUMNS": "80"})
    if code:
        return found.stderr
    assert all(len(line) <= 80 for line in found.stdout.splitlines()), found.stdout
    assert "e+0" not in found.stdout
    return found.stdout


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", slow_but(["penguins"], [*TABLES, "cancer"]))
def test_the_first_hour(folder, name):
    data, label, least = write_rows(name, folder)
    told = run("train", data, "--label", label, "--out", name)
    record = json.loads((folder / name / "results.json").read_text(encoding="utf-8"))
    assert record["accuracy"] >= least
    assert f"accuracy {record['accuracy']:.1%}" in told
    run("predict", name, data)
    run("predict", name, data, "--out", "p.csv")
    run("explain", name, data)
    run("explain", name, data, "--counterfactual", "next")
    run("explore", name, data, "--out", "page.html")
    assert "exists" in run("train", data, "--out", name, code=2)
