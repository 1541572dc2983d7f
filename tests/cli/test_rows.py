"""Which columns are what."""

import numpy as np
import pandas as pd
import pytest

from mnemosphere.cli import rows as module
from mnemosphere.cli.options import Columns
from mnemosphere.rows.tables import Table


def choose(given, labels=True, **columns):
    columns = {k: tuple(v) if isinstance(v, list) else v for k, v in columns.items()}
    return module.choose(given, Columns(**columns), labels)


def table(frame, **more):
    names = np.array([str(k + 2) for k in range(len(frame))])
    return Table("t.csv", frame, names, "line", "sha256:0", **more)


FRAME = pd.DataFrame(
    {"a": [1, 2, 3], "Target": ["x", None, "y"], "b": [0.5, 1.5, 2.5], "tag": ["p", "q", "r"]}
)


def test_label_by_its_name_and_rows_by_an_id():
    rows = choose(table(FRAME), id="tag")
    assert rows.label == "Target"
    assert list(rows.x.columns) == ["a", "b"]
    assert rows.y.tolist() == ["x", None, "y"]
    assert rows.labeled.tolist() == [True, False, True]
    assert (rows.kind, rows.names.tolist()) == ("tag", ["p", "q", "r"])
    labeled = rows.take(rows.labeled)
    assert labeled.y.dtype.kind == "U"
    assert labeled.names.tolist() == ["p", "r"]


def test_the_last_column_is_the_label_only_if_there_must_be_one():
    frame = FRAME[["a", "b", "tag"]]
    assert choose(table(frame)).label == "tag"
    assert choose(table(frame), labels=False, drop=["tag"]).label is None
    assert choose(table(frame), label="-3", drop=["tag"]).y.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("values", "expected", "kind"),
    [
        ([1.0, 2.0, 1.0], [1, 2, 1], "i"),
        ([1.0, None, 2.0], [1, None, 2], "O"),
        ([True, False, True], [True, False, True], "b"),
        (pd.array([1, None, 3], dtype="Int64"), [1, None, 3], "O"),
        (pd.Categorical(["u", "v", "u"]), ["u", "v", "u"], "U"),
        (["", "v", "u"], [None, "v", "u"], "O"),
    ],
)
def test_labels_of_every_type(values, expected, kind):
    rows = choose(table(FRAME[["a", "b"]].assign(y=values)))
    assert rows.y.tolist() == expected
    assert rows.y.dtype.kind == kind


def test_columns_of_every_kind_stay_as_they_are_and_infinite_numbers_are_named_by_line():
    frame = pd.DataFrame({"a": [1, np.nan, 3], "b": [1.0, 2, np.inf], "y": [0, 1, 0]})
    with pytest.raises(ValueError, match=r"infinite numbers in 'b', line 4: leave them empty"):
        choose(table(frame))
    rows = choose(table(FRAME), label="Target")
    pd.testing.assert_frame_equal(rows.x, FRAME[["a", "b", "tag"]])
    asked = choose(table(FRAME), label="Target", features=["a"])  # an id would be left out
    assert asked.x["a"].dtype == np.float64


def test_rows_called_by_name_and_parts():
    rows = choose(table(FRAME, is_test=np.array([False, True, True])), id="tag")
    assert rows.called(["r", "p"]).names.tolist() == ["r", "p"]
    assert rows.part(None).names.tolist() == ["q", "r"]
    assert rows.part("train").names.tolist() == ["p"]
    with pytest.raises(ValueError, match=r"no tag 'z' in t\.csv: there are p to r"):
        rows.called(["z"])
