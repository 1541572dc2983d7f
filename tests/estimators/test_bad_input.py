"""What a user is told about input that cannot be used: what, got, try, in one line."""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import mnemosphere as mn
from quick_models import small

NAN, INF = float("nan"), float("inf")


class Case(NamedTuple):
    """Some rows and labels, and a model fitted to them."""

    x: np.ndarray
    y: np.ndarray
    model: mn.DAMClassifier


@pytest.fixture(scope="module")
def case(data):
    return Case(*data, small().fit(*data))


# fmt: off
ROWS = {
    "a column of NaN": (lambda c: small().fit(np.c_[c.x, np.full(61, NAN)], c.y), r"column 5 of X is NaN in every row: drop it"),
    "a word in a column of numbers": (
        lambda c: (
            small().fit(pd.DataFrame({"a": [*"uv"] * 30 + ["u"], "b": c.x[:, 1]}), c.y).predict(pd.DataFrame({"a": ["u"], "b": ["red"]}))
        ),
        r"column 'b' holds numbers, but row 0 has 'red': correct it or leave it empty",
    ),
    "infinity": (
        lambda c: small().fit(np.where(c.x == c.x[3, 1], -INF, c.x), c.y),
        r"row 3 of X is infinite \(inf\) in column 1: drop the row or fill it in",
    ),
    "zero rows only": (
        lambda c: small().fit(np.zeros((61, 5)), c.y), r"every row of X is all zeros, so none has a direction: use geometry='standard'"),
    "zero row to recall": (
        lambda c: c.model.recall(c.x * (c.x != c.x[3])),
        r"row 3 of X is all zeros where it is known, so it has no direction to start from: drop it",
    ),
    "one feature on a sphere": (
        lambda c: small().fit(c.x[:, :1], c.y),
        r"X has 1 feature\(s\) after geometry='unit', the sphere needs 2: use "
        r"geometry='standard'",
    ),
    "text in X": (lambda c: small().fit(np.full((61, 2), "red"), c.y), r"X holds text \('red'\): pass a data frame, or drop the column"),
    "wrong number of features": (
        lambda c: c.model.predict(c.x[:, :3]), r"X has 3 features, but TrainingColumns is expecting 5 features as input"),
    "one-dimensional X": (
        lambda c: small().fit(c.x[:, 0], c.y),
        r"X must be \(rows, features\), got shape \(61,\)\. Reshape your data: X\.reshape\(-1, 1\) "
        r"is one feature, X\.reshape\(1, -1\) one row",
    ),
}

LABELS = {
    "lengths differ": (lambda c: small().fit(c.x, c.y[:-1]), r"X has 61 rows but y has 60: pass one label per row"),
    "no y": (lambda c: small().fit(c.x, None), r"the target y is None: pass labels, and mark unlabeled rows with unlabeled="),
    "every row unlabeled": (
        lambda c: small(unlabeled=-1).fit(c.x, np.full(61, -1)), r"every row of y is unlabeled: label some rows of each class"),
    "a number to predict instead of a class": (lambda c: small().fit(c.x, c.x[:, 0]), r"[Uu]nknown label type"),
    "NaN among the labels": (
        lambda c: small().fit(c.x, np.where(c.y == 1, NAN, c.y)), r"label 1 of y has no value: drop the row, or mark unlabeled rows by "),
    "labels of another type": (
        lambda c: small().fit(c.x, np.datetime64("2020-01-01") + c.y),
        r"labels must be numbers, texts or truth values, got datetime64\[D\]",
        TypeError,
    ),
    "soft labels above 1": (
        lambda c: small().fit(c.x, np.ones((61, 3))),
        r"row 0 of the soft labels y is \[1\.0, 1\.0, 1\.0\]: entries must be >= 0 and sum to at "
        r"most 1",
    ),
    "class weight below zero": (lambda c: small(class_weight={0: -1.0}).fit(c.x, c.y), r"class_weight must be finite and >= 0"),
    "weight of an unknown class": (
        lambda c: small(class_weight={"bee": 2.0}).fit(c.x, c.y), r"class_weight names \['bee'\], not among the classes \[0, 1, 2\]"),
}


def setting(name, value):
    """A setting that fit refuses, naming it; how is up to scikit-learn."""
    return (lambda c: small(**{name: value}).fit(c.x, c.y), rf"'{name}' parameter of DAM")


REFUSED = {
    "n_memories": 0, "solver": "newton", "search": "wide", "objective": 0.5, "growth": "split", "varsigma": NAN, "beta": INF,
    "label_smoothing": 1.0, "geometry": "l2", "max_iter": 0, "uniform_weight": -1.0, "class_weight": "even", "random_state": "seven",
    "device": 0, "precision": "float16", "encoder": -1, "verbose": -1,
}
SETTINGS = {f"{name}={value!r}": setting(name, value) for name, value in REFUSED.items()} | {
    "more memories than memory": (
        lambda c: small(n_memories=10**12).fit(c.x, c.y),
        r"n_memories=1000000000000 needs about .* GB and .* GB are free: use fewer memories",
    ),
    "one callback without a list": (
        lambda c: small(callbacks=mn.Checkpoint("run")).fit(c.x, c.y),
        r"callbacks must be a list of Callback objects, got Checkpoint\('run'\)",
        TypeError,
    ),
    "unknown device": (lambda c: small(device="tpu").fit(c.x, c.y), r"device 'tpu' cannot be used here: try 'cpu' or 'auto'"),
}

USE = {
    "predict before fit": (lambda c: small().predict(c.x), r"not fitted yet", NotFittedError),
    "streaming other classes": (
        lambda c: small().fit(c.x, c.y).partial_fit(c.x, c.y, classes=[0, 1]), r"classes \[0, 1\] differ from the model's \[0, 1, 2\]"),
    "streaming with balanced classes": (
        lambda c: small(class_weight="balanced").partial_fit(c.x, c.y, classes=[0, 1, 2]),
        r"class_weight='balanced' needs all rows at once: pass a dict to partial_fit",
    ),
    "no such column to fix": (
        lambda c: c.model.counterfactual(c.x, fixed=["agee"]),
        r"fixed names 'agee', which is no column: use names, or numbers below 5",
    ),
    "rejection without held-out rows": (
        lambda c: mn.interpret.rejections(c.model.model_.replace(calibration=None), c.x),
        r"not calibrated since fit or the last edit: call calibrate\(X, y\)",
    ),
    "too few rows for the rate of rejection": (
        lambda c: mn.interpret.rejections(
            mn.interpret.calibrate(c.model.model_, c.x + 1e-3), c.x, 0.01
        ),
        r"a rate of 0\.01 needs at least 99 held-out rows, got 61: pass more rows or a larger rate",
    ),
    "labels of no rows": (
        lambda c: c.model.explore("never.html", y=c.y.tolist()),
        r"y needs the rows that it is about: pass X, too",
    ),
    "prior of some classes": (
        lambda c: mn.as_estimator(mn.interpret.with_class_prior(c.model.model_, {0: 1.0, 1: 2.0})),
        r"prior must name every class once, \[0, 1, 2\], got \[0, 1\]: weights are relative, so ",
    ),
}


def clusters(**settings):
    settings = {"n_memories": 5, "n_clusters": 3, "max_iter": 2, "random_state": 0} | settings
    return mn.DAMClusterer(**settings)


CLUSTERS = {
    "fewer memories than clusters": (
        lambda c: clusters(n_clusters=7).fit(c.x),
        r"n_clusters=7 needs as many memories, got 5 for 61 distinct row\(s\) \(n_samples=61\): "
        r"ask for fewer clusters",
    ),
    "more memories than rows": (
        lambda c: clusters(n_memories=70).fit(c.x),
        r"n_memories=70 but X has 61 distinct row\(s\) \(n_samples=61\): use fewer memories or "
        r"n_memories='auto'",
    ),
    "recall of a cluster that is none": (
        lambda c: clusters().fit(c.x).recall(c.x, np.full(61, 3)), r"y has labels \[3\] that are not among the classes \[0, 1, 2\]"),
    "BIC of a density that is none": (
        lambda c: clusters(n_clusters=1, varsigma=0.5).fit(c.x).bic(c.x),
        r"bic and aic need a density that integrates to 1, but varsigma=0\.5: fit with varsigma=1",
    ),
}
# fmt: on

TABLE = ROWS | LABELS | SETTINGS | USE | CLUSTERS


@pytest.mark.parametrize("name", TABLE)
def test_bad_input(case, name):
    action, message, *kind = TABLE[name]
    with pytest.raises(kind[0] if kind else ValueError) as caught:
        action(case)
    text = str(caught.value)
    assert re.search(message, text), text
    assert "\n" not in text
    assert len(text) < 300


def test_a_failed_fit_does_not_pass_for_a_model(case):
    model = small()
    with pytest.raises(ValueError, match="infinite"):
        model.fit(np.full((61, 5), INF), case.y)
    with pytest.raises(NotFittedError):
        model.predict(case.x)


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"


@pytest.mark.skipif(not PAGE.exists(), reason="installed without the documentation")
def test_the_page_of_errors_is_up_to_date():
    """Every line of its tables on rows, labels, settings and models is what the table above says."""
    page = PAGE.read_text(encoding="utf-8").split("## Model files")[0]
    lines = re.findall(r"^\| (.+?) \| `(.+?)` \|", page, re.M)
    told = {name.strip("`"): text for name, text in lines}
    assert len(told) >= 20
    for name, text in told.items():
        assert re.search(TABLE[name][1], text), name


def test_weights_far_apart_make_a_sound_model(case):
    """A weight of 1e-300 beside 1 made every number NaN."""
    weight = np.where(np.arange(len(case.y)) < 9, 1e-300, 1.0)
    model = small(label_smoothing=0.0).fit(case.x, case.y, weight)
    assert np.isfinite(model.predict_proba(case.x)).all()
    dropped = small(label_smoothing=0.0).fit(case.x, case.y, np.where(weight < 1, 0.0, 1.0))
    assert np.array_equal(model.class_weights_, dropped.class_weights_)
