"""`precision`: what training takes, and what it leaves alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mnemosphere import DAMClassifier, DAMClusterer
from mnemosphere.data import load

GIVEN = {"objective": "conditional", "max_iter": 5, "normalize": "unit", "varsigma": 0.3,
         "random_state": 0, "device": "cuda" if torch.cuda.is_available() else "cpu"}  # fmt: skip


@pytest.fixture(scope="module")
def digits():
    return load("digits")


def test_rounded_operands_change_training_a_little_and_predictions_not_at_all(digits):
    x, y = digits.x_train[:300], digits.y_train[:300]
    double, full, low = (
        DAMClassifier(20, precision=precision, **GIVEN).fit(x, y)
        for precision in ("float64", "float32", "bfloat16")
    )
    kept = [model.model_.votes.w.dtype for model in (double, full, low)]
    assert kept == [torch.float64, torch.float32, torch.float32]  # the precision of sums
    assert min(m.score(digits.x_test, digits.y_test) for m in (double, full, low)) > 0.8
    away = np.linalg.norm(full.memories_ - low.memories_) / np.linalg.norm(full.memories_)
    assert 1e-6 < away < 0.05
    before = low.predict_proba(digits.x_test)
    low.set_params(precision="float32")
    np.testing.assert_array_equal(low.predict_proba(digits.x_test), before)


def test_clusters_and_streams_take_them_too(digits):
    x = digits.x_train[:300]
    given = {"normalize": "center", "random_state": 0, "max_iter": 5, "device": GIVEN["device"]}
    full, low = (
        DAMClusterer(10, n_memories=10, precision=precision, **given).fit(x)
        for precision in ("float32", "bfloat16")
    )
    assert np.abs(full.memories_ - low.memories_).max() > 0
    assert (full.labels_ == low.labels_).mean() > 0.9
    first = low.memories_.copy()
    low.partial_fit(x)
    assert np.isfinite(low.memories_).all()
    assert np.abs(low.memories_ - first).max() > 0


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("n_rows", [200, 1500, 6000])
@pytest.mark.parametrize("objective", ["joint", "conditional"])
def test_defaults_fit_on_a_gpu(n_rows, objective):
    data = load("mnist-small")
    n_rows = min(n_rows, len(data.y_train))
    model = DAMClassifier(objective=objective, device="cuda", random_state=0)
    model.fit(data.x_train[:n_rows], data.y_train[:n_rows])
    assert model.score(data.x_test, data.y_test) > 0.75
