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
TABLES = {  # label, least accuracy on held-out rows
    "penguins": (("palmerpenguins", "penguins"), "species", 0.93),
    "titanic": (("carData", "TitanicSurvival"), "survived", 0.72),
    "salaries": (("carData", "Salaries"), "rank", 0.75),
    "tips": (("reshape2", "tips"), "time", 0.85),
}


def write_tables(folder):
    """(file, its label column or file, the least accuracy) of each."""
    for name, (where, label, least) in TABLES.items():
        frame, y = table(*where, label)
        frame.assign(**{label: y}).to_csv(folder / f"{name}.csv", index=False)
        yield f"{name}.csv", label, least
    x, y = load_breast_cancer(return_X_y=True, as_frame=True)
    x.assign(ill=np.where(y == 0, "yes", "no")).to_parquet(folder / "cancer.parquet")
    yield "cancer.parquet", "ill", 0.93
    for name, kind in {"tfidf": TfidfVectorizer, "counts": CountVectorizer}.items():
        rows = corpus(kind(max_features=300))
        np.save(folder / f"{name}.npy", rows.x.toarray())
        np.save(folder / f"{name}-labels.npy", np.unique(rows.y, return_inverse=True)[1])
        yield f"{name}.npy", f"{name}-labels.npy", 0.8


def test_the_first_hour(tmp_path):
    environment = {**os.environ, "COLUMNS": "80"}

    def run(*words, code=0):
        found = subprocess.run(
            [sys.executable, "-m", "mnemosphere", *words], cwd=tmp_path, env=environment,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert found.returncode == code, found.stderr
        assert "Traceback" not in found.stderr
        if "--json" in words:
            return json.loads(found.stdout)
        assert all(len(line) <= 80 for line in found.stdout.splitlines()), found.stdout
        assert "e+0" not in found.stdout
        return found.stdout

    for data, label, least in write_tables(tmp_path):
        out = data.partition(".")[0]
        shown = run("train", data, "--label", label, "--out", out)
        assert "The search chose" in shown
        told = run("evaluate", out, data, "--label", label, "--json")
        assert told["accuracy"] >= least, (data, told["accuracy"])
        run("evaluate", out, data, "--label", label)
        run("predict", out, data)
        run("predict", out, data, "--out", f"{out}-p.csv")
        run("explain", out, data)
        run("explain", out, data, "--instead", "next")
        run("explore", out, data, "--out", f"{out}.html")
        run("export", out, data, "--out", f"{out}.md")
        run("export", out, "--out", f"{out}.onnx")
        card = (tmp_path / f"{out}.md").read_text(encoding="utf-8")
        if "tfidf" not in out and "counts" not in out:
            assert f"value: {told['accuracy']:.6g}\n" in card
        assert "exists" in subprocess.run(
            [sys.executable, "-m", "mnemosphere", "train", data, "--out", out], cwd=tmp_path,
            capture_output=True, text=True, check=False,
        ).stderr  # fmt: skip
    images, digits = load_digits(return_X_y=True)
    np.save(tmp_path / "images.npy", images)
    np.save(tmp_path / "digits.npy", digits)
    run("train", "images.npy", "--label", "digits.npy", "--image-shape", "8x8", "--out", "pictures")
    run("recall", "pictures", "images.npy", "--hide", "bottom")
    run("cluster", "penguins.csv", "--label", "species", "--out", "groups")
