"""Everything, small: what `reproduce NAME --quick` measured and drew."""

from __future__ import annotations

import json

import numpy as np
import pytest
from matplotlib.image import imread

from research.paper import REGISTRY

KEYS = {
    "name", "title", "quick", "command", "settings", "seeds", "data", "device", "threads",
    "versions", "seconds", "finished", "measured", "paper", "remarks", "pictures",
}  # fmt: skip

NAMES = [name for name in REGISTRY if name != "fig4"]  # which test_unsupervised.py runs, smaller


def accuracy(result):
    return {(r["case"], r["solver"]): r["accuracy"] for r in result["measured"]["rows"]}


@pytest.mark.parametrize("name", NAMES)
def test_results_are_complete_and_say_that_they_are_quick(quick_runs, name):
    folder, result = quick_runs.folder(name), quick_runs.result(name)
    assert set(result) == KEYS
    assert result["quick"] is True
    assert folder.name.startswith("quick-")
    assert "--quick" in result["command"]
    assert result["remarks"][0].startswith("quick run")
    assert all(compared["within"] is None for compared in result["paper"])
    assert result["measured"]
    assert {path.name for path in folder.iterdir()} <= {
        "result.json", "arrays.npz", *result["pictures"],
    }  # fmt: skip
    assert all(path.stat().st_size < 1_000_000 for path in folder.iterdir())
    json.dumps(result, allow_nan=False)


@pytest.mark.parametrize("name", NAMES)
def test_pictures_show_something(quick_runs, name):
    folder, result = quick_runs.folder(name), quick_runs.result(name)
    assert result["pictures"]
    for picture in result["pictures"]:
        pixels = imread(folder / picture)[..., :3]
        assert (folder / picture).stat().st_size < 300_000
        assert 200 < pixels.shape[0] < 2500
        assert 300 < pixels.shape[1] < 2500
        assert pixels.std() > 0.02
        # Not only near the borders: the middle is not blank either.
        height, width = pixels.shape[:2]
        assert pixels[height // 4 : -height // 4, width // 4 : -width // 4].std() > 0.01
        # The stamp at the bottom is vermillion.
        strip = pixels[-40:].reshape(-1, 3)
        red = (np.abs(strip - np.array([0xD5, 0x5E, 0x00]) / 255) < 0.05).all(1)
        assert red.sum() > 50, picture


def test_table1_has_the_papers_order(quick_runs):
    found = accuracy(quick_runs.result("table1"))
    assert len(found) == 6
    assert all(55 < value < 97 for value in found.values())
    for solver in ("sgd", "fixed-point"):
        assert found["varsigma=0.25", solver] > found["beta=6", solver] + 3
        assert found["beta=18", solver] > found["beta=6", solver] + 3


def test_fig1_learns_clean_memories(quick_runs):
    result = quick_runs.result("fig1")
    for row in result["measured"]["rows"]:
        assert 70 < row["accuracy"] < 97
        assert row["memory"]["noisy"] == 0
        assert row["beta"] == 16.0
    with np.load(quick_runs.folder("fig1") / "arrays.npz") as arrays:
        w = arrays["w beta=16-sgd-0"].astype(np.float64)
        assert w.shape == (25, 784)
        np.testing.assert_allclose(np.linalg.norm(w, axis=1), 1, atol=2e-3)
        curve = arrays["curve beta=16-sgd-0"]
        assert curve.shape == (2, 9)
        assert curve[0, 0] < 0.4 < curve[0, -1]  # from nothing known to most rows right
        assert (np.diff(curve[1]) > 0).all()


def test_fig2_low_beta_makes_twins(quick_runs):
    rows = {
        (row["case"], row["solver"]): row["memory"]
        for row in quick_runs.result("fig2")["measured"]["rows"]
    }
    assert rows["beta=6", "sgd"]["twin"] > rows["beta=18", "sgd"]["twin"] + 0.02
    assert rows["beta=18", "fixed-point"]["noisy"] == 0


def test_fig3_the_nearest_memory_mostly_decides(quick_runs):
    for row in quick_runs.result("fig3")["measured"]["rows"]:
        found = row["fidelity"]
        assert set(found) == {"all", "correct", "wrong"}
        assert 85 < found["all"] <= 100
        assert found["correct"] > found["wrong"]
        assert row["beta"] > 40  # learned, from 20 or from an estimate
        right, wrong = row["accuracy"] / 100, 1 - row["accuracy"] / 100
        mixed = right * found["correct"] + wrong * found["wrong"]
        assert found["all"] == pytest.approx(mixed, abs=0.02)
