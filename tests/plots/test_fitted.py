"""Pictures of a fitted model."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import mnemosphere as mn
from mnemosphere.plots.fitted import memories_of
from mnemosphere.plots.functions import representative

SHAPE = (2, 5)


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    x = 200 * rng.random((61, 10)) * rng.integers(1, 4, size=10)
    settings = {"geometry": "standard", "objective": "joint", "varsigma": 0.9, "max_iter": 2}
    return mn.DAMClassifier(7, **settings, random_state=0).fit(x, np.arange(61) % 3)


def test_memories_of_standardized_pixels_look_like_rows(model):
    """In units of the pixels, each less its mean: not in the spread of each pixel."""
    shown = memories_of(model.model_, SHAPE).axes[0].images
    for picture, k in zip(shown, representative(model.model_, 25), strict=True):
        expected = model.memories_[k] - model.memories_[k].mean()
        np.testing.assert_allclose(picture.get_array(), expected.reshape(SHAPE))


def test_spectra_are_lines_over_their_scale():
    rng = np.random.default_rng(0)
    x = rng.random((41, 5)) + np.eye(5)[np.arange(41) % 2]
    names = [f"{400 + 5 * k} nm" for k in range(5)]
    table = pd.DataFrame(x, columns=names)
    settings = {"geometry": "unit", "objective": "joint", "varsigma": 0.9, "max_iter": 2}
    model = mn.DAMClassifier(4, **settings, random_state=0).fit(
        table, np.array([*"ab"])[np.arange(41) % 2]
    )
    (ax,) = memories_of(model.model_).axes
    drawn = [line for line in ax.lines if not line.get_label().startswith("_")]
    assert ax.get_xlabel() == "nm"
    for line in drawn:
        name, label = line.get_label().split()
        assert label == model.classes_[model.class_weights_[1:].argmax(1)[int(name[1:])]]
        np.testing.assert_array_equal(line.get_xdata(), [400, 405, 410, 415, 420])
        np.testing.assert_allclose(line.get_ydata(), model.memories_[int(name[1:])])
    assert len({(line.get_color(), line.get_label()[-1]) for line in drawn}) == 2
