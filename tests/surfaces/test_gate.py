"""The containers of rows and labels that are taken, by the verbs that all others go through."""

import datetime
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

pytestmark = pytest.mark.filterwarnings("ignore")
NAN = float("nan")
TRAIN, LEARNED = (part[::5] for part in load_iris(return_X_y=True))
X, Y = TRAIN[::3], LEARNED[::3]  # ten rows to ask about
N = len(Y)
NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
HOLES = np.random.default_rng(0).random(X.shape) < 0.1
HOLES[HOLES.all(1)] = False
GAPS = np.where(HOLES, NAN, X)
OUT = mn.OUT_OF_SCOPE


def frame(x):
    return pd.DataFrame(x, columns=NAMES)


def columns(x):
    return {n: [None if np.isnan(v) else v for v in c] for n, c in zip(NAMES, x.T, strict=True)}


PLAIN = {  # the first of each table is what the others are compared with
    "array": lambda x: x,
    "list": lambda x: x.tolist(),
    "by columns, read-only": lambda x: np.broadcast_to(np.asfortranarray(x), (1, *x.shape))[0],
    "array of objects": lambda x: x.astype(object),
    "tensor": torch.from_numpy,
}
NAMED = {
    "pandas": frame,
    "pandas, nullable": lambda x: frame(x).astype("Float64"),
    "polars": lambda x: pl.DataFrame(columns(x)),
    "Arrow": lambda x: pa.table(columns(x)),
}
TABLES = {
    "plain": (X, PLAIN | {"sparse": sp.csr_matrix}), "gaps": (GAPS, PLAIN),
    "named": (X, NAMED), "named gaps": (GAPS, NAMED),
}  # fmt: skip
BAD_ROWS = {
    "None": None,
    "a number": 3.0,
    "one row": X[0],
    "a Series": frame(X).iloc[0],
    "a generator": (row for row in X),
    "a dict": columns(X),
    "a masked array": np.ma.array(X, mask=HOLES),
    "a lazy frame": pl.LazyFrame(columns(X)),
    "a sparse tensor": torch.from_numpy(X).to_sparse(),
    "a tensor without numbers": torch.empty(N, 4, device="meta"),
    "too few columns": X[:, :3],
    "text": np.full((5, 4), "x" * 100_000),
    "infinite": np.where(HOLES, np.inf, X),
    "three axes": X[:, :, None],
    "complex": X + 1j,
    "rows of unlike lengths": [[1.0, 2.0], [3.0]],
    "no rows": X[:0],
    "no rows in a tensor": torch.zeros(0, 4),
}
LABELS = {
    "array": Y,
    "list": Y.tolist(),
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
    "NaN among texts": [NAN, *map(str, Y[1:])],
    "masked": np.ma.array(Y, mask=Y == 1),
    "1 and '1'": ["1", *Y[1:].tolist()],
    "numbers and dates": [datetime.date(2020, 1, 1), *Y[1:].tolist()],
    "too few": Y[:-1],
    "a generator": (v for v in Y),
    "three axes": Y[:, None, None],
    "a word": "setosa",
    "bytes": Y.astype("S1"),
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


def estimator(kind="classifier", names=False):
    """One that may be changed."""
    return mn.as_estimator(default(kind, names))


def quick():
    """What is fitted anew: the default objective with little to search."""
    return mn.DAMClassifier(4, geometry="standard", random_state=0, search=None, max_iter=3)


def quick_clusters():
    return mn.DAMClusterer(3, n_memories=3, geometry="standard", random_state=0, max_iter=2)


# (estimator, rows, labels) → what is compared.
VERBS = {
    ("classifier", "fit"): lambda e, x, y: quick().fit(x, y).memories_,
    ("classifier", "partial_fit"): lambda e, x, y: quick().partial_fit(x, y).memories_,
    ("classifier", "calibrate"): lambda e, x, y: e.calibrate(x, y).model_.calibration.label,
    ("classifier", "score"): lambda e, x, y: e.score(x, y),
    ("classifier", "add_examples"): lambda e, x, y: e.add_examples(x, y).predict_proba(X),
    ("classifier", "predict_proba"): lambda e, x, y: e.predict_proba(x),
    ("classifier", "explain"): lambda e, x, y: e.explain(x).share,
    ("classifier", "counterfactual"): lambda e, x, y: e.counterfactual(x, y).found,
    ("clusterer", "fit"): lambda e, x, y: quick_clusters().fit(x).labels_,
    ("clusterer", "transform"): lambda e, x, y: e.transform(x),
    ("clusterer", "recall"): lambda e, x, y: e.recall(x, steps=3),
}
OF_LABELS = [verb for verb in VERBS if verb[0] == "classifier"][:5]
FEW = [4, 7]  # for counterfactuals, which take long


def numbers(answer):
    return answer.numpy() if isinstance(answer, torch.Tensor) else np.asarray(answer)


def assert_clear(action, told):
    """One line of ours, or that of scikit-learn's for columns."""
    with pytest.raises((TypeError, ValueError)) as caught:
        action()
    text = str(caught.value)
    assert 0 < len(text) < 700, (told, text[:200])
    assert "\n" not in text.strip(), (told, text)
    raw = "object is not", "has no attribute", "unsupported operand", "supported between", "ufunc"
    assert not any(words in text for words in raw), (told, text)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("kind", "verb"), VERBS)
def test_rows_of_every_kind(kind, verb, table):
    act, (x, makes) = VERBS[kind, verb], TABLES[table]
    x, y = (x[FEW], Y[FEW]) if verb == "counterfactual" else (x, Y)
    answers = {
        name: numbers(act(estimator(kind, table.startswith("named")), make(x), y))
        for name, make in makes.items()
    }
    first = next(iter(answers.values()))
    for name, found in answers.items():
        if found.dtype == object:  # with categories among the values
            assert found.tolist() == first.tolist(), name
        else:
            np.testing.assert_allclose(found, first, rtol=1e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".parquet"])
def test_files_as_rows_in_memory(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    write = {".npy": lambda p: np.save(p, X), ".csv": lambda p: frame(X).to_csv(p, index=False),
             ".parquet": frame(X).to_parquet}  # fmt: skip
    write[suffix](path)
    model = estimator(names=suffix != ".npy")
    rows = X if suffix == ".npy" else frame(X)
    for verb in ("predict", "predict_proba", "predict_or_reject"):
        found, wanted = (getattr(model, verb)(x) for x in (mn.Dataset.open(path), rows))
        assert np.array_equal(found, wanted), verb
    assert_clear(lambda: model.explain(mn.Dataset.open(path)), "explain")


@pytest.mark.parametrize(("kind", "verb"), VERBS)
def test_rows_that_cannot_be_used(kind, verb):
    for name, rows in BAD_ROWS.items():
        if not (name == "too few columns" and verb.endswith("fit")):
            assert_clear(lambda r=rows: VERBS[kind, verb](estimator(kind), r, Y), (verb, name))


def test_a_page_of_rows_with_an_empty_column(tmp_path):
    rows = np.where(np.arange(4) == 1, NAN, X)
    estimator().explore(tmp_path / "p.html", rows)
    assert "<html" in (tmp_path / "p.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("verb", ["predict", "explain", "recall", "certify", "score", "sample"])
def test_before_fit(verb):
    given = {"sample": (3,), "score": (X, Y)}.get(verb, (X,))
    for own in (mn.DAMClassifier(), mn.DAMClusterer()):
        with pytest.raises(NotFittedError, match="instance is not fitted yet"):
            getattr(own, verb)(*given)


@pytest.mark.parametrize("verb", OF_LABELS)
def test_labels_of_every_kind(verb):
    answers = {name: numbers(VERBS[verb](estimator(), X, y)) for name, y in LABELS.items()}
    for name, found in answers.items():
        np.testing.assert_allclose(found, answers["array"], rtol=1e-5, atol=1e-6, err_msg=name)
    for name, y in BAD_LABELS.items():
        if not (verb[1] == "score" and name in ("NaN in a list", "masked")):
            assert_clear(lambda y=y: VERBS[verb](estimator(), X, y), (verb, name))


@pytest.mark.parametrize("verb", ["fit", "partial_fit"])
def test_rows_out_of_scope_are_no_class(verb):
    y = [OUT if k % 5 == 0 else label for k, label in enumerate(Y.tolist())]
    model = getattr(quick(), verb)(X, y)
    assert model.classes_.tolist() == [0, 1, 2]
    assert np.isfinite(model.predict_proba(X)).all()


WEIGHTED = {
    "fit": lambda e, x, y, w: quick().fit(x, y, w).memories_,
    "calibrate": lambda e, x, y, w: e.calibrate(x, y, w).model_.calibration.label,
    "score": lambda e, x, y, w: e.score(x, y, w),
    "certify": lambda e, x, y, w: e.certify(x, y, w, max_iter=0).beta_split,
}


@pytest.mark.parametrize("verb", WEIGHTED)
def test_rows_of_weight_zero_count_for_nothing(verb):
    kept, act = np.arange(N) % 4 > 0, WEIGHTED[verb]
    wrong = np.where(kept, Y, 2 - Y)
    wanted = numbers(act(estimator(), X[kept], Y[kept], None))
    for weight in (
        kept.astype(float),
        kept.tolist(),
        torch.from_numpy(kept),
        pd.Series(kept * 1.0),
    ):
        found = numbers(act(estimator(), X, wrong, weight))
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    masked = np.ma.array(np.ones(N), mask=~kept)
    for weight in (masked, np.ones(N - 1), -np.ones(N), ["heavy"] * N, np.zeros(N)):
        assert_clear(lambda w=weight: act(estimator(), X, Y, w), verb)


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
