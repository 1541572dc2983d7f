"""A row of training is put on the sphere no more often than is needed."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import mnemosphere as mn
from mnemosphere.geometry import KINDS, Standard
from mnemosphere.geometry.base import Kind


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("objective", ["conditional", "joint"])
def test_a_fit_places_each_row_at_most_twice_outside_the_folds(monkeypatch, objective):
    """Folds learn a geometry of their own; that of the model is the one that counts."""
    placed = Counter()

    class Counted(Standard):
        def place(self, x):
            placed.update((*self.mean.tolist(), number) for number in x[:, 0].tolist())
            return super().place(x)

    monkeypatch.setitem(KINDS, "standard", Kind(Counted))
    x, y = load_wine(return_X_y=True, as_frame=True)
    rows = pd.DataFrame({
        "key": np.random.default_rng(0).permutation(len(x)) + 0.5,
        "gaps": x["alcohol"].where(x["alcohol"] < 14), "color": x["hue"].round(2).astype(str) + "h",
    })  # fmt: skip
    model = mn.DAMClassifier(geometry="standard", objective=objective, random_state=0).fit(rows, y)
    own = tuple(model.model_.geometry.mean.tolist())
    counts = [n for key, n in placed.items() if key[:-1] == own]
    assert len(counts) == len(rows)
    assert set(counts) <= {1, 2}
    assert model.model_.held is not None
