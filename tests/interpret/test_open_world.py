"""Rates, coverages and classes that come and go, on scikit-learn's digits."""

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_wine

import mnemosphere as mn
from mnemosphere import interpret
from quick_models import reloaded

X, Y = load_digits(return_X_y=True)
UNIT = X - X.mean(1, keepdims=True)
UNIT /= np.linalg.norm(UNIT, axis=1, keepdims=True)
FIT, REST = np.arange(0, 1797, 3), np.setdiff1d(np.arange(1797), np.arange(0, 1797, 3))


def fit(labels, per_class=2, rows=FIT, **settings):
    kept = rows[[label is not None for label in labels[rows]]]
    n_classes = len(set(labels[kept].tolist()))
    settings = {"objective": "conditional", "geometry": "center", "search": None} | settings
    model = mn.DAMClassifier(per_class * n_classes, random_state=0, **settings)
    return model.fit(X[kept], np.array(labels[kept].tolist()))


def known_only(*classes):
    return np.array([label if label in classes else None for label in Y.tolist()], dtype=object)


@pytest.fixture(scope="module")
def digits():
    return fit(Y.astype(object))


@pytest.fixture(scope="module")
def seven():
    """A model of 0 to 6, and the rows that were not trained on."""
    return fit(known_only(*range(7))).calibrate(*(part[REST[Y[REST] < 7]] for part in (X, Y)))


# Promises


def test_sets_hold_the_classes_above_the_quantile(digits):
    some, other = REST[:99], REST[99:]
    model = mn.as_estimator(interpret.calibrate(digits.model_, X[some], Y[some]))
    proba = digits.predict_proba(X[other])  # scores are taken before the temperature is set
    own = digits.predict_proba(X[some])[np.arange(99), Y[some]]
    limit = np.sort(-np.log(own))[94]  # ⌈0.95·100⌉
    for own, p in zip(model.predict_set(X[other], 0.95, at_least_one=False), proba, strict=True):
        assert own.tolist() == [k for k in np.argsort(-p) if -np.log(p[k]) <= limit + 1e-5]
    # 99 rows cannot tell 99.5% from all.
    assert all(len(own) == 10 for own in model.predict_set(X[other[:3]], 0.995))
    with pytest.raises(ValueError, match="coverage must lie between 0 and 1"):
        model.predict_set(X[:2], 1.0)
    unlabeled = mn.as_estimator(interpret.calibrate(digits.model_, X[some]))
    assert unlabeled.temperature_ == digits.temperature_
    with pytest.raises(ValueError, match=r"had no labels: call calibrate\(X, y\)"):
        unlabeled.predict_set(X[:2])


def test_a_row_without_direction_is_rejected_and_stays_so_in_a_file(digits, tmp_path):
    rows = np.vstack([X[REST[:99]], np.zeros((1, 64))])
    model = mn.as_estimator(interpret.calibrate(digits.model_, rows))
    for found in (model, reloaded(model, tmp_path)):
        assert found.predict_or_reject(np.zeros((1, 64)), 0.02)[0] is None


def test_rows_of_low_scores_are_right(seven):
    score = interpret.rejection_score(seven.model_, X[REST])
    right = (seven.predict(X[REST]) == Y[REST])[np.argsort(score, kind="stable")]
    assert right[: len(right) // 2].mean() > 0.95 > 0.75 > right.mean()  # 7, 8 and 9 are wrong


# Out of scope


@pytest.mark.parametrize("objective", ["joint", "conditional"])
def test_rows_out_of_scope_are_rejected_as_often_as_a_class_is_recognized(objective):
    x, y = load_wine(return_X_y=True)
    fit, held, new = (np.arange(len(y)) % 3 == k for k in range(3))
    settings = {"objective": objective, "search": None, "random_state": 0}
    plain = mn.DAMClassifier(12, **settings).fit(x[fit], y[fit])
    for kind in range(3):
        labels = np.where(y == kind, mn.OUT_OF_SCOPE, y.astype(str))
        told = mn.DAMClassifier(12, **settings).fit(x[fit], labels[fit])
        told.calibrate(x[held], labels[held])
        strange, known = x[new & (y == kind)], x[new & (y != kind)]
        recall, alike = plain.score(strange, np.full(len(strange), kind)), told.explain(strange)
        outside = np.array([why == "like rows out of scope" for why in alike.rejected])
        for ask in ({}, {"rate": 0.1}, {"accuracy": 0.6}):
            rejected = np.equal(told.predict_or_reject(strange, **ask), None)
            assert rejected.mean() >= recall - 0.05
            assert rejected[outside].all()
            assert np.equal(told.predict_or_reject(known, **ask), None).mean() < 0.25
        first = outside.argmax()
        assert "like rows out of scope: no answer" in alike.title(first)


def test_rows_out_of_scope_from_a_stream_and_from_examples():
    some = np.where(Y > 7, mn.OUT_OF_SCOPE, Y.astype(str))
    known = REST[Y[REST] < 8]
    strange = REST[Y[REST] > 7]
    settings = {"geometry": "center", "random_state": 0, "search": None}
    stream = mn.DAMClassifier(60, **settings)
    for part in np.array_split(FIT, 3):
        stream.partial_fit(X[part], some[part])
    taught = fit(known_only(*range(8)), 5, objective="joint")
    few = FIT[Y[FIT] == 8][:20]
    taught.add_class(X[few], mn.OUT_OF_SCOPE).add_examples(X[few], [mn.OUT_OF_SCOPE] * len(few))
    for model, new in ((stream, strange), (taught, strange[Y[strange] == 8])):
        labels = Y[known] if model is taught else some[known]
        model.calibrate(X[known], labels)
        rejected = np.equal(model.predict_or_reject(X[new], accuracy=0.5), None)
        assert rejected.mean() > 0.7
        assert np.equal(model.predict_or_reject(X[known], accuracy=0.5), None).mean() < 0.1


# Classes


# The conditional weight balances rows lost and rows missed: nine classes lose more than a hundred.
@pytest.mark.parametrize(
    ("per_class", "objective", "most"), [(5, "joint", 0.005), (2, "conditional", 0.0125)]
)
def test_a_class_from_five_rows(per_class, objective, most):
    recall, centroid, change, rng = [], [], [], np.random.default_rng(0)
    for new in (0, 3, 9):
        others = known_only(*(k for k in range(10) if k != new))
        base = fit(others, per_class, objective=objective)
        old, own = REST[Y[REST] != new], REST[Y[REST] == new]
        means = np.stack([UNIT[FIT[Y[FIT] == k]].mean(0) for k in base.classes_])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        for _ in range(3):
            few = rng.permutation(FIT[Y[FIT] == new])[:5]
            wide = mn.as_estimator(base.model_).add_class(X[few], new)
            assert wide.classes_.tolist() == list(range(10))
            assert np.array_equal(wide.memories_[: base.n_memories_], base.memories_)
            recall.append(np.mean(wide.predict(X[own]) == new))
            change.append(wide.score(X[old], Y[old]) - base.score(X[old], Y[old]))
            mean = UNIT[few].mean(0) / np.linalg.norm(UNIT[few].mean(0))
            centroid.append(np.mean(UNIT[own] @ mean > (UNIT[own] @ means.T).max(1)))
    assert np.mean(recall) >= np.mean(centroid)
    assert np.mean(change) > -most


@pytest.mark.parametrize("n_rows", [1, 5, 40])
def test_adding_and_removing_a_class_leaves_no_trace(seven, n_rows):
    new = FIT[Y[FIT] == 8][:n_rows]
    wide = mn.as_estimator(seven.model_).add_class(X[new], 8)
    assert wide.n_memories_ == seven.n_memories_ + min(n_rows, 5)
    assert wide.support_.sum() == pytest.approx(seven.support_.sum() + n_rows)
    np.testing.assert_allclose(wide.predict_proba(X).sum(1), 1.0)
    back = mn.as_estimator(wide.model_).map_classes({8: None})
    assert np.array_equal(back.classes_, seven.classes_)
    np.testing.assert_allclose(back.predict_proba(X), seven.predict_proba(X), atol=1e-6)
    np.testing.assert_allclose(back.novelty_score(X), seven.novelty_score(X), rtol=1e-5)


def test_merged_classes_have_the_sum_of_their_probabilities(seven):
    proba = seven.predict_proba(X)
    merged = mn.as_estimator(seven.model_).map_classes(dict.fromkeys([1, 2, 5], 9))
    assert merged.classes_.tolist() == [0, 3, 4, 6, 9]
    expected = np.column_stack([proba[:, [0, 3, 4, 6]], proba[:, [1, 2, 5]].sum(1)])
    np.testing.assert_allclose(merged.predict_proba(X), expected, atol=1e-6)
    np.testing.assert_allclose(merged.novelty_score(X), seven.novelty_score(X), rtol=1e-5)
    assert mn.as_estimator(seven.model_).map_classes({1: 2}).classes_.size == 6


def test_a_removed_class_is_nobodys(seven):
    less = mn.as_estimator(seven.model_).map_classes({4: None})
    own = REST[Y[REST] == 4]
    assert 4 not in less.predict(X)
    nobody = mn.as_estimator(seven.model_).map_classes({4: mn.OUT_OF_SCOPE})
    assert nobody.classes_.tolist() == less.classes_.tolist()
    assert np.equal(nobody.predict_or_reject(X[REST[Y[REST] == 4]]), None).mean() > 0.9
    assert (less.novelty_score(X[own]) > seven.novelty_score(X[own])).mean() > 0.9
    others = REST[(Y[REST] < 7) & (Y[REST] != 4)]
    assert less.score(X[others], Y[others]) >= seven.score(X[others], Y[others]) - 0.005


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.add_class(X[:5], 3), "there is a class 3 already"),
        (lambda m: m.add_class(X[:5], "x"), "a label must be like 0, got 'x'"),
        (lambda m: m.add_class(np.zeros((2, 64)), 7), "row 0 of X .* has no direction"),
        (lambda m: m.map_classes({8: None}), r"labels \[8\] that are not among the classes"),
        (lambda m: m.map_classes({3: "x"}), "a label must be like 0, got 'x'"),
        (lambda m: m.map_classes(dict.fromkeys(range(7))), "no class would be left: keep one"),
    ],
)
def test_clear_errors(seven, change, message):
    with pytest.raises(ValueError, match=message):
        change(mn.as_estimator(seven.model_))
