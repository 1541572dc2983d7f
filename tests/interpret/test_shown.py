"""Models and results show themselves: a few lines in a terminal, tables in a notebook."""

from html import escape

import pytest
from sklearn.datasets import load_iris

import mnemosphere as mn
from mnemosphere.estimators.progress import SearchTable


@pytest.fixture(scope="module")
def model():
    x, y = load_iris(return_X_y=True, as_frame=True)
    settings = {"objective": "joint", "geometry": "standard", "random_state": 0}
    return mn.DAMClassifier(6, varsigma=1.0, **settings).fit(x, y), x


def test_results_say_the_same_in_a_terminal_and_in_a_notebook(model):
    clf, x = model
    trial = {"rows": 9, "geometry": "unit", "n_memories": 3, "log_loss": 0.5, "error": 0.1}
    explained = clf.explain(x[:2])
    for found, n_tables in (
        (clf.counterfactual(x[:2]), 2),
        (explained, 2),
        (SearchTable([trial, trial]), 1),
    ):
        text, html = " ".join(str(found).split()), found._repr_html_()
        assert html.count("<table>") == n_tables
        for part in found.parts(100):
            for line in [part] if isinstance(part, str) else [c for row in part for c in row]:
                assert " ".join(line.split()) in text
                assert escape(line) in html
    assert str(SearchTable()) == "no search"
