import json

import numpy as np
import pandas as pd
from matplotlib.image import imread
from sklearn.metrics import adjusted_rand_score

import mnemosphere as mn

FAST = ["--clusters", 3, "--memories", 12, "--geometry", "standard"]


def test_clouds_are_found_and_labels_not_used(run, tmp_path, table, kit, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where it writes the folder clusters
    words = ["--label", "kind", "--drop", "tag", *FAST, "--json"]
    found = run("cluster", table, *words).json
    assert found["agreement"] > 0.5
    assert sum(row["rows"] for row in found["clusters"]) == kit.n_rows
    shuffled = kit.frame().assign(kind=np.random.default_rng(0).permutation(kit.frame()["kind"]))
    shuffled.to_csv(tmp_path / "s.csv", index=False)
    other = run("cluster", tmp_path / "s.csv", *words, "--overwrite")
    assert [r["rows"] for r in other.json["clusters"]] == [r["rows"] for r in found["clusters"]]
    assert abs(other.json["agreement"]) < 0.1


def test_folder_holds_rows_with_their_clusters(run, tmp_path, table, kit):
    out = tmp_path / "c"
    arguments = ["cluster", table, "--label", "kind", "--id", "tag", *FAST, "--out", out]
    text = run(*arguments).stdout
    assert "agreement" in text
    rows = pd.read_csv(out / "rows.csv")
    model = mn.load(out / "model.safetensors")
    assert rows["tag"].tolist() == kit.frame()["tag"].tolist()
    assert rows["cluster"].tolist() == model.predict(kit.frame()[kit.names]).tolist()
    assert adjusted_rand_score(kit.frame()["kind"], rows["cluster"]) > 0.5
    assert np.ptp(imread(out / "clusters.png")) > 0.5
    assert json.loads((out / "results.json").read_text())["settings"]["clusters"] == 3
    assert "exists and is not empty" in run(*arguments, code=2).error
    run(*arguments, "--overwrite", "-q")
    assert "holds clusters, not labels" in run("evaluate", out, table, code=2).error
    predicted = run("predict", out, table, "--json").json["predictions"]
    assert [row["prediction"] for row in predicted] == rows["cluster"].tolist()
