"""Patterns of files, and files that memory does not hold, through the commands."""

import shutil

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import adjusted_rand_score

from mnemosphere.estimators import load
from mnemosphere.training.checkpoint import Checkpoint

SMALL = ["--max-memory", "0.02"]
N, PER_FILE = 640, 160


@pytest.fixture(scope="module")
def rows(tmp_path_factory, kit):
    """Four files of a table in each format, and the table."""
    folder = tmp_path_factory.mktemp("large")
    table = kit.frame(3, N)
    for k, part in enumerate(np.array_split(np.arange(len(table)), 4)):
        some = table.iloc[part].reset_index(drop=True)
        some.to_parquet(folder / f"p{k}.parquet", row_group_size=70)
        some.to_csv(folder / f"c{k}.csv", index=False)
        np.save(folder / f"x{k}.npy", np.ascontiguousarray(some.filter(like="length")))
        np.save(folder / f"y{k}.npy", np.searchsorted(["ant", "bee", "cat"], some["kind"]))
    return folder, table


@pytest.fixture(scope="module")
def trained(rows, call, kit):
    """A model trained on the files as they are read, and the same rows in memory."""
    folder, _ = rows
    words = ["train", folder / "p*.parquet", "--label", "kind", "--id", "tag", *kit.fast]
    call(*words, *SMALL, "--out", folder / "large")
    call(*words, "--out", folder / "small")
    return folder


def test_a_pattern_trains_as_one_table(trained, rows):
    large, small = (load(trained / name / "model.safetensors") for name in ("large", "small"))
    x = rows[1].filter(like="length")
    assert list(large.feature_names_in_) == list(small.feature_names_in_) == list(x.columns)
    assert np.mean(large.predict(x) == small.predict(x)) > 0.98
    assert large.score(x, rows[1]["kind"]) > 0.95
    names = {path.name for path in (trained / "small").iterdir()}
    assert {path.name for path in (trained / "large").iterdir()} == names
    # The rows behind memories are named by file and row.
    name, row = large.model_.exemplars.names[0, 0].split(":")
    assert large.typical_rows_[0, 0] == PER_FILE * int(name[1]) + int(row)


def test_held_out_rows_are_not_trained_on_and_found_again(trained, run):
    words = ["evaluate", trained / "large", trained / "p*.parquet", "--json"]
    told = run(*words, *SMALL).json
    known = run(*words, *SMALL, "--split", "train").json
    every = run(*words, *SMALL, "--split", "all").json
    whole = run(*words, "--split", "all").json
    assert (told["rows"], known["rows"]) == (0.2 * N, 0.8 * N)
    for key in ("accuracy", "log_loss", "calibration_error", "most_frequent"):
        assert every[key] == pytest.approx(whole[key], rel=1e-12), key
    assert every["confusion"] == whole["confusion"]
    parts = np.array(told["confusion"]) + np.array(known["confusion"])
    assert parts.tolist() == every["confusion"]
    assert [row["probability_of_truth"] for row in every["worst_rows"]] == pytest.approx(
        [row["probability_of_truth"] for row in whole["worst_rows"]]
    )
    name, row = every["worst_rows"][0]["row"].split(":")
    assert (trained / name).exists()
    assert 0 <= int(row) < PER_FILE


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_predictions_are_written_as_it_goes(trained, run, tmp_path, suffix):
    """In parts, and as they would be written at once."""
    out = [tmp_path / f"{name}{suffix}" for name in ("parts", "once")]
    for path, more in zip(out, (SMALL, []), strict=True):
        run("predict", trained / "large", trained / "p*.parquet", "--id", "tag", *more,
            "--reject", "0.01", "--out", path)  # fmt: skip
    if suffix == ".parquet":
        one, other = (pd.read_parquet(path) for path in out)
        pd.testing.assert_frame_equal(one, other)
        assert one["tag"].iloc[600] == "bug-600"
    else:
        assert out[0].read_bytes() == out[1].read_bytes()
    assert len(list(tmp_path.iterdir())) == 2


def test_arrays_and_their_labels(rows, run, kit, tmp_path):
    folder, table = rows
    run("train", folder / "x*.npy", "--label", folder / "y*.npy", *kit.fast, "--out",
        tmp_path / "run")  # fmt: skip
    run("predict", tmp_path / "run", folder / "x*.npy", "--out", tmp_path / "p.parquet")
    proba = pd.read_parquet(tmp_path / "p.parquet").filter(like="probability_").to_numpy()
    truth = np.searchsorted(["ant", "bee", "cat"], table["kind"])
    assert np.mean(proba.argmax(1) == truth) > 0.95
    told = run("evaluate", tmp_path / "run", folder / "x*.npy", "--label", folder / "y*.npy",
               "--split", "all", "--json").json  # fmt: skip
    assert told["accuracy"] == pytest.approx(np.mean(proba.argmax(1) == truth))


def test_several_files_and_the_first_rows(trained, run, rows):
    files = [trained / f"c{k}.csv" for k in range(4)]
    shown = run("predict", trained / "large", *files, *SMALL)
    assert "620 more rows" in shown.stderr
    assert "bug-0" in shown.stdout
    error = run("predict", trained / "large", *files, *SMALL, "--json", code=2).error
    assert "640 rows are too many to print" in error
    told = run("predict", trained / "large", *files, "--json", "--max-rows", "165").json
    assert len(told["predictions"]) == 165
    assert told["predictions"][163]["tag"] == rows[1]["tag"][163]


def change(folder, how):
    table = pd.read_parquet(folder / "p2.parquet")
    how(table).to_parquet(folder / "p2.parquet", row_group_size=70)


def without(column, row):
    return lambda table: table.assign(
        **{column: table[column].astype(object).mask(table.index == row)}
    )


BAD = {
    "NaN": (
        lambda folder: change(folder, without("length1", 97)),
        "p2.parquet: row 97 is NaN in column 'length1'",
    ),
    "label": (
        lambda folder: change(folder, without("kind", 97)), "p2.parquet: row 97 has no label",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_one_line_and_leave_nothing(trained, run, kit, tmp_path, case):
    folder, (damage, says) = tmp_path / "rows", BAD[case]
    folder.mkdir()
    for path in trained.glob("p*.parquet"):
        shutil.copy(path, folder)
    damage(folder)
    words = ["--id", "tag", *SMALL, "--out"]
    error = run("train", folder / "p*.parquet", "--label", "kind", *kit.fast, *words,
                tmp_path / "run", code=2).error  # fmt: skip
    assert says in error
    if case != "label":  # which is not looked at
        error = run("predict", trained / "large", folder / "p*.parquet", *words,
                    tmp_path / "out.csv", code=2).error  # fmt: skip
        assert says in error
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]


@pytest.fixture
def ctrl_c(monkeypatch):
    """Ctrl-C after the k-th batch; the batches that were done."""

    def at(k):
        done = []

        def on_batch(self, run, share_done):
            done.append((run.n_iter, share_done))
            if len(done) == k:
                raise KeyboardInterrupt

        monkeypatch.setattr(Checkpoint, "on_batch", on_batch)
        return done

    return at


def test_clusters_of_files_broken_off_and_resumed(rows, run, tmp_path, ctrl_c):
    """Every row gets its cluster as the files are read, with the same bits after Ctrl-C."""
    folder, table = rows
    words = ["cluster", folder / "p*.parquet", "--label", "kind", "--drop", "tag", *SMALL,
             "--clusters", 3, "--memories", 6, "--geometry", "standard", "--varsigma", 1,
             "--batch-size", 60, "--max-iter", 2, "--quiet"]  # fmt: skip
    ctrl_c(16)
    told = run(*words, "--out", tmp_path / "run", code=130).stderr
    assert "go on with the same command and --resume" in told
    assert "nothing to resume" in run(*words, "--out", tmp_path / "x", "--resume", code=2).error
    run(*words, "--out", tmp_path / "run", "--resume")
    found = run(*words, "--out", tmp_path / "whole", "--json").json
    one, other = (load(tmp_path / name / "model.safetensors") for name in ("run", "whole"))
    np.testing.assert_array_equal(one.memories_, other.memories_)
    np.testing.assert_array_equal(one.labels_, other.labels_)
    written = pd.read_csv(tmp_path / "run" / "rows.csv")
    x = table.filter(like="length")
    assert written["row"].tolist()[159:161] == ["p0.parquet:159", "p1.parquet:0"]
    np.testing.assert_array_equal(written["cluster"], one.predict(x))
    np.testing.assert_allclose(written["probability"], one.predict_proba(x).max(1))
    assert found["agreement"] == pytest.approx(
        adjusted_rand_score(table["kind"], one.labels_), rel=1e-12
    )
    assert [line["rows"] for line in found["clusters"]] == np.bincount(one.labels_).tolist()
