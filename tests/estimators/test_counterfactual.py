"""A change of few columns that changes the class: verified by `predict`, by values that rows have."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

import mnemosphere as mn
from mnemosphere.fitted.pulls import typical_of_classes
from quick_models import built, small


def check(model, x, found):
    """Each change that was found changes the predicted class, and rows are what their changes say."""
    assert (model.predict(found.rows)[found.found] == found.wanted[found.found]).all()
    assert np.array_equal(found.before, model.predict(x))
    moved = ~((found.after == found.given) | np.isnan(found.after) & np.isnan(found.given))
    assert moved.any(1).tolist() == [len(found[k]) > 0 for k in range(len(found))]


def test_every_normalization_and_what_is_fixed(read, fresh):
    model, x = read.model, fresh.x[:19]
    found = model.counterfactual(x)
    check(model, x, found)
    assert found.found.mean() > 0.95
    proba = model.predict_proba(x)
    assert np.array_equal(found.wanted, np.argsort(proba, axis=1)[:, -2])
    other = (model.predict(x) + 1) % 3
    held = model.counterfactual(x, other, fixed=[1, 3])
    check(model, x, held)
    assert np.array_equal(held.rows[:, [1, 3]], x[:, [1, 3]])
    few = model.counterfactual(x, max_features=2)
    check(model, x, few)
    assert max(len(few[k]) for k in range(19)) <= 2


@pytest.fixture(scope="module")
def wines():
    """A table, a model of every other row of it, others of its rows and changes of those."""
    frame, y = load_wine(return_X_y=True, as_frame=True)
    model = small(n_memories=12, geometry="standard", objective="conditional")
    model.fit(frame[::2], y[::2])
    rows = frame[1::8]
    return frame, model, rows, model.counterfactual(rows)


def test_values_are_those_of_training_rows_in_few_columns(wines):
    frame, model, rows, found = wines
    check(model, rows, found)
    assert found.found.all()
    assert np.median([len(changes) for changes in found.changes]) <= 3
    for k in range(len(rows)):
        names = [change.column for change in found[k]]
        rest = [name for name in frame if name not in names]
        assert (found.rows[rest].iloc[k] == rows[rest].iloc[k]).all()
        for change in found[k]:
            assert change.before == rows[change.column].iloc[k]
            assert change.after in frame[change.column][::2].to_numpy()
            assert change.after == found.rows[change.column].iloc[k]


def test_no_column_is_changed_in_vain_and_probabilities_are_those_of_predict_proba(wines):
    _, model, rows, found = wines
    for k in range(0, len(rows), 3):
        column = model.classes_.tolist().index(found.wanted[k])
        row = rows.iloc[[k]].copy()
        for change in found[k]:
            assert model.predict(row)[0] != found.wanted[k]  # those before it do not do
            row[change.column] = change.after
            proba = model.predict_proba(row)[0, column]
            assert change.probability == pytest.approx(proba, abs=1e-9)
        for change in found[k][:-1]:
            without = found.rows.iloc[[k]].copy()
            without[change.column] = change.before
            assert model.predict(without)[0] != found.wanted[k]


def test_one_column_is_found_wherever_its_typical_value_does(wines):
    """All columns are tried, one at a time."""
    _, model, rows, _ = wines
    fitted = model.model_
    order = np.argsort(-model.predict_proba(rows), axis=1, kind="stable")
    typical = typical_of_classes(fitted, fitted.stored(rows), order[:, 1:2])[:, 0]
    found = model.counterfactual(rows, max_features=1)
    assert 0 < found.found.mean() < 1
    for k in range(len(rows)):
        changed = np.tile(rows.iloc[k].to_numpy(float), (13, 1))
        np.fill_diagonal(changed, typical[k])
        wanted = model.classes_[order[k, 1]]
        reached = model.predict(pd.DataFrame(changed, columns=rows.columns)) == wanted
        assert found.found[k] or not reached.any()


def test_columns_move_only_where_they_may(wines):
    _, model, rows, _ = wines
    some = ["proline", "alcohol", "color_intensity"]
    for argument, sign in (("only_rise", 1), ("only_fall", -1)):
        found = model.counterfactual(rows, **{argument: some})
        check(model, rows, found)
        assert (sign * (found.rows[some] - rows[some]).to_numpy() >= 0).all()
        assert found.found.mean() > 0.5
    both = model.counterfactual(rows, only_rise=some, only_fall=some)
    held = model.counterfactual(rows, fixed=some)
    np.testing.assert_array_equal(both.after, held.after)


def test_a_frame_with_names_in_single_precision(data):
    frame = pd.DataFrame(data.x, columns=["height", "width", "age", "income", "debt"])
    frame.index = [f"client {k}" for k in range(61)]
    y = np.array(["ant", "bee", "cat"])[data.y]
    model = small(geometry="standard", precision="float32").fit(frame, y)
    few = frame.iloc[:4]
    found = model.counterfactual(few, "bee", fixed=["age"])
    assert model.predict(found.rows).tolist() == ["bee"] * 4
    assert found.rows.index.tolist() == few.index.tolist()
    assert (found.rows["age"] == few["age"]).all()
    assert found[1] == []
    assert f"row client 0: {found.before[0]} → bee, " in str(found)


def test_a_class_that_no_row_gets():
    weights = np.array([[0.1, 0.05, 0.0], [0.4, 0.02, 0.0], [0.4, 0.02, 0.0]])
    model = built([[1, 0], [-1, 0.0]], weights, beta=5.0)
    x = np.array([[1, 0.1], [-1, 0.3]])
    found = model.counterfactual(x)
    assert not found.found.any()
    assert np.array_equal(found.rows, x)
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
@pytest.mark.parametrize("fixed", [("since", "spend"), ("plan", "paid")])
def test_tables_of_categories_dates_and_missing_values(customers, fixed):
    """Rows stay rows of such a table: categories are switched, whatever is fixed is as it was."""
    model, rows = customers
    rows = rows.copy()
    rows.loc[[2, 7], "plan"] = "gold"  # never seen
    found = model.counterfactual(rows, fixed=fixed)
    assert np.array_equal(found.before, model.predict(rows))
    turned = model.predict(found.rows) == found.wanted
    assert found.found.mean() > 0.5
    assert turned[found.found].all()
    assert set(found.rows["plan"].dropna()) <= {"basic", "a", "b", "gold"}
    assert found.rows.index.equals(rows.index)
    for name in fixed:
        pd.testing.assert_series_equal(found.rows[name], rows[name], check_dtype=False)
    changed = {change.column for k in range(23) for change in found[k]}
    assert changed == set(rows.columns) - set(fixed)
    with pytest.raises(ValueError, match="only_rise names 'plan', which is a category"):
        model.counterfactual(rows, only_rise=["plan"])


def test_rows_without_units_stay_in_the_range_of_their_columns():
    """Pixels: memories of directions have no units, and point beyond the rows."""
    x, y = load_digits(return_X_y=True)
    for geometry in ("unit", "center"):
        model = small(n_memories=20, geometry=geometry, objective="conditional").fit(x[::5], y[::5])
        found = model.counterfactual(x[1:40:6])
        check(model, x[1:40:6], found)
        assert found.found.mean() > 0.9
        assert ((found.after >= x.min(0)) & (found.after <= x.max(0))).all()
        assert (found.after == found.after.round()).all()


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


def test_a_probability_is_reached_by_changes_that_go_further():
    x, y = load_wine(return_X_y=True)
    model = mn.DAMClassifier(3, geometry="standard", random_state=0).fit(x[::2], y[::2])
    for probability in (0.5, 0.8, 0.95):
        found = model.counterfactual(x[1:20:2], 1, probability=probability)
        assert found.found.sum() >= 8
        reached = model.predict_proba(found.rows)[found.found, 1]
        assert (reached >= probability - 1e-9).all()
        assert (model.predict(found.rows)[found.found] == 1).all()
    with pytest.raises(ValueError, match="probability must lie between 0 and 1, got 1"):
        model.counterfactual(x[:1], probability=1)


def test_the_result_says_how_familiar_it_is():
    x, y = load_wine(return_X_y=True)
    model = mn.DAMClassifier(3, geometry="standard", random_state=0).fit(x[::2], y[::2])
    found = model.counterfactual(x[1:20:2], 1)
    np.testing.assert_allclose(found.further_out, model.explain(found.rows).further_out)
    assert any("known rows" in found.title(row) for row in range(len(found)))
