"""Patches without labels: what the reproduction measures, on a few images."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from mnemosphere.model import from_memories
from research.paper.experiment import Run
from research.paper.unsupervised import (
    EXPERIMENTS,
    marginal_error,
    measure,
    unit_patches,
)

FIG4, STARTS = EXPERIMENTS


def tiny(quick):
    settings = FIG4.settings(quick)
    settings |= {"images": 12, "memories": 29, "prior": [2, 3, 5], "epochs": 2}
    settings["classes"] |= {"steps": 5}
    return settings


def test_full_size_is_the_authors():
    settings = FIG4.settings(False)
    assert settings["images"] is None
    assert (settings["size"], settings["stride"], settings["memories"]) == (6, 2, 100)
    assert (settings["varsigma"], settings["epochs"]) == (0.6, 10)
    assert settings["prior"] == [110, 132, 121, 101, 105, 108, 104, 102, 112, 125]
    assert {case["smoothing"] for case in settings["cases"]} == {0.1, 0.01}


def test_the_authors_start_is_theirs():
    settings = STARTS.settings(False)
    (authors,) = [case for case in settings["cases"] if case["start"] == "random"]
    assert (authors["beta"], authors["smoothing"]) == (0.01, 0.01)
    assert settings["epochs"] == 10
    row = {"case": "authors", "beta": 0.1, "within": 0.02, "shuffled": 0.01, "loss": 2.3}
    compared = STARTS.compare({"rows": [row | {"marginal_error_trained": 1e-6}]})
    assert [c.as_dict(quick=False)["within"] for c in compared] == [False, False, None, None]


def test_patches_are_centered_unit_and_not_blank():
    images = np.zeros((2, 64), dtype=np.uint8)
    images[0] = np.arange(64)  # the second image is blank
    stored = type("Stored", (), {"x_train": images, "image_shape": (8, 8)})
    run = Run("fig4", tiny(True), [0], torch.device("cpu"), True, None, {"mnist": stored})
    x = unit_patches(run)
    assert x.shape == (4, 36)  # corners 0 and 2 in each direction
    square = np.arange(64.0).reshape(8, 8)
    for row, (i, j) in zip(x, itertools.product((0, 2), (0, 2)), strict=True):
        patch = square[i : i + 6, j : j + 6].ravel()
        patch = patch - patch.mean()
        assert np.allclose(row, patch / np.linalg.norm(patch), atol=1e-6)


def test_what_is_measured_on_classes_made_by_hand():
    """Two classes of two equal memories each; nothing is shared between them."""
    w = torch.eye(4)[[0, 0, 1, 1]]
    params = from_memories(w, torch.tensor([0.5, 0.5, 0.0]), beta=9.0, varsigma=1.0)
    p = torch.zeros(5, 3)
    p[0, :2] = 0.1
    p[1:3, 0] = p[3:, 1] = 0.2
    params = params.replace(p=p)
    found = measure(params, w, torch.tensor([1.0, 3.0]), 0.1)
    assert found["within"] == 1.0
    assert found["across"] == 0.0
    assert found["shuffled"] == pytest.approx(1 / 3, abs=0.1)  # one partner of three is equal
    assert found["memories_per_class"] == [2, 2, 0]
    assert found["memories_wanted"] == [1.0, 3.0]
    assert found["largest_gap"] == 1.0
    assert found["sharpness"] == 1.0
    assert marginal_error(params.replace(p=p * torch.tensor([1.0, 1.5, 1.0]))) == 0.5
