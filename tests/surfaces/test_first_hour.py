"""A user's first hour: tables and corpora from packages, through the command line alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer

from surfaces.kinds import corpus, table

pytestmark = pytest.mark.slow
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


def run(folder, *words, code=0):
    """A command in a terminal of 80 columns; what it prints."""
    found = subprocess.run(
        [sys.executable, "-m", "mnemosphere", *words], cwd=folder, check=False,
        env={**os.environ, "COLUMNS": "80"}, capture_output=True, text=True,
    )  # fmt: skip
    assert found.returncode == code, found.stderr
    assert "Traceback" not in found.stderr
    if code:
        return found.stderr
    if "--json" in words:
        return json.loads(found.stdout)
    assert all(len(line) <= 80 for line in found.stdout.splitlines()), found.stdout
    assert "e+0" not in found.stdout
    return found.stdout


@pytest.mark.parametrize("name", [*TABLES, "cancer", *TEXTS])
def test_the_first_hour(tmp_path, name):
    data, label, least = write_rows(name, tmp_path)
    assert "The search chose" in run(tmp_path, "train", data, "--label", label, "--out", name)
    told = run(tmp_path, "evaluate", name, data, "--label", label, "--json")
    assert told["accuracy"] >= least
    run(tmp_path, "evaluate", name, data, "--label", label)
    run(tmp_path, "predict", name, data)
    run(tmp_path, "predict", name, data, "--out", "p.csv")
    run(tmp_path, "explain", name, data)
    run(tmp_path, "explain", name, data, "--counterfactual", "next")
    run(tmp_path, "explore", name, data, "--out", "page.html")
    run(tmp_path, "export", name, data, "--out", "card.md")
    run(tmp_path, "export", name, "--out", "graph.onnx")
    if name not in TEXTS:
        card = (tmp_path / "card.md").read_text(encoding="utf-8")
        assert f"value: {told['accuracy']:.6g}\n" in card
    assert "exists" in run(tmp_path, "train", data, "--out", name, code=2)


def test_the_first_images(tmp_path):
    images, digits = load_digits(return_X_y=True)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "digits.npy", digits)
    told = run(tmp_path, "train", "images.npy", "--label", "digits.npy", "--image-shape", "8x8")
    assert "The search chose" in told
    assert "energy after" in run(tmp_path, "recall", "run", "images.npy", "--hide", "bottom")


def test_the_first_clusters(tmp_path):
    write_rows("penguins", tmp_path)
    told = run(tmp_path, "cluster", "penguins.csv", "--label", "species", "--out", "groups")
    assert "agreement" in told
