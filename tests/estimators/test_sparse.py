"""Sparse matrices: what dense rows of their numbers, in single precision, would give."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

import mnemosphere as mn

N_ROWS, N = 211, 53
ONE_CANDIDATE = {"search": None, "random_state": 0, "max_iter": 3}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, N_ROWS)
    own = 1.5 * (np.arange(N) % 3 == y[:, None])
    x = np.where(rng.random((N_ROWS, N)) < 0.25, rng.random((N_ROWS, N)) + own, 0.0)
    return x.astype(np.float32), np.array(["deer", "elk", "moose"])[y]


@pytest.mark.parametrize(
    "kind", [sparse.csr_matrix, sparse.coo_array, lambda x: sparse.csr_array(x.astype(float))]
)
def test_a_classifier_as_of_dense_rows(data, kind):
    x, y = data
    dense, found = (
        mn.DAMClassifier(7, **ONE_CANDIDATE).fit(rows, y).predict_proba(rows)
        for rows in (x, kind(x))
    )
    np.testing.assert_array_equal(found, dense)


def test_clusters_and_sparse_columns_as_of_dense_ones(data):
    x, _ = data
    frame = pd.DataFrame(x, columns=[f"word{j}" for j in range(N)])
    labels = [
        mn.DAMClusterer(3, n_memories=5, random_state=0, max_iter=3).fit(rows).predict(rows)
        for rows in (frame, frame.astype(pd.SparseDtype(np.float32, 0.0)))
    ]
    np.testing.assert_array_equal(*labels)


def test_counted_words_in_a_pipeline():
    bank = mn.load_data("banking-small")
    words = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2))
    model = make_pipeline(words, mn.DAMClassifier(20, **ONE_CANDIDATE))
    model.fit(bank.x_train, bank.y_train)
    assert model[-1].n_features_in_ > 1000
    assert model.score(bank.x_test, bank.y_test) > 0.8


def test_too_many_numbers_with_their_zeros(data):
    wide = sparse.csr_matrix((100_003, 50_021), dtype=np.float32)
    message = r"100,003 rows of 50,021 features take 20\.0 GB .*: put .*TruncatedSVD in front"
    with pytest.raises(ValueError, match=message):
        mn.DAMClassifier().fit(wide, np.arange(100_003) % 2)
    model = mn.DAMClassifier(3, **ONE_CANDIDATE).fit(*data)
    with pytest.raises(ValueError, match="TruncatedSVD"):
        model.predict(sparse.csr_matrix((20_000_003, N)))
