"""Everything, small: what `reproduce NAME --quick` measured and drew."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from problems import slow_but
from research.paper import REGISTRY

KEYS = {
    "name", "title", "quick", "command", "settings", "seeds", "data", "device", "threads", "defaults",
    "versions", "seconds", "finished", "measured", "paper", "remarks", "pictures",
}  # fmt: skip


def accuracies(result):
    return {(r["case"], r["solver"]): r["accuracy"] for r in result["measured"]["rows"]}


def check_table1(result, folder):
    """The paper's order."""
    found = accuracies(result)
    assert len(found) == 6
    assert all(55 < value < 97 for value in found.values())
    for solver in ("sgd", "fixed-point"):
        assert found["varsigma=0.25", solver] > found["beta=6", solver] + 3
        assert found["beta=18", solver] > found["beta=6", solver] + 3


def check_fig1(result, folder):
    """Memories are clean."""
    for row in result["measured"]["rows"]:
        assert 70 < row["accuracy"] < 97
        assert row["memory"]["noisy"] == 0
        assert row["beta"] == 16.0
    with np.load(folder / "arrays.npz") as arrays:
        w = arrays["w beta=16-sgd-0"].astype(np.float64)
        assert w.shape == (25, 784)
        np.testing.assert_allclose(np.linalg.norm(w, axis=1), 1, atol=2e-3)
        curve = arrays["curve beta=16-sgd-0"]
        assert curve.shape == (2, 9)
        assert curve[0, 0] < 0.4 < curve[0, -1]  # from nothing known to most rows right
        assert (np.diff(curve[1]) > 0).all()


def check_fig3(result, folder):
    """The nearest memory mostly decides."""
    for row in result["measured"]["rows"]:
        found = row["fidelity"]
        assert set(found) == {"all", "correct", "wrong"}
        assert 85 < found["all"] <= 100
        assert found["correct"] > found["wrong"]
        assert row["beta"] > 40  # learned, from 20 or from an estimate
        right, wrong = row["accuracy"] / 100, 1 - row["accuracy"] / 100
        mixed = right * found["correct"] + wrong * found["wrong"]
        assert found["all"] == pytest.approx(mixed, abs=0.02)


def check_fig6(result, folder):
    """Splitting is as accurate and saves arithmetic, more at larger widths."""
    measured = result["measured"]
    methods = measured["sweeps"]["mnist"]
    plain, split = (np.array(methods[m]["accuracy"]) for m in ("sgd", "sgd-split"))
    assert abs((split - plain).mean()) < 4
    for method in methods:
        accuracy = methods[method]["accuracy"]
        assert accuracy[-1] > accuracy[0] + 2  # more memories help
        assert accuracy[-1] > 80
    saved = np.array(methods["sgd"]["work"]) / np.array(methods["sgd-split"]["work"])
    assert saved[-1] > 1.2
    assert saved[-1] > saved[0]
    line = measured["fits"]["mnist"]["sgd"]["work"]["line"]
    assert line["r2"] > 0.95
    assert line["b"] > 0


def check_fig5(result, folder):
    """Memories leave the trunk, and splitting thins it."""
    measured = result["measured"]
    for one in measured["runs"].values():
        assert one["overlap_first"] > 0.95
        assert one["overlap_last"] < 0.8
        assert one["spread_first"] < 0.1 < one["spread_last"]
        # Inside classes memories differ, and classes differ too.
        assert 0.05 < one["within_class_spread_last"] < one["spread_last"]
        assert one["classes_first"] <= 3
        assert one["classes_last"] >= 8
        assert one["clusters"][0] == 1
        assert one["clusters"][-1] > 0.8 * one["memories"]
        assert one["reunions"] < 0.02
        assert one["leaves_the_trunk"] < one["passes"] / 2
    without, split = measured["runs"]["without"], measured["runs"]["with"]
    assert split["memories"] == without["memories"] == 32
    assert measured["trunk_ratio"] > 1
    assert measured["trunk_ratio"] == pytest.approx(
        without["trunk_memory_passes"] / split["trunk_memory_passes"]
    )
    assert split["clusters"][-1] > 16


def check_hierarchy(result, folder):
    """Copies part above β_split only, unless class weights are free."""
    scan = result["measured"]["scan"]
    sides = set()
    for point in scan["points"]:
        unstable = point["beta_eff"] > point["beta_split"]
        sides.add(unstable)
        assert (point["lambda_min"] < 0) == unstable
        held, free = point["labels_held"], point["labels_free"]
        assert (held["distance"] > 0.05) == unstable
        assert (held["gain"] > 1e-4) == unstable
        assert free["distance"] > 0.05
        assert free["gain"] > max(held["gain"], 1e-4)
    assert sides == {True, False}


LAWS = {
    "table1": check_table1, "fig1": check_fig1, "fig3": check_fig3, "fig5": check_fig5,
    "fig6": check_fig6, "hierarchy": check_hierarchy,
}  # fmt: skip


@pytest.mark.parametrize("name", slow_but(["fig1", "hierarchy"], REGISTRY))
def test_results_are_complete_say_that_they_are_quick_and_show_the_papers_law(run, tmp_path, name):
    options = ["--quick", "--json", "--device", "cpu", "--out", tmp_path]
    (row,) = run("reproduce", name, *options).json["runs"]
    folder = Path(row["folder"])
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
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
    assert result["pictures"]
    for picture in result["pictures"]:
        pixels = imread(folder / picture)[..., :3]
        assert (folder / picture).stat().st_size < 300_000
        assert 200 < pixels.shape[0] < 2500
        assert 300 < pixels.shape[1] < 2500
        assert pixels.std() > 0.02
        # Something is drawn in the middle, not at the borders alone.
        height, width = pixels.shape[:2]
        assert pixels[height // 4 : -height // 4, width // 4 : -width // 4].std() > 0.01
        # The stamp at the bottom is vermillion.
        strip = pixels[-40:].reshape(-1, 3)
        red = (np.abs(strip - np.array([0xD5, 0x5E, 0x00]) / 255) < 0.05).all(1)
        assert red.sum() > 50, picture
    if name in LAWS:
        LAWS[name](result, folder)
