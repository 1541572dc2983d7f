"""One browser for all tests of pages, and models to write pages of; tests only read them."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine

import mnemosphere as mn
from quick_models import small


@pytest.fixture(scope="session")
def digits() -> Any:
    return mn.load_data("mnist-small")


@pytest.fixture(scope="session")
def image_model(digits: Any) -> mn.DAMClassifier:
    """A hundred memories of handwritten digits."""
    model = small(n_memories=100, geometry="center", varsigma=0.23)
    return model.fit(digits.x_train[:2500], digits.y_train[:2500])


@pytest.fixture(scope="session")
def wines() -> Any:
    """A frame of 13 named features and its labels."""
    table = load_wine(as_frame=True)
    return table.data, np.array(["Barolo", "Grignolino", "Barbera"])[table.target]


@pytest.fixture(scope="session")
def wine_model(wines: Any) -> mn.DAMClassifier:
    x, y = wines
    model = small(n_memories=11, geometry="standard", varsigma=0.6, max_iter=None)
    return model.fit(x, y).calibrate(x * 1.001, y)
