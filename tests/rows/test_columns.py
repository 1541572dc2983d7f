"""Columns of a table as numbers, and numbers as columns."""

import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import mnemosphere as mn
from mnemosphere.export.files import from_plain, to_plain
from mnemosphere.rows.columns import Columns
from mnemosphere.rows.containers import unwrap_container

N = 41


def learn(table, **how):
    """(the columns, the remarks on them)."""
    return Columns.of_frame(unwrap_container(table), **how)


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
    return learn(frame())


def test_each_column_becomes_what_it_is(learned):
    columns, notes = learned
    kinds = {column.name: column.kind for column in columns.each}
    assert kinds == {
        "customer_id": "left out", "age": "number", "color": "category", "smoker": "category",
        "active": "boolean", "since": "date", "seen": "date", "weight": "numeral",
        "name": "left out", "vector": "list", "count": "number", "nothing": "left out",
    }  # fmt: skip
    assert columns.number_names == [
        "age", "color=blue", "color=green", "color=red", "smoker=yes", "active", "since", "seen",
        "weight", "vector[0]", "vector[1]", "count",
    ]  # fmt: skip
    assert [note.split("'")[1] for note in notes] == ["customer_id", "weight", "name", "nothing"]


def test_numbers_are_those_of_the_table(learned):
    columns, _ = learned
    given = frame()
    x = dict(zip(columns.number_names, columns.numbers(given).T, strict=True))
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
    columns, _ = learned
    odd = frame().head(3).assign(color=["pink", "red", None], smoker=["maybe", "yes", "no"])
    with pytest.warns(UserWarning, match="'pink' in 'color', 'maybe' in 'smoker'"):
        x = columns.numbers(odd)
    assert_array_equal(x[0, 1:5], [0, 0, 0, 0.5])
    assert np.isnan(x[2, 1:4]).all()
    values = ["a"] * 300 + ["b"] * 299 + ["c"]
    rare, notes = learn(pd.DataFrame({"k": values}))
    assert rare.each[0].categories == ("a", "b")
    assert "1 rare categories count as none of the 2 others: 'c'" in notes[0]
    assert rare.numbers(pd.DataFrame({"k": ["c"]}))[0, 0] == 0.5  # and no warning


def test_the_way_back_and_the_model_file(learned):
    columns, _ = learned
    given = frame().dropna(subset=["age", "smoker", "count"]).query("weight != '?'")
    back = columns.decode(columns.numbers(given))
    assert back["color"].tolist() == given["color"].tolist()
    assert back["smoker"].tolist() == given["smoker"].str.strip().tolist()
    assert back["active"].tolist() == given["active"].tolist()
    utc = given["since"].dt.tz_convert("UTC").dt.tz_localize(None)
    assert (back["since"].to_numpy() == utc.to_numpy()).all()
    stored = json.loads(json.dumps(to_plain(columns, {})))
    assert from_plain(stored, {}) == columns


def test_other_frames_and_plain_ones():
    polars = pl.DataFrame({"a": [1.5, 2.5, None], "b": ["x", "y", None], "c": [[1.0], [2.0], None]})
    columns, _ = learn(polars)
    assert_array_equal(
        columns.numbers(polars), [[1.5, 0, 1], [2.5, 1, 2], [np.nan, np.nan, np.nan]]
    )
    assert Columns.learn(pd.DataFrame(np.eye(3)))[0].each == ()


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
    assert learn(pd.DataFrame({name: values}))[0].each[0].kind == kind


def test_a_text_that_never_changes_is_left_out_and_a_lone_frequent_one_is_a_column():
    n = 100
    odd = pd.Series([f"x{k}" for k in range(n)])
    table = pd.DataFrame({
        "lab": "A7", "site": odd.where(np.arange(n) % 4 == 0, "main"),
        "visit": [f"{k % 12 + 1}/{k % 11 + 1}/20{k:02d}" for k in range(n)],
    })  # fmt: skip
    columns, notes = learn(table)
    assert [(c.name, c.kind, c.width) for c in columns.each] == [
        ("lab", "left out", 0), ("site", "category", 1), ("visit", "left out", 0),
    ]  # fmt: skip
    assert "'lab' says 'A7' in every row, so it is left out" in notes[0]
    assert "'visit' has 100 different texts in 100 rows, such as '" in notes[2]
    x = columns.numbers(table)
    assert x[:, 0].tolist() == [float(k % 4 != 0) for k in range(n)]
    assert columns.rewrite(table, x, x == 5).equals(table)
    assert columns.rewrite(table, np.ones_like(x), x == 0)["site"].eq("main").all()


ONE_VALUE = {
    "text": ("Y", "Y"), "spaces": (" Y ", "Y"), "number": (1.0, "1"), "whole number": (7, "7"),
    "truth value": (True, "True"), "category": (pd.Categorical(["Y"])[0], "Y"),
    "date": (pd.Timestamp("2020-03-01"), "2020-03-01 00:00:00"),
}  # fmt: skip


@pytest.mark.parametrize("labeled", [False, True])
@pytest.mark.parametrize("name", ONE_VALUE)
def test_one_value_and_blanks_are_two_levels(name, labeled):
    value, level = ONE_VALUE[name]
    known = np.arange(N) % 3 == 0
    values = pd.Series([value if own else None for own in known])
    if name == "category":
        values = values.astype("category")
    if name in ("whole number", "truth value"):
        values = values.astype("Int64" if name == "whole number" else "boolean")
    table = pd.DataFrame({"flag": values, "x": np.arange(N) / 2})
    columns, notes = learn(table, labeled=labeled)
    assert notes == []
    assert columns.number_names == [f"flag={level}", "x"]
    x = columns.numbers(table)
    assert x[:, 0].tolist() == known.astype(float).tolist()
    assert [text == level for text in columns.decode(x)["flag"]] == known.tolist()
    assert [columns.each[0].written(row[:1]) for row in x[:2]] == [level, "missing"]
    again = columns.rewrite(table, x[::-1], x != x[::-1])["flag"]
    assert again.notna().tolist() == known[::-1].tolist()
    stored = json.loads(json.dumps(to_plain(columns, {})))
    assert from_plain(stored, {}) == columns


@pytest.mark.parametrize("blank", ["", "  ", None, np.nan, pd.NA])
def test_every_blank_of_a_text_is_the_second_level(blank):
    table = pd.DataFrame({"flag": ["Y", blank] * 20, "x": range(0, 80, 2)})
    assert learn(table)[0].numbers(table)[:4, 0].tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("rare", ["Y", "blank"])
def test_a_lone_value_or_a_lone_blank_is_no_level(rare):
    """Of 400 rows: as a level it would need two rows, and one in 200."""
    flag = np.array([None] * 400 if rare == "Y" else ["Y"] * 400, dtype=object)
    flag[7] = "Y" if rare == "Y" else None
    number = pd.Series(flag).map({"Y": 3.0}).astype(float)
    columns, notes = learn(pd.DataFrame({"flag": flag, "number": number}))
    assert [column.kind for column in columns.each] == ["left out", "number"]
    n = 1 if rare == "Y" else 399
    assert notes == [f"column 'flag' says 'Y' in {n} of 400 rows, else nothing, so it is left out"]


def test_the_flag_that_decides_is_learned():
    """Sixty percent of the rows are blank, and that is the class."""
    rng = np.random.default_rng(0)
    urgent = rng.random(200) < 0.4
    table = pd.DataFrame({"urgent": np.where(urgent, "Y", None), "x": rng.normal(size=200)})
    clf = mn.DAMClassifier(random_state=0).fit(table[:120], urgent[:120])
    assert clf.score(table[120:], urgent[120:]) == 1.0
    value = {own.column: own.value for own in clf.explain(table[120:122]).pulls(0)}["urgent"]
    assert value == ("Y" if urgent[120] else "missing")
    other = clf.counterfactual(table[120:125])
    assert other.rows["urgent"].notna().tolist() == (~urgent[120:125]).tolist()


def written(values):
    """(the column that these texts become, the notes, the numbers)."""
    frame = pd.DataFrame({"v": values})
    columns, notes = learn(frame)
    stored = json.loads(json.dumps(to_plain(columns, {})))
    assert from_plain(stored, {}) == columns
    return columns.each[0], notes, columns.numbers(frame)[:, 0] if columns.number_names else None


def test_plain_numbers_written_as_texts():
    column, notes, found = written(["2.5", "1e3", ".5", "-7", "+3.", "?", None])
    assert column.kind == "numeral"
    assert_allclose(found, [2.5, 1000, 0.5, -7, 3, np.nan, np.nan], rtol=1e-15)
    assert len(notes) == 1
    assert "holds texts that are read as numbers, such as '2.5'; name it" in notes[0]
    columns, _ = learn(pd.DataFrame({"v": ["5.32", "7"] * 20}))
    with pytest.raises(ValueError, match=r"'v' holds numbers, but row 1 has '1,234\.5'"):
        columns.numbers(pd.DataFrame({"v": ["7", "1,234.5"]}))


HUGE = {
    "frame": pd.DataFrame({"a": [10**400, 1], "b": [1, 2]}),
    "texts": pd.DataFrame({"a": [str(10**400), "1"], "b": [1, 2]}),
    "list": [[10**400, 1], [1, 2]],
}


@pytest.mark.filterwarnings("ignore:column 'a' holds texts")
@pytest.mark.parametrize("name", HUGE)
def test_numbers_that_no_float_can_hold_are_named(name):
    with pytest.raises(ValueError, match=r"is infinite \(inf\) in column 'a'|no float can hold"):
        mn.DAMClassifier(search=None).fit(HUGE[name], [0, 1])


@pytest.mark.parametrize(
    "texts",
    [
        [f"{k % 11 + 1}/{k % 12 + 1}/2018" for k in range(N)],
        [f"{k % 28 + 1:02d}.03.2018" for k in range(N)],
        [f"2018/03/{k % 28 + 1:02d}" for k in range(N)],
        [*map(str, range(N)), "12x"],
        [f"{k},5" for k in range(N)],
        [f"{k} %" for k in range(N)],
        ["1_0", "nan_", "0x1"] * N,
        ["2.0.1", "1.2.3"] * N,
        ["1,2,3", "4,5"] * N,
        ["$5", "$6", "$7"] * N,
        ["inf", "1"] * N,
    ],
)
def test_what_cannot_be_read_is_no_number(texts):
    assert written(texts)[0].kind in ("category", "left out")


class Stream:
    """What only a stream of Arrow gives."""

    def __init__(self, frame):
        self.frame = frame

    def __arrow_c_stream__(self, requested_schema=None):
        return self.frame.__arrow_c_stream__(requested_schema)


def test_a_stream_of_arrow_is_a_frame_in_memory():
    frame = pd.DataFrame(
        {"a": [1.5, 2.5, np.nan] * 9, "b": ["x", None, "y"] * 9, "c": [0, 1, 1] * 9}
    )
    columns, x = Columns.learn(Stream(frame[["a", "b"]]))
    assert columns.names == ("a", "b")
    assert_array_equal(x, Columns.learn(frame[["a", "b"]])[1])
    rows = mn.Dataset.open(Stream(frame), label="c").read()
    assert rows.y.tolist() == frame["c"].tolist()
    assert_array_equal(columns.numbers(rows.x), x)
