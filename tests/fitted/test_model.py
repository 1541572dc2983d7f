"""The fitted model: a value that nothing changes, and its way of a row, short for one of them."""

import copy
import dataclasses
import pickle
import pickletools
import time

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mnemosphere as mn
from quick_models import small


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def model(iris):
    return small(geometry="standard").fit(*iris)


def test_the_model_is_frozen(model):
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.model_.votes = None


def test_attributes_are_those_of_the_model(model, iris):
    assert model.memories_ is model.model_.memories
    assert model.n_features_in_ == 4
    assert not hasattr(model, "feature_names_in_")
    assert {"memories_", "classes_"} <= set(dir(model))
    other = copy.copy(model)
    other.model_ = mn.interpret.map_classes(model.model_, {0: 3})
    assert (0 in other.classes_, 0 in model.classes_) == (False, True)
    fresh = clone(model)
    assert not hasattr(fresh, "memories_")
    with pytest.raises(NotFittedError, match="instance is not fitted yet"):
        fresh.predict(iris[0])


def test_calls_leave_the_model_as_it_was(model, iris):
    """Also what goes on from it: a stream, a calibration."""
    x, y = iris
    threshold = model.novelty_threshold_
    before = {name: t.clone() for name, t in model.model_.density.to_tensors().items()}
    copies = [copy.copy(model) for _ in range(3)]
    copies[0].partial_fit(x[:60], y[:60]).partial_fit(x[60:], y[60:])
    copies[1].calibrate(x + 1e-3, y)
    copies[2].calibrate(x + 1e-3)
    state = {k: t.clone() for k, t in copies[0].model_.stream.state.items()}
    copy.copy(copies[0]).partial_fit(x[:40], y[:40])
    assert all(torch.equal(t, copies[0].model_.stream.state[k]) for k, t in state.items())
    assert all(
        torch.equal(t, before[name]) for name, t in model.model_.density.to_tensors().items()
    )
    assert model.novelty_threshold_ == threshold != copies[1].novelty_threshold_
    assert not np.array_equal(copies[0].predict_proba(x), model.predict_proba(x))


def test_pickles_hold_the_same_model(model, iris):
    x, _ = iris
    model.predict(x)
    back = pickle.loads(pickle.dumps(model))
    assert np.array_equal(back.predict_proba(x), model.predict_proba(x))


def test_as_estimator_gives_the_estimator_back(model, iris):
    again = mn.as_estimator(model.model_)
    assert again.get_params() == model.get_params()
    assert np.array_equal(again.predict_proba(iris[0]), model.predict_proba(iris[0]))


def best_times(calls, x, turns=300):
    """Seconds of the best call of each, by turns: others use the machine too."""
    best = [np.inf] * len(calls)
    for _ in range(turns):
        for k, call in enumerate(calls):
            began = time.perf_counter()
            call(x)
            best[k] = min(best[k], time.perf_counter() - began)
    return best


def test_one_row_takes_at_most_four_times_as_long_as_logistic_regression():
    x, y = load_digits(return_X_y=True)
    ours = small(n_memories=100, varsigma=0.5, geometry="center").fit(x, y)
    peer = make_pipeline(StandardScaler(), LogisticRegression()).fit(x, y)[-1]
    one, two = best_times([ours.predict_proba, peer.predict_proba], x[:1])
    assert one <= 4 * two, f"{one / two:.1f} times as long"


def names_in(pickled):
    """What a pickle imports when it is read."""
    texts, found = [], set()
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name == "STACK_GLOBAL":
            found.add(".".join(texts[-2:]))
        elif isinstance(argument, str):
            texts.append(argument)
    return found


def test_a_pickle_holds_the_file_and_nothing_to_run(model, iris):
    assert names_in(pickle.dumps(model)) == {"mnemosphere.estimators.classifier.DAMClassifier"}
    state = model.__getstate__()
    assert model.model_.n_memories > 0  # the estimator itself keeps its model
    damaged = bytearray(state["model_"])
    damaged[-1] ^= 1
    with pytest.raises(ValueError, match="pickled model is damaged"):
        type(model).__new__(type(model)).__setstate__(state | {"model_": bytes(damaged)})


def test_skops_holds_plain_data(model, iris):
    skops = pytest.importorskip("skops.io")
    held = skops.dumps(model)
    unknown = skops.get_untrusted_types(data=held)
    assert all(name.startswith("mnemosphere.estimators.") for name in unknown)
    back = skops.loads(held, trusted=unknown)
    assert np.array_equal(back.predict_proba(iris[0]), model.predict_proba(iris[0]))
