import sys
import zipfile

import numpy as np
import pandas as pd
import polars as pl
import pytest

from mnemosphere.datasets import load, read_table

X = np.array([[5.1, 3.5, -1e-3], [4.9, 3.0, 2.0], [6.2, 2.25, 7.0]])
NAMES = ("a", "b", "c")


@pytest.fixture
def write(tmp_path):
    def write_text(text, name="t.csv", encoding="utf-8"):
        path = tmp_path / name
        path.write_text(text, encoding=encoding)
        return path

    return write_text


def assert_table(table, x, y=None, names=None):
    np.testing.assert_array_equal(table.x, x)
    assert table.feature_names == names
    if y is None:
        assert table.y is None
    else:
        assert table.y.tolist() == y


# --- CSV


ROWS = [",".join(map(str, row)) for row in X.tolist()]


@pytest.mark.parametrize(
    ("lines", "names", "y"),
    [
        (["a,b,c", *ROWS], NAMES, None),
        (ROWS, None, None),
        ([f"{row},{name}" for row, name in zip(ROWS, "uvu", strict=True)], None, ["u", "v", "u"]),
        (
            ["a,b,c,kind", *(f"{row},{s}" for row, s in zip(ROWS, "uvu", strict=True))],
            NAMES,
            ["u", "v", "u"],
        ),
        (["Label,a,b,c", *(f"{n},{row}" for n, row in enumerate(ROWS))], NAMES, [0, 1, 2]),
        (
            ["0,1,2,class", *(f"{row},{s}" for row, s in zip(ROWS, "uvu", strict=True))],
            ("0", "1", "2"),
            ["u", "v", "u"],
        ),
        # A class called like a label column does not make a header.
        ([f"{row},{s}" for row, s in zip(ROWS, "yny", strict=True)], None, ["y", "n", "y"]),
        (["a,b,c,y", *(f"{row},{t}" for row, t in zip(ROWS, (0.5, 1, 2), strict=True))], NAMES,
         [0.5, 1.0, 2.0]),
        (["a,b,c,y", *(f"{row},{t}" for row, t in zip(ROWS, ("p", "", "q"), strict=True))], NAMES,
         ["p", "", "q"]),
    ],
)  # fmt: skip
def test_csv_header_and_label_are_found(write, lines, names, y):
    assert_table(read_table(write("\n".join(lines) + "\n")), X, y, names)


@pytest.mark.parametrize("label", ["b", 1, -2])
def test_csv_label_by_name_or_index(write, label):
    table = read_table(write("\n".join(["a,b,c", *ROWS])), label=label)
    assert_table(table, X[:, [0, 2]], [3.5, 3.0, 2.25], ("a", "c"))


def test_csv_missing_number_labels_are_nan(write):
    table = read_table(write("a,y\n1,3\n2,\n"))
    np.testing.assert_array_equal(table.y, [3.0, np.nan])


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_csv_separators_quotes_blank_lines_and_byte_order_mark(write, separator):
    lines = ['"a"', '"b, c"', "label"], ["1", '"2"', '"yes; no"'], ["3", "4", "yes"]
    text = "\r\n\r\n".join(separator.join(line) for line in lines)
    table = read_table(write(text, encoding="utf-8-sig"))
    assert_table(table, [[1, 2], [3, 4]], ["yes; no", "yes"], ("a", "b, c"))


def test_csv_agrees_with_pandas(tmp_path):
    rng = np.random.default_rng(7)
    frame = pd.DataFrame(rng.standard_normal((101, 13)), columns=[f"f{i}" for i in range(13)])
    frame["target"] = rng.choice(["x", "yy", "zzz"], 101)
    frame.to_csv(tmp_path / "t.csv", index=False)
    table = read_table(tmp_path / "t.csv")
    assert_table(
        table, frame.iloc[:, :13].to_numpy(), list(frame["target"]), tuple(frame.columns[:13])
    )


@pytest.mark.parametrize(
    ("text", "label", "message"),
    [
        ("\n \n", None, "is empty"),
        ("a,b,c\n", None, "a header but no rows"),
        ("a,b\n1,2\n3\n", None, "line 3: 1 cells, expected 2"),
        ("a,b\n1,2\n\nx,4\n", None, "line 4, column 'a': 'x' is not a number"),
        ("1,2,u\n3,z,v\n", None, "line 2, column 1: 'z' is not a number"),
        ("a,b\n1,\n3,4\n", 0, "line 2, column 'b': the cell is empty"),
        ("a,b\n1,2\n3,nan\n", None, "row 1, column 'b' is nan"),
        ("a,b\n1,inf\n3,1\n", None, "row 0, column 'b' is inf"),
        ("a,b\n1,2\n", "d", "no column 'd', there are 'a', 'b'"),
        ("a,b\n1,2\n", 2, "no column 2, there are 2"),
        ("1,2\n3,4\n", "d", "no column names: pass label as an index"),
        ("label\n1\n2\n", None, "no columns besides the label"),
        ('a,b\n1,"2\n', None, "not a CSV file in UTF-8"),
    ],
)
def test_csv_errors(write, text, label, message):
    assert_one_line(write(text), message, label=label)


def test_csv_not_utf8(write):
    assert_one_line(write("a,é\n1,2\n", encoding="latin-1"), "not a CSV file in UTF-8")


# --- NumPy


@pytest.mark.parametrize(
    ("x_key", "y_key"),
    [("x", "y"), ("X", "Y"), ("data", "target"), ("data", "labels"), ("x_train", "y_train")],
)
def test_npz(tmp_path, x_key, y_key):
    path = tmp_path / "t.npz"
    np.savez(path, **{x_key: X, y_key: np.array(["u", "v", "u"]), "x_test": X[:1]})
    assert_table(read_table(path), X, ["u", "v", "u"])


def test_npz_reads_our_own_file(tmp_path):
    data = load("mnist-small")
    path = tmp_path / "t.npz"
    np.savez(path, x_train=data.x_train.reshape(-1, 28, 28), y_train=data.y_train)
    table = read_table(str(path))
    assert_table(table, data.x_train, data.y_train.tolist())
    assert table.x.dtype == np.uint8


def test_npz_label(tmp_path):
    path = tmp_path / "t.npz"
    np.savez(path, x=X, y=np.arange(3), kind=np.array([5.0, 7.0, 5.0]))
    assert_table(read_table(path, label="kind"), X, [5, 7, 5])
    assert_table(read_table(path, label=-1), X[:, :2], [-1e-3, 2.0, 7.0])
    np.savez(path, x=X)
    assert_table(read_table(path), X)


def test_npz_soft_labels_stay_a_matrix(tmp_path):
    soft = np.eye(3)[:, :2]
    np.savez(tmp_path / "t.npz", x=X, y=soft)
    y = read_table(tmp_path / "t.npz").y
    assert y.dtype == np.float64
    np.testing.assert_array_equal(y, soft)


def test_npy(tmp_path):
    np.save(tmp_path / "t.npy", X)
    assert_table(read_table(tmp_path / "t.npy"), X)
    assert_table(read_table(tmp_path / "t.npy", label=1), X[:, [0, 2]], [3.5, 3.0, 2.25])


@pytest.mark.parametrize(
    ("array", "label", "message"),
    [
        (np.array([[1, "x"]], dtype=object), None, "Object arrays cannot be loaded"),
        (np.array([["1", "2"]]), None, "must be numbers, got values of type <U1"),
        (np.zeros((2, 3), dtype=complex), None, "must be numbers"),
        (np.zeros(7), None, r"must form a table \(n, d\), got shape \(7,\)"),
        (np.zeros((0, 7)), None, "has no rows"),
        (np.zeros((7, 0)), None, "has no columns"),
        (np.array([[1.0, 2.0], [3.0, np.nan]]), None, "row 1, column 1 is nan"),
        (X, "a", "pass label as an index, got 'a'"),
        (X, 3, "no column 3, there are 3"),
        (np.zeros((2, 3, 5)), 0, r"needs rows \(n, d\)"),
    ],
)
def test_npy_errors(tmp_path, array, label, message):
    path = tmp_path / "t.npy"
    np.save(path, array, allow_pickle=True)
    assert_one_line(path, message, label=label)


@pytest.mark.parametrize(
    ("arrays", "label", "message"),
    [
        ({"images": X}, None, "no array called x, X, data, .* there is 'images'"),
        ({}, None, "there is none at all"),
        ({"x": X, "y": np.arange(5)}, None, r"3 rows, but labels of shape \(5,\)"),
        ({"x": X, "y": np.array(5)}, None, r"labels of shape \(\)"),
        ({"x": X, "y": np.array(["a", 1, None], dtype=object)}, None, "Object arrays"),
        ({"x": X, "y": np.zeros(3, dtype="M8[D]")}, None, "labels must be numbers or text"),
        ({"x": X}, "kind", "no array 'kind', there are 'x'"),
    ],
)
def test_npz_errors(tmp_path, arrays, label, message):
    path = tmp_path / "t.npz"
    np.savez(path, **arrays)
    assert_one_line(path, message, label=label)


def test_npz_member_that_is_no_array(tmp_path):
    path = tmp_path / "t.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "hello")
    assert_one_line(path, "'x' is not an array")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_damaged_numpy_files(tmp_path, suffix):
    path = tmp_path / f"t{suffix}"
    if suffix == ".npy":
        np.save(path, X)
    else:
        np.savez_compressed(path, x=X)
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    assert_one_line(path, "cannot be read")
    path.write_bytes(b"a,b\n1,2\n")
    assert_one_line(path, f"is not a {suffix} file")


# --- Parquet


def frame_with(**columns):
    return pl.DataFrame({**dict(zip(NAMES, X.T, strict=True)), **columns})


@pytest.fixture(params=["pyarrow", "polars"])
def library(request, monkeypatch):
    if request.param == "polars":
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    return request.param


@pytest.mark.parametrize(
    ("columns", "label", "y"),
    [
        ({}, None, None),
        ({"kind": ["u", "v", "u"]}, None, ["u", "v", "u"]),
        ({"Target": [3, 1, 2]}, None, [3, 1, 2]),
        ({"kind": [3, 1, 2]}, "kind", [3, 1, 2]),
        ({"kind": [3, 1, 2]}, -1, [3, 1, 2]),
        ({"kind": ["u", None, "w"]}, None, ["u", "", "w"]),
    ],
)
def test_parquet(tmp_path, library, columns, label, y):
    path = tmp_path / "t.parquet"
    frame_with(**columns).write_parquet(path)
    assert_table(read_table(path, label=label), X, y, NAMES)


def test_parquet_of_pandas_with_index_and_categories(tmp_path):
    frame = pd.DataFrame(X, columns=NAMES, index=[7, 3, 5])
    frame["kind"] = pd.Categorical(["u", "v", "u"])
    frame.to_parquet(tmp_path / "t.parquet", engine="pyarrow")
    assert_table(read_table(tmp_path / "t.parquet"), X, ["u", "v", "u"], NAMES)


@pytest.mark.parametrize(
    ("frame", "label", "message"),
    [
        (frame_with(a=["p", "q", "r"]), None, "column 'a' is not numeric"),
        (frame_with(a=[1, None, 3]), None, "row 1, column 'a' is nan"),
        (frame_with(), "d", "no column 'd', there are 'a', 'b', 'c'"),
        (pl.DataFrame(), None, "has no columns"),
        (frame_with()[["a"]], "a", "no columns besides the label"),
        (frame_with()[:0], None, "has no rows"),
        (frame_with(kind=[[1], [2], [3]]), None, "labels must be numbers or text"),
    ],
)
def test_parquet_errors(tmp_path, library, frame, label, message):
    path = tmp_path / "t.parquet"
    frame.write_parquet(path)
    assert_one_line(path, message, label=label)


def test_parquet_that_is_none(write, library):
    assert_one_line(write("a,b\n1,2\n", "t.parquet"), "cannot be read as Parquet")


def test_parquet_without_a_library(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "polars", None)
    assert_one_line(write("PAR1", "t.parquet"), "pip install pyarrow")


# --- any format


def assert_one_line(path, message, label=None):
    with pytest.raises(ValueError, match=message) as error:
        read_table(path, label=label)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.csv does not exist"):
        read_table(tmp_path / "nothing.csv")


def test_folder_unknown_suffix_and_empty_file(tmp_path, write):
    assert_one_line(tmp_path, "is a folder")
    assert_one_line(write("1", "t.xlsx"), "cannot read files of type '.xlsx', try one of .npz")
    for suffix in (".npz", ".npy", ".csv", ".parquet"):
        assert_one_line(write("", f"t{suffix}"), "is empty")


@pytest.mark.parametrize("label", [True, 1.5, ("a",)])
def test_label_of_a_wrong_type(write, label):
    with pytest.raises(TypeError, match="label must be a column's name or index"):
        read_table(write("a,b\n1,2\n"), label=label)
