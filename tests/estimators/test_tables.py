"""Frames of every kind of column, and missing values, through the estimators."""

import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

import mnemosphere as mn
import quick_models
from mnemosphere.geometry.base import on_sphere
from mnemosphere.model.gaps import overlaps
from mnemosphere.rows.columns import Columns

pytestmark = pytest.mark.usefixtures("quick_choice")

N = 83


def small(**settings):
    return quick_models.small(**{"geometry": "standard", "max_iter": 5} | settings)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(1)
    y = rng.choice(["stay", "leave"], N)
    gone, other = (y == "leave").astype(float), ["plus", "pro"]
    frame = pd.DataFrame(
        {
            "age": rng.normal(40 - 8 * gone, 6).round(),
            "plan": np.where(rng.random(N) < 0.2 + 0.6 * gone, "basic", rng.choice(other, N)),
            "active": rng.random(N) < 0.9 - 0.7 * gone,
            "since": pd.Timestamp("2021-01-01")
            + pd.to_timedelta(rng.integers(0, 900, N), unit="D"),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.15), y


@pytest.fixture(scope="module")
def model(table):
    return small().fit(*table)


def test_a_table_with_categories_dates_and_missing_values(table, model):
    frame, y = table
    assert list(model.feature_names_in_) == ["age", "plan", "active", "since"]
    assert model.n_features_in_ == 4
    assert model.memories_.shape == (7, 6)
    assert model.score(frame, y) > 0.8
    assert {own.column for own in model.explain(frame[:3]).pulls(0)} == {*frame.columns}
    numbers = mn.interpret.encode(model.model_, frame)
    assert list(numbers) == ["age", "plan=basic", "plan=plus", "plan=pro", "active", "since"]
    assert_array_equal(model.predict_proba(numbers), model.predict_proba(frame))
    read = mn.interpret.decode(model.model_, model.memories_)
    assert list(read) == list(frame)
    assert set(read["plan"]) <= {"basic", "plus", "pro"}
    with pytest.warns(UserWarning, match="'gold' in 'plan'"):
        model.predict(frame[:2].assign(plan="gold"))


@pytest.mark.parametrize("geometry", ["standard", "circles"])
def test_truth_values_and_dates_are_written_as_such(table, geometry):
    frame, y = table
    model = small(geometry=geometry).fit(frame, y)
    active = next(own for own in model.explain(frame[:3]).pulls(1) if own.column == "active")
    assert {*active[1:4]} <= {"True", "False", "missing"}
    pulls = [own for row in range(3) for own in model.explain(frame[:3]).pulls(row)]
    days = [day for own in pulls if own.column == "since" for day in own[2:4]]
    assert days
    assert all(pd.Timestamp(day).year > 2020 for day in days)


def test_methods_that_return_rows_take_encoded_ones(table, model):
    frame, _ = table
    numbers = mn.interpret.encode(model.model_, frame[:5])
    recalled = model.recall(numbers)
    assert list(recalled) == list(numbers)
    known = numbers.notna().to_numpy()
    assert_array_equal(recalled.to_numpy()[known], numbers.to_numpy()[known])
    plain = mn.interpret.decode(model.model_, recalled)["plan"]
    assert_array_equal(plain, model.recall(frame[:5])["plan"])
    changed = model.counterfactual(numbers)
    assert list(changed.rows) == list(numbers)
    assert_array_equal(changed.after, model.counterfactual(frame[:5]).after)


def test_equal_rows_with_missing_values_count_as_weights(table):
    frame, y = table
    twice = small().fit(pd.concat([frame, frame[:9]]), np.r_[y, y[:9]])
    weight = np.where(np.arange(N) < 9, 2.0, 1.0)
    weighted = small().fit(frame, y, sample_weight=weight)
    assert_allclose(twice.memories_, weighted.memories_, rtol=1e-9)


LABELS = {
    "lone": (
        ["setosa"] * 50 + ["virginica"] * 50 + ["virginca"],
        "'virginca' has 1% of the rows or",
    ),
    "rare": (["ok"] * 300 + ["fraud"] * 2, "'fraud' has 1% of .*rarest 2 of 302.*balanced"),
    "one": (["ok"] * 40, "y says 'ok' in every row"),
    "unlabeled": (
        [0, 1, -1] * 20,
        "the label -1 counts as a class: if it marks missing labels, pass unlabeled=-1",
    ),
    "measured": (np.arange(70) * 3, "70 different numbers in 70 rows and looks like a measurement"),
}


@pytest.mark.parametrize("name", LABELS)
@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_remarks_on_labels(name):
    y, told = LABELS[name]
    with pytest.warns(UserWarning, match=told):
        small().fit(np.random.default_rng(0).normal(size=(len(y), 3)), y)


def test_many_classes_of_one_size_are_no_imbalance_and_learn_the_weights_of_memories():
    """With many classes weights are learned after batches too: holding them costs C² and more."""
    y = np.arange(2100) % 70
    x = np.random.default_rng(0).normal(size=(70, 7))[y]
    x += 0.1 * np.random.default_rng(1).normal(size=x.shape)
    model = mn.DAMClassifier(
        140, objective="joint", varsigma=0.5, geometry="unit", max_iter=2, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(x, y)
    assert np.ptp(model.memory_prior_[1:]) > 1e-3 * model.memory_prior_[1:].mean()
    assert_allclose(model.class_prior_[:-1], 1 / 70, rtol=0.02)
    assert model.score(x, y) > 0.95


@pytest.mark.filterwarnings("ignore:y has")
@pytest.mark.filterwarnings("ignore:The number of unique classes")
def test_hundreds_of_classes_have_to_be_asked_for():
    x, y = np.random.default_rng(0).normal(size=(1809, 3)), np.arange(1809)
    for each in (2, 9):
        told = rf"201 classes of {each}.0 rows each.*n_memories=402 to go on"
        with pytest.raises(ValueError, match=told):
            mn.DAMClassifier(objective="joint").fit(x[: 201 * each], y[: 201 * each] // each)


@pytest.mark.parametrize("folds", [False, True])
def test_a_warning_of_each_fit_names_the_line_of_the_caller(table, folds):
    frame, y = table
    frame = frame.assign(country="US")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if folds:
            cross_val_score(small(), frame, y, cv=4)
        else:
            small().fit(frame, y)
    assert [warning.filename for warning in caught] == [__file__] * (4 if folds else 1)
    assert "column 'country' says 'US' in every row" in str(caught[0].message)


def test_a_cell_of_a_book_is_shown_in_a_line(table):
    frame, _ = table
    book = frame.assign(plan=frame["plan"].where(np.arange(N) != 5, "word " * 40_000))
    with pytest.warns(UserWarning, match="count as none of those it had: 'word") as caught:
        small().fit(*table).predict(book)
    assert len(str(caught[0].message)) < 200


def test_two_columns_of_one_name():
    frame = pd.DataFrame(np.eye(4), columns=["a", "b", "a", "c"])
    with pytest.raises(ValueError, match="more than one column called 'a': rename them"):
        small().fit(frame, [0, 1, 0, 1])


@pytest.fixture(scope="module")
def countries():
    """Two numbers and a country, most of whose levels have a handful of rows."""
    rng = np.random.default_rng(0)
    n = 600
    level, effect = rng.integers(0, 120, n), rng.normal(0, 2.5, 120)
    x = rng.normal(size=n)
    military = rng.random(n) < 1 / (1 + np.exp(-effect[level] - x))
    frame = pd.DataFrame({
        "country": pd.Categorical([f"land {k}" for k in level]), "x": x, "z": rng.normal(size=n),
    })  # fmt: skip
    return frame, np.where(military, "military", "civil")


@pytest.fixture(scope="module")
def governed(countries):
    frame, y = countries
    return small(min_frequency=0.02).fit(frame[:400], y[:400])


def test_levels_too_rare_for_indicators_count(countries, governed):
    frame, y = countries
    plain = small().fit(frame[["x", "z"]][:400], y[:400])
    assert (
        governed.score(frame[400:], y[400:]) > plain.score(frame[["x", "z"]][400:], y[400:]) + 0.05
    )
    numbers = list(mn.interpret.encode(governed.model_, frame))
    frequent = frame["country"][:400].value_counts()
    assert numbers[:-3] == [f"country={land}" for land in sorted(frequent.index[frequent >= 8])]
    assert numbers[-3:] == ["country: military", "x", "z"]


def test_a_category_of_many_levels_is_one_line(countries, governed):
    frame, y = countries
    pulls = {own.column: own for own in governed.explain(frame[400:402]).pulls(0)}
    assert set(pulls) == {"country", "x", "z"}
    level = frame["country"][400]
    own = (frame["country"][:400] == level).to_numpy()
    classes, counts = np.unique(y[:400][own], return_counts=True)
    most = counts.argmax()
    assert pulls["country"].value == f"{level} ({counts[most]} of {own.sum()} {classes[most]})"
    with np.errstate(all="ignore"):
        other = governed.counterfactual(frame[400:410])
    names = {change.column for row in range(10) for change in other[row]}
    assert names <= {"country", "x", "z"}
    assert set(other.rows["country"]) <= set(frame["country"])
    assert_array_equal(governed.predict(other.rows[other.found]), other.wanted[other.found])


def test_the_choice_expects_of_many_levels_what_fresh_rows_say(countries):
    frame, y = countries
    model = quick_models.small(n_memories=4, max_iter=5, search="auto").fit(frame[:400], y[:400])
    chosen = next(trial for trial in model.search_ if trial["chosen"])
    place = (y[400:, None] == model.classes_).argmax(1)
    loss = -np.log(model.predict_proba(frame[400:])[np.arange(200), place])
    assert chosen["log_loss"] > loss.mean() - 2 * loss.std() / 200**0.5


def test_digits_in_texts_are_numbers_with_a_note_or_categories():
    rng = np.random.default_rng(0)
    code = rng.choice(["11", "12", "13", "21"], N)
    frame = pd.DataFrame({"code": code, "x": rng.normal(size=N)})
    y = np.isin(code, ["12", "21"])
    with pytest.warns(
        UserWarning, match="'code' holds texts that are read as numbers.*categories="
    ):
        Columns.learn(frame)
    model = small(categories=["code"]).fit(frame, y)
    assert list(mn.interpret.encode(model.model_, frame))[:4] == [
        "code=11", "code=12", "code=13", "code=21",
    ]  # fmt: skip
    as_numbers = frame.assign(code=frame["code"].astype(float))
    assert_array_equal(model.predict_proba(as_numbers), model.predict_proba(frame))
    with pytest.raises(ValueError, match="categories names 'kode', which X does not have"):
        small(categories=["kode"]).fit(frame, y)


def test_missing_values_are_averaged_over_not_guessed(table, model):
    """predict_proba from shares of memories that know only the known features."""
    frame, _ = table
    rows = model.model_.stored(frame)
    x, lost = on_sphere(rows, model.model_.geometry, torch.float64)
    assert not lost.any()
    assert x.isnan().any(1).sum() > 20
    votes = model.model_.votes
    h = votes.slope * overlaps(votes, x) - votes.offset
    share = (torch.cat([h.new_zeros(N, 1), h], 1) + votes.weights.log()).softmax(1)
    proba = share @ votes.labels[:, :-1]
    proba = proba / proba.sum(1, keepdim=True)
    np.testing.assert_allclose(model.predict_proba(frame), proba.numpy(), rtol=1e-9)


def test_flipped_labels_do_not_hide_behind_their_level(countries):
    """A level of three rows tells the label of each if a row sees its own."""
    frame, y = countries
    flipped = y[:400].copy()
    flipped[:8] = np.where(y[:8] == "civil", "military", "civil")
    model = small(min_frequency=0.02).fit(frame[:400], flipped)
    seen, held = model.predict_proba(frame[:400]), model.label_issues(frame[:400], flipped)
    place = (flipped[:, None] == model.classes_).argmax(1)
    own = seen[np.arange(400), place]
    assert held.scores[~np.isnan(held.scores)].mean() < own.mean()
    fresh = model.predict_proba(frame[400:])[
        np.arange(200), (y[400:, None] == model.classes_).argmax(1)
    ]
    assert abs(np.log(held.scores).mean() - np.log(fresh).mean()) < 0.12
