"""A classifier that is fitted quickly, and what makes two of them one."""

from __future__ import annotations

import numpy as np

import mnemosphere as mn


def small(**settings):
    """A model whose choices are made, so that a test is quick."""
    settings = {
        "n_memories": 7, "normalize": "unit", "varsigma": 0.9, "random_state": 0,
        "objective": "joint", "max_iter": 3,
    } | settings  # fmt: skip
    return mn.DAMClassifier(**settings)


def assert_same_bits(one, two, x):
    assert np.array_equal(one.memories_, two.memories_)
    assert np.array_equal(one.class_weights_, two.class_weights_)
    assert one.beta_ == two.beta_
    assert np.array_equal(one.predict_log_proba(x), two.predict_log_proba(x))


def assert_same_model(one, two, x):
    """As `assert_same_bits`, and all that a file keeps of a fit."""
    for name in ("memories_", "class_weights_", "memory_prior_", "class_prior_", "classes_"):
        a, b = getattr(one, name), getattr(two, name)
        assert a.dtype == b.dtype, name
        assert np.array_equal(a, b), name
    for name in ("beta_", "varsigma_", "n_memories_", "normalize_", "n_features_in_"):
        assert getattr(one, name) == getattr(two, name), name
    for name in ("history_", "search_", "status_", "n_iter_", "converged_"):
        assert getattr(one, name) == getattr(two, name), name
    for method in ("predict", "predict_proba", "novelty_score", "transform"):
        assert np.array_equal(getattr(one, method)(x), getattr(two, method)(x)), method
