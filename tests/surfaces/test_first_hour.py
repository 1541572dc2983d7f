"""A user's first hour: tables and corpora from packages, through the command line alone."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from commands import caller
from mnemosphere.cli import app
from problems import slow_but
from surfaces.kinds import corpus, table

pytestmark = pytest.mark.filterwarnings("ignore")
call = caller(app)
TABLES = {  # where it is from, label, least accuracy on held-out rows
    "penguins": (("palmerpenguins", "penguins"), "species", 0.93),
    "titanic": (("carData", "TitanicSurvival"), "survived", 0.72),
    "salaries": (("carData", "Salaries"), "rank", 0.75),
    "tips": (("reshape2", "tips"), "time", 0.85),
}
TEXTS = {"tfidf": TfidfVectorizer, "counts": CountVectorizer}


def write_rows(name, folder):
    """Write rows to a file; (the file, its label column or file, the least accuracy)."""
    if name in TABLES:
        where, label, least = TABLES[name]
        frame, y = table(*where, label)
        frame.assign(**{label: y}).to_csv(folder / f"{name}.csv", index=False)
        return f"{name}.csv", label, least
    if name == "cancer":
        x, y = load_breast_cancer(return_X_y=True, as_frame=True)
        x.assign(ill=np.where(y == 0, "yes", "no")).to_parquet(folder / "cancer.parquet")
        return "cancer.parquet", "ill", 0.93
    rows = corpus(TEXTS[name](max_features=300))
    np.save(folder / f"{name}.npy", rows.x.toarray())
    np.save(folder / "labels.npy", np.unique(rows.y, return_inverse=True)[1])
    return f"{name}.npy", "labels.npy", 0.8


def run(*words, code=0):
    """A command in a terminal of 80 columns; what it prints."""
    found = call(*words, code=code, env={"COLUMNS": "80"})
    if code:
        return found.stderr
    if "--json" in words:
        return found.json
    assert all(len(line) <= 80 for line in found.stdout.splitlines()), found.stdout
    assert "e+0" not in found.stdout
    return found.stdout


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", slow_but(["penguins"], [*TABLES, "cancer", *TEXTS]))
def test_the_first_hour(folder, name):
    data, label, least = write_rows(name, folder)
    assert "(chosen from the data)" in run("train", data, "--label", label, "--out", name)
    told = run("evaluate", name, data, "--label", label, "--json")
    assert told["accuracy"] >= least
    run("evaluate", name, data, "--label", label)
    run("predict", name, data)
    run("predict", name, data, "--out", "p.csv")
    run("explain", name, data)
    run("explain", name, data, "--counterfactual", "next")
    run("explore", name, data, "--out", "page.html")
    run("export", name, "--out", "graph.onnx")
    assert "exists" in run("train", data, "--out", name, code=2)
