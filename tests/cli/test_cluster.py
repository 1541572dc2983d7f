"""`mnemosphere cluster`: what it finds, prints, writes and refuses."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
from matplotlib.image import imread
from sklearn.metrics import adjusted_rand_score

import mnemosphere as mn

FAST = ["--classes", 3, "--memories", 12, "--normalize", "standard"]


def test_the_clouds_are_found_and_the_labels_not_used(run, kit, table, tmp_path):
    found = run("cluster", table, "--label", "kind", *FAST, "--json").json
    assert found["agreement"] > 0.75
    assert sum(row["rows"] for row in found["classes"]) == kit.n_rows
    assert found["coherence"]["within"] > found["coherence"]["shuffled"]
    x, _ = kit.rows()
    shuffled = np.random.default_rng(0).permutation(kit.n_rows)
    y = [kit.classes[k % 3] for k in shuffled]
    other = run(
        "cluster", kit.write_csv(tmp_path / "shuffled.csv", x, y), "--label", "kind", *FAST,
        "--json",
    ).json  # fmt: skip
    assert other["classes"] == found["classes"]
    assert abs(other["agreement"]) < 0.1


def test_folder_holds_model_rows_and_record(run, kit, table, tmp_path):
    out = tmp_path / "clusters"
    printed = run("cluster", table, "--label", "kind", *FAST, "--out", out, "--json").json
    model = mn.load(out / "model.safetensors")
    assert isinstance(model, mn.DAMClusterer)
    assert model.feature_names_in_.tolist() == kit.names
    with (out / "rows.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [int(row["class"]) for row in rows] == model.labels_.tolist()
    assert [int(row["row"]) for row in rows] == list(range(kit.n_rows))
    assert all(1 / 3 <= float(row["probability"]) <= 1 for row in rows)
    assert json.loads((out / "results.json").read_text(encoding="utf-8")) == printed
    assert printed["command"].startswith("mnemosphere cluster ")
    again = run("cluster", table, *FAST, "--out", out, code=2)
    assert "holds a model already" in again.stderr
    run("cluster", table, "--label", "kind", *FAST, "--out", out, "--overwrite", "--quiet")
    _, y = kit.rows()
    assert adjusted_rand_score(y, mn.load(out / "model.safetensors").labels_) > 0.75
    refused = run("evaluate", out / "model.safetensors", table, code=2)
    assert "holds a DAMClusterer, which has latent classes and no labels" in refused.stderr


def test_table_and_picture(run, table, tmp_path):
    picture = tmp_path / "classes.png"
    shown = run("cluster", table, "--label", "kind", *FAST, "--picture", picture).stdout
    for text in ("latent classes of", "agreement with labels", "probability", "most frequent"):
        assert text in shown
    assert np.ptp(imread(picture)) > 0.5


def test_images_are_drawn_in_the_terminal(run):
    shown = run("cluster", "digits", "--classes", 4, "--memories", 8, "--epochs", 1).stdout
    assert "the surest memory of each class" in shown


def test_rows_without_labels(run, tmp_path, kit):
    path = tmp_path / "rows.npy"
    np.save(path, kit.rows()[0])
    found = run("cluster", path, *FAST, "--json").json
    assert found["agreement"] is None
    assert "most frequent" not in run("cluster", path, *FAST).stdout


def test_given_proportions(run, table):
    found = run(
        "cluster", table, "--label", "kind", "--classes", 3, "--memories", 18,
        "--class-prior", "1,2,3", "--json",
    ).json  # fmt: skip
    assert np.abs(np.array([row["memories"] for row in found["classes"]]) - [3, 6, 9]).max() <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--classes", 200], "n_classes=200 needs as many memories"),
        (["--memories", "many"], "--memories must be a number or auto, got 'many'"),
        (["--beta", "hot"], "--beta must be a number or learn, got 'hot'"),
        (["--class-prior", "a,b"], "--class-prior must look like 3,2,1, got 'a,b'"),
        (["--class-prior", "1,2"], "one entry for each of 3 classes"),
        (["--solver", "magic"], "--solver must be a str among"),
        (["--varsigma", 2], "--varsigma must be a float in the range"),
        (["--image-shape", "5x5"], "--image-shape 5x5 has 25 pixels"),
        (["--split", "test"], "has no test split of its own"),
    ],
)
def test_bad_input(run, table, options, message):
    result = run("cluster", table, "--label", "kind", "--classes", 3, *options, code=2)
    assert message in " ".join(result.stderr.split())
