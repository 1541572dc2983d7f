import json

import numpy as np
import pandas as pd
from matplotlib.image import imread
from sklearn.metrics import adjusted_rand_score

import mnemosphere as mn

FAST = ["--clusters", 3, "--memories", 12, "--geometry", "standard"]


def test_folder_holds_rows_with_their_clusters(run, tmp_path, table, kit):
    out = tmp_path / "c"
    run("cluster", table, "--label", "kind", "--id", "tag", *FAST, "--out", out)
    rows = pd.read_csv(out / "rows.csv")
    model = mn.load(out / "model.safetensors")
    assert rows["tag"].tolist() == kit.frame()["tag"].tolist()
    assert rows["cluster"].tolist() == model.predict(kit.frame()[kit.names]).tolist()
    assert np.ptp(imread(out / "clusters.png")) > 0.5
    record = json.loads((out / "results.json").read_text())
    assert record["settings"]["n_clusters"] == 3
    assert record["agreement"] == adjusted_rand_score(kit.frame()["kind"], rows["cluster"]) > 0.5
    assert [row["rows"] for row in record["clusters"]] == np.bincount(rows["cluster"]).tolist()
    assert "holds clusters, not labels" in run("evaluate", out, table, code=2).error
    predicted = run("predict", out, table, "--json").json["predictions"]
    assert [row["prediction"] for row in predicted] == rows["cluster"].tolist()


def test_labels_are_not_used(run, tmp_path, table, kit, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where it writes the folder clusters
    shuffled = kit.frame().assign(kind=np.random.default_rng(0).permutation(kit.frame()["kind"]))
    shuffled.to_csv(tmp_path / "s.csv", index=False)
    words = ["--label", "kind", "--drop", "tag", *FAST, "--json", "--overwrite"]
    one, other = (run("cluster", path, *words).json for path in (table, tmp_path / "s.csv"))
    assert [r["rows"] for r in other["clusters"]] == [r["rows"] for r in one["clusters"]]
    assert abs(other["agreement"]) < 0.1
