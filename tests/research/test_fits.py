"""What studies share: the validation split, starts, and the rows they train on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mnemosphere.data import load
from mnemosphere.model.duplicate import duplicate
from research import fits


def test_validation_is_the_tail_in_its_order(problem):
    rows = problem(rows=43, weighted=True).batch
    kept, tail = fits.split_tail(rows, 0.2)
    assert (kept.n_rows, tail.n_rows) == (34, 9)
    for name in ("x", "targets", "sample_weight"):
        whole = getattr(rows, name)
        assert torch.equal(getattr(kept, name), whole[:34])
        assert torch.equal(getattr(tail, name), whole[34:])


def test_rows_are_centered_units_with_soft_labels_in_either_precision():
    stored = load("digits")
    for dtype, tol in ((torch.float32, 1e-6), (torch.float64, 1e-14)):
        rows, test = fits.on_sphere(stored, "cpu", 0.3, dtype=dtype)
        assert rows.x.dtype == rows.targets.dtype == dtype
        assert (rows.n_rows, test.n_rows) == (1442, 355)
        image = stored.x_test[31] - stored.x_test[31].mean()
        np.testing.assert_allclose(test.x[31], image / np.linalg.norm(image), atol=tol)
        soft = np.full(11, 0.3 / 11)
        soft[stored.y_test[31]] += 0.7
        np.testing.assert_allclose(test.targets[31], soft, atol=tol)


def test_a_grown_model_ends_with_a_uniform_component_like_a_memory(problem):
    rows = problem(rows=53, labels="full").batch
    start = fits.data_start(rows, 3, generator=torch.Generator().manual_seed(0))
    params = fits.begin_growth(start, rows.targets.mean(0), max_memories=12, varsigma=0.5)
    for _ in range(2):  # 3, 6, 12
        params = duplicate(params, torch.arange(params.n_memories))
    np.testing.assert_allclose(params.p_h, 1 / 13)


def test_memories_start_on_rows_and_beta_from_the_others(problem):
    made = problem(7, rows=101, features=11, memories=5, clustered=True)
    start = fits.data_start(made.batch, 7, varsigma=0.6, generator=torch.Generator().manual_seed(2))
    overlaps = (made.x @ start.w.T).amax(1)
    own = overlaps > 1 - 1e-9
    assert int(own.sum()) == 7
    # A_N(β) by integrating over the angle to the mean direction.
    theta = np.linspace(0, np.pi, 20001)
    density = np.exp(float(start.beta) * (np.cos(theta) - 1)) * np.sin(theta) ** (11 - 2)
    resultant = (density * np.cos(theta)).sum() / density.sum()
    assert resultant == pytest.approx(0.6 * float(overlaps[~own].mean()), rel=1e-6)
    given = fits.data_start(made.batch, 7, beta=3.0, generator=torch.Generator().manual_seed(2))
    assert given.beta == 3.0
    assert torch.equal(given.w, start.w)
