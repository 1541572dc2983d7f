"""Tables: what is read from files of every kind, and what their rows are called."""

import gzip
import os

import numpy as np
import pandas as pd
import pytest

from mnemosphere.base import machine
from mnemosphere.rows.tables import read_table

# A byte order mark, CRLF, a blank first line, the index that pandas writes, a name with a line break,
# a blank line, a line of commas, no line break at the end.
MESSY = (
    "\ufeff\r\n,name, length,label\r\n"
    '0,"two\nlines",1.5,ant\r\n'
    "\r\n"
    "1,bob,2,bee\r\n"
    ",,,\r\n"
    "2,eve,3,ant"
)
TEXTS = {  # what the columns hold, and the lines of the rows
    MESSY: ({"name": ["two\nlines", "bob", "eve"], "length": [1.5, 2, 3], "label": ["ant", "bee", "ant"]}, "368"),
    "a,b\n1,2\n3,4\n": ({"a": [1, 3], "b": [2, 4]}, "23"),
    "a;b\n1;2\n3;4\n": ({"a": [1, 3], "b": [2, 4]}, "23"),
    "a, b\r\n1, 2\r\n3, 4\r\n": ({"a": [1, 3], "b": [2, 4]}, "23"),
    'a,b\r1,"x y"\r2,z\r': ({"a": [1, 2], "b": ["x y", "z"]}, "23"),  # as old spreadsheets write it
    "v\n1.5\n2.5\n": ({"v": [1.5, 2.5]}, "23"),
    "5.5,2\n3,4\n": ({"0": [5.5, 3], "1": [2, 4]}, "12"),  # no header
    "0,1\n3,4\n": ({"0": [3], "1": [4]}, "2"),  # what data frames write without names
    "a;b;c\n1,5;2;x\n-0,25;3;y,z\n": ({"a": [1.5, -0.25], "b": [2, 3], "c": ["x", "y,z"]}, "23"),
    "a;b\n1.5;2\n0,25;3\n": ({"a": ["1.5", "0,25"], "b": [2, 3]}, "23"),  # both decimal marks: text
    "a\tb\n1,5\t2.0.1\n3\t4\n": ({"a": [1.5, 3.0], "b": ["2.0.1", "4"]}, "23"),
}  # fmt: skip


def write(path, table):
    if isinstance(table, np.ndarray):
        np.save(path, table)
    elif path.suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False)


def read(tmp_path, name, content, *more, **options):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(str(path), *more, **options)


@pytest.mark.parametrize("text", TEXTS)
def test_text_files(tmp_path, text):
    values, lines = TEXTS[text]
    table = read(tmp_path, "a.csv", text)
    assert table.x.to_dict("list") == values
    assert (table.kind, table.names.tolist()) == ("line", list(lines))
    packed = read(tmp_path, "a.CSV.gz", gzip.compress(text.encode()))
    assert packed.x.equals(table.x)
    assert len(read_table(str(tmp_path / "a.csv"), 1).x) == 1


def test_spreadsheets(tmp_path):
    pytest.importorskip("openpyxl")
    path, frame = (
        tmp_path / "a.xlsx",
        pd.DataFrame({"a": [1.5, np.nan, 3], "b": ["x", None, "y z"]}),
    )
    frame.to_excel(path, index=False)
    table = read_table(str(path))
    assert table.x.to_dict("list") == {"a": [1.5, 3], "b": ["x", "y z"]}
    assert (table.kind, table.names.tolist()) == ("line", ["2", "4"])
    with pytest.raises(ValueError, match=r"bad\.xlsx cannot be read as \.xlsx"):
        read(tmp_path, "bad.xlsx", "no sheet")


def test_other_encodings_are_read_and_said(tmp_path):
    text = "name,Größe\nJosé,1\nZoë,2\n"
    for encoding in ("latin-1", "cp1252"):
        with pytest.warns(UserWarning, match=r"is not UTF-8, so it is read as Windows-1252"):
            table = read(tmp_path, "a.csv.gz", gzip.compress(text.encode(encoding)))
        assert table.columns == ["name", "Größe"]
        assert table.x["name"].tolist() == ["José", "Zoë"]
    assert read(tmp_path, "b.csv", text.encode("utf-16")).x["name"].tolist() == ["José", "Zoë"]


def test_what_is_odd_about_columns_is_said(tmp_path):
    with pytest.warns(UserWarning, match=r"the later ones are called 'a\.1'"):
        table = read(tmp_path, "a.csv", "a,b,a\n1,2,3\n4,5,6\n")
    assert table.columns == ["a", "b", "a.1"]
    rows = "5.1,3.5,setosa\n4.9,3.0,setosa\n7.0,3.2,versicolor\n"
    with pytest.warns(UserWarning, match=r"though '5\.1' is a number: if it is a row, pass --no-h"):
        assert len(read(tmp_path, "a.csv", rows).x) == 2
    whole = read(tmp_path, "a.csv", rows, header=False)
    assert whole.x.shape == (3, 3)
    assert whole.names.tolist() == ["1", "2", "3"]


def test_parquet_keeps_names_and_index(tmp_path):
    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, None]}, index=pd.Index(["x", "y"], name="tag"))
    frame.to_parquet(tmp_path / "a.parquet")
    table = read_table(str(tmp_path / "a.parquet"))
    assert table.columns == ["a", "b"]
    assert (table.kind, table.names.tolist()) == ("tag", ["x", "y"])


def test_arrays(tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    np.save(tmp_path / "x.npy", images)
    parts = {"x_train": images, "y_train": [0, 1], "x_test": images[:1], "y_test": [1]}
    np.savez(tmp_path / "x.npz", **parts)
    table = read_table(str(tmp_path / "x.npz"))
    assert table.y.tolist() == [0, 1, 1]
    assert table.is_test.tolist() == [False, False, True]
    table = read_table(str(tmp_path / "x.npy"))
    assert table.image_shape == (3, 4)
    assert table.x.dtype == np.uint8
    np.testing.assert_array_equal(table.x, images.reshape(2, 12))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "No columns to parse"),
        ("a.csv", "a,b\n", "a header but no rows"),
        ("a.csv", "a,b\n1,2\n3,4,5\n", "line 3"),
        ("a.csv", b"a,b\n\xff\0,2\n", "cannot be read as .csv .*no text"),
        ("a.csv.gz", "a,b\n", "cannot be read as .csv.gz"),
        ("a.parquet", "a", "cannot be read as .parquet"),
        ("a.npz", "a", "cannot be read as .npz"),
        ("a.xls", "a", "cannot read files of type '.xls'"),
    ],
)
def test_what_cannot_be_read(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, name, content)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


def test_a_pipe_is_no_table(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="is no file"):
        read_table(str(tmp_path / "pipe.csv"))


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".npy", ".npz", ".parquet"])
def test_the_first_rows_alone(tmp_path, suffix):
    """Cells that hold ends of lines too: the rows are those of the whole file."""
    path = tmp_path / f"table{suffix}"
    x = np.arange(33.0).reshape(11, 3)
    if suffix == ".npz":
        np.savez(path, x=x, y=np.arange(11))
    else:
        frame = pd.DataFrame(x, columns=list("abc")).assign(note=['two\nlines, "so"'] * 11)
        write(path, x if suffix == ".npy" else frame)
    whole = read_table(str(path))
    for n in (1, 4, 11, 50):
        part = read_table(str(path), n)
        assert part.names.tolist() == whole.names[:n].tolist()
        assert np.array_equal(np.asarray(part.x), np.asarray(whole.x)[:n])
        if suffix == ".npz":
            assert part.y.tolist() == list(range(min(n, 11)))


def test_the_rest_of_a_text_file_is_not_read(tmp_path):
    broken = b"a,b\n1,2\n3,4\n" + b"5,6\n" * 300_007 + b"\xff\0 broken \xff"
    assert len(read(tmp_path, "a.csv", broken, 2).x) == 2
    with pytest.raises(ValueError, match=r"cannot be read as .csv"):
        read_table(str(tmp_path / "a.csv"))


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".npy"])
def test_more_than_fits_is_refused(tmp_path, monkeypatch, suffix):
    path, x = tmp_path / f"table{suffix}", np.zeros((5000, 3))
    if suffix == ".npz":
        np.savez_compressed(path, x=x)
    else:
        write(path, x if suffix == ".npy" else pd.DataFrame(x))
    monkeypatch.setattr(machine, "available_memory", lambda device="cpu": 90_000.0)
    with pytest.raises(ValueError, match=r"needs about .* GB are free: take a part of it"):
        read_table(str(path))
