"""Levels of a category as log-odds: the likeliest shrinkage, and rows that do not see their own labels."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import betaln, logit
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder

from mnemosphere.rows.odds import (
    counts_of_folds,
    cross_fitted,
    in_folds,
    log_odds,
    tables_of_folds,
    with_odds,
)
from mnemosphere.rows.stored import StoredRows

N, L, C = 977, 61, 3


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    level = rng.integers(0, L, N)
    share = rng.dirichlet(np.full(C, 0.7), L)
    label = (rng.random(N)[:, None] > share[level].cumsum(1)).sum(1)
    return level, np.eye(C)[label]


def rows_of(level, *others):
    values = torch.from_numpy(np.column_stack([np.arange(N) / N, level, *others]))
    return StoredRows(values.double(), torch.device("cpu"), levels={1: L})


def counts_of(level, label):
    return np.stack([label[level == k].sum(0) for k in range(L)])


def test_two_classes_are_shrunk_as_a_beta_binomial_model_has_it():
    rng = np.random.default_rng(1)
    n = rng.integers(1, 40, 400)
    k = rng.binomial(n, rng.beta(2.0, 6.0, 400))
    counts = np.column_stack([n - k, k]).astype(float)
    prior = k.sum() / n.sum()

    def minus_likelihood(log_m):
        a, b = prior * np.exp(log_m), (1 - prior) * np.exp(log_m)
        return -(betaln(k + a, n - k + b) - betaln(a, b)).sum()

    m = np.exp(minimize_scalar(minus_likelihood, bounds=(-2, 9), method="bounded").x)
    found = log_odds(counts)
    assert found.shape == (401, 1)
    assert found[-1] == 0
    expected = logit((k + m * prior) / (n + m)) - logit(prior)
    # m is one of a few powers of 2: within half a step of the likeliest.
    np.testing.assert_allclose(found[:-1, 0], expected, atol=0.25)
    assert 0.8 < np.std(found) / np.std(expected) < 1.25


def test_what_is_known_of_columns_moves_with_them(drawn):
    """Beside levels stand two indicators of another category, and numbers of a vector."""
    level, label = drawn
    rows = rows_of(level, *np.random.default_rng(4).random((4, N)))
    rows = replace(rows, vectors=(4, 5), shares=(1.0, 1.0, 0.5, 0.5, 1.0, 1.0))
    found, _ = cross_fitted(rows, torch.from_numpy(label), None)
    assert found.vectors == (6, 7)
    assert found.shares == (1.0, *[1.0] * C, 0.5, 0.5, 1.0, 1.0)
    torch.testing.assert_close(found.values[:, 1 + C :], rows.values[:, 2:])
    assert found.features([7, 4, 0]).shares == (1.0, 0.5, 1.0)


def test_a_row_is_told_by_rows_of_other_folds_alone(drawn):
    level, label = drawn
    found, counts = cross_fitted(rows_of(level), torch.from_numpy(label), None)
    np.testing.assert_allclose(counts[0], counts_of(level, label))
    assert found.values.shape == (N, 1 + C)
    assert found.levels == {}
    row = 5
    label = label.copy()
    label[row] = np.roll(label[row], 1)
    other, _ = cross_fitted(rows_of(level), torch.from_numpy(label), None)
    torch.testing.assert_close(other.values[row], found.values[row], rtol=0, atol=1e-12)
    alike = np.flatnonzero(level == level[row])
    assert (other.values[alike] != found.values[alike]).any()


def test_labels_that_are_chance_are_not_learned_by_heart():
    """Many levels of few rows, and coin flips: what a row gets must not tell its label."""
    rng = np.random.default_rng(3)
    level, label = rng.integers(0, L, N), np.eye(2)[rng.integers(0, 2, N)]
    found, counts = cross_fitted(rows_of(level), torch.from_numpy(label), None)
    told = found.values[:, 1].numpy()
    assert abs(np.corrcoef(told, label[:, 1])[0, 1]) < 0.1
    naive = with_odds(rows_of(level), counts).values[:, 1].numpy()
    assert np.corrcoef(naive, label[:, 1])[0, 1] > 0.15


def test_a_weight_of_two_is_the_row_twice(drawn):
    level, label = drawn
    weight = torch.ones(N, dtype=torch.float64)
    weight[:10] = 2
    _, counts = cross_fitted(rows_of(level), torch.from_numpy(label), weight)
    twice = counts_of(level, label) + np.stack(
        [label[:10][level[:10] == k].sum(0) for k in range(L)]
    )
    np.testing.assert_allclose(counts[0], twice)


def test_sums_of_parts_are_those_of_the_whole(drawn):
    level, label = drawn
    rows, labels = rows_of(level), torch.from_numpy(label)
    number = torch.arange(N)
    parts = [
        counts_of_folds(rows.take(at), number[at], labels[at], None)[0]
        for at in (slice(0, 400), slice(400, N))
    ]
    tables = tables_of_folds([sum(parts)])
    whole, _ = cross_fitted(rows, labels, None)
    torch.testing.assert_close(in_folds(rows, number, tables).values, whole.values)


def test_a_missing_level_stays_missing_and_a_new_one_tells_nothing(drawn):
    level, label = drawn
    _, counts = cross_fitted(rows_of(level), torch.from_numpy(label), None)
    level = level.astype(float)
    level[:2] = np.nan, L
    x = with_odds(rows_of(level), counts).values
    assert x[0, 1:].isnan().all()
    assert (x[1, 1:] == 0).all()
    assert not x[2:].isnan().any()


def test_it_orders_rows_as_target_encoding_of_scikit_learn(drawn):
    level, label = drawn
    two = np.column_stack([label[:, 0], label[:, 1:].sum(1)])
    found, _ = cross_fitted(rows_of(level), torch.from_numpy(two), None)
    encoder = TargetEncoder(cv=KFold(5, shuffle=True, random_state=0))
    theirs = encoder.fit_transform(level[:, None], two[:, 1].astype(int))[:, 0]
    assert np.corrcoef(np.argsort(np.argsort(theirs)), found.values[:, 1].numpy())[0, 1] > 0.85
