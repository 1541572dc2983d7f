"""One gate: every public verb takes every kind of rows and labels alike, on default models.

A verb that takes rows or labels and is not in the tables below fails the first test.
"""

import datetime
import inspect
import os
import warnings
from functools import cache

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse as sp
import torch
from sklearn.datasets import load_iris
from sklearn.exceptions import NotFittedError

import mnemosphere as mn
from mnemosphere import export, interpret

pytestmark = pytest.mark.filterwarnings("ignore")
NAN = float("nan")
TRAIN, LEARNED = (part[::5] for part in load_iris(return_X_y=True))
X, Y = TRAIN[::3], LEARNED[::3]  # ten rows to ask about
N = len(Y)
NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
HOLES = np.random.default_rng(0).random(X.shape) < 0.1
HOLES[HOLES.all(1)] = False
OUT = mn.OUT_OF_SCOPE


def frame(x=X):
    return pd.DataFrame(x, columns=NAMES)


def objects(x, mark):
    found = x.astype(object)
    found[np.isnan(x)] = mark
    return found


def columns(x):
    return {
        name: [None if np.isnan(v) else v for v in c] for name, c in zip(NAMES, x.T, strict=True)
    }


def opened(folder, write, name):
    write(folder / name)
    return mn.Dataset.open(folder / name)


def kinds_of(x):
    """Kinds of rows: the first of each table is what the others are compared with."""
    holes = HOLES[: len(x)]
    gaps = np.where(holes, NAN, x)
    plain = {
        "array": lambda _: x,
        "list": lambda _: x.tolist(),
        "by columns, read-only": lambda _: np.broadcast_to(np.asfortranarray(x), (1, *x.shape))[0],
        "tensor": lambda _: torch.from_numpy(x),
        "array of objects": lambda _: x.astype(object),
        "sparse": lambda _: sp.csr_matrix(x),
        "sparse array": lambda _: sp.coo_array(x),
        ".npy file": lambda folder: opened(folder, lambda path: np.save(path, x), "x.npy"),
    }
    named = {
        "pandas": lambda _: frame(x),
        "pandas, nullable": lambda _: frame(x).astype("Float64"),
        "pandas, sparse columns": lambda _: frame(x).astype(pd.SparseDtype(float, 0.0)),
        "polars": lambda _: pl.DataFrame(columns(x)),
        "Arrow": lambda _: pa.table(columns(x)),
        "Arrow batch": lambda _: pa.RecordBatch.from_pydict(columns(x)),
        "CSV file": lambda folder: opened(
            folder, lambda p: frame(x).to_csv(p, index=False), "x.csv"
        ),
        "Parquet file": lambda folder: opened(folder, frame(x).to_parquet, "x.parquet"),
    }
    with_gaps = {
        "NaN in an array": lambda _: gaps,
        "NaN in a list": lambda _: gaps.tolist(),
        "NaN in a tensor": lambda _: torch.from_numpy(gaps),
        "None among objects": lambda _: objects(gaps, None),
        "NaN among objects": lambda _: objects(gaps, NAN),
    }
    named_gaps = {
        "NaN in pandas": lambda _: frame(gaps),
        "NA in pandas": lambda _: frame(gaps).astype("Float64"),
        "null in polars": lambda _: pl.DataFrame(columns(gaps)),
        "null in Arrow": lambda _: pa.table(columns(gaps)),
    }
    return {"plain": plain, "named": named, "gaps": with_gaps, "named gaps": named_gaps}


BAD_ROWS = {
    "None": None,
    "a number": 3.0,
    "one row": X[0],
    "a Series": frame().iloc[0],
    "a generator": (row for row in X),
    "a masked array": np.ma.array(X, mask=HOLES),
    "a lazy frame": pl.LazyFrame(columns(X)),
    "a dict": dict(columns(X)),
    "too few columns": X[:, :3],
    "text": np.full((5, 4), "x" * 100_000),
    "infinite": np.where(HOLES, np.inf, X),
    "three axes": X[:, :, None],
    "dates": np.full(X.shape, np.datetime64("2020-01-01")),
    "complex": X + 1j,
    "a complex tensor": torch.from_numpy(X) + 1j,
    "rows of unlike lengths": [[1.0, 2.0], [3.0]],
    "no rows": X[:0],
    "no rows in a tensor": torch.zeros(0, 4),
    "a tensor without numbers": torch.empty(N, 4, device="meta"),
}

LABELS = {
    "array": Y,
    "list": Y.tolist(),
    "tuple": tuple(Y.tolist()),
    "array of objects": Y.astype(object),
    "floats": Y.astype(float),
    "Series": pd.Series(Y, index=range(7, 7 + N)),
    "categorical": pd.Series(Y, dtype="category"),
    "nullable": pd.Series(Y, dtype="Int64"),
    "polars": pl.Series(Y),
    "Arrow": pa.array(Y),
    "tensor": torch.from_numpy(Y),
}
BAD_LABELS = {
    "NaN in a list": [NAN, *Y[1:].tolist()],
    "None in a list": [None, *Y[1:].tolist()],
    "NaN among texts": [NAN, *map(str, Y[1:])],
    "masked": np.ma.array(Y, mask=Y == 1),
    "1 and '1'": ["1", *Y[1:].tolist()],
    "1 and True": [True, *Y[1:].tolist()],
    "numbers and dates": [datetime.date(2020, 1, 1), *Y[1:].tolist()],
    "too few": Y[:-1],
    "a generator": (v for v in Y),
    "three axes": Y[:, None, None],
    "a word": "setosa",
    "bytes": Y.astype("S1"),
    "lone surrogates": ["\ud800", *map(str, Y[1:])],
}


@cache
def default(kind, names):
    """A default model, by the search, calibrated; with names of columns or without."""
    rows = frame(TRAIN) if names else TRAIN
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kind == "clusterer":
            return mn.DAMClusterer(3, random_state=0).fit(rows).calibrate(rows).model_
        return mn.DAMClassifier(random_state=0).fit(rows, LEARNED).calibrate(rows, LEARNED).model_


def fresh(model):
    """An estimator that may be changed."""
    return mn.as_estimator(model)


def quick():
    """What is fitted anew: the default objective with little to search."""
    return mn.DAMClassifier(4, geometry="standard", random_state=0, search=None, max_iter=3)


def quick_clusters():
    return mn.DAMClusterer(3, n_memories=3, geometry="standard", random_state=0, max_iter=2)


def page(model, path, *rows):
    model.explore(path, *rows)
    return path.read_text()


def edited(model):
    return model.votes.w, model.votes.p


# Verbs that take rows alone: (estimator, model, rows, folder) → what is compared.
OF_ROWS = {
    "predict": lambda e, m, x, _: e.predict(x),
    "predict_proba": lambda e, m, x, _: e.predict_proba(x),
    "transform": lambda e, m, x, _: e.transform(x),
    "novelty_score": lambda e, m, x, _: e.novelty_score(x),
    "calibrate": lambda e, m, x, _: e.calibrate(x).model_.calibration.novelty,
    "counterfactual": lambda e, m, x, _: e.counterfactual(x).found,
    "explain": lambda e, m, x, _: e.explain(x).share,
    "explore": lambda e, m, x, folder: page(e, folder / "p.html", x),
    "memory_table": lambda e, m, x, _: e.memory_table(x, Y)["support"],
    "recall": lambda e, m, x, _: e.recall(x, steps=3),
    "interpret.encode": lambda e, m, x, _: np.asarray(interpret.encode(m, x)),
    "interpret.score_samples": lambda e, m, x, _: interpret.score_samples(m, x),
}
OF_CLASSIFIER = {
    "add_class": lambda e, m, x, _: e.add_class(x, 3).predict_proba(x),
    "decision_function": lambda e, m, x, _: e.decision_function(x),
    "discover": lambda e, m, x, _: [len(found.rows) for found in e.discover(x, 2)],
    "compare": lambda e, m, x, _: e.compare(x).unlike["new"],
    "interpret.weak_spots": lambda e, m, x, _: [
        line["right"] for line in interpret.weak_spots(m, x)
    ],
    "predict_log_proba": lambda e, m, x, _: e.predict_log_proba(x),
    "predict_or_reject": lambda e, m, x, _: e.predict_or_reject(x, 0.1),
    "predict_set": lambda e, m, x, _: [len(s) for s in e.predict_set(x)],
    "interpret.rejections": lambda e, m, x, _: interpret.rejections(m, x, 0.1).rejected,
    "interpret.rejection_score": lambda e, m, x, _: interpret.rejection_score(m, x),
}
OF_CLUSTERER = {
    "aic": lambda e, m, x, _: e.aic(x),
    "bic": lambda e, m, x, _: e.bic(x),
    "score": lambda e, m, x, _: e.score(x),
    "score_samples": lambda e, m, x, _: e.score_samples(x),
    "fit": lambda e, m, x, _: quick_clusters().fit(x).labels_,
    "fit_predict": lambda e, m, x, _: quick_clusters().fit_predict(x),
    "fit_transform": lambda e, m, x, _: quick_clusters().fit_transform(x),
    "partial_fit": lambda e, m, x, _: e.partial_fit(x).labels_,
    "certify": lambda e, m, x, _: e.certify(x, max_iter=0).beta_split,
}  # fmt: skip
# Verbs of a classifier that take labels too: (estimator, model, rows, labels, folder).
OF_LABELS = {
    "fit": lambda e, m, x, y, _: quick().fit(x, y).memories_,
    "fit_transform": lambda e, m, x, y, _: quick().fit_transform(x, y),
    "partial_fit": lambda e, m, x, y, _: quick().partial_fit(x, y).memories_,
    "calibrate": lambda e, m, x, y, _: e.calibrate(x, y).model_.calibration.label,
    "score": lambda e, m, x, y, _: e.score(x, y),
    "add_examples": lambda e, m, x, y, _: e.add_examples(x, y).predict_proba(x),
    "label_issues": lambda e, m, x, y, _: e.label_issues(x, y, n_folds=2).scores,
    "certify": lambda e, m, x, y, _: e.certify(x, y, max_iter=0).beta_split,
    "explore": lambda e, m, x, y, folder: page(e, folder / "p.html", x, y),
    "memory_table": lambda e, m, x, y, _: e.memory_table(x, y)["support"],
}  # fmt: skip
# Verbs whose y is the class that is asked for.
OF_WANTED = {
    "recall": lambda e, m, x, y: e.recall(x, y, steps=3),
    "counterfactual": lambda e, m, x, y: e.counterfactual(x, y).found,
}
# Of images, of one class, or of nothing that a user passes as rows.
APART = {
    "PatchEncoder.fit", "PatchEncoder.fit_transform", "PatchEncoder.transform",
    "DAMClassifier.sample", "DAMClusterer.sample", "interpret.sample",
    "DAMClassifier.certified_radius", "DAMClusterer.certified_radius",
}  # fmt: skip
IN_FILES = {  # verbs that take a Dataset
    "predict", "predict_proba", "transform", "novelty_score", "calibrate", "decision_function",
    "predict_log_proba", "predict_or_reject", "predict_set", "score", "score_samples", "aic", "bic",
    "fit", "fit_predict", "fit_transform", "certify",
}  # fmt: skip
FILES = {".npy file", "CSV file", "Parquet file"}


def numbers(answer):
    """What a verb answers, as arrays."""
    if isinstance(answer, torch.Tensor):
        return [answer.detach().cpu().numpy()]
    if isinstance(answer, tuple):
        return [part for each in answer for part in numbers(each)]
    if isinstance(answer, str):  # a page: as long, but for the digits of numbers
        return [np.array(1e-9 * len(answer))]  # so that a thousand characters are the tolerance
    return [np.asarray(answer)]


def assert_same(found, wanted, told):
    for one, other in zip(numbers(found), numbers(wanted), strict=True):
        if one.dtype.kind in "OUS":
            assert one.tolist() == other.tolist(), told
        else:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=told)


def assert_clear(action, told):
    """One line of ours, or that of scikit-learn's for columns."""
    with pytest.raises((TypeError, ValueError)) as caught:
        action()
    text = str(caught.value)
    assert 0 < len(text) < 700, (told, text[:200])
    assert "\n" not in text.strip(), (told, text)
    raw = "object is not", "has no attribute", "unsupported operand", "supported between", "ufunc"
    assert not any(words in text for words in raw), (told, text)


def verbs(kind):
    """Public callables that take rows or labels."""
    for name, function in inspect.getmembers(kind, callable):
        if not name.startswith("_") and (
            inspect.isfunction(function) or inspect.ismethod(function)
        ):
            parameters = inspect.signature(function).parameters
            if {"X", "y"} & set(parameters):
                yield name


def test_no_verb_is_outside_the_gate():
    classifier = {*OF_ROWS, *OF_CLASSIFIER, *OF_LABELS, *OF_WANTED}
    clusterer = {*OF_ROWS, *OF_CLUSTERER, *OF_WANTED}
    known = {f"DAMClassifier.{name}" for name in classifier}
    known |= {f"DAMClusterer.{name}" for name in clusterer}
    known |= {name for name in {*classifier, *clusterer} if "." in name} | APART
    found = {f"{c.__name__}.{n}" for c in (mn.DAMClassifier, mn.DAMClusterer, mn.PatchEncoder)
             for n in verbs(c)}  # fmt: skip
    for module in (interpret, export):  # functions that an estimator has, too, are its methods
        public = {
            n for n in verbs(module) if n in module.__all__ if not hasattr(mn.DAMClassifier, n)
        }
        found |= {f"{module.__name__.rpartition('.')[2]}.{n}" for n in public}
    assert found <= known, sorted(found - known)


LEARN = {"fit", "fit_predict", "fit_transform", "partial_fit"}
CELLS = [("classifier", v) for v in dict.fromkeys((*OF_ROWS, *OF_CLASSIFIER, *OF_LABELS))]
CELLS += [("clusterer", v) for v in dict.fromkeys((*OF_ROWS, *OF_CLUSTERER))]
HEAVY = {"explore", "counterfactual"}
FEW = [4, 7]  # for verbs that take long


# Of verbs that are tried whole.
TWINS = {"fit_transform", "fit_predict", "label_issues", "memory_table"}


def chosen(verb, table):
    """All of a table; of verbs that take long, or are another's twin, every third kind."""
    few = verb in {*HEAVY, *TWINS} and "CAMPAIGN" not in os.environ
    return dict([*table.items()][:: 3 if few else 1])


def action_of(kind, verb, folder):
    own = {**OF_ROWS, **(OF_CLASSIFIER if kind == "classifier" else OF_CLUSTERER)}
    if kind == "classifier" and verb in OF_LABELS:
        y = Y[FEW] if verb in HEAVY else Y
        return lambda e, m, x: OF_LABELS[verb](e, m, x, y, folder)
    return lambda e, m, x: own[verb](e, m, x, folder)


@pytest.mark.parametrize(("kind", "verb"), CELLS)
def test_rows_of_every_kind(tmp_path, kind, verb):
    act = action_of(kind, verb, tmp_path)
    for family, table in kinds_of(X[FEW] if verb in HEAVY else X).items():
        if len(few := chosen(verb, table)) < len(table) and family in ("named", "gaps"):
            continue  # each contains one of the other two
        names = "named" in family
        model = default(kind, names)
        first = None
        for name, make in few.items():
            rows, told = make(tmp_path), f"{verb} of a {kind}, {name}"
            if name in FILES and verb not in IN_FILES:
                assert_clear(lambda r=rows, m=model: act(fresh(m), m, r), told)
                continue
            if name in FILES and kind == "classifier" and verb in OF_LABELS:
                continue  # labels of a Dataset are its own: below
            found = act(fresh(model), model, rows)
            if first is None:
                first = numbers(found)
            else:
                assert_same(found, tuple(first), told)


def test_a_page_of_rows_with_an_empty_column(tmp_path):
    rows = np.where(np.arange(4) == 1, NAN, X)
    fresh(default("classifier", False)).explore(tmp_path / "p.html", rows)
    assert "<html" in (tmp_path / "p.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(("kind", "verb"), CELLS)
def test_rows_that_cannot_be_used(tmp_path, kind, verb):
    act, model = action_of(kind, verb, tmp_path), default(kind, False)
    optional = {"explore", "memory_table", "interpret.weak_spots"}
    for name, rows in BAD_ROWS.items():
        skipped = {"None": optional, "too few columns": LEARN}.get(name, ())
        if verb not in skipped:
            assert_clear(lambda r=rows: act(fresh(model), model, r), f"{verb}, {name}")


UNFITTED = [*(v for v in (*OF_ROWS, *OF_CLASSIFIER) if "." not in v), "certify", "score",
            "sample", "save"]  # fmt: skip


@pytest.mark.parametrize("verb", UNFITTED)
def test_before_fit(tmp_path, verb):
    more = {"explore": (tmp_path / "p.html", X), "add_class": (X, 3), "sample": (3,),
            "save": (tmp_path / "m",), "score": (X, Y)}  # fmt: skip
    for own in (mn.DAMClassifier(), mn.DAMClusterer()):
        if hasattr(type(own), verb):
            with pytest.raises(NotFittedError, match="instance is not fitted yet"):
                getattr(own, verb)(*more.get(verb, (X,)))


@pytest.mark.parametrize("verb", OF_LABELS)
def test_labels_of_every_kind(tmp_path, verb):
    model, act, first = default("classifier", False), OF_LABELS[verb], None
    for name, y in chosen(verb, LABELS).items():
        found = act(fresh(model), model, X, y, tmp_path)
        first = numbers(found) if first is None else first
        assert_same(found, tuple(first), f"{verb}, {name}")
    for name, y in BAD_LABELS.items():
        shown = verb in ("score", "explore")
        if shown and name in ("NaN in a list", "None in a list"):
            if verb != "score":  # rows without label are not measured
                act(fresh(model), model, X, y, tmp_path)
            continue
        assert_clear(lambda y=y: act(fresh(model), model, X, y, tmp_path), f"{verb}, {name}")


@pytest.mark.parametrize("verb", OF_LABELS)
def test_rows_out_of_scope_are_no_class(tmp_path, verb):
    y = [OUT if k % 5 == 0 else label for k, label in enumerate(Y.tolist())]
    model = default("classifier", False)
    estimator = quick() if verb in ("fit", "fit_transform", "partial_fit") else fresh(model)
    if verb in ("fit", "partial_fit"):
        assert getattr(estimator, verb)(X, y).classes_.tolist() == [0, 1, 2]
        assert np.isfinite(estimator.predict_proba(X)).all()
    else:
        OF_LABELS[verb](estimator, model, X, y, tmp_path)


@pytest.mark.parametrize("verb", OF_WANTED)
def test_wanted_classes_of_every_kind(verb):
    model, first = default("classifier", False), None
    for name, y in chosen(verb, LABELS).items():
        found = OF_WANTED[verb](fresh(model), model, X[::2], y[::2])
        first = numbers(found) if first is None else first
        assert_same(found, tuple(first), f"{verb}, {name}")
    for name in ("1 and '1'", "1 and True", "NaN in a list", "bytes"):
        some = BAD_LABELS[name][::2]
        assert_clear(lambda y=some: OF_WANTED[verb](fresh(model), model, X[::2], y), name)


WEIGHTED = {
    "fit": lambda e, x, y, w: quick().fit(x, y, w).memories_,
    "calibrate": lambda e, x, y, w: e.calibrate(x, y, w).model_.calibration.label,
    "score": lambda e, x, y, w: e.score(x, y, w),
    "certify": lambda e, x, y, w: e.certify(x, y, w, max_iter=0).beta_split,
}


@pytest.mark.parametrize("verb", WEIGHTED)
def test_rows_of_weight_zero_count_for_nothing(verb):
    kept = np.arange(N) % 4 > 0
    model, act = default("classifier", False), WEIGHTED[verb]
    wrong = np.where(kept, Y, 2 - Y)
    wanted = act(fresh(model), X[kept], Y[kept], None)
    kinds = (kept.astype(float), kept.tolist(), torch.from_numpy(kept), pd.Series(kept * 1.0))
    for weight in kinds:
        assert_same(act(fresh(model), X, wrong, weight), tuple(numbers(wanted)), verb)
    masked = np.ma.array(np.ones(N), mask=~kept)
    for weight in (masked, np.ones(N - 1), -np.ones(N), ["heavy"] * N, np.zeros(N)):
        assert_clear(lambda w=weight: act(fresh(model), X, Y, w), verb)


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_column_that_is_left_out_is_left_out_of_files(tmp_path, suffix):
    """The columns of a file are those of a frame, in batches too."""
    ids = np.random.default_rng(0).permutation(len(TRAIN)) + 1000
    table = frame(TRAIN).assign(plant_id=ids)
    with pytest.warns(UserWarning, match="looks like an id"):
        model = quick().fit(table, LEARNED)
    path = tmp_path / f"rows{suffix}"
    write = table.to_parquet if suffix == ".parquet" else table.to_csv
    write(path, index=False)
    for memory in (1 << 20, 1 << 10):
        rows = mn.Dataset.open(path, memory=memory)
        assert np.array_equal(model.predict(rows), model.predict(table))
