"""Rows in files: every format, passes, order, what is sampled, and bad files."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

import mnemosphere as mn
from mnemosphere.rows.batches import prefetch, read_npy

N_ROWS, N, C = 907, 5, 3
MEMORY = 16 * 8 * (N + 2) * 64  # batches of about 64 rows
NAMES = [f"f{k}" for k in range(N)]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(11)
    y = rng.integers(0, C, N_ROWS)
    x = rng.normal(size=(N_ROWS, N)) + 2.0 * (np.arange(N) % C == y[:, None])
    return x, np.array(["ash", "elm", "oak"])[y], rng.random(N_ROWS) + 0.5


def table(x, y, weight):
    return pa.table({**dict(zip(NAMES, x.T, strict=True)), "tree": y, "w": weight})


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rows):
    where, (x, y, weight) = tmp_path_factory.mktemp("rows"), rows
    whole = table(x, y, weight)
    pq.write_table(whole.slice(0, 400), where / "a.parquet", row_group_size=150)
    pq.write_table(whole.slice(400), where / "b.parquet", row_group_size=90)
    pa.csv.write_csv(whole, where / "rows.csv")
    pa.feather.write_feather(whole, where / "rows.feather")
    for name, values in (("x", x), ("y", y), ("w", weight)):
        np.save(where / f"{name}.npy", values)
    return where


def opened(folder, kind, **more):
    given = {"label": "tree", "weight": "w", "memory": MEMORY}
    if kind == "npy":
        given |= {"label": str(folder / "y.npy"), "weight": str(folder / "w.npy")}
        return mn.Dataset.open(folder / "x.npy", **given | more)
    if kind == "pyarrow":
        return mn.Dataset.open(
            pa.dataset.dataset(folder / "rows.csv", format="csv"), **given | more
        )
    name = {"parquet": "?.parquet"}.get(kind, f"rows.{kind}")
    return mn.Dataset.open(str(folder / name), **given | more)


KINDS = ["parquet", "csv", "feather", "npy", "pyarrow"]


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_same_rows(folder, rows, kind):
    source = opened(folder, kind)
    assert repr(source) == f"Dataset of {N_ROWS} rows x {N}"
    whole = source.read()
    parts = [np.concatenate(part) for part in zip(*source, strict=True)]
    for found, again, wanted in zip((whole.x, whole.y, whole.weight), parts, rows, strict=True):
        np.testing.assert_array_equal(np.asarray(found), wanted)
        np.testing.assert_array_equal(again, wanted)
    assert max(len(x) for x, *_ in source) <= source.batch_rows < 100


@pytest.mark.parametrize("kind", KINDS)
def test_passes_in_random_order_are_seeded_and_mixed(folder, kind):
    source = opened(folder, kind)

    def numbers(seed, part=None):
        return [piece.number.tolist() for piece in source.pieces(40, seed, part)]

    one = numbers(1)
    assert one == numbers(1)
    assert one != numbers(2)
    assert [row for batch in numbers(None) for row in batch] == list(range(N_ROWS))
    assert sorted(row for batch in one for row in batch) == list(range(N_ROWS))
    assert [len(batch) for batch in one] == [40] * 22 + [27]
    # A batch holds rows from all over the window it was drawn from.
    assert np.mean([np.ptp(batch) for batch in one]) > 100
    for seed in (None, 3):
        part = numbers(seed, slice(303, 605))
        assert sorted(row for batch in part for row in batch) == list(range(303, 605))


def test_columns_that_are_asked_for_and_the_index_that_pandas_wrote(tmp_path, rows):
    index = pd.Index(np.arange(N_ROWS)[::-1], name="flower")
    frame = pd.DataFrame({"a": rows[0][:, 0], "n": np.arange(N_ROWS) % 7, "tree": rows[1]}, index)
    frame.to_parquet(tmp_path / "rows.parquet")
    source = mn.Dataset.open(tmp_path / "rows.parquet", label="tree")
    assert source.names == ["a", "n"]
    assert source.read().x.dtypes.tolist() == [np.float64, np.float64]
    asked = mn.Dataset.open(tmp_path / "rows.parquet", features=["n", "flower"])
    np.testing.assert_array_equal(asked.read().x["flower"], index)


def test_whole_numbers_may_turn_out_to_be_fractions(tmp_path):
    lines = [*("1,2,a" for _ in range(300_000)), "1.5,2,b"]  # pyarrow looks at the first megabyte
    (tmp_path / "rows.csv").write_text("p,q,y\n" + "\n".join(lines))
    source = mn.Dataset.open(tmp_path / "rows.csv", label="y")
    assert source.n_rows == len(lines)
    assert source.read().x["p"].iloc[-1] == 1.5


# Bad files: one line that names the file, and the row where there is one.


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
BAD = {
    "a truncated Parquet file": r"b\.parquet cannot be read \(",
    "a file without a column of the others": r"b\.parquet: column 'f1' is not in every file",
    "a number that is infinite": r"b\.parquet: row 323 is infinite \(inf\) in column 'f2'",
    "a missing label": r"from row \d+ of the files on: label \d+ of y has no value: drop the row",
    "a weight below zero": r"b\.parquet: row 305 has the weight -1\.0",
    "a file that changes between passes": r"b\.parquet cannot be read \(",
    "a file that is not there": r"no file matches '.*c\.parquet'",
    "a line with too few cells": r"c\.csv cannot be read",
    "no such column": "column 'f9' is not in every file",
    "files of several kinds": r"files must be of one kind, .*got \.csv, \.npy",
}  # fmt: skip


def read_bad(what, folder, x, y):
    good, bad, text = folder / "a.parquet", folder / "b.parquet", folder / "c.csv"
    weight = np.ones(len(x))
    pq.write_table(table(x, y, weight), good)
    x[123, 2] = np.inf if what == "a number that is infinite" else 0
    y[77] = None if what == "a missing label" else y[77]
    weight[105] = -1 if what == "a weight below zero" else 1
    spoiled = table(x, y, weight)
    pq.write_table(spoiled.drop_columns(["f1"]) if "column of the others" in what else spoiled, bad)
    text.write_text("a,b\n1,2\n3\n")
    np.save(folder / "x.npy", x)
    if "truncated" in what:
        bad.write_bytes(bad.read_bytes()[:-300])
    if what == "a line with too few cells":
        return list(mn.Dataset.open(text))
    if what == "no such column":
        return mn.Dataset.open(good, features=["f9"])
    if what == "a file that is not there":
        return mn.Dataset.open([good, folder / "c.parquet"])
    if what == "files of several kinds":
        return mn.Dataset.open([text, folder / "x.npy"])
    source = mn.Dataset.open([good, bad], label="tree", weight="w", memory=MEMORY // 8)
    if what == "a file that changes between passes":
        pq.write_table(spoiled.slice(0, 60), bad)
        return list(source)
    return mn.DAMClassifier(5, objective="joint", geometry="unit", max_iter=1).fit(source)


@pytest.mark.parametrize("what", BAD)
def test_bad_files(tmp_path, rows, what):
    x, y = rows[0][:200].copy(), rows[1][:200].astype(object)
    with pytest.raises(ValueError, match=BAD[what]) as caught:
        read_bad(what, tmp_path, x, y)
    assert "\n" not in str(caught.value)


def test_the_page_of_errors_has_these_lines():
    section = PAGE.read_text(encoding="utf-8").partition("## Rows in files")[2]
    lines = dict(re.findall(r"^\| (.+?) \| `(.+?)` \|", section, re.MULTILINE))
    assert len(lines) >= 3
    assert all(re.search(BAD[what], text) for what, text in lines.items())


def claiming(shape, dtype="<f8"):
    """The bytes of an array of 24 numbers whose header claims something else."""
    header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (118 - len(header) - 1) + "\n"
    return b"\x93NUMPY\x01\x00v\x00" + header.encode() + bytes(24 * 8)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"\x93NUMPY", claiming("(8, 3)")[:40], claiming("(8, 3)")[:-9],
        claiming("(10000000000000, 3)"), claiming(f"({10**30}, 3)"), claiming("(-8, 3)"),
        claiming("(8.5, 3)"), claiming("(8, 3"), claiming("('a', 3)"), claiming("(8, 3)", "O"),
        claiming("(8, 3)", "nothing"), claiming("(8, 3)").replace(b"shape", b"shope"),
    ],
    ids=range(13),
)  # fmt: skip
def test_headers_of_arrays_that_are_cut_or_claim_too_much(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"x\.npy cannot be read") as caught:
        mn.Dataset.open(path)
    assert "\n" not in str(caught.value)
    path.write_bytes(claiming("(8, 3)"))
    assert read_npy(path).shape == (8, 3)


def test_an_error_of_the_thread_comes_through_and_a_stop_ends_it():
    def fails():
        yield 1
        raise RuntimeError("broken")

    items = prefetch(fails())
    assert next(items) == 1
    with pytest.raises(RuntimeError, match="broken"):
        next(items)
    made = []
    endless = prefetch(iter(lambda: made.append(1) or 1, 2))
    next(endless)
    endless.close()
    assert len(made) < 5
