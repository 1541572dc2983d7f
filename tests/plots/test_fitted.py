"""Pictures of a fitted model."""

import numpy as np
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
