"""What memories stand for are values of rows: they occur, stay in range, and whole numbers are whole."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits, load_iris

import mnemosphere as mn
from frames import clients
from quick_models import small


def table(load, step=3):
    found = load(as_frame=True)
    return found.data[::step], found.target[::step]


TABLES = {
    "iris": lambda: table(load_iris),
    "digits": lambda: table(load_digits, 9),
    "clients": clients,
}


@cache
def conditional(name, geometry):
    """A table and a model of it."""
    x, y = TABLES[name]()
    return x, small(geometry=geometry, objective="conditional").fit(x, y).model_


@pytest.mark.filterwarnings("ignore:.* have no direction")
@pytest.mark.parametrize("geometry", ["unit", "center", "standard", "whitened", "circles"])
@pytest.mark.parametrize("name", TABLES)
def test_every_typical_value_occurs_in_its_column(name, geometry):
    x, model = conditional(name, geometry)
    rows = model.stored(x).values.numpy()
    for place in [line.place for line in model.columns.user_columns]:
        found = model.typical_values[:, place]
        known = found[~np.isnan(found).any(1)]  # a memory may stand for rows that have none there
        assert len(known) > 2
        assert {tuple(row) for row in known} <= {tuple(row) for row in rows[:, place]}


@pytest.mark.parametrize("name", TABLES)
def test_medians_of_the_rows_with_their_largest_share_in_a_memory(name):
    x, y = TABLES[name]()
    model = small(geometry="standard").fit(x, y)
    share, rows = model.transform(x), model.model_.stored(x).values.numpy()
    for m in np.unique(share.argmax(1)):
        own = rows[share.argmax(1) == m]
        for line in model.model_.columns.user_columns:
            found = model.model_.typical_values[m, line.place]
            if len(line.column.categories) > 2:
                counts = pd.Series(map(line.written, own)).value_counts()
                shown = line.written(model.model_.typical_values[m])
                assert counts[shown] == counts.drop("missing", errors="ignore").max()
            elif np.isnan(own[:, line.place.start]).mean() > 0.5:
                assert np.isnan(found)
            else:
                middle = pd.Series(own[:, line.place.start]).quantile(0.5, interpolation="lower")
                assert found == middle


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("geometry", ["standard", "circles"])
def test_memories_without_rows_stay_in_the_range_of_the_columns(name, geometry):
    x, model = conditional(name, geometry)
    far = model.replace(votes=model.votes.replace(w=-model.votes.w), exemplars=None)
    rows = model.stored(x).values
    low, high = (getattr(np, f)(rows.numpy(), axis=0) for f in ("nanmin", "nanmax"))
    for edited in (model.replace(exemplars=None), far):
        values = edited.typical_values
        assert (values >= low).all()
        assert (values <= high).all()
        whole = ((rows == rows.round()) | rows.isnan()).all(0).numpy()
        assert (values[:, whole] == values[:, whole].round()).all()
        for place in model.columns.categories:
            assert (values[:, place].sum(1) == 1).all()


def test_what_most_rows_of_a_class_lack_is_missing():
    """By hand: b is missing in all rows of class 1, and the link in all but one of class 0."""
    rng, n = np.random.default_rng(0), 60
    y = np.arange(n) % 2
    x = pd.DataFrame(
        {"a": rng.normal(size=n) + y, "b": np.where(y == 0, rng.normal(size=n), np.nan)}
    )
    x["link"] = np.where(y == 1, np.where(np.arange(n) % 4 == 1, "u", "v"), None)
    x.loc[2, "link"] = "u"
    model = small(geometry="standard").fit(x, y).model_
    own = model.votes.labels[1:, :-1].argmax(1).numpy()
    shown = [
        [line.written(row) for line in model.columns.user_columns] for row in model.typical_values
    ]
    assert {told[2] for told, k in zip(shown, own, strict=True) if k == 0} == {"missing"}
    assert {told[1] for told, k in zip(shown, own, strict=True) if k == 1} == {"missing"}
    assert "missing" not in {told[1] for told, k in zip(shown, own, strict=True) if k == 0}
    told = {pull.column: pull for pull in mn.interpret.explain(model, x[1:2]).pulls(0)}
    assert told["b"].predicted == "missing"


def test_a_memory_that_no_row_has_most_of_stands_for_its_typical_rows():
    x, y = table(load_iris)
    model = small(geometry="standard").fit(x, y).model_
    # A copy of a memory with less weight has less of every row.
    p = torch.cat([model.votes.p, model.votes.p[1:2] * 0.9])
    votes = model.votes.replace(w=torch.cat([model.votes.w, model.votes.w[:1]]), p=p)
    found = mn.fitted.exemplars.find_exemplars(
        votes, model.geometry, model.stored(x), columns=model.columns
    )
    rows = x.to_numpy()[found.typical[7]]
    assert (found.values[7] == np.sort(rows, axis=0)[1]).all()
