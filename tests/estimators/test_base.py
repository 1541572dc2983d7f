"""What every estimator shares: rows of every kind, rows without direction, how training ends."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning

import mnemosphere as mn
from mnemosphere.estimators.setup import Trained, record_of
from mnemosphere.training.callbacks import PassRecord
from quick_models import assert_same_bits, small

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


def tensors_in(value):
    """Every tensor that an object holds."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        return [t for part in value.values() for t in tensors_in(part)]
    if isinstance(value, list | tuple):
        return [t for part in value for t in tensors_in(part)]
    return tensors_in(vars(value)) if type(value).__module__.startswith("mnemosphere") else []


PLAIN = {"n_memories": 5, "random_state": 0, "max_iter": 3}


@pytest.mark.parametrize(
    ("model", "share"),
    [
        (mn.DAMClassifier(random_state=0), 1.0),
        (mn.DAMClassifier(**PLAIN, normalize="whitened", objective="conditional"), 1.0),
        (mn.DAMClassifier(**PLAIN, growth=2), 1.0),
        (mn.DAMClassifier(**PLAIN), 0.5),
        (mn.DAMClusterer(3, n_memories=5, random_state=0), 1.0),
    ],
    ids=["defaults", "whitened", "growth", "few labels", "clusters"],
)
def test_autograd_may_use_all_that_a_fit_leaves(data, model, share):
    """Much of it is made in inference mode, whose tensors autograd refuses."""
    y = np.eye(3)[data.y]
    y[int(share * len(y)) :] = 0  # no label
    model.fit(data.x) if isinstance(model, mn.DAMClusterer) else model.fit(data.x, y)
    found = tensors_in(model)
    assert len(found) > 5
    assert not any(tensor.is_inference() for tensor in found)


ANSWERS = ["predict", "predict_proba", "predict_log_proba", "decision_function", "transform",
           "novelty_score", "recall"]  # fmt: skip


@pytest.fixture(scope="module")
def both(data, fresh):
    """A model fitted on tensors and one on arrays."""
    model = small().fit(torch.from_numpy(data.x), torch.from_numpy(data.y))
    plain = small().fit(data.x, data.y)
    assert_same_bits(model, plain, fresh.x)
    return model.calibrate(data.x), plain.calibrate(data.x)


@pytest.mark.parametrize("name", ANSWERS)
def test_tensors_in_tensors_out(both, fresh, name):
    """The same numbers as for arrays, where the question came from, without a graph."""
    model, plain = both
    x = torch.from_numpy(fresh.x).requires_grad_()
    answer = getattr(model, name)(x)
    assert isinstance(answer, torch.Tensor)
    assert answer.device == x.device
    assert not answer.requires_grad
    expected = getattr(plain, name)(fresh.x)
    assert isinstance(expected, np.ndarray)
    assert answer.numpy().dtype == expected.dtype
    assert np.array_equal(answer.numpy(), expected)


@pytest.mark.parametrize("order", ["tensor first", "frame first"])
def test_frames_and_tensors_mix(data, fresh, order):
    frame, tensor = pd.DataFrame(data.x, columns=NAMES), torch.from_numpy(data.x)
    first, second = (tensor, frame) if order == "tensor first" else (frame, tensor)
    model = small().fit(first, data.y)
    assert hasattr(model, "feature_names_in_") == (order == "frame first")
    proba = model.predict_proba(torch.from_numpy(fresh.x))
    model.fit(second, data.y)
    assert hasattr(model, "feature_names_in_") == (order == "tensor first")
    assert torch.equal(model.predict_proba(torch.from_numpy(fresh.x)), proba)


WAYS = {
    "list": lambda x: x.tolist(),
    "tuples": lambda x: tuple(map(tuple, x.tolist())),
    "object": lambda x: x.astype(object),
    "float16": lambda x: x.astype(np.float16),
    "big-endian": lambda x: x.astype(">f8"),
    "Fortran": np.asfortranarray,
    "backwards": lambda x: x[:, ::-1][:, ::-1],
    "every other": lambda x: np.repeat(x, 2, axis=0)[::2],
    "uint16": lambda x: x.astype(np.uint16),
    "bool": lambda x: x > 10,
    "nullable frame": lambda x: pd.DataFrame(x).convert_dtypes(),
    "mixed frame": lambda x: pd.DataFrame(x).astype({0: "float32", 1: "uint8", 2: "Int64"}),
    "polars": pl.DataFrame,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", ["classifier", "clusterer"])
def test_rows_of_every_kind(data, way, kind):
    """Whole numbers, which every type holds: the same model to the bit."""
    x, y = np.round(10 * np.abs(data.x[:29])), data.y[:29]
    given = WAYS[way](x)
    x = (x > 10).astype(float) if way == "bool" else x
    if kind == "classifier":
        model, plain = small(), small()
    else:
        model, plain = (
            mn.DAMClusterer(3, normalize="unit", max_iter=2, random_state=0) for _ in range(2)
        )
    model.fit(given, y)
    plain.fit(x, y)
    assert np.array_equal(model.memories_, plain.memories_)
    assert np.array_equal(model.class_weights_, plain.class_weights_)
    assert np.array_equal(model.predict_proba(given), plain.predict_proba(x))
    assert np.array_equal(model.transform(given), plain.transform(x))


def test_rows_are_left_as_they_were_given(data):
    """Nothing writes to the memory of the caller, tensors that share it among them."""
    x, y = data.x.copy(), data.y.copy()
    model = small().fit(torch.from_numpy(x), torch.from_numpy(y))
    model.partial_fit(x, y)
    model.recall(x)
    assert np.array_equal(x, data.x)
    assert np.array_equal(y, data.y)


# rows without direction


@pytest.fixture(params=["classifier", "clusterer"])
def kind(request):
    """(an unfitted model, fit of it to rows)."""
    if request.param == "classifier":
        model = small()
        return model, lambda x, y, **options: model.fit(x, y, **options)
    model = mn.DAMClusterer(3, n_memories=11, normalize="unit", max_iter=3, random_state=0)
    return model, lambda x, y, **options: model.fit(x, **options)


def test_rows_without_direction_are_set_aside_counted_and_named(data, kind):
    model, fit = kind
    x = data.x.copy()
    lost = np.array([3, 7, 11, 13, 17, 19, 23])
    x[lost] = 0.0
    with pytest.warns(UserWarning, match=r"7 of 61 rows of X are all zeros, .*3, 7, 11, 13, 17, …"):
        fit(x, data.y)
    found = model.class_weights_
    kept = np.setdiff1d(np.arange(61), lost)
    fit(x[kept], data.y[kept])
    assert np.allclose(found, model.class_weights_, rtol=1e-9)


def test_rows_without_weight_or_direction_are_of_no_concern(data, kind):
    _, fit = kind
    x = data.x.copy()
    x[[3, 5]] = 0.0
    weight = np.ones(61)
    weight[[3, 5]] = 0
    fit(x, data.y, sample_weight=weight)  # no warning
    weight[5] = 2
    with pytest.warns(UserWarning, match=r"1 of 61 rows of X are all zeros.* aside: row 5;"):
        fit(x, data.y, sample_weight=weight)


def test_later_batches_of_a_stream_warn_too(data, kind):
    model, fit = kind
    fit(data.x, data.y)
    x = data.x.copy()
    x[2] = 0.0
    with pytest.warns(UserWarning, match=r"1 of 61 rows of X are all zeros.* aside: row 2;"):
        model.partial_fit(x, data.y)
    with pytest.raises(ValueError, match="every row of X is all zeros, so none has a direction"):
        model.partial_fit(0 * x, data.y)


def test_every_row_without_direction_is_an_error(data, kind):
    """Whatever the rows of no weight are."""
    model, fit = kind
    model.set_params(normalize="center")
    flat = np.arange(61.0)[:, None] + np.zeros(5)
    with pytest.raises(ValueError, match=r"every row of X is constant.*normalize='standard'"):
        fit(flat, data.y)
    with pytest.raises(ValueError, match=r"every row of X is constant.*normalize='standard'"):
        fit(np.r_[flat, data.x], np.r_[data.y, data.y], sample_weight=np.repeat([1.0, 0.0], 61))


def test_at_prediction_they_get_the_prior_and_novelty_one(data, kind):
    model, fit = kind
    fit(data.x, data.y)
    rows = np.r_[np.zeros((1, 5)), data.x[:2]]
    prior = model.class_prior_[:-1] / model.class_prior_[:-1].sum()
    assert np.allclose(model.predict_proba(rows)[0], prior, rtol=1e-12)
    assert model.predict(rows)[0] == model.classes_[prior.argmax()]
    assert mn.interpret.novelty(model.model_, rows)[0] == 1.0
    assert model.novelty_score(rows)[0] == model.novelty_score(rows).max() < np.inf
    assert mn.interpret.is_novel(model.calibrate(data.x).model_, rows, 0.1)[0]
    assert not model.transform(rows)[0].any()
    # The memories' shares and that of the uniform component make one, for every row.
    uniform = model.explain(rows).uniform_share
    assert np.allclose(model.transform(rows).sum(1) + uniform, 1, rtol=1e-12)
    # The rows beside it are what they are alone.
    for name in ("predict_proba", "novelty_score", "transform"):
        together, alone = getattr(model, name)(rows)[1:], getattr(model, name)(rows[1:])
        assert np.allclose(together, alone, rtol=1e-12), name
    # Of the density the uniform component is left: its weight over the area 8π²/3 of the sphere.
    density = model.memory_prior_[0] / (8 * np.pi**2 / 3)
    assert np.exp(mn.interpret.score_samples(model.model_, rows)[0]) == pytest.approx(
        density, rel=1e-12
    )


# how training ends


@pytest.mark.parametrize(
    ("losses", "warned"),
    [
        ([9.0, 1.029, 1.0], False),
        ([9.0, 1.031, 1.0], True),
        ([9.0, -0.971, -1.0], False),
        ([9.0, -0.969, -1.0], True),
        ([9.0, 1.0, 1.2], False),  # a loss that rises
    ],
)
def test_the_warning_is_about_the_last_pass_of_the_last_phase(fitted, losses, warned):
    """A fall by more than 3%; where a phase was only just begun, nothing is known."""

    def record(k, loss, phase):
        return PassRecord(
            n_iter=k + 1, loss=loss, validation_loss=None, validation_accuracy=None, beta=9.0,
            residual=None, n_memories=7, seconds=0.1, phase=phase,
        )  # fmt: skip

    settings, parts = {"max_iter": None}, (fitted.model_.votes, fitted.model_.density)
    history = tuple(record(k, loss, 0) for k, loss in enumerate(losses))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        record_of(settings, Trained(*parts, history, "max_iter"), [])
        assert [w.category for w in caught] == [ConvergenceWarning] * warned
        begun = (*history, record(3, 0.1, 1))
        for status, passes in (("converged", history), ("max_iter", begun), ("max_iter", ())):
            record_of(settings, Trained(*parts, passes, status), [])
        assert len(caught) == warned


def test_same_seed_same_bits(data, fresh):
    def fit(seed):
        model = small(n_memories="auto", varsigma="auto", max_iter=3, random_state=seed)
        return model.fit(data.x[:37], data.y[:37]).predict_proba(fresh.x)

    first = fit(0)
    assert np.array_equal(first, fit(0))
    assert not np.array_equal(first, fit(1))
    one, two = (small(random_state=np.random.RandomState(5)).fit(*data) for _ in range(2))
    assert_same_bits(one, two, fresh.x)


def test_single_precision_is_close_to_double(data, fresh):
    one, two = (
        small(precision=precision, max_iter=10).fit(data.x, data.y)
        for precision in ("float32", "float64")
    )
    assert one.memories_.dtype == np.float32
    assert two.memories_.dtype == np.float64
    assert np.allclose(one.predict_proba(fresh.x), two.predict_proba(fresh.x), atol=1e-3)
