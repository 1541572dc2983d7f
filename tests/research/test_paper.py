"""Everything, small: what `reproduce NAME --quick` measured and drew."""

import json

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


def check_hierarchy(result, folder):
    """Doubling leaves the loss; the dense splitting matrix is negative where β_eff > β_split."""
    levels = result["measured"]["levels"]
    assert [level["memories"] for level in levels][:2] == [1, 2]
    for level in levels:
        assert abs(level["duplicated"]["loss_change"]) < 1e-10
        for dense, threshold in zip(level["dense_lambda_min"], level["beta_split"], strict=True):
            assert (dense < 0) == (level["beta_eff"] > threshold)


LAWS = {"table1": check_table1, "fig1": check_fig1, "hierarchy": check_hierarchy}


@pytest.mark.parametrize("name", slow_but(["fig1"], REGISTRY))
def test_results_are_complete_say_that_they_are_quick_and_show_the_papers_law(run, tmp_path, name):
    run("reproduce", name, "--quick", "--device", "cpu", "--out", tmp_path)
    (folder,) = (tmp_path / name).iterdir()
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
