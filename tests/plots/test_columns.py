"""Importance and curves of columns: against explanations, and against what was planted."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

import mnemosphere as mn
from mnemosphere.fitted import pulls
from quick_models import small


@pytest.fixture(scope="module", params=["unit", "center", "standard", "whitened", "circles"])
def wines(request):
    x, y = load_wine(return_X_y=True, as_frame=True)
    return x, small(geometry=request.param).fit(x, y)


def test_bars_are_mean_absolute_pulls_of_explanations(wines):
    x, clf = wines
    why = clf.explain(x[:23])
    wanted = pd.DataFrame([{p.column: abs(p.pull) for p in why.pulls(k)} for k in range(23)])
    ax = mn.plots.importance(clf.model_, x[:23], n_features=4)
    bars = [bar.get_width() for bar in ax.containers[0]]
    best = wanted.mean().sort_values(ascending=False)[:4]
    assert bars == pytest.approx(best.tolist(), rel=1e-6)
    assert [t.get_text()[:15] for t in ax.get_yticklabels()] == [n[:15] for n in best.index]


def test_curves_are_predictions_of_rows_moved_through_a_column(wines):
    x, clf = wines
    rows, at = x[:7], np.sort(x["hue"].to_numpy())[[3, 60, 150]]
    found = pulls.column_curve(
        clf.model_, clf.model_.stored(rows), slice(10, 11), at[:, None], np.array([1.0, 2.0, 1.0])
    )
    said = np.stack([clf.predict_log_proba(rows.assign(hue=v)).mean(0) for v in at])
    said -= said.mean(1, keepdims=True)
    assert x.columns[10] == "hue"
    np.testing.assert_allclose(found, said - (said[0] + 2 * said[1] + said[2]) / 4, atol=1e-6)


def test_curves_show_what_was_planted_in_numbers_and_categories():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"dose": rng.normal(size=400), "ward": rng.choice(list("abc"), 400)})
    frame["noise"] = rng.normal(size=400)
    ill = np.abs(frame["dose"]) + 1.5 * (frame["ward"] == "c") > 1.2
    clf = mn.DAMClassifier(random_state=0).fit(frame, np.where(ill, "ill", "well"))
    figure = mn.plots.column_curves(clf.model_, frame, n_features=2)
    dose, ward = (ax for ax in figure.axes if ax.get_title(loc="left") in ("dose", "ward"))
    if dose.get_title(loc="left") != "dose":
        dose, ward = ward, dose
    curve = dose.lines[1].get_ydata()  # of "well"
    assert curve[len(curve) // 2] > max(curve[2], curve[-3])
    levels = ward.lines[1].get_ydata()
    assert levels[2] < min(levels[:2])
    assert [t.get_text() for t in ward.get_xticklabels()] == ["a", "b", "c"]
    figure.draw_without_rendering()
