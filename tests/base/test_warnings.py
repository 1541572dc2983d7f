"""Warnings point to the line of the user's, and nothing is kept of them."""

import sys
import warnings

import numpy as np
import pandas as pd
import pytest

import mnemosphere as mn


@pytest.fixture(scope="module")
def colors():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=60), "color": rng.choice(["red", "blue"], 60)})
    y = (frame["x"] > 0).to_numpy()
    return mn.DAMClassifier(4, search=None, max_iter=2, random_state=0).fit(frame, y), frame


def test_a_warning_points_here_each_time(colors):
    clf, frame = colors
    for _ in range(3):
        with pytest.warns(UserWarning, match="pink") as found:
            clf.predict(frame.assign(color="pink"))
        assert [warning.filename for warning in found] == [__file__]


def test_predictions_that_warn_keep_nothing(colors):
    """In no container of any module of ours."""
    clf, frame = colors
    odd = frame[:1].assign(color="pink")

    def held():
        ours = [m for name, m in sys.modules.items() if name.startswith("mnemosphere")]
        values = [v for module in ours for v in list(vars(module).values())]
        return sum(len(v) for v in values if isinstance(v, list | dict | set))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        clf.predict(odd)
        before = held()
        for _ in range(300):
            clf.predict(odd)
    assert held() == before
