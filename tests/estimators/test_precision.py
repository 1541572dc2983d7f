"""`precision`: what training takes, and what it leaves alone."""

import numpy as np
import pytest
import torch

import mnemosphere as mn
from mnemosphere import DAMClassifier, load_data
from mnemosphere.estimators.inputs import device_of

GIVEN = {"objective": "conditional", "max_iter": 5, "geometry": "unit", "varsigma": 0.3,
         "random_state": 0, "device": "cuda" if torch.cuda.is_available() else "cpu"}  # fmt: skip


@pytest.fixture(scope="module")
def digits():
    return load_data("digits")


def test_rounded_operands_change_training_a_little_and_predictions_not_at_all(digits):
    x, y = digits.x_train[:1000], digits.y_train[:1000]  # more than 50,000 numbers
    double, full, low = (
        DAMClassifier(20, precision=precision, **GIVEN).fit(x, y)
        for precision in ("float64", "float32", "auto")
    )
    kept = [model.model_.votes.w.dtype for model in (double, full, low)]
    assert kept == [torch.float64, torch.float32, torch.float32]  # the precision of sums
    assert min(m.score(digits.x_test, digits.y_test) for m in (double, full, low)) > 0.8
    away = np.linalg.norm(full.memories_ - low.memories_) / np.linalg.norm(full.memories_)
    assert 1e-6 < away < 0.05 if GIVEN["device"] == "cuda" else away == 0
    before = low.predict_proba(digits.x_test)
    low.set_params(precision="float32")
    np.testing.assert_array_equal(low.predict_proba(digits.x_test), before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("n_rows", [200, 1500, 6000])
@pytest.mark.parametrize("objective", ["joint", "conditional"])
def test_defaults_fit_on_a_gpu(n_rows, objective):
    data = load_data("mnist-small")
    n_rows = min(n_rows, len(data.y_train))
    model = DAMClassifier(objective=objective, device="cuda", random_state=0)
    model.fit(data.x_train[:n_rows], data.y_train[:n_rows])
    assert model.score(data.x_test, data.y_test) > 0.75


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("objective", ["joint", "conditional"])
def test_a_model_of_a_gpu_says_the_same_on_a_processor(tmp_path, objective):
    data = load_data("digits")
    model = DAMClassifier(20, objective=objective, device="cuda", max_iter=3, random_state=0)
    model.fit(data.x_train, data.y_train).save(tmp_path / "m.safetensors")
    loaded = mn.load(tmp_path / "m.safetensors")
    for name in ("w", "p"):
        there = getattr(model.model_.votes, name)
        assert there.is_cuda
        assert torch.equal(getattr(loaded.model_.votes, name), there.cpu())
    wanted = model.predict_proba(data.x_test)
    # There votes are read in single precision.
    np.testing.assert_allclose(loaded.predict_proba(data.x_test), wanted, rtol=0, atol=1e-5)


def test_auto_is_a_gpu_for_many_numbers_only_wherever_rows_come_from(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    small, large = np.zeros((3, 7)), np.zeros((150_000, 7), dtype=np.uint8)
    for rows, kind in ((small, "cpu"), (large, "cuda")):
        np.save(tmp_path / "x.npy", rows)
        for given in (rows, torch.from_numpy(rows), mn.Dataset.open(tmp_path / "x.npy")):
            assert device_of(given, "auto").type == kind
        assert device_of(rows, "cpu").type == "cpu"
