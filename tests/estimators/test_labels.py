"""From a user's labels to numbers: every kind of y, missing ones, soft ones, unknown ones."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import mnemosphere as mn
from mnemosphere.rows.labels import class_index, class_weights, encode_labels
from quick_models import small

NAN = float("nan")
CPU = torch.device("cpu")
Y = np.array([2, 0, 1, 1, 2, 0, 2])
GONE = np.array([False, True, False, True, False, False, False])


def coded(y, *, classes=None, unlabeled=None, smoothing=0.0, require_label=True, n=7):
    return encode_labels(
        y, n, classes, unlabeled=unlabeled, smoothing=smoothing, require_label=require_label,
        device=CPU,
    )  # fmt: skip


def one_hot(index):
    """Label weights (n, C+1) without smoothing; −1 is no label."""
    return np.eye(4)[index] * (index >= 0)[:, None]


# plain labels


CONTAINERS = {
    "int32": lambda y: y.astype(np.int32),
    "big-endian": lambda y: y.astype(">i4"),
    "torch float": lambda y: torch.from_numpy(y).float(),
    "torch bfloat16": lambda y: torch.from_numpy(y).bfloat16(),
    "with a graph": lambda y: torch.from_numpy(y).double().requires_grad_(),
    "Arrow in chunks": lambda y: pa.chunked_array([y[:3], y[3:]]),
}


@pytest.mark.parametrize("container", CONTAINERS)
def test_labels_from_containers_that_the_gate_does_not_try(container):
    found = coded(CONTAINERS[container](Y))
    assert found.classes.tolist() == [0, 1, 2]
    assert found.index.tolist() == Y.tolist()
    assert np.array_equal(found.targets.numpy(), one_hot(Y))


def test_a_column_is_taken_for_what_it_is_with_scikit_learns_warning():
    with pytest.warns(UserWarning, match="column-vector"):
        assert coded(Y[:, None]).index.tolist() == Y.tolist()
    with pytest.warns(UserWarning, match="column-vector"):
        assert coded(pd.DataFrame({"y": Y})).index.tolist() == Y.tolist()


@pytest.mark.filterwarnings("error")
def test_many_classes_each_once_are_read_without_a_warning():
    """Scikit-learn warns where labels are mostly distinct, which those of a batch may well be."""
    classes = np.arange(200)
    for y in (classes, torch.from_numpy(classes)):
        assert class_index(y, classes, CPU)[1].tolist() == list(range(200))


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.75])
def test_smoothing(smoothing):
    """(1−ε)·onehot + ε/(C+1), and nothing where there is no label."""
    found = coded(np.where(GONE, -1, Y), unlabeled=-1, smoothing=smoothing)
    expected = (1 - smoothing) * one_hot(np.where(GONE, -1, Y)) + smoothing / 4
    expected[GONE] = 0
    np.testing.assert_allclose(found.targets.numpy(), expected, rtol=1e-15)
    soft = coded(np.where(GONE[:, None], 0, np.eye(3)[Y]), smoothing=smoothing)
    np.testing.assert_allclose(soft.targets.numpy(), expected, rtol=1e-15)


# missing labels


def without(values):
    """None in place of those that are gone."""
    return [None if gone else value for value, gone in zip(values, GONE, strict=True)]


MISSING = {
    "-1": (-1, lambda y: np.where(GONE, -1, y)),
    "tensor of -1": (-1, lambda y: torch.from_numpy(np.where(GONE, -1, y))),
    "NaN": (NAN, lambda y: np.where(GONE, NAN, y)),
    "None": (NAN, lambda y: np.array(without(y))),
    "NA": (NAN, lambda y: pd.Series(y, dtype="Int64").mask(GONE)),
    "polars null": (NAN, lambda y: pl.Series(without(y.tolist()))),
    "text with NaN": (NAN, lambda y: pd.Series([f"c{v}" for v in y]).mask(GONE)),
    "NaN in a list": (NAN, lambda y: [NAN if g else f"c{v}" for v, g in zip(y, GONE, strict=True)]),
    "Arrow null": (NAN, lambda y: pa.array(without(y.tolist()))),
    "?": ("?", lambda y: np.where(GONE, "?", y.astype(str))),
    "empty text": ("", lambda y: np.where(GONE, "", y.astype(str))),
}  # fmt: skip


@pytest.mark.parametrize("name", MISSING)
def test_every_mark_of_no_label(name):
    marker, hide = MISSING[name]
    found = coded(hide(Y), unlabeled=marker)
    assert found.index.tolist() == np.where(GONE, -1, Y).tolist()
    assert len(found.classes) == 3
    assert np.array_equal(found.targets.numpy(), one_hot(np.where(GONE, -1, Y)))


def test_numbers_stay_numbers_beside_rows_out_of_scope():
    y = [0, mn.OUT_OF_SCOPE, 1, 1, 2, 0, 2]
    found = coded(y)
    assert found.classes.tolist() == [0, 1, 2, mn.OUT_OF_SCOPE]
    assert found.index.tolist() == [0, 3, 1, 1, 2, 0, 2]
    among = coded(y, classes=np.arange(3))  # of a model, they are "none of them"
    assert among.index.tolist() == [0, -1, 1, 1, 2, 0, 2]
    assert among.targets[1].tolist() == [0, 0, 0, 1]


@pytest.mark.parametrize("name", ["NA", "nan", "None", "null", "-1"])
def test_a_class_called_like_a_missing_value_stays_a_class(name):
    """Texts in memory are labels as they are; what a file calls missing is for its reader to say."""
    y = np.where(GONE, name, "c")
    for labels in (y, y.tolist(), y.astype(object), pd.Series(y), pl.Series(y)):
        found = coded(labels, unlabeled=NAN)
        assert found.classes.tolist() == sorted([name, "c"])
        assert (found.index >= 0).all()


# soft labels


def soft_labels(seed=0):
    q = np.random.default_rng(seed).dirichlet([1, 1, 1], 7)
    q[1] = 0  # no label
    q[2] *= 0.5  # half of it is not known
    return q


SOFT = {
    "array": lambda q: q,
    "list": lambda q: q.tolist(),
    "torch": torch.from_numpy,
    "with a graph": lambda q: torch.from_numpy(q).requires_grad_(),
    "pandas": pd.DataFrame,
    "polars": lambda q: pl.DataFrame(q, schema=["a", "b", "c"]),
}


@pytest.mark.parametrize("container", SOFT)
def test_soft_labels_from_any_container(container):
    q = soft_labels()
    found = coded(SOFT[container](q), smoothing=0.2)
    total = q.sum(axis=1, keepdims=True)
    expected = np.hstack([0.8 * q, np.zeros((7, 1))]) + 0.2 * total / 4
    np.testing.assert_allclose(found.targets.numpy(), expected, rtol=1e-6)
    assert found.index.tolist() == np.where(total[:, 0] > 0, q.argmax(axis=1), -1).tolist()
    assert found.classes.tolist() == (["a", "b", "c"] if container == "polars" else [0, 1, 2])


def test_columns_of_a_frame_name_the_classes_in_any_order():
    make, q = pd.DataFrame, soft_labels()
    found = coded(make(q, columns=["wasp", "ant", "bee"]))
    assert found.classes.tolist() == ["wasp", "ant", "bee"]
    np.testing.assert_allclose(found.targets[:, :3].numpy(), q)
    # Against known classes, columns are found by their names.
    again = coded(make(q[:, [1, 2, 0]], columns=["ant", "bee", "wasp"]), classes=found.classes)
    assert torch.equal(again.targets, found.targets)
    assert torch.equal(again.index, found.index)
    with pytest.raises(ValueError, match=r"y has columns \['ant', 'bee', 'fly'\] for the classes"):
        coded(make(q, columns=["ant", "bee", "fly"]), classes=found.classes)


@pytest.mark.parametrize(
    "names", [["a", "b", "b"], ["a", 1, 2], [("a", 1), ("a", 2), ("b", 1)]], ids=str
)
def test_columns_that_name_no_classes(names):
    frame = pd.DataFrame(soft_labels())
    frame.columns = pd.Index(names, tupleize_cols=False)
    with pytest.raises(ValueError, match="columns of y name the classes: make them distinct and"):
        coded(frame)


def test_one_hot_frames_through_fit(data, fresh):
    """As scikit-learn's and pandas' one-hot encoders give them."""
    names = np.array(["wasp", "ant", "bee"])
    plain = small().fit(data.x, names[data.y])
    model = small().fit(data.x, pd.get_dummies(pd.Series(names[data.y])))
    assert model.classes_.tolist() == plain.classes_.tolist() == ["ant", "bee", "wasp"]
    np.testing.assert_allclose(
        model.predict_proba(fresh.x), plain.predict_proba(fresh.x), rtol=1e-4, atol=1e-6
    )
    assert set(model.sample(5, y="ant", random_state=0)[1]) == {"ant"}


# labels that cannot be used


WRONG = {
    "a number": (
        3,
        r"y must be \(n,\) labels or an \(n, C\) matrix of soft labels, got shape \(\)",
    ),
    "complex tensor": (torch.from_numpy(Y) + 1j, "Complex data not supported in y"),
    "a number and its text": ([1, "1", 1, 1, 1, 1, 1], "mixes labels of types int, str"),
    "a NUL at the end": (
        ["a", "a\0", "a", "b", "b", "a", "b"],
        r"ends in a NUL, which NumPy drops",
    ),
    "a lone surrogate": (["a", "\ud800", "a", "b", "b", "a", "b"], "is no valid text: rename it"),
    "only out of scope": ([mn.OUT_OF_SCOPE] * 7, "every row of y is out of scope: label some rows"),
    "infinite": (np.where(GONE, np.inf, Y), "a label of y is infinite: drop its row"),
    "NaN in soft": (np.where(Y[:, None] == 0, NAN, np.eye(3)[Y]), "row 1 of the soft labels y is"),
    "text in soft": (np.full((7, 2), "a"), "a two-dimensional y must be a numeric"),
}


@pytest.mark.parametrize(
    "y", [[datetime.date(2020, 1, 1)] * 7, np.full(7, np.datetime64("2020")), [b"a"] * 7,
          np.ma.array(Y, mask=GONE), [{}] * 7, [[1], [1, 2], [1], [1], [1], [1], [1]]],
    ids=["dates", "datetime64", "bytes", "masked", "dicts", "lists"],
)  # fmt: skip
def test_labels_of_other_types(y):
    with pytest.raises(
        TypeError, match=r"labels must be numbers, texts or truth|is a masked array"
    ):
        coded(y)


@pytest.mark.parametrize("name", WRONG)
def test_labels_that_cannot_be_used(name):
    y, message = WRONG[name]
    with pytest.raises(ValueError, match=message) as caught:
        coded(y)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("y", "classes", "unknown"),
    [
        (torch.tensor([0, 9, 8]), np.arange(3), r"\[8, 9\]"),
        (np.array(["0", "1", "1"]), np.arange(3), r"\['0', '1'\]"),  # "1" is not 1
        (np.array([0.5, 1.0, 1.0]), np.arange(3), r"\[0.5\]"),
    ],
)
def test_unknown_labels_are_named(y, classes, unknown):
    with pytest.raises(ValueError, match=f"y has labels {unknown} that are not among the classes"):
        coded(y, classes=classes, n=3)


# weights of classes


def test_balanced_weights_make_classes_weigh_the_same():
    index = torch.tensor([0, 0, 0, 1, 2, 2, -1])
    weight = torch.tensor([1.0, 2, 3, 4, 5, 6, 7]).double()
    each = class_weights("balanced", np.arange(4), index, weight)  # of class 3 there is none
    mass = [float((each[c] * weight[index == c]).sum()) for c in range(3)]
    assert mass == pytest.approx([7.0] * 3)  # 21 of labeled weight, shared by three
    assert each[3] == 1


# through fit


def test_soft_labels_are_learned_as_given(data):
    """Rows of class 0 are half class 1: the predictions there say so."""
    q = np.eye(3)[data.y]
    q[data.y == 0] = [0.5, 0.5, 0.0]
    model = small(n_memories=3, label_smoothing=0.0).fit(data.x, q)
    mean = model.predict_proba(data.x[data.y == 0]).mean(axis=0)
    assert np.allclose(mean, [0.5, 0.5, 0.0], atol=0.1)
