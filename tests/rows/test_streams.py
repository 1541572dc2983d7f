"""Rows in files: every format, passes, order, what is sampled and held out, and bad files."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch

import mnemosphere as mn
from draws import generator
from mnemosphere.geometry import Standard
from mnemosphere.model import from_memories, objectives
from mnemosphere.rows.streams import ahead
from mnemosphere.training import FixedPoint, fit
from mnemosphere.training.dataset import ArrayDataset

N_ROWS, N, C = 907, 5, 3
MEMORY = 16 * 8 * N * 64  # batches of 64 rows
NAMES = [f"f{k}" for k in range(N)]
CPU = torch.device("cpu")


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
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), N)
    pq.write_table(pa.table({"v": lists, "tree": y, "w": weight}), where / "lists.parquet")
    np.save(where / "x.npy", x)
    np.save(where / "y.npy", y)
    np.save(where / "w.npy", weight)
    return where


SOURCES = {
    "parquet": ("?.parquet", "tree", "w", NAMES),
    "csv": ("rows.csv", "tree", "w", None),
    "lists": ("lists.parquet", "tree", "w", None),
    "npy": ("x.npy", "y.npy", "w.npy", None),
}


def opened(folder, kind="parquet", **settings):
    pattern, label, weight, features = SOURCES[kind]
    beside = [str(folder / name) if kind == "npy" else name for name in (label, weight)]
    given = {"label": beside[0], "weight": beside[1], "features": features, "memory": MEMORY}
    return mn.Dataset.open(str(folder / pattern), **{**given, **settings})


@pytest.mark.parametrize("kind", SOURCES)
def test_every_format_gives_the_same_rows(folder, rows, kind):
    source = opened(folder, kind)
    assert (source.n_rows, source.n_features) == (N_ROWS, N)
    x, y, weight = (np.concatenate(part) for part in zip(*source, strict=True))
    for found, wanted in zip((x, y, weight), rows, strict=True):
        np.testing.assert_array_equal(found, wanted)
    again = source.read()
    np.testing.assert_array_equal(again[0], rows[0])
    assert source.n_bytes > 0
    assert max(len(x) for x, *_ in source) <= source.files.batch_rows == 64


def test_batches_of_any_kind(rows):
    x, y, weight = rows
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.from_numpy(x), torch.arange(N_ROWS)), batch_size=50
    )
    source = mn.Dataset.from_batches(loader, memory=MEMORY)
    assert source.n_rows == N_ROWS
    order = [b.y for b in source.files.batches(30, 5)]
    assert sorted(np.concatenate(order).tolist()) == list(range(N_ROWS))
    parts = np.array_split(np.arange(N_ROWS), 9)
    some = mn.Dataset.from_batches(lambda: ((x[p], y[p], weight[p]) for p in parts), memory=MEMORY)
    found, names, _ = some.read()
    np.testing.assert_array_equal(found, x)
    assert (names == y).all()
    images = mn.Dataset.from_batches([np.ones((3, 4, 5)), np.ones((2, 4, 5))])
    assert repr(images) == "Dataset of 5 rows x 20 in 1 file"
    for n in (2, 4):
        counts = iter([3, 3, n])
        odd = mn.Dataset.from_batches(lambda counts=counts: [np.ones((next(counts), 2))])
        with pytest.raises(ValueError, match=f"batches had 3 rows and now {n}"):
            list(odd)


@pytest.mark.parametrize("kind", ["parquet", "csv", "npy"])
def test_shuffled_passes_are_seeded_and_mixed(folder, kind):
    source = opened(folder, kind)

    def numbers(seed):
        return [batch.rows.number.tolist() for batch in source.files.batches(40, seed)]

    one = numbers(1)
    assert one == numbers(1)
    assert one != numbers(2)
    assert [row for batch in numbers(None) for row in batch] == list(range(N_ROWS))
    flat = [row for batch in one for row in batch]
    assert sorted(flat) == list(range(N_ROWS))
    assert max(map(len, one)) <= 40
    # A batch holds rows from all over the window it was drawn from.
    assert np.mean([np.ptp(batch) for batch in one]) > 100


def on_sphere(source, weighted=True):
    """The same rows as training sees them: from files, and in memory."""

    def label(raw):
        index = torch.from_numpy(np.searchsorted(["ash", "elm", "oak"], raw.y))
        weight = torch.from_numpy(np.array(raw.weight)) if weighted else None
        return objectives.soft_labels(index, C, 0.1, dtype=torch.float64), weight

    geometry = Standard.fit(source.files)
    raw = source.files.sample(N_ROWS, 0)
    zero = torch.zeros(C + 1, dtype=torch.float64)
    how = {"partly": False, "device": CPU, "dtype": torch.float64}
    whole = source.on_sphere(raw, geometry, label, zero, **how).sampled
    some = raw.take(torch.arange(0, N_ROWS, 3))
    return source.on_sphere(some, geometry, label, whole.label_mass(), **how), whole


@pytest.fixture(scope="module")
def both(folder):
    return on_sphere(opened(folder))


def test_training_takes_what_was_opened(tmp_path, rows):
    """Rows count as unit rows without labels until an estimator says otherwise."""
    x = rows[0] / np.linalg.norm(rows[0], axis=1, keepdims=True)
    np.savez(tmp_path / "rows.npz", x=x, y=rows[1])
    dataset = mn.Dataset.open(tmp_path / "rows.npz", memory=MEMORY)
    assert isinstance(dataset, mn.Dataset)
    unit = torch.from_numpy(x)
    held = ArrayDataset.of(unit, unit.new_zeros(1, 1).expand(N_ROWS, -1))
    params = from_memories(unit[::100], torch.ones(1).double(), beta=6.0, varsigma=0.8)
    found, wanted = (
        fit(params, rows, FixedPoint(None), rule=objectives.marginal, max_iter=3)
        for rows in (dataset, held)
    )
    torch.testing.assert_close(found.params.w, wanted.params.w, rtol=0, atol=1e-10)
    x, y, weight = dataset.read()
    assert (y == rows[1]).all()
    assert weight is None


def test_rows_held_out_are_never_trained_on(both):
    streamed, whole = both
    rest, held = streamed.split(0.1, generator=generator(0))
    assert rest.n_rows + held.n_rows == N_ROWS
    assert abs(held.n_rows - 0.1 * N_ROWS) <= C
    for seed in (None, torch.Generator().manual_seed(1)):
        seen = torch.cat([batch.x for batch in rest.batches(50, generator=seed)])
        assert seen.shape[0] == rest.n_rows
        assert not (seen[:, None] == held.rows.x[None]).all(2).any()
    torch.testing.assert_close(rest.label_mass() + held.label_mass(), whole.label_mass())
    none = streamed.without_labels(7)
    assert next(none.batches(9)).targets.shape == (9, 7)
    assert not streamed.has_unlabeled()


def test_rows_without_direction_are_set_aside_and_counted(tmp_path, rows):
    x = rows[0].copy()
    x[[3, 500]] = 0.0
    np.save(tmp_path / "x.npy", x)
    source = mn.Dataset.open(tmp_path / "x.npy", memory=MEMORY)
    model = mn.DAMClusterer(2, n_memories=4, geometry="unit", max_iter=2, random_state=0)
    with pytest.warns(UserWarning, match="2 of 907 rows"):
        model.fit(source)


# Bad files: one line that names the file, and the row where there is one.


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
BAD = {
    "a truncated Parquet file": r"b\.parquet cannot be read \(",
    "a file with other columns than the first":
        r"b\.parquet and .*a\.parquet have other columns \(column 'f1' is in one alone\)",
    "a number that is infinite": r"b\.parquet: row 123 is infinite \(inf\) in column 'f2'",
    "a missing label": r"b\.parquet: row 77 has no label",
    "a file that changes between passes": r"b\.parquet cannot be read \(it has changed",
    "a file that is not there": r"no file .*b\.parquet",
    "a truncated array": r"x\.npy cannot be read \(mmap length is greater than file size",
    "a line with too few cells": r"c\.csv cannot be read",
    "no such column": "no column 'f9': it has f0",
    "a pattern that no file matches": "no file matches '.*none",
}  # fmt: skip


def read_bad(what, folder, x, y):
    good, bad = folder / "a.parquet", folder / "b.parquet"
    array, text = folder / "x.npy", folder / "c.csv"
    whole = table(x, y, np.ones(len(x)))
    x[123, 2] = np.inf if what == "a number that is infinite" else 0
    y[77] = None if what == "a missing label" else y[77]
    spoiled = table(x, y, np.ones(len(x)))
    pq.write_table(whole, good)
    pq.write_table(spoiled.drop_columns(["f1"]) if "other columns" in what else spoiled, bad)
    np.save(array, x)
    text.write_text("a,b\n1,2\n3\n")
    for path in (bad,) * ("Parquet" in what) + (array,):
        path.write_bytes(path.read_bytes()[:-300])
    how = {"label": "tree", "weight": "w", "memory": MEMORY}
    if what in ("a truncated array", "a line with too few cells"):
        return list(mn.Dataset.open(array if "array" in what else text))
    if what == "no such column":
        return list(mn.Dataset.open(good, features=["f9"]))
    if what == "a pattern that no file matches":
        return mn.Dataset.open(str(folder / "none*.parquet"))
    if what == "a file that is not there":
        bad.unlink()
    source = mn.Dataset.open([good, bad], **how)
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


def test_an_error_of_the_thread_comes_through_and_a_stop_ends_it():
    def fails():
        yield 1
        raise RuntimeError("broken")

    items = ahead(fails())
    assert next(items) == 1
    with pytest.raises(RuntimeError, match="broken"):
        next(items)
    made = []
    endless = ahead(iter(lambda: made.append(1) or 1, 2))
    next(endless)
    endless.close()
    assert len(made) < 5
