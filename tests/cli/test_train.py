import json
import os

import numpy as np

import mnemosphere as mn
from mnemosphere.cli import train as module
from mnemosphere.cli.options import Columns
from mnemosphere.cli.output import Folder
from mnemosphere.cli.rows import open_rows


def test_folder_holds_model_settings_record_and_pictures(trained, model, kit):
    record = json.loads((trained / "results.json").read_text())
    assert sorted(record["files"]) == sorted(path.name for path in trained.iterdir())
    assert {"model.safetensors", "memories.png"} < set(record["files"])
    assert (record["settings"]["n_memories"], record["settings"]["varsigma"]) == (11, 0.9)
    assert record["seed"] == 0
    assert record["data"]["rows"] + record["data"]["test_rows"] == kit.n_rows
    assert {"torch", "numpy", "pandas", "mnemosphere"} <= set(record["versions"])
    assert model.feature_names_in_.tolist() == kit.names
    assert record["chosen"]["memories"] == model.n_memories_ == 11
    sizes = record["importance"]
    assert {*sizes} == {line.name for line in model.model_.features.lines}
    assert [*sizes.values()] == sorted(sizes.values(), reverse=True)
    assert "columns.png" in record["files"]
    assert not trained.with_name("run.partial").exists()


def test_the_model_is_that_of_python_on_the_rows_that_were_not_held_out(model, table, kit):
    rows = open_rows(str(table), Columns(label="kind", id="tag")).hold_out(0.2, 0)
    kept = rows.take(~rows.is_test)
    # A fifth of each class is held out: 31, 30 and 30 rows.
    assert sorted(np.unique(rows.y[rows.is_test], return_counts=True)[1]) == [6, 6, 6]
    clf = mn.DAMClassifier(
        11, objective="joint", varsigma=0.9, geometry="standard", max_iter=5, random_state=0
    )
    clf.fit(kit.frame().loc[~rows.is_test, kit.names], kept.y)
    x = kit.frame(5)[kit.names]
    np.testing.assert_array_equal(model.predict_proba(x), clf.predict_proba(x))


def test_the_search_is_shown(run, tmp_path, table):
    """At most five trials, best first, the chosen one among them."""
    words = ["train", table, "--label", "kind", "--drop", "tag"]
    wrote, shown, facts = run(*words, "--out", tmp_path / "a").stdout.split("\n\n", 2)
    assert wrote.startswith("wrote ")
    model = mn.load(tmp_path / "a" / "model.safetensors")
    losses = [float(line.split(" ± ")[0].split()[-1]) for line in shown.splitlines()[2:]]
    assert 1 <= len(losses) <= 5
    assert losses == sorted(losses)
    assert shown.count(" chosen") == 1
    assert f" {model.n_memories_}  (chosen from the data)" in facts
    plain = run(*words, "--search", "none", "--out", tmp_path / "c").stdout
    assert " ± " not in plain
    assert mn.load(tmp_path / "c" / "model.safetensors").search is None


def test_an_interrupted_run_goes_on_to_the_same_model(
    run, tmp_path, monkeypatch, table, trained, kit
):
    out = tmp_path / "run"
    original = mn.Checkpoint.on_pass

    def stop_after_two(self, run):
        original(self, run)
        if run.n_iter == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(mn.Checkpoint, "on_pass", stop_after_two)
    arguments = ["train", table, "--label", "kind", "--id", "tag", *kit.fast]
    result = run(*arguments, "--out", out, code=130)
    assert "--resume" in result.stderr
    assert not out.exists()
    assert (tmp_path / "run.partial" / "model.safetensors").exists()
    monkeypatch.undo()
    assert "interrupted run" in run(*arguments, "--out", out, code=2).error
    run(*arguments, "--resume", "--out", out, "--quiet")
    x = kit.frame(5)[kit.names]
    one, two = (mn.load(f / "model.safetensors").predict_proba(x) for f in (trained, out))
    np.testing.assert_array_equal(one, two)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_kills_have_left(run, tmp_path, table, trained, kit):
    """A draft of nothing is used; a draft that cannot be resumed stays."""
    (tmp_path / "run.partial").mkdir()
    run("train", table, "--label", "kind", "--id", "tag", *kit.fast, "--out", tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    draft = tmp_path / "more.partial"
    draft.mkdir()
    (draft / "checkpoint.safetensors.run").write_bytes(b"x")
    run("train", table, "--resume", "--label", "kind", "--out", tmp_path / "more", code=2)
    assert (draft / "checkpoint.safetensors.run").read_bytes() == b"x"


def test_rows_without_a_label_are_used_unlabeled(run, tmp_path, kit):
    table = kit.frame().drop(columns="tag")
    table.loc[::4, "kind"] = None
    table.to_csv(tmp_path / "some.csv", index=False)
    result = run("train", tmp_path / "some.csv", *kit.fast, "--out", tmp_path / "run")
    assert "23 of " in result.stderr
    assert mn.load(tmp_path / "run" / "model.safetensors").classes_.tolist() == kit.classes


def test_rows_without_direction_are_named_by_their_lines(run, tmp_path, kit):
    table = kit.frame().drop(columns="tag")
    table.loc[[3, 50], kit.names] = 0.0
    table.to_csv(tmp_path / "zeros.csv", index=False)
    result = run("train", tmp_path / "zeros.csv", *kit.fast, "--geometry", "unit",
                 "--test-fraction", "0", "--out", tmp_path / "run")  # fmt: skip
    assert "2 rows have no direction and were set aside: line 5, 52" in result.stderr


def test_held_out_rows_in_a_file(run, tmp_path, table, kit):
    kit.frame(5, 41).to_csv(tmp_path / "test.csv", index=False)
    arguments = ["train", table, "--label", "kind", "--drop", "tag", *kit.fast]
    found = run(*arguments, "--test", tmp_path / "test.csv", "--out", tmp_path / "r", "--json").json
    assert (found["rows"], found["data"]["rows"]) == (41, kit.n_rows)


def test_a_full_disk_after_training_leaves_nothing_behind(run, tmp_path, monkeypatch, table, kit):
    def fail(*_, **__):
        raise OSError(28, "No space left on device", "history.png")

    monkeypatch.setattr(module.plots, "save", fail)
    arguments = ["train", table, "--label", "kind", "--drop", "tag", *kit.fast]
    error = run(*arguments, "--out", tmp_path / "run", code=2).error
    assert error.endswith(
        "history.png: No space left on device: free some space or choose another place"
    )
    assert not list(tmp_path.rglob("*"))


def test_two_runs_do_not_write_to_one_folder(run, tmp_path, table, kit):
    out = tmp_path / "o"
    with Folder(out, overwrite=False).writing() as draft:
        (draft / "checkpoint.safetensors.run").write_text("")
        for more in ([], ["--resume"], ["--overwrite"]):
            error = run("train", table, *kit.fast, "--out", out, *more, code=2).error
            assert f"process {os.getpid()} on " in error
            assert "is writing to" in error
        assert draft.exists()
    run("train", table, *kit.fast, "--out", out, "--overwrite", "-q")
    assert not list(tmp_path.glob(".*"))
