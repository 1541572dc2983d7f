"""The classifier as a scikit-learn citizen: its checks, its tools, every kind of input."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import mnemosphere as mn

NAN = float("nan")


@parametrize_with_checks([mn.DAMClassifier(random_state=0)])
def test_check_estimator(estimator, check):
    check(estimator)


def small(**settings):
    """A model whose choices are made, so that a test is quick."""
    settings = {"n_memories": 7, "normalize": "unit", "varsigma": 0.9, "random_state": 0} | settings
    return mn.DAMClassifier(**settings)


def assert_same_bits(one, two, x):
    assert np.array_equal(one.memories_, two.memories_)
    assert np.array_equal(one.class_weights_, two.class_weights_)
    assert one.beta_ == two.beta_
    assert np.array_equal(one.predict_log_proba(x), two.predict_log_proba(x))


# scikit-learn's tools


def test_pipeline_with_cross_validation(data):
    accuracy = cross_val_score(make_pipeline(StandardScaler(), small()), data.x, data.y, cv=3)
    assert accuracy.mean() > 0.9


def test_middle_of_a_pipeline(data):
    """The shares of the memories are features like any others."""
    chain = make_pipeline(small(), small(n_memories=3)).fit(data.x, data.y)
    shares = chain[0].transform(data.x)
    assert shares.shape == (61, 7)
    assert (shares >= 0).all()
    assert (shares.sum(axis=1) <= 1 + 1e-12).all()
    assert chain.score(data.x, data.y) > 0.9


def test_grid_search_chooses_and_its_winner_can_be_saved(data, fresh, tmp_path):
    grid = {"n_memories": np.array([1, 5]), "varsigma": np.array([0.5, 0.9], dtype=np.float32)}
    search = GridSearchCV(small(), grid, cv=2).fit(data.x, data.y)
    assert search.best_params_["n_memories"] == 5  # one memory cannot tell three classes apart
    best = search.best_estimator_
    best.save(tmp_path / "best.safetensors")
    loaded = mn.load(tmp_path / "best.safetensors")
    assert_same_bits(best, loaded, fresh.x)
    assert loaded.n_memories == 5


def test_calibration(data, fresh):
    model = CalibratedClassifierCV(small(), cv=3).fit(data.x, data.y)
    assert model.score(fresh.x, fresh.y) > 0.9
    assert np.allclose(model.predict_proba(fresh.x).sum(axis=1), 1)


def test_clone_is_unfitted_and_equal(fitted):
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    assert not hasattr(again, "params_")


def test_copies_through_pickle_predict_the_same_bits(fitted, fresh):
    """Workers of scikit-learn exchange models so; model files are another matter."""
    assert_same_bits(fitted, pickle.loads(pickle.dumps(fitted)), fresh.x)


def test_every_setting_is_stored_untouched_by_fit(data):
    model = small(class_weight={0: 1.0, 1: 2.0, 2: 1.0})
    before = {name: repr(value) for name, value in model.get_params().items()}
    model.fit(data.x, data.y)
    assert {name: repr(value) for name, value in model.get_params().items()} == before


# frames, arrays, tensors


@pytest.mark.parametrize(
    ("container", "frame"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame)]
)
def test_set_output(data, container, frame):
    model = small().fit(data.x, data.y).set_output(transform=container)
    out = model.transform(data.x)
    assert isinstance(out, frame)
    assert list(out.columns) == [f"damclassifier{i}" for i in range(7)]
    plain = small().fit(data.x, data.y).transform(data.x)
    assert np.array_equal(out.to_numpy(), plain)


NAMES = ["one", "two", "three", "four", "five"]


@pytest.mark.parametrize(
    "frame",
    [lambda x: pd.DataFrame(x, columns=NAMES), lambda x: pl.DataFrame(x, schema=NAMES)],
    ids=["pandas", "polars"],
)
def test_feature_names(data, fresh, frame):
    model = small().fit(frame(data.x), data.y)
    assert model.feature_names_in_.tolist() == NAMES
    plain = small().fit(data.x, data.y)
    assert np.array_equal(model.predict_proba(frame(fresh.x)), plain.predict_proba(fresh.x))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame(fresh.x)[NAMES[::-1]])


@pytest.mark.parametrize(
    "series",
    [
        pd.Series,
        pl.Series,
        list,
        torch.from_numpy,
        lambda y: pd.Series(y, dtype="category"),
        lambda y: pd.Series(y, dtype="Int64"),
        lambda y: y[:, None].astype(np.uint8).ravel(),
    ],
    ids=["pandas", "polars", "list", "torch", "categorical", "nullable", "uint8"],
)
def test_labels_from_any_container(data, fresh, series):
    model = small().fit(data.x, series(data.y))
    assert_same_bits(model, small().fit(data.x, data.y), fresh.x)
    assert model.classes_.tolist() == [0, 1, 2]


def test_memory_map_of_rows(data, fresh, tmp_path):
    np.save(tmp_path / "rows.npy", data.x)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert_same_bits(small().fit(rows, data.y), small().fit(data.x, data.y), fresh.x)


def test_torch_rows_in_and_predictions_out(data, fresh):
    model = small().fit(torch.from_numpy(data.x), torch.from_numpy(data.y))
    assert_same_bits(model, small().fit(data.x, data.y), torch.from_numpy(fresh.x))
    assert isinstance(model.predict(torch.from_numpy(fresh.x)), np.ndarray)


def test_half_precision_tensors(data, fresh):
    """NumPy knows no bfloat16, which is what language models put out."""
    rows = torch.from_numpy(data.x).bfloat16()
    model = small().fit(rows, data.y)
    assert_same_bits(model, small().fit(rows.float().numpy(), data.y), fresh.x)


def test_float32_rows_make_float32_features(data):
    model = small().fit(data.x, data.y)
    assert model.transform(data.x.astype(np.float32)).dtype == np.float32
    assert model.transform(data.x).dtype == np.float64


# labels


@pytest.mark.parametrize(
    "names",
    [
        np.array(["ant", "bee", "wasp"]),
        np.array(["ant", "bee", "wasp"], dtype=object),
        np.array([-5, 0, 7], dtype=np.int8),
        np.array([0.0, 1.0, 2.0]),
        np.array(["2020-01-01", "2021-01-01", "2022-01-01"], dtype="datetime64[D]"),
    ],
    ids=["str", "object", "int", "float", "date"],
)
def test_labels_of_any_type(data, fresh, names):
    model = small().fit(data.x, names[data.y])
    assert model.classes_.tolist() == names.tolist()
    assert model.score(fresh.x, names[fresh.y]) > 0.9
    assert model.predict(fresh.x).tolist() == names[small().fit(*data).predict(fresh.x)].tolist()


def test_boolean_labels_and_the_sign_of_the_decision(make_clusters):
    x, y = make_clusters(classes=2)
    model = small().fit(x, y == 1)
    assert model.classes_.tolist() == [False, True]
    odds = model.decision_function(x)
    assert odds.shape == (61,)
    assert np.array_equal(odds > 0, model.predict(x))
    log_p = model.predict_log_proba(x)
    assert np.allclose(odds, log_p[:, 1] - log_p[:, 0], rtol=1e-12)
    assert np.mean(model.predict(x) == (y == 1)) > 0.95


def test_one_class(data, fresh):
    model = mn.DAMClassifier(random_state=0).fit(data.x, np.full(61, "only"))
    assert model.predict(fresh.x).tolist() == ["only"] * 47
    assert np.array_equal(model.predict_proba(fresh.x), np.ones((47, 1)))


def test_one_row():
    model = mn.DAMClassifier(random_state=0).fit([[1.0, 2.0, 3.0]], ["a"])
    assert model.n_memories_ == 1
    assert model.predict([[3.0, 2.0, 1.0]]).tolist() == ["a"]


def test_constant_rows_give_back_the_proportions_of_the_classes():
    """Nothing can be learned from X, and the model says just that."""
    model = mn.DAMClassifier(label_smoothing=0.0, random_state=0)
    model.fit(np.full((40, 3), 2.0), np.repeat([0, 1], [10, 30]))
    assert np.allclose(model.predict_proba(np.full((1, 3), 2.0)), [[0.25, 0.75]], atol=1e-6)


def test_more_memories_than_rows(data, fresh):
    model = small(n_memories=89).fit(data.x, data.y)
    assert model.memories_.shape == (89, 5)
    assert model.score(fresh.x, fresh.y) > 0.9


def test_a_single_feature():
    """On a line there is no direction; with normalize='standard', the default's choice, there is.

    A threshold is learned where the classes meet.
    """
    x = np.r_[np.linspace(0, 1, 30), np.linspace(3, 4, 30)][:, None]
    model = mn.DAMClassifier(random_state=0).fit(x, np.repeat([0, 1], 30))
    assert model.predict([[0.5], [3.5]]).tolist() == [0, 1]


# weights


def test_weight_two_is_the_row_given_twice_bit_for_bit(data, fresh):
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 4, 61)
    copies = rng.permutation(np.repeat(np.arange(61), weight))
    for settings in ({}, {"class_weight": "balanced"}, {"class_weight": {1: 3.0}}):
        model = mn.DAMClassifier(random_state=0, **settings)
        weighted = clone(model).fit(data.x, data.y, sample_weight=weight)
        assert_same_bits(weighted, clone(model).fit(data.x[copies], data.y[copies]), fresh.x)


def test_unit_weights_are_no_weights(data, fresh):
    one = small().fit(data.x, data.y, sample_weight=np.ones(61))
    assert_same_bits(one, small().fit(data.x, data.y), fresh.x)


def test_rows_that_differ_in_a_feature_of_small_numbers_are_not_the_same():
    """Farads beside meters: a difference of 1e-12 next to 1e6 is lost in any sum of the two."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = np.c_[np.full(60, 1e6), 1e-12 * (1 + y + 0.1 * rng.normal(size=60)), np.full(60, 3.0)]
    model = mn.DAMClassifier(normalize="standard", varsigma=0.7, random_state=0).fit(x, y)
    assert model.score(x, y) == 1.0
    twice = np.r_[x, x[::-1]]
    model = small(normalize="standard")
    weighted = clone(model).fit(x, y, sample_weight=np.full(60, 2))
    assert_same_bits(weighted, clone(model).fit(twice, np.r_[y, y[::-1]]), x)


def test_class_weight_moves_the_prior(data):
    heavy = small(class_weight={2: 9.0}, label_smoothing=0.0).fit(data.x, data.y)
    counts = np.bincount(data.y) * np.array([1.0, 1.0, 9.0])
    assert np.allclose(heavy.class_prior_, np.r_[counts / counts.sum(), 0.0], atol=1e-12)
    few = data.y != 0
    few[::6] = True  # half of class 0 is left
    balanced = small(class_weight="balanced", label_smoothing=0.0)
    balanced.fit(data.x[few], data.y[few])
    assert np.allclose(balanced.class_prior_, [1 / 3, 1 / 3, 1 / 3, 0.0], atol=1e-12)


# soft and missing labels


def test_soft_labels_of_certainty_are_labels(data, fresh):
    hard = small().fit(data.x, data.y)
    soft = small().fit(data.x, np.eye(3)[data.y])
    assert np.allclose(hard.predict_proba(fresh.x), soft.predict_proba(fresh.x), rtol=1e-9)
    assert soft.classes_.tolist() == [0, 1, 2]


def test_soft_labels_are_learned_as_given(data):
    """Rows of class 0 are half class 1: the predictions there say so."""
    q = np.eye(3)[data.y]
    q[data.y == 0] = [0.5, 0.5, 0.0]
    model = small(n_memories=3, label_smoothing=0.0).fit(data.x, q)
    mean = model.predict_proba(data.x[data.y == 0]).mean(axis=0)
    assert np.allclose(mean, [0.5, 0.5, 0.0], atol=0.05)


@pytest.mark.parametrize(
    ("marker", "hide"),
    [
        (-1, lambda y, gone: np.where(gone, -1, y)),
        (NAN, lambda y, gone: np.where(gone, NAN, y)),
        (
            NAN,
            lambda y, gone: np.array(
                [None if g else f"c{v}" for v, g in zip(y, gone, strict=True)]
            ),
        ),
        (NAN, lambda y, gone: pd.Series(y, dtype="Int64").mask(gone)),
        (NAN, lambda y, gone: pd.Series([f"c{v}" for v in y]).mask(gone)),
        ("?", lambda y, gone: np.where(gone, "?", y.astype(str))),
    ],
    ids=["-1", "nan", "None", "NA", "strings with nan", "?"],
)
def test_unlabelled_rows_take_part(data, fresh, marker, hide):
    gone = np.arange(61) >= 9  # three labels a class
    y = hide(data.y, gone)
    model = small(n_memories=5, unlabeled=marker).fit(data.x, y)
    assert len(model.classes_) == 3
    assert np.mean(np.searchsorted(model.classes_, model.predict(fresh.x)) == fresh.y) > 0.9
    alone = small(n_memories=5).fit(data.x[~gone], np.asarray(y)[~gone])
    assert not np.array_equal(alone.memories_, model.memories_)


def test_unlabelled_rows_help(make_clusters):
    """One label a class: where the classes lie is learned from the rows without."""
    x, y = make_clusters(rows=301, spread=1.5)
    fresh = make_clusters(1, rows=301, spread=1.5)
    settings = {"n_memories": 3, "normalize": "standard"}
    helped = small(unlabeled=-1, **settings).fit(x, np.where(np.arange(301) < 3, y, -1))
    alone = small(**settings).fit(x[:3], y[:3])
    assert helped.score(*fresh) > alone.score(*fresh) + 0.1


def test_automatic_choices_with_few_labels(data, fresh):
    y = np.where(np.arange(61) < 12, data.y, -1)
    model = mn.DAMClassifier(unlabeled=-1, random_state=0).fit(data.x, y)
    assert model.score(fresh.x, fresh.y) > 0.9


def test_history_and_choices_are_plain_values(fitted):
    """They go to logs and JSON as they are."""
    text = json.dumps({"history": fitted.history_, "selection": fitted.selection_})
    assert json.loads(text)["history"] == fitted.history_
