"""The smallest change that changes the predicted class: verified by `predict`, small by a grid."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

import mnemosphere as mn
from quick_models import built, small


def check(model, x, found):
    """Each change that was found changes the predicted class, and rows are what their changes say."""
    assert (model.predict(found.rows)[found.found] == found.wanted[found.found]).all()
    assert np.array_equal(found.before, model.predict(x))
    assert ((found.change != 0).any(1) == (found.after != found.given).any(1)).all()


def size(found):
    """Of each change, in standard units."""
    return np.linalg.norm(found.change, axis=1)


@pytest.mark.parametrize("free", [(True, True), (True, False)])
def test_as_small_as_a_grid_finds(make_clusters, free):
    data = make_clusters(features=2, classes=5, spread=1.2, rows=101)
    model = small(n_memories=11, geometry="standard", max_iter=None)
    model.fit(data.x, data.y)
    rows, scale = data.x[:13], data.x.std(0)
    hold = [k for k in range(2) if not free[k]]
    found = model.counterfactual(rows, hold=hold, realistic=False)
    check(model, rows, found)
    steps = np.linspace(-5, 5, 301)
    grid = np.stack(np.meshgrid(*(steps if f else [0.0] for f in free)), -1).reshape(-1, 2)
    ratios = []
    for k, row in enumerate(rows):
        turned = model.predict(row + grid * scale) == found.wanted[k]
        if not turned.any():
            continue
        assert found.found[k]
        ratios.append(np.linalg.norm(found.change[k]) / np.linalg.norm(grid[turned], axis=1).min())
    assert len(ratios) > 7
    assert np.median(ratios) < 1.001  # the grid is no finer
    assert np.quantile(ratios, 0.9) < 1.05  # the border may have two nearest points
    assert np.abs(found.change[:, hold]).max(initial=0) == 0


def test_every_normalization_and_what_is_held(read, fresh):
    model, x = read.model, fresh.x[:19]
    found = model.counterfactual(x)
    check(model, x, found)
    assert found.found.mean() > 0.95
    proba = model.predict_proba(x)
    assert np.array_equal(found.wanted, np.argsort(proba, axis=1)[:, -2])
    other = (model.predict(x) + 1) % 3
    held = model.counterfactual(x, other, hold=[1, 3])
    check(model, x, held)
    assert held.found.mean() > 0.25  # from some rows no way leads there
    assert np.array_equal(held.rows[:, [1, 3]], x[:, [1, 3]])
    few = model.counterfactual(x, max_features=2)
    check(model, x, few)
    assert ((few.change != 0).sum(1) <= 2).all()
    both = found.found & few.found
    assert both.any()
    assert (size(few)[both] >= size(found)[both] * (1 - 1e-6)).mean() > 0.9


def test_a_frame_with_names_in_single_precision(data):
    frame = pd.DataFrame(data.x, columns=["height", "width", "age", "income", "debt"])
    frame.index = [f"client {k}" for k in range(61)]
    y = np.array(["ant", "bee", "cat"])[data.y]
    model = small(geometry="standard", precision="float32").fit(frame, y)
    few = frame.iloc[:4]
    found = model.counterfactual(few, "bee", hold=["age"])
    assert model.predict(found.rows).tolist() == ["bee"] * 4
    assert found.rows.index.tolist() == few.index.tolist()
    assert (found.rows["age"] == few["age"]).all()
    assert found[1] == []
    change = found[0][0]
    assert change["from"] == few[change["feature"]].iloc[0]
    assert change["to"] == found.rows[change["feature"]].iloc[0]
    moved = (change["to"] - change["from"]) / frame[change["feature"]].std(ddof=0)
    assert change["change"] == pytest.approx(moved, rel=1e-6)
    assert f"row client 0: {found.before[0]} → bee with" in str(found)


def test_a_class_that_no_row_gets():
    weights = np.array([[0.1, 0.05, 0.0], [0.4, 0.02, 0.0], [0.4, 0.02, 0.0]])
    model = built([[1, 0], [-1, 0.0]], weights, beta=5.0)
    x = np.array([[1, 0.1], [-1, 0.3]])
    found = model.counterfactual(x)
    assert not found.found.any()
    assert np.array_equal(found.rows, x)
    assert not found.change.any()
    assert "no such change was found" in str(found)


@pytest.fixture(scope="module")
def customers():
    rng = np.random.default_rng(0)
    gone = rng.random(211) < 0.5
    table = pd.DataFrame(
        {
            "plan": np.where(
                rng.random(211) < 0.2 + 0.6 * gone, "basic", rng.choice(["a", "b"], 211)
            ),
            "since": np.datetime64("2020-01-01") + rng.integers(0, 900, 211) + 300 * gone,
            "paid": rng.random(211) < 0.8 - 0.5 * gone,
            "spend": rng.lognormal(3 - gone, 0.5),
        }
    ).mask(rng.random((211, 4)) < 0.1)
    model = small(geometry="standard", varsigma=0.8, max_iter=5)  # fmt: skip
    return model.fit(table, np.where(gone, "left", "stayed")), table[:23]


@pytest.mark.filterwarnings("ignore:categories that training did not have")
@pytest.mark.parametrize("hold", [("since", "spend"), ("plan", "paid")])
def test_tables_of_categories_dates_and_missing_values(customers, hold):
    """Rows stay rows of such a table: categories are switched, whatever is held is as it was."""
    model, rows = customers
    rows = rows.copy()
    rows.loc[[2, 7], "plan"] = "gold"  # never seen
    found = model.counterfactual(rows, hold=hold)
    assert np.array_equal(found.before, model.predict(rows))
    turned = model.predict(found.rows) == found.wanted
    assert found.found.mean() > (0.3 if "since" in hold else 0.7)  # within what training had
    assert turned[found.found].all()
    assert set(found.rows["plan"]) <= {"basic", "a", "b", "gold"}
    assert found.rows.index.equals(rows.index)
    for name in hold:
        known = rows[name].notna()
        assert (found.rows[name][known].astype(str) == rows[name][known].astype(str)).all()
    changed = [{change["feature"] for change in found[k]} for k in range(23)]
    assert set.union(*changed) == set(rows.columns) - set(hold)


def test_a_lazy_frame_is_read(customers):
    model, rows = customers
    rows = rows.dropna().to_dict("list")
    found = model.counterfactual(pl.LazyFrame(rows))
    np.testing.assert_array_equal(found.after, model.counterfactual(pl.DataFrame(rows)).after)


@pytest.mark.parametrize("geometry", ["unit", "whitened"])
def test_counts_stay_counts_within_what_training_had(geometry, tmp_path):
    """All rows of whole numbers are tried: nearly as short as the shortest of them."""
    rng = np.random.default_rng(5)
    y = rng.integers(0, 2, 301)
    x = rng.poisson(np.where(y[:, None] == 1, [3.0, 1.0, 0.4], [1.0, 2.5, 0.4])).clip(0, 6) + 1.0
    model = small(n_memories=9, geometry=geometry, varsigma=0.8, max_iter=None).fit(x, y)
    model.save(tmp_path / "counts.safetensors")  # the file knows the ranges
    model = mn.load(tmp_path / "counts.safetensors")
    low, high = x.min(0), x.max(0)
    rows = x[:40]
    found = model.counterfactual(rows)
    check(model, rows, found)
    assert (found.after == found.after.round()).all()
    assert (found.after >= low).all()
    assert (found.after <= high).all()
    grid = np.stack(np.meshgrid(*(np.arange(a, b + 1) for a, b in zip(low, high, strict=True))), -1)
    grid = grid.reshape(-1, 3)
    classes = model.predict(grid)
    unit = x.std(0) if geometry != "unit" else np.ones(3)
    ratios = []
    for k, row in enumerate(rows):
        hits = grid[classes == found.wanted[k]]
        assert len(hits) == 0 or found.found[k]
        shortest = np.linalg.norm((hits - row) / unit, axis=1).min()
        ratios.append(np.linalg.norm((found.after[k] - row) / unit) / shortest)
    assert np.min(ratios) > 1 - 1e-9
    assert np.median(ratios) < 1.1
    assert np.quantile(ratios, 0.9) < 2.0  # steps are coarse
    free = model.counterfactual(rows, realistic=False)
    assert (size(free) <= size(found) * (1 + 1e-6)).mean() > 0.9
    assert (free.after != free.after.round()).any()


def test_a_missing_count_is_a_count_and_a_row_outside_stays_free():
    rng = np.random.default_rng(7)
    y = rng.integers(0, 2, 211)
    x = np.stack([rng.poisson(1 + 3 * y), rng.normal(y, 1.0)], 1)
    model = mn.DAMClassifier(5, objective="joint", geometry="standard", random_state=0).fit(x, y)
    rows = np.array([[np.nan, 0.3], [40.0, 0.1], [2.5, -0.4]])
    found = model.counterfactual(rows)
    assert found.found.any()
    assert found.given[0, 0] == round(found.given[0, 0])
    assert found.after[1, 0] <= 40.0
    assert (found.after[:2, 0] == found.after[:2, 0].round()).all()


@pytest.mark.slow
def test_a_thousand_rows_of_default_models():
    """At least 95% found; each changes the predicted class."""
    found = []
    for load, n in ((load_iris, 150), (load_wine, 178), (load_breast_cancer, 300),
                    (load_digits, 372)):  # fmt: skip
        x, y = load(return_X_y=True)
        model = mn.DAMClassifier(random_state=0).fit(x, y)
        some = x[np.linspace(0, len(x) - 1, n).astype(int)]
        answer = model.counterfactual(some)
        check(model, some, answer)
        found.append(answer.found)
    found = np.concatenate(found)
    assert len(found) == 1000
    assert found.mean() >= 0.95
