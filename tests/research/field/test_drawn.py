"""Drawn tables: what their names say, and what can be known of them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

from research.field import drawn


@pytest.mark.parametrize("name", [*drawn.SETS])
def test_tables_are_what_their_names_say(name):
    kind, rows, features, classes, _ = name.split("-")
    table = drawn.load(name, drawn.kinds(None)[name], None)
    assert (table.kind, table.x.shape) == (kind, (int(rows), int(features)))
    counts = np.bincount(table.y)
    assert len(counts) == int(classes)
    assert counts.min() >= 5  # one for each of five folds
    again = drawn.load(name, kind, None)
    np.testing.assert_array_equal(again.x, table.x)


def test_a_class_has_as_many_clumps_as_its_name_says():
    """Far apart, each row is nearer to those of its clump than to any other."""
    table = drawn.load("clumps-1200-100-12-8", "clumps", None)
    own = table.x[table.y == 5]
    distance = np.linalg.norm(own[:, None] - own, axis=2)
    near = distance < 13  # within a clump 0.75·√200 ≈ 10.6, between √(200 + 112.5) ≈ 17.7
    assert len({tuple(row) for row in near.tolist()}) == 8


@pytest.mark.parametrize(("name", "low", "high"), [
    ("moons-6000-2-2-1", 0.85, 0.95), ("noise-1200-20-2-1", 0.4, 0.6),
])  # fmt: skip
def test_neighbors_tell_moons_apart_and_noise_not(name, low, high):
    x, y = (table := drawn.load(name, name.split("-")[0], None)).x, table.y
    model = KNeighborsClassifier(15).fit(x[:600], y[:600])
    assert low < model.score(x[600:], y[600:]) < high
