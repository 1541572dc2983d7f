"""Streams: classes that appear, and classes that stop coming."""

import numpy as np
import pytest

import mnemosphere as mn
from quick_models import reloaded

N, P, C = 7, 20, 4
CENTERS = np.linalg.qr(np.random.default_rng(3).normal(size=(N, N)))[0][:C]


def rows(label, n, seed):
    rng = np.random.default_rng(seed)
    y = rng.choice(label, n)
    x = CENTERS[y] + 0.25 * rng.normal(size=(n, N))
    return x / np.linalg.norm(x, axis=1, keepdims=True), np.array(["a", "b", "c", "d"])[y]


@pytest.mark.parametrize("classes", [None, ["a", "b", "c", "d"]])
def test_new_classes_are_learned_and_old_ones_kept(classes):
    model = mn.DAMClassifier(
        P, objective="joint", varsigma=0.8, geometry="unit", random_state=0, device="cpu"
    )
    for phase in ([0, 1], [2, 3]):
        for seed in range(5):
            model.partial_fit(*rows(phase, 60, 10 * phase[0] + seed), classes=classes)
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    for phase in ([0, 1], [2, 3]):
        assert model.score(*rows(phase, 200, 99)) > 0.97
    # Classes count by the rows there have been.
    assert model.class_prior_[:2].sum() == pytest.approx(model.class_prior_[2:4].sum(), rel=0.05)


def test_a_stream_goes_on_after_its_model_was_stored(tmp_path):
    """Wherever it is cut: before the new classes, while they get their memories, and after."""
    batches = [rows(phase, 40, 7 * phase[0] + seed) for phase in ([0, 1], [2], [2, 3])
               for seed in range(2)]  # fmt: skip
    models = []
    for stored in (False, True):
        model = mn.DAMClassifier(
            P, objective="joint", varsigma=0.8, geometry="unit", random_state=0, device="cpu"
        )
        for batch in batches:
            model.partial_fit(*batch)
            if stored:
                model = reloaded(model, tmp_path)
        models.append(model)
    whole, parts = models
    assert parts.classes_.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(parts.memories_, whole.memories_)
    np.testing.assert_array_equal(parts.class_weights_, whole.class_weights_)
    assert parts.beta_ == whole.beta_


@pytest.mark.parametrize("objective", ["joint", "conditional"])
@pytest.mark.parametrize("mixed", [False, True])
def test_a_fitted_model_takes_a_new_class(objective, mixed):
    settings = {"objective": objective, "geometry": "unit", "search": None, "random_state": 0}
    model = mn.DAMClassifier(6, **settings).fit(*rows([0, 1, 2], 300, 1))
    old, new = rows([0, 1, 2], 300, 2), rows([3], 200, 3)
    before = model.score(*old)
    x, y = (
        np.concatenate(parts) for parts in zip(rows([3], 20, 4), rows([0, 1], 50, 5), strict=True)
    )
    n = 70 if mixed else 20
    if mixed and objective == "conditional":
        with pytest.warns(UserWarning, match="'d' is new: the 50 rows of known classes are left"):
            model.partial_fit(x[:n], y[:n])
    else:
        model.partial_fit(x[:n], y[:n])
    assert model.classes_.tolist() == ["a", "b", "c", "d"]
    assert model.objective_ == objective
    assert model.score(*new) > 0.9
    assert model.score(*old) > before - 0.02


def test_a_stream_begins_with_more_than_one_class():
    model = mn.DAMClassifier(P, random_state=0)
    with pytest.raises(ValueError, match="the first batch has one class, 'a': begin with rows of"):
        model.partial_fit(*rows([0], 30, 0), classes=["a", "b"])


def test_a_new_class_is_learned_from_rows_with_gaps():
    model = mn.DAMClassifier(8, varsigma=0.8, geometry="unit", random_state=0, device="cpu")
    for phase in ([0, 1], [0, 1], [2], [1, 2]):
        x, y = rows(phase, 30, phase[0])
        x[1:, -1] = np.nan
        model.partial_fit(x, y, classes=["a", "b", "c"])
    x, y = rows([2], 50, 5)
    assert model.score(x, y) > 0.9
