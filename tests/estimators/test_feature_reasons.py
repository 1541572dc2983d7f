"""What each column does: the odds if the row were typical of the other class there."""

import warnings

import numpy as np
import pandas as pd
import pytest

import mnemosphere as mn
from frames import clients
from mnemosphere.fitted.pulls import values_of_columns
from quick_models import small


def log_odds(model, row, pair):
    said = model.predict_log_proba(row)[0][pair]
    return said[0] - said[1]


def some_clients():
    """Rows of which every column is known in 64: each of its values is taken, or every second."""
    x, y = clients()
    return (full := x.dropna())[:64], y[full.index][:64], x


@pytest.fixture(scope="module", params=["unit", "center", "standard", "whitened", "circles"])
def explained(request):
    """A model, what is typical of its memories, their labels, rows and their explanation."""
    known, y, x = some_clients()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows that have no direction
        model = small(n_memories=2, geometry=request.param, objective="conditional")
        model.fit(known, y)
    typical = mn.interpret.decode(model.model_, model.model_.typical_values)
    label = model.memory_table()["label"]
    return model, typical, label, x[:11], model.explain(x[:11]), known


def test_pulls_are_what_the_row_would_lose_with_an_average_effect_of_the_column(explained):
    """On every geometry and with gaps; by the definition, with all values that occur."""
    model, _, _, x, found, known = explained
    for row in range(0, 11, 2):
        pair, given = np.argsort(-found.proba[row]), x[row : row + 1].astype(object)
        odds, pulls = log_odds(model, given, pair), found.pulls(row)
        assert {each.column for each in pulls} == {*x.columns}
        for each in pulls:
            changed = pd.concat([given] * len(known))
            changed[each.column] = known[each.column].to_numpy()
            said = model.predict_log_proba(changed)[:, pair]
            effect = np.sort(said[:, 0] - said[:, 1])
            # Values are ranked, and one of two neighbors is taken.
            low, high = (odds - effect[k::2].mean() for k in (1, 0))
            slack = 1e-6 + (0.0 if each.column == "plan" else 0.05 * np.ptp(effect))
            assert low - slack <= each.pull <= high + slack
        size = [abs(each.pull) for each in pulls]
        assert size == sorted(size, reverse=True)


def test_what_is_missing_is_shown_and_pulls(explained):
    _, _, _, x, found, _ = explained
    row = int(np.flatnonzero(x["income"].isna())[0])
    pull = next(own for own in found.pulls(row) if own.column == "income")
    assert pull.value == "missing"
    assert pull.pull != 0


def test_what_is_typical_of_a_class_is_what_its_memories_that_answer_have(data, fresh):
    """The weighted median over the memories of the class, by their shares in the vote."""
    names = ["height", "width", "age", "income", "debt"]
    x = pd.DataFrame(data.x, columns=names)
    model = small(n_memories=11, geometry="standard", varsigma=0.5).fit(x, data.y)
    rows = pd.DataFrame(fresh.x, columns=names)
    found, values = model.explain(rows), model.model_.typical_values
    share, soft = model.transform(rows), model.class_weights_[1:, :-1]
    soft = soft / soft.sum(1, keepdims=True)
    for row in range(0, 47, 7):
        for each in found.pulls(row):
            column = names.index(each.column)
            for text, own in ((each.predicted, found.predicted), (each.runner_up, found.runner_up)):
                mine = soft.argmax(1) == own[row]
                weight, value = share[row] * soft[:, own[row]] * mine, values[:, column]
                order = np.argsort(value)
                mass = weight[order].cumsum()
                near = value[order][np.searchsorted(mass, mass[-1] * np.array([0.4, 0.6]))]
                assert near[0] - 1e-3 <= float(text) <= near[1] + 1e-3


def test_the_printed_explanation():
    x, y = clients()
    model = small(n_memories=2, geometry="standard").fit(x, y)
    found = model.explain(x[:5])
    for row in range(5):
        lines = found.column_table(row)
        pulls = {own.column: own for own in found.pulls(row)}
        largest = max(abs(own.pull) for own in pulls.values())
        shown = [line for line in lines if line["column"].startswith("  ")]
        for line in shown:
            own = pulls[line["column"].strip()]
            assert float(line["pull"]) == pytest.approx(own.pull, abs=0.0051)
            assert line["this row"] == own.value
            assert abs(own.pull) >= 0.1 * largest
        heads = [line["column"] for line in lines]
        assert heads[0] == f"for {found.predicted[row]}" or shown[0]["pull"][0] == "-"
        together = values_of_columns(model.model_)
        pair = [[*model.classes_].index(c) for c in (found.predicted[row], found.runner_up[row])]
        every = model.predict_log_proba(mn.interpret.decode(model.model_, together))[:, pair]
        wanted = log_odds(model, x[row : row + 1], pair) - (every[:, 0] - every[:, 1]).mean()
        assert lines[-1]["column"] == "all 4 together"
        assert float(lines[-1]["pull"]) == pytest.approx(wanted, abs=0.006)
        assert str(x.index[row]) in found.title(row)


def test_columns_that_would_do_alone_put_the_runner_up_ahead(explained):
    model, typical, label, x, found, _ = explained
    n_named = 0
    for row in range(11):
        other = typical[(label == found.runner_up[row]).to_numpy()].iloc[0]
        told, turns = found.turning(row), set()
        for name in x.columns:
            changed = x[row : row + 1].astype(object).copy()
            changed[name] = other[name]
            if model.predict(changed)[0] == found.runner_up[row]:
                turns.add(name)
        assert told in str(found)
        assert all(name in told for name in turns) or len(turns) > 3
        assert told.startswith("No column alone") == (not turns)
        assert len(turns) > 3 or not any(f" {n}" in told for n in {*x.columns} - turns)
        n_named += bool(turns)
    assert n_named > 0


def test_wide_rows_have_pulls_of_the_columns_furthest_from_typical():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = rng.normal(size=(60, 701))
    x[:, 7] += 6 * y
    frame = pd.DataFrame(x, columns=[f"gene {k}" for k in range(701)])
    model = small(n_memories=2, geometry="standard").fit(frame, y)
    found = model.explain(frame[:3])
    pulled = {own.column for own in found.pulls(0) if own.pull != 0}
    assert "gene 7" in pulled
    assert len(pulled) == 500
    assert found.column_table(0)[-1]["column"] == "all 701 together"


def test_categories_are_one_feature_and_a_metric_is_part_of_the_weights(data):
    """The strongest features of a memory are those of the largest weight in overlaps with it."""
    frame = pd.DataFrame(data.x, columns=["height", "width", "age", "income", "debt"])
    frame["plan"] = np.array(["basic", "plus", "pro"])[np.digitize(data.x[:, 0], [-0.5, 0.5])]
    model = small(geometry="whitened", varsigma=0.6).fit(frame, data.y)
    names = model.model_.columns.number_names
    assert len(names) == 8  # three numbers for the category
    pulls = {own.column: own for own in model.explain(frame.iloc[:2]).pulls(1)}
    assert set(pulls) == {*frame.columns}
    assert pulls["plan"].value == frame["plan"][1]
    weight = model.model_.votes.w.numpy() @ model.model_.geometry.metric.numpy()
    plan = np.linalg.norm(weight[:, 5:8], axis=1)
    best = np.column_stack([np.abs(weight[:, :5]), plan]).argmax(1)
    table = model.memory_table()
    assert [line[0] for line in table["features"]] == frame.columns[best[table.index]].tolist()
