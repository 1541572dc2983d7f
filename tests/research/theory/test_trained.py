"""Studies of training beside the theory: what they count, and what they must find."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from research.pages.stored import read
from research.theory import trained


def test_distinct_memories_are_groups_of_linked_ones():
    angles = torch.tensor([0.0, 0.03, 0.06, 1.0, 1.02, 2.5], dtype=torch.float64)
    w = torch.stack([angles.cos(), angles.sin()], 1)
    assert (
        trained.n_distinct(w) == 3
    )  # cos 0.03 is above 0.999, cos 0.06 is not: linked all the same
    assert trained.n_distinct(w, twin=0.9999) == 6
    assert trained.n_distinct(w[:1]) == 1


def test_memories_part_in_training_where_the_theory_says():
    found = trained.map_splits(
        [2], [1.0, 4.0], n_teacher=2, n_features=7, rho=10.0, upsilon=1.0, n_sets=1,
        passes=200, tol=0.05, generator=torch.Generator().manual_seed(0),
    )  # fmt: skip
    assert found.limit == pytest.approx(math.sqrt(2) * (math.sqrt(5) + 1) / 2)
    assert found.distinct.tolist() == [[1, 2]]
    np.testing.assert_allclose(found.measured, found.predicted, rtol=0.03)
    assert abs(found.predicted[0, 0] / found.limit - 1) > 0.03  # the data have their own


def test_thresholds_are_bisected():
    assert trained.bisect(lambda beta: beta > 2.3, 1.0, 4.0, 1e-3) == pytest.approx(2.3, abs=1e-3)
    assert math.isnan(trained.bisect(lambda beta: True, 1.0, 4.0, 1e-3))
    assert math.isnan(trained.bisect(lambda beta: False, 1.0, 4.0, 1e-3))


def test_corrections_are_constant_times_one_over_n_and_as_computed():
    found = trained.corrections(read("theory_vs_gibbs"))
    assert found.n_features == [100, 300, 1000]
    # A wrong power of N would show: without the factor the same test fails by far.
    n = np.array(found.n_features)
    bare = replace(found, scaled=found.scaled / n, error=found.error / n)
    assert found.spread() < 3 < 50 * found.spread() < bare.spread()
    assert np.isfinite(found.computed).sum() >= 30
    slope, correlation = found.slope()
    assert slope == pytest.approx(1, abs=0.15)
    assert correlation > 0.97
