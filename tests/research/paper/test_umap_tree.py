"""Learning as a tree: what the quick run measured, and the measures themselves."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mnemosphere.model import from_memories
from mnemosphere.training import PassRecord, Run
from research.paper.recorder import (
    Recorder,
    clusters,
    reunions,
    trunk_size,
)
from research.paper.umap_tree import RUNS, embed


def components(linked: np.ndarray) -> int:
    """Groups by flooding, one memory at a time."""
    left, found = set(range(len(linked))), 0
    while left:
        found += 1
        queue = [left.pop()]
        while queue:
            near = {j for j in left if linked[queue[-1], j]}
            queue.pop()
            left -= near
            queue += near
    return found


@pytest.mark.parametrize("overlap", [0.2, 0.5, 0.8, 0.99])
def test_clusters_are_connected_components(overlap):
    generator = np.random.default_rng(3)
    w = generator.normal(size=(23, 3)).astype(np.float32)
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    assert clusters(w, overlap) == components(w @ w.T > overlap)


def on_circle(*degrees: float) -> np.ndarray:
    angle = np.radians(degrees)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)


def test_reunions_count_pairs_that_came_back():
    together, apart = on_circle(0, 1, 2), on_circle(0, 90, 180)
    assert reunions([together, apart], 0.9) == 0.0
    assert reunions([together, apart, on_circle(0, 90, 91)], 0.9) == pytest.approx(1 / 3)
    assert reunions([together, apart, together], 0.9) == 1.0
    assert reunions([together, together], 0.9) == 0.0


def test_the_trunk_counts_memories_times_passes():
    near = np.array([7.0, 5.0, 0.0, 1.0])
    assert trunk_size(near) == 13.0
    # Seconds of a pass are shared by its memories, here 10 of them.
    assert trunk_size(near, np.array([2.0, 4.0, 1.0, 3.0]) / 10) == pytest.approx(3.7)


def after(passes, max_iter, params):
    """A run of training after so many passes."""
    history = [
        PassRecord(n, -1.0, None, None, 9.0, None, params.n_memories, 0.5)
        for n in range(1, passes + 1)
    ]
    return Run(params, {}, torch.Generator(), max_iter, history=history)


def test_the_recorder_keeps_what_has_moved_and_links_it_to_where_it_was():
    mean = torch.tensor([1.0, 0.0])

    def model(*degrees):
        return from_memories(
            torch.from_numpy(on_circle(*degrees)), torch.tensor([0.5, 0.3, 0.2]), beta=2.0
        )

    recorder = Recorder(mean, 0.9, step=0.3)
    recorder.on_start(after(0, 4, model(0, 10)))
    # 5 degrees are 0.09 and 20 are 0.35; the last pass of a phase is kept in any case.
    for passes, there in enumerate([(5, 15), (20, 30), (25, 35), (30, 35)], start=1):
        recorder.on_pass(after(passes, 4, model(*there)))
    recorder.on_start(after(0, 1, model(30, 40, 30)))
    recorder.on_pass(after(1, 1, model(31, 120, 29)))
    arrays = recorder.arrays([[0, 1, 1]])  # the third memory is a copy of the second
    assert arrays["time"].tolist() == [0, 0, 2, 2, 4, 4, 4, 4, 4, 5, 5, 5]
    assert arrays["before"].tolist() == [-1, -1, 0, 1, 2, 3, 4, 5, 5, 6, 7, 8]
    np.testing.assert_allclose(arrays["w"][4:6], on_circle(30, 35), atol=1e-3)
    np.testing.assert_allclose(arrays["w"][-3:], on_circle(31, 120, 29), atol=1e-3)
    near, overlap, spread, within = arrays["passes"][:, :4].T
    # cos 25.8° = 0.9
    assert near.tolist() == [2, 1, 1, 0, 0]
    assert overlap[0] == pytest.approx(np.cos(np.radians([5, 15])).mean(), rel=1e-5)
    # All memories in one class: the spread inside classes is that of all. 1 − cos²(half angle).
    np.testing.assert_allclose(spread, within, rtol=1e-5)
    assert spread[0] == pytest.approx(np.sin(np.radians(5)) ** 2, rel=1e-3)


def test_principal_axes_keep_distances_in_a_plane():
    generator = np.random.default_rng(2)
    plane = np.linalg.qr(generator.normal(size=(5, 2)))[0].T
    first, second = (generator.normal(size=(n, 2)) for n in (11, 7))
    away = generator.normal(size=5)
    places = embed(
        [(f @ plane + away).astype(np.float32) for f in (first, second)],
        "axes",
        n_neighbors=5,
        seed=0,
    )
    for flat, place in zip((first, second), places, strict=True):
        expected = np.linalg.norm(flat[:, None] - flat[None], axis=-1)
        np.testing.assert_allclose(
            np.linalg.norm(place[:, None] - place[None], axis=-1), expected, atol=1e-4
        )
    # One map for both: distances from one set to the other are kept as well.
    np.testing.assert_allclose(
        np.linalg.norm(places[0][:, None] - places[1][None], axis=-1),
        np.linalg.norm(first[:, None] - second[None], axis=-1),
        atol=1e-4,
    )


def test_memories_leave_the_trunk_and_spread(quick_runs):
    measured = quick_runs.result("fig5")["measured"]
    for name in RUNS:
        one = measured["runs"][name]
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


def test_splitting_thins_the_trunk(quick_runs):
    measured = quick_runs.result("fig5")["measured"]
    without, split = measured["runs"]["without"], measured["runs"]["with"]
    assert split["memories"] == without["memories"] == 32
    assert measured["trunk_ratio"] > 1
    assert measured["trunk_ratio"] == pytest.approx(
        without["trunk_memory_passes"] / split["trunk_memory_passes"]
    )
    assert split["clusters"][-1] > 16
