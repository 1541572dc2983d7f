"""Memories relabeled by hand: exact class weights, nothing retrained, the old model untouched."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine

import mnemosphere as mn
from class_formula import FLOOR


@pytest.fixture
def before(fitted):
    """A copy of the parameters, to compare with at the end."""
    kept = {name: t.clone() for name, t in fitted.model_.density.to_tensors().items()}
    yield kept
    for name, tensor in fitted.model_.density.to_tensors().items():
        torch.testing.assert_close(tensor, kept[name], rtol=0, atol=0)


def edited(edit, model, *args, **options):
    """The estimator of a model after an edit."""
    return mn.as_estimator(getattr(mn.interpret, edit)(model, *args, **options))


def assert_frequencies_follow(before, after):
    """As the weights of the classes change, so do the frequencies that a row without direction gets."""
    ratio = after.class_weights_.sum(0) / before.class_weights_.sum(0)
    wanted = before.class_prior_ * ratio
    np.testing.assert_allclose(after.class_prior_, wanted / wanted.sum(), rtol=1e-8, atol=1e-12)


def test_a_relabeled_memory_has_just_that_label_and_no_other_changes(fitted, before):
    model = edited("relabel_memory", fitted.model_, "#3", 2)
    soft = model.class_weights_[4] / model.memory_prior_[4]
    floor = FLOOR * np.append(fitted.class_prior_[:3] / fitted.class_prior_[:3].sum(), 0)
    np.testing.assert_allclose(soft, (1 - FLOOR) * np.eye(4)[2] + floor, atol=1e-12)
    np.testing.assert_allclose(model.memory_prior_, fitted.memory_prior_, rtol=1e-8)
    others = np.arange(8) != 4
    kept = fitted.class_weights_[others]
    np.testing.assert_allclose(model.class_weights_[others], kept, rtol=1e-8)
    assert_frequencies_follow(fitted, model)


def test_a_memory_with_a_wrong_label_costs_the_rows_of_that_memory_alone():
    """With one memory per class, the others used to give way: accuracy fell to a third."""
    x, y = load_wine(return_X_y=True)
    clf = mn.DAMClassifier(3, geometry="standard", random_state=0).fit(x[::2], y[::2])
    wrong = edited("relabel_memory", clf.model_, "#2", 0)
    share = clf.transform(x[1::2])
    changed = clf.predict(x[1::2]) != wrong.predict(x[1::2])
    assert (share.argmax(1)[changed] == 2).all()
    back = edited("relabel_memory", wrong.model_, "#2", int(clf.model_.votes.p[3].argmax()))
    assert (back.predict(x[1::2]) == clf.predict(x[1::2])).mean() > 0.97


def test_a_soft_label_and_none_of_them(fitted, before):
    model = edited("relabel_memory", fitted.model_, 1, {0: 3, None: 1})
    soft = model.class_weights_[2] / model.memory_prior_[2]
    floor = FLOOR * np.append(fitted.class_prior_[:3] / fitted.class_prior_[:3].sum(), 0)
    wanted = (1 - FLOOR) * np.array([0.75, 0, 0, 0.25]) + floor
    np.testing.assert_allclose(soft, wanted, atol=1e-12)


@pytest.mark.parametrize(
    ("edit", "args", "text"),
    [
        ("relabel_memory", (7, 0), "no memory 7"),
        ("relabel_memory", (0, 9), "9"),
        ("relabel_memory", (0, {0: -1}), ">= 0"),
    ],
)
def test_edits_that_cannot_be_made(fitted, edit, args, text):
    with pytest.raises(ValueError, match=text):
        edited(edit, fitted.model_, *args)
