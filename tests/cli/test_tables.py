"""Tables: what is read from files of every kind, and what their rows are called."""

import gzip
import os
import struct

import numpy as np
import pandas as pd
import pytest

from mnemosphere import machine
from mnemosphere.cli.table_writer import table_writer, write_table
from mnemosphere.data.tables import read_table

# Spreadsheets' mark and line ends, a blank first line, pandas' column of counts, a name over two
# lines, a blank line, a line of commas, no end of line at the end.
MESSY = (
    "\ufeff\r\n,name, length,label\r\n"
    '0,"two\nlines",1.5,ant\r\n'
    "\r\n"
    "1,bob,2,bee\r\n"
    ",,,\r\n"
    "2,eve,3,ant"
)


def read(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_table(str(path))


def test_a_messy_file_keeps_its_lines(tmp_path):
    table = read(tmp_path, "messy.csv", MESSY)
    assert table.columns == ["name", "length", "label"]
    assert table.values["length"].tolist() == [1.5, 2, 3]
    assert table.values["name"].tolist() == ["two\nlines", "bob", "eve"]
    # Line 1 is blank, 2 the header, 3 and 4 the first row, 5 blank, 7 commas.
    assert table.row_names.tolist() == ["3", "6", "8"]
    assert table.row_kind == "line"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "a,b\n1,2\n3,4\n"),
        ("a.csv", "a;b\n1;2\n3;4\n"),
        ("a.tsv", "a\tb\n1\t2\n3\t4\n"),
        ("a.CSV", "a, b\r\n1, 2\r\n3, 4\r\n"),
    ],
)
def test_separators(tmp_path, name, text):
    table = read(tmp_path, name, text)
    assert table.columns == ["a", "b"]
    assert table.values.to_numpy().tolist() == [[1, 2], [3, 4]]
    assert table.row_names.tolist() == ["2", "3"]
    packed = read(tmp_path, name.lower() + ".gz", gzip.compress(text.encode()))
    assert packed.values.equals(table.values)


def test_a_file_without_header_starts_at_line_one(tmp_path):
    table = read(tmp_path, "a.csv", "5.5,2\n3,4\n")
    assert table.columns == ["0", "1"]
    assert table.row_names.tolist() == ["1", "2"]
    counted = read(tmp_path, "b.csv", "0,1\n3,4\n")  # what data frames write without names
    assert counted.values.to_numpy().tolist() == [[3, 4]]


def test_parquet_and_feather_keep_names_and_index(tmp_path):
    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, None]}, index=pd.Index(["x", "y"], name="tag"))
    frame.to_parquet(tmp_path / "a.parquet")
    table = read_table(str(tmp_path / "a.parquet"))
    assert table.columns == ["a", "b"]
    assert (table.row_kind, table.row_names.tolist()) == ("tag", ["x", "y"])
    frame.reset_index(drop=True).to_feather(tmp_path / "a.feather")
    table = read_table(str(tmp_path / "a.feather"))
    assert (table.row_kind, table.row_names.tolist()) == ("row", ["0", "1"])


def test_arrays(tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    np.save(tmp_path / "x.npy", images)
    table = read_table(str(tmp_path / "x.npy"))
    assert table.values.dtype == np.uint8
    assert table.image_shape == (3, 4)
    np.testing.assert_array_equal(table.values, images.reshape(2, 12))
    parts = {"x_train": images, "y_train": [0, 1], "x_test": images[:1], "y_test": [1]}
    np.savez(tmp_path / "x.npz", **parts)
    table = read_table(str(tmp_path / "x.npz"))
    assert table.labels.tolist() == [0, 1, 1]
    assert table.is_test.tolist() == [False, False, True]


def test_idx_images_find_their_labels(tmp_path):
    images = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    header = struct.pack(">BBBB3I", 0, 0, 8, 3, 2, 3, 4)
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(header + images.tobytes())
    assert read_table(str(path)).labels is None
    labels = struct.pack(">BBBBI", 0, 0, 8, 1, 2) + bytes([7, 9])
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(labels)
    table = read_table(str(path))
    assert table.labels.tolist() == [7, 9]
    assert table.image_shape == (3, 4)
    np.testing.assert_array_equal(table.values, images.reshape(2, 12))


def test_data_sets_by_name():
    table = read_table("digits")
    assert table.values.shape == (1797, 64)
    assert table.row_names[[0, -1]].tolist() == ["train-0", "test-354"]
    assert table.is_test.sum() == 355
    assert table.image_shape == (8, 8)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", "", "is empty"),
        ("a.csv", "a,b\n", "a header but no rows"),
        ("a.csv", "a,b\n1,2\n3,4,5\n", "line 3"),
        ("a.csv", "a,b\n1,2,3\n4,5,6\n", "cannot be read as .csv"),
        ("a.csv", b"a,b\n\xff\0,2\n", "cannot be read as .csv .*no text"),
        ("a.csv.gz", "a,b\n", "cannot be read as .csv.gz"),
        ("a.parquet", "a", "cannot be read as .parquet"),
        ("a.npy", "a", "cannot be read as .npy"),
        ("a.npz", "a", "cannot be read as .npz"),
        ("a-ubyte", "a", "not an IDX file"),
        ("a.xlsx", "a", "cannot read files of type '.xlsx'"),
    ],
)
def test_what_cannot_be_read(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, name, content)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".csv.gz", ".parquet", ".feather"])
def test_what_is_written_is_read_back(tmp_path, suffix):
    frame = pd.DataFrame({"a": [0.1, 1 / 3], "b": ["x", "y,z"]})
    path = tmp_path / "new" / f"t{suffix}"
    write_table(frame, path)
    assert read_table(str(path)).values.to_dict("list") == frame.to_dict("list")
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".csv", ".tsv.gz", ".parquet", ".feather", ".json", ".npy"])
def test_parts_are_written_as_the_whole(tmp_path, suffix):
    frame = pd.DataFrame({"a": np.arange(7) / 3, "b": [None, None, "x", "y,z", "", None, "w"]})
    table = frame[["a"]].to_numpy() if suffix == ".npy" else frame
    paths = [tmp_path / f"{name}{suffix}" for name in ("parts", "whole")]
    with table_writer(paths[0], 7, frame) as write:
        for part in (slice(0, 2), slice(2, 3), slice(3, 7)):
            write(table[part])
        assert not paths[0].exists()
    write_table(table, paths[1])
    if suffix in (".parquet", ".feather"):
        read = pd.read_parquet if suffix == ".parquet" else pd.read_feather
        pd.testing.assert_frame_equal(*map(read, paths))
    else:
        assert paths[0].read_bytes() == paths[1].read_bytes()

    def fails():
        with table_writer(tmp_path / f"bad{suffix}", 7, frame) as write:
            write(table[:2])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert len(list(tmp_path.iterdir())) == 2


# Bounded reading


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".tsv", ".npy", ".npz", ".parquet"])
def test_the_first_rows_alone(tmp_path, suffix):
    """Header or not, cells that hold ends of lines: the rows are those of the whole file."""
    path = tmp_path / f"table{suffix}"
    x = np.arange(33.0).reshape(11, 3)
    if suffix == ".npy":
        np.save(path, x)
    elif suffix == ".npz":
        np.savez(path, x=x, y=np.arange(11))
    else:
        frame = pd.DataFrame(x, columns=list("abc")).assign(note=['two\nlines, "so"'] * 11)
        write_table(frame, path)
    whole = read_table(str(path))
    for n in (1, 4, 11, 50):
        part = read_table(str(path), n)
        assert len(part.row_names) == len(part.values) == min(n, 11)
        assert part.row_names.tolist() == whole.row_names[:n].tolist()
        assert np.array_equal(np.asarray(part.values), np.asarray(whole.values)[:n])
        if suffix == ".npz":
            assert part.labels.tolist() == list(range(min(n, 11)))


def test_the_rest_of_a_text_file_is_not_read(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"a,b\n1,2\n3,4\n" + b"5,6\n" * 300_007 + b"\xff\0 broken \xff")
    assert len(read_table(str(path), 2).values) == 2
    with pytest.raises(ValueError, match=r"cannot be read as .csv"):
        read_table(str(path))


@pytest.mark.parametrize("suffix", [".csv", ".npz", ".npy"])
def test_more_than_fits_is_refused(tmp_path, monkeypatch, suffix):
    path = tmp_path / f"table{suffix}"
    x = np.zeros((5000, 3))
    if suffix in (".npy", ".npz"):
        np.savez_compressed(path, x=x) if suffix == ".npz" else np.save(path, x)
    else:
        write_table(pd.DataFrame(x, columns=list("abc")), path)
    monkeypatch.setattr(machine, "available_memory", lambda device="cpu": 90_000.0)
    with pytest.raises(ValueError, match=r"needs about .* GB are free: take a part of it"):
        read_table(str(path))


def test_a_pipe_is_no_table(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    with pytest.raises(ValueError, match="is no file"):
        read_table(str(tmp_path / "pipe.csv"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a;b;c\n1,5;2;x\n-0,25;3;y,z\n", [1.5, -0.25]),  # a decimal comma
        ("a;b\n1.5;2\n0,25;3\n", ["1.5", "0,25"]),  # both: text
        ("a,b\n1,5\n2,25\n", [1, 2]),
        ("a\tb\n1,5\t2.0.1\n3\t4\n", [1.5, 3.0]),
    ],
)
def test_decimal_commas(tmp_path, text, expected):
    path = tmp_path / "table.csv"
    path.write_text(text)
    assert read_table(str(path)).values["a"].tolist() == expected


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
def test_ends_of_lines(tmp_path, end):
    """Old spreadsheets end lines with a carriage return alone."""
    table = read(tmp_path, "a.csv", end.join(["a,b", '1,"x y"', "2,z", ""]))
    assert table.values.to_dict("list") == {"a": [1, 2], "b": ["x y", "z"]}
    assert table.row_names.tolist() == ["2", "3"]
    assert len(read_table(str(tmp_path / "a.csv"), 1).values) == 1


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_other_encodings_are_read_and_said(tmp_path, suffix):
    text = "name,Größe\nJosé,1\nZoë,2\n"
    for encoding in ("latin-1", "cp1252"):
        content = text.encode(encoding)
        content = gzip.compress(content) if suffix == ".csv.gz" else content
        with pytest.warns(UserWarning, match=r"is not UTF-8, so it is read as Windows-1252"):
            table = read(tmp_path, f"a{suffix}", content)
        assert table.columns == ["name", "Größe"]
        assert table.values["name"].tolist() == ["José", "Zoë"]
    content = text.encode("utf-16")
    content = gzip.compress(content) if suffix == ".csv.gz" else content
    assert read(tmp_path, f"b{suffix}", content).values["name"].tolist() == ["José", "Zoë"]


def test_one_column(tmp_path):
    table = read(tmp_path, "a.csv", "v\n1.5\n2.5\n")
    assert table.values.to_dict("list") == {"v": [1.5, 2.5]}
    assert table.row_names.tolist() == ["2", "3"]


def test_columns_of_one_name(tmp_path):
    with pytest.warns(UserWarning, match=r"the later ones are called 'a\.1'"):
        table = read(tmp_path, "a.csv", "a,b,a\n1,2,3\n4,5,6\n")
    assert table.columns == ["a", "b", "a.1"]


def test_a_first_line_that_may_be_a_row_is_said(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("5.1,3.5,setosa\n4.9,3.0,setosa\n7.0,3.2,versicolor\n")
    with pytest.warns(UserWarning, match=r"though '5\.1' is a number: if it is a row, pass --no-h"):
        assert len(read_table(str(path)).values) == 2
    whole = read_table(str(path), header=False)
    assert whole.values.shape == (3, 3)
    assert whole.row_names.tolist() == ["1", "2", "3"]


def test_no_header_on_the_command_line(run, tmp_path, kit):
    kit.frame().drop(columns="tag").to_csv(tmp_path / "a.csv", index=False, header=False)
    words = ["train", tmp_path / "a.csv", *kit.fast, "--no-header", "--out", tmp_path / "run", "-q"]
    run(*words)
    found = run("predict", tmp_path / "run", tmp_path / "a.csv", "--no-header", "--json").json
    assert len(found["predictions"]) == kit.n_rows
    assert found["predictions"][0]["line"] == "1"


def test_arrow_files(run, tmp_path, kit):
    kit.frame().to_feather(tmp_path / "a.arrow")
    words = ["--label", "kind", "--drop", "tag", *kit.fast, "--out", tmp_path / "run", "-q"]
    run("train", tmp_path / "a.arrow", *words)
    found = run("predict", tmp_path / "run", tmp_path / "a.arrow", "--json").json
    assert len(found["predictions"]) == kit.n_rows
