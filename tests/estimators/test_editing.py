"""Memories edited by hand: exact class weights, nothing retrained, the old model untouched."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

import mnemosphere as mn
from class_formula import FLOOR
from quick_models import built, small


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


def nearest_in_entropy(k, rows, cols):
    """argmin Σ p log(p/k) − p with these marginals, by SciPy on the dual."""

    def dual(z):
        a, b = z[: len(rows)], z[len(rows) :]
        p = k * np.exp(a[:, None] + b[None])
        gradient = np.concatenate([p.sum(1) - rows, p.sum(0) - cols])
        return p.sum() - a @ rows - b @ cols, gradient

    found = minimize(
        dual, np.zeros(len(rows) + len(cols)), jac=True, method="L-BFGS-B",
        options={"ftol": 1e-16, "gtol": 1e-12, "maxiter": 5000},
    ).x  # fmt: skip
    return k * np.exp(found[: len(rows), None] + found[len(rows) :][None])


def test_without_memories_the_classes_keep_their_frequencies(fitted, before):
    model = edited("without_memories", fitted.model_, ["#2", 5])
    kept = [0, 1, 3, 4, 6]
    np.testing.assert_allclose(model.memories_, fitted.memories_[kept], rtol=1e-12)
    np.testing.assert_allclose(model.class_prior_, fitted.class_prior_, rtol=1e-8)
    rows = fitted.memory_prior_[[0, *(k + 1 for k in kept)]]
    np.testing.assert_allclose(model.memory_prior_, rows / rows.sum(), rtol=1e-8)
    k = fitted.class_weights_[[0, *(k + 1 for k in kept)]]
    wanted = nearest_in_entropy(k / k.sum(), rows / rows.sum(), fitted.class_weights_.sum(0))
    np.testing.assert_allclose(model.class_weights_, wanted, atol=1e-8)
    np.testing.assert_array_equal(model.typical_rows_, fitted.typical_rows_[kept])


def test_a_relabeled_memory_has_just_that_label(fitted, before):
    model = edited("relabel_memory", fitted.model_, "#3", 2)
    soft = model.class_weights_[4] / model.memory_prior_[4]
    floor = FLOOR * np.append(fitted.class_prior_[:3] / fitted.class_prior_[:3].sum(), 0)
    np.testing.assert_allclose(soft, (1 - FLOOR) * np.eye(4)[2] + floor, atol=1e-12)
    np.testing.assert_allclose(model.class_prior_, fitted.class_prior_, rtol=1e-8)
    np.testing.assert_allclose(model.memory_prior_, fitted.memory_prior_, rtol=1e-8)
    others = np.arange(8) != 4
    wanted = nearest_in_entropy(
        fitted.class_weights_[others],
        fitted.memory_prior_[others],
        fitted.class_weights_.sum(0) - model.class_weights_[4],
    )
    np.testing.assert_allclose(model.class_weights_[others], wanted, atol=1e-8)


def test_a_soft_label_and_none_of_them(fitted, before):
    model = edited("relabel_memory", fitted.model_, 1, {0: 3, None: 1})
    soft = model.class_weights_[2] / model.memory_prior_[2]
    floor = FLOOR * np.append(fitted.class_prior_[:3] / fitted.class_prior_[:3].sum(), 0)
    wanted = (1 - FLOOR) * np.array([0.75, 0, 0, 0.25]) + floor
    np.testing.assert_allclose(soft, wanted, atol=1e-12)


@pytest.mark.parametrize(
    ("edit", "args", "text"),
    [
        ("without_memories", (range(7),), "at least one"),
        ("without_memories", ([7],), "no memory 7"),
        ("relabel_memory", (0, 9), "9"),
        ("relabel_memory", (0, {0: -1}), ">= 0"),
    ],
)
def test_edits_that_cannot_be_made(fitted, edit, args, text):
    with pytest.raises(ValueError, match=text):
        edited(edit, fitted.model_, *args)


def test_class_frequencies_follow_if_the_other_memories_cannot_make_up_for_the_edit():
    weights = np.array([[0.1, 0.1, 0.01], [0.9, 0.01, 0.01], [0.01, 0.05, 0.01]])
    model = built(np.eye(2), weights, beta=3.0)
    other = edited("relabel_memory", model.model_, 0, 1)
    assert other.class_prior_[1] > 0.7
    np.testing.assert_allclose(other.class_weights_[2], model.class_weights_[2], rtol=1e-9)


def test_memories_of_one_class_each_can_be_edited(data):
    """Without smoothing there is nothing to share out, so the weights of memories change."""
    model = small(n_memories=9, label_smoothing=0.0, max_iter=9).fit(*data)
    for edit in (
        lambda m: mn.interpret.without_memories(m, [0]),
        lambda m: mn.interpret.relabel_memory(m, 0, 1),
    ):
        found = edit(model.model_)
        before = model.model_.density.p_q
        torch.testing.assert_close(found.density.p.sum(0), before, rtol=1e-6, atol=1e-9)
        assert np.isfinite(mn.as_estimator(found).predict_proba(data.x)).all()
