"""Columns of a table as numbers, and numbers as columns."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from mnemosphere.export.files import from_plain, to_plain
from mnemosphere.rows.encoding import Encoding

N = 41


def frame():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "customer_id": np.arange(N)[::-1] * 7 + 3,
            "age": [None, *rng.integers(20, 60, N - 1)],
            "color": rng.choice(["red", "green", "blue"], N),
            "smoker": [None, " yes", *rng.choice(["yes", "no"], N - 2)],
            "active": rng.choice([True, False], N),
            "since": pd.date_range("2024-03-01", periods=N, tz="Europe/Berlin"),
            "seen": [f"2024-01-{k % 28 + 1:02}" for k in range(N)],
            "weight": ["?", *(f"{k / 4}" for k in range(N - 1))],
            "name": [f"person {k}" for k in range(N)],
            "vector": [[k, k + 0.5] for k in range(N)],
            "count": pd.array([None, *range(40, 0, -1)], dtype="Int64"),
            "nothing": np.full(N, np.nan),
        }
    )


@pytest.fixture(scope="module")
def learned():
    return Encoding.fit(frame())


def test_each_column_becomes_what_it_is(learned):
    encoding, notes = learned
    kinds = {column.name: column.kind for column in encoding.columns}
    assert kinds == {
        "customer_id": "left out", "age": "number", "color": "category", "smoker": "category",
        "active": "boolean", "since": "date", "seen": "date", "weight": "numeral",
        "name": "left out", "vector": "list", "count": "number", "nothing": "left out",
    }  # fmt: skip
    assert encoding.names == [
        "age", "color=blue", "color=green", "color=red", "smoker=yes", "active", "since", "seen",
        "weight", "vector[0]", "vector[1]", "count",
    ]  # fmt: skip
    assert [note.split("'")[1] for note in notes] == ["customer_id", "weight", "name", "nothing"]


def test_numbers_are_those_of_the_table(learned):
    encoding, _ = learned
    given = frame()
    x = dict(zip(encoding.names, encoding(given).T, strict=True))
    assert_array_equal(x["age"], given["age"].astype(float))
    one_hot = pd.get_dummies(given["color"]).to_numpy(float)
    assert_array_equal(np.stack([x[f"color={c}"] for c in ("blue", "green", "red")], 1), one_hot)
    assert np.isnan(x["smoker=yes"][0])
    assert x["smoker=yes"][1] == 1.0
    utc = given["since"].dt.tz_convert("UTC").dt.tz_localize(None)
    assert_allclose(x["since"], (utc - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1))
    assert x["seen"][3] == np.datetime64("2024-01-04").astype(int)
    assert np.isnan(x["weight"][0])
    assert x["weight"][5] == 1.0
    assert_array_equal(x["vector[1]"], np.arange(N) + 0.5)


def test_new_and_rare_categories_are_none_of_the_others(learned):
    encoding, _ = learned
    odd = frame().head(3).assign(color=["pink", "red", None], smoker=["maybe", "yes", "no"])
    with pytest.warns(UserWarning, match="'pink' in 'color', 'maybe' in 'smoker'"):
        x = encoding(odd)
    assert_array_equal(x[0, 1:5], [0, 0, 0, 0.5])
    assert np.isnan(x[2, 1:4]).all()
    values = ["a"] * 300 + ["b"] * 299 + ["c"]
    rare, notes = Encoding.fit(pd.DataFrame({"k": values}))
    assert rare.columns[0].categories == ("a", "b")
    assert "1 rare categories count as none of the 2 others: 'c'" in notes[0]
    assert rare(pd.DataFrame({"k": ["c"]}))[0, 0] == 0.5  # and no warning


def test_the_way_back_and_the_model_file(learned):
    encoding, _ = learned
    given = frame().dropna(subset=["age", "smoker", "count"]).query("weight != '?'")
    back = encoding.decode(encoding(given))
    assert back["color"].tolist() == given["color"].tolist()
    assert back["smoker"].tolist() == given["smoker"].str.strip().tolist()
    assert back["active"].tolist() == given["active"].tolist()
    utc = given["since"].dt.tz_convert("UTC").dt.tz_localize(None)
    assert (back["since"].to_numpy() == utc.to_numpy()).all()
    stored = json.loads(json.dumps(to_plain(encoding, {})))
    assert from_plain(stored, {}) == encoding


def test_other_frames_and_plain_ones():
    polars = pl.DataFrame({"a": [1.5, 2.5, None], "b": ["x", "y", None], "c": [[1.0], [2.0], None]})
    encoding, _ = Encoding.fit(polars)
    assert_array_equal(encoding(polars), [[1.5, 0, 1], [2.5, 1, 2], [np.nan, np.nan, np.nan]])
    assert not encoding.is_plain
    assert Encoding.fit(pd.DataFrame(np.eye(3)))[0].is_plain


@pytest.mark.parametrize(
    ("name", "values", "kind"),
    [
        ("id", np.random.default_rng(0).permutation(99), "left out"),
        ("UserId", np.random.default_rng(0).permutation(99), "left out"),
        ("t", np.arange(99) + 5, "left out"),  # it counts the rows
        ("t", np.arange(99) + 5.0, "number"),
        ("fluid", np.random.default_rng(0).permutation(99), "number"),
        ("id", np.arange(99) // 2, "number"),
        ("id", np.arange(7), "number"),  # too few to tell
    ],
)
def test_numbers_that_name_rows(name, values, kind):
    assert Encoding.fit(pd.DataFrame({name: values}))[0].columns[0].kind == kind


def test_a_text_that_never_changes_is_left_out_and_a_lone_frequent_one_is_a_column():
    n = 100
    odd = pd.Series([f"x{k}" for k in range(n)])
    table = pd.DataFrame({
        "lab": "A7", "site": odd.where(np.arange(n) % 4 == 0, "main"),
        "visit": [f"{k % 12 + 1}/{k % 11 + 1}/20{k:02d}" for k in range(n)],
    })  # fmt: skip
    encoding, notes = Encoding.fit(table)
    assert [(c.name, c.kind, c.width) for c in encoding.columns] == [
        ("lab", "left out", 0), ("site", "category", 1), ("visit", "left out", 0),
    ]  # fmt: skip
    assert "'lab' says 'A7' in every row" in notes[0]
    assert "'visit' has 100 different texts in 100 rows, such as '" in notes[2]
    x = encoding(table)
    assert x[:, 0].tolist() == [float(k % 4 != 0) for k in range(n)]
    assert encoding.rewrite(table, x).equals(table)


def written(values):
    """(the column that these texts become, the notes, the numbers)."""
    frame = pd.DataFrame({"v": values})
    encoding, notes = Encoding.fit(frame)
    stored = json.loads(json.dumps(to_plain(encoding, {})))
    assert from_plain(stored, {}) == encoding
    return encoding.columns[0], notes, encoding(frame)[:, 0] if encoding.names else None


@pytest.mark.parametrize(
    ("texts", "numbers", "format"),
    [
        (["100,000", "2,500", "7", None], [100_000, 2500, 7, np.nan], ""),
        (["$3,000", "$12", "-$5.50", "?"], [3000, 12, -5.5, np.nan], ""),
        (["14%", "3.5%", "100%"], [14, 3.5, 100], ""),
        (["5,32", "1.234,5", "-7"], [5.32, 1234.5, -7], "decimal comma"),
        (["1 234,50 €", "3,20 €"], [1234.5, 3.2], "decimal comma"),
    ],
)
def test_numbers_as_people_write_them(texts, numbers, format):
    column, notes, found = written(texts)
    assert (column.kind, column.format) == ("numeral", format)
    assert_array_equal(found, numbers)
    assert len(notes) == 1
    assert f"is read as numbers: {texts[0]!r} as {numbers[0]:g}" in notes[0]


@pytest.mark.parametrize(
    ("texts", "dates", "format"),
    [
        (["03/13/2018", "12/01/2019", None], ["2018-03-13", "2019-12-01", "NaT"], "month first"),
        (["13/03/18", "1/12/71"], ["2018-03-13", "1971-12-01"], "day first"),
        (["01.02.2018", "05.06.2019"], ["2018-02-01", "2019-06-05"], "day first"),
        (["2018/3/13", "2019/11/1"], ["2018-03-13", "2019-11-01"], "year first"),
    ],
)
def test_dates_as_people_write_them(texts, dates, format):
    column, notes, found = written(texts)
    assert (column.kind, column.format) == ("date", format)
    days = np.array(dates, dtype="datetime64[D]")
    assert_array_equal(found, np.where(np.isnat(days), np.nan, days.astype(float)))
    assert f"read as dates, {format}, such as {texts[0]!r}" in notes[0]


@pytest.mark.parametrize(
    "texts",
    [
        [f"{k % 11 + 1}/{k % 12 + 1}/2018" for k in range(N)],  # ambiguous: day or month first
        [*map(str, range(N)), "12x"],
        [f"1.{k:03d},5" for k in range(N)] + ["1,234.5"],
    ],
)
def test_what_cannot_be_read_is_no_number(texts):
    assert written(texts)[0].kind in ("category", "left out")


def test_currencies_and_shares_that_differ_stay_categories():
    for texts in (["$5", "€6", "€7"] * 9, ["14%", "0.2", "0.3"] * 9):
        assert written(texts)[0].kind == "category"
