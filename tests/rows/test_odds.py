"""Levels of a category as log-odds: the likeliest shrinkage, and rows that do not see their own labels."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import betaln, logit
from sklearn.model_selection import KFold
from sklearn.preprocessing import TargetEncoder

from mnemosphere.rows.columns import Column, Columns
from mnemosphere.rows.odds import Odds, log_odds
from mnemosphere.rows.rows import Rows

N, L, C = 977, 61, 3


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    level = rng.integers(0, L, N)
    share = rng.dirichlet(np.full(C, 0.7), L)
    label = (rng.random(N)[:, None] > share[level].cumsum(1)).sum(1)
    return level, np.eye(C)[label]


LEVELS = Column("k", "category", other_levels=tuple(map(str, range(L))), by_odds=True)


def rows_of(level, *others, columns=()):
    """A number, the level, and other columns."""
    values = torch.from_numpy(np.column_stack([np.arange(N) / N, level, *others]))
    each = (Column("x", "number"), LEVELS, *columns)
    return Rows(values.double(), torch.device("cpu"), columns=Columns(len(each), each=each))


def cross_fitted(rows, labels, weight=None):
    """(training rows by the odds of other folds, the counts)."""
    odds = Odds.learn(rows, labels, weight)
    return odds.of_training(rows), odds.counts


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
    """Beside levels stand three indicators of another category, and numbers of a vector."""
    level, label = drawn
    others = np.random.default_rng(4).random((5, N))
    more = Column("c", "category", ("a", "b", "c")), Column("v", "list", length=2)
    rows = rows_of(level, *others, columns=more)
    found, _ = cross_fitted(rows, torch.from_numpy(label))
    assert found.vectors == (7, 8)
    assert found.columns.shares == [1.0, *[1.0] * C, *[1 / 3] * 3, 1.0, 1.0]
    torch.testing.assert_close(found.values[:, 1 + C :], rows.values[:, 2:])
    own = found.part(vectors=False)
    assert own.columns.shares == found.columns.shares[:-2]
    torch.testing.assert_close(found.part(vectors=True).values, rows.values[:, 5:])
    torch.testing.assert_close(own.values, found.values[:, :-2])


def test_a_row_is_told_by_rows_of_other_folds_alone(drawn):
    level, label = drawn
    found, counts = cross_fitted(rows_of(level), torch.from_numpy(label))
    np.testing.assert_allclose(counts[0], counts_of(level, label))
    assert found.values.shape == (N, 1 + C)
    assert found.levels == {}
    row = 5
    label = label.copy()
    label[row] = np.roll(label[row], 1)
    other, _ = cross_fitted(rows_of(level), torch.from_numpy(label))
    torch.testing.assert_close(other.values[row], found.values[row], rtol=0, atol=1e-12)
    alike = np.flatnonzero(level == level[row])
    assert (other.values[alike] != found.values[alike]).any()


def test_labels_that_are_chance_are_not_learned_by_heart():
    """Many levels of few rows, and coin flips: what a row gets must not tell its label."""
    rng = np.random.default_rng(3)
    level, label = rng.integers(0, L, N), np.eye(2)[rng.integers(0, 2, N)]
    rows, labels = rows_of(level), torch.from_numpy(label)
    found, _ = cross_fitted(rows, labels)
    told = found.values[:, 1].numpy()
    assert abs(np.corrcoef(told, label[:, 1])[0, 1]) < 0.1
    naive = Odds.learn(rows, labels).of_others(rows).values[:, 1].numpy()
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


def test_other_rows_of_a_fold_have_its_odds(drawn):
    """A row that training did not have, called like one of a fold, as a file may give it later."""
    level, label = drawn
    rows, number = rows_of(level), torch.arange(N)
    odds = Odds.learn(rows, torch.from_numpy(label), None, number)
    whole = odds.of_training(rows, number).values
    torch.testing.assert_close(
        odds.of_training(rows.take(slice(400, N)), number[400:]).values, whole[400:]
    )
    torch.testing.assert_close(cross_fitted(rows, torch.from_numpy(label))[0].values, whole)


def test_a_missing_level_stays_missing_and_a_new_one_tells_nothing(drawn):
    level, label = drawn
    odds = Odds.learn(rows_of(level), torch.from_numpy(label))
    level = level.astype(float)
    level[:2] = np.nan, L
    x = odds.of_others(rows_of(level)).values
    assert x[0, 1:].isnan().all()
    assert (x[1, 1:] == 0).all()
    assert not x[2:].isnan().any()


def test_it_orders_rows_as_target_encoding_of_scikit_learn(drawn):
    level, label = drawn
    two = np.column_stack([label[:, 0], label[:, 1:].sum(1)])
    found, _ = cross_fitted(rows_of(level), torch.from_numpy(two))
    encoder = TargetEncoder(cv=KFold(5, shuffle=True, random_state=0))
    theirs = encoder.fit_transform(level[:, None], two[:, 1].astype(int))[:, 0]
    assert np.corrcoef(np.argsort(np.argsort(theirs)), found.values[:, 1].numpy())[0, 1] > 0.85
