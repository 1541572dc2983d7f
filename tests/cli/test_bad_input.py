"""Bad input: one line that says what is wrong and what to do, exit code 2, nothing left behind."""

import shutil

import numpy as np
import pytest

TRAIN = {
    "unknown label column": (["{table}", "--label", "kin"], "did you mean 'kind'?"),
    "folder without images": (["{folder}"], "is a folder without images"),
    "measured numbers": (["{folder}/real.csv"], "'y', taken for the label, holds measured numbers"),
    "one class": (["{folder}/same.csv"], "'lab', taken for the label, says 'A7' in every row"),
    "no labels": (["{folder}/x.npy"], "x.npy has no labels"),
    "setting of another solver": (["{table}", "--momentum", "0.5"], "a setting of --solver sgd"),
    "class weight": (["{table}", "--class-weight", "dog"], "must look like LABEL=NUMBER"),
    "test fraction": (["{table}", "--test-fraction", "1"], "--test-fraction must lie in [0, 1)"),
    "a file above the folder": (["{table}", "--out", "{folder}/notes.txt/run"], "is a file"),
    "nothing to resume": (["{table}", "--resume"], "nothing to resume"),
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    here = tmp_path_factory.mktemp("bad")
    (here / "notes.txt").write_text("these are = = notes\n")
    (here / "same.csv").write_text("a,b,lab\n1,2,A7\n3,4,A7\n")
    (here / "real.csv").write_text("a,b,y\n1,2,0.5\n4,5,1.5\n3,3,2.25\n")
    np.save(here / "x.npy", np.arange(15.0).reshape(5, 3))
    return here


@pytest.mark.parametrize("case", TRAIN)
def test_train_says_what_is_wrong(run, tmp_path, folder, table, case):
    arguments, message = TRAIN[case]
    arguments = [a.format(folder=folder, table=table) for a in arguments]
    arguments += [] if "--out" in arguments else ["--out", str(tmp_path / "run")]
    if str(table) in arguments:
        arguments += [] if "--label" in arguments else ["--label", "kind"]
        arguments += [] if "--drop" in arguments else ["--drop", "tag"]
    found = run("train", *arguments, "--quiet", code=2).error
    assert message.format(folder=folder) in found
    assert not list(tmp_path.iterdir())


USE = {
    "row": (["explain", "{run}", "{table}", "--row", "500"], "no tag '500' in"),
    "split": (["evaluate", "{run}", "{table}", "--split", "half"], "--split must be train, test"),
    "no split": (["evaluate", "{run}", "{fresh}", "--split", "test"], "no test rows of its own"),
    "other columns": (["predict", "{run}", "{folder}/same.csv"], "none of the columns"),
    "prior": (["predict", "{run}", "{table}", "--prior", "dog=3"], "--prior names 'dog'"),
    "rate": (["predict", "{run}", "{table}", "--reject", "0.001"], "held-out rows"),
    "nothing blank": (["recall", "{run}", "{table}"], "no value is missing"),
    "hide": (["recall", "{run}", "{table}", "--hide", "all"], "--hide must be top, bottom"),
    "share of a class": (["predict", "{run}", "{table}", "--prior", "ant=0.8,bee=0.3"],
                         "gives some of the classes 1.1 of 1: name all, or give less"),
    "ask": (["predict", "{run}", "{table}", "--ask"], "--ask is about rejected rows"),
    "other class": (["explain", "{run}", "{table}", "--counterfactual", "dog"],
                    "--counterfactual must be one of 'ant', 'bee', 'cat'"),
    "existing": (["predict", "{run}", "{fresh}", "--out", "{folder}/same.csv"], "same.csv exists"),
    "input": (["predict", "{run}", "{fresh}", "--out", "{fresh}", "--overwrite"], "is what is read"),
    "tree": (["plot", "tree", "{run}"], "did not grow"),
    "clusters": (["cluster", "{table}", "--drop", "tag,kind", "--clusters", "200"], "=200 needs"),
}  # fmt: skip


@pytest.mark.parametrize("case", USE)
def test_commands_on_models_say_what_is_wrong(
    run, tmp_path, monkeypatch, folder, trained, table, kit, case
):
    fresh = folder / "fresh.csv"
    kit.frame(5, 41).to_csv(fresh, index=False)
    monkeypatch.chdir(tmp_path)
    arguments, message = USE[case]
    arguments = [a.format(run=trained, table=table, folder=folder, fresh=fresh) for a in arguments]
    assert message in run(*arguments, code=2).error
    assert not list(tmp_path.iterdir())


def test_folders_of_others_are_never_replaced(run, tmp_path, table, kit):
    arguments = ["train", table, "--label", "kind", "--drop", "tag", *kit.fast, "-q", "--out"]
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    assert "pass --overwrite" in run(*arguments, mine, code=2).error
    refused = run(*arguments, mine, "--overwrite", code=2).error
    assert "no run has written, such as thesis.txt" in refused
    out = tmp_path / "run"
    run(*arguments, out)
    assert "pass --overwrite" in run(*arguments, out, code=2).error
    run(*arguments, out, "--overwrite")
    (out / "thesis.txt").write_text("years of work")
    assert "thesis.txt" in run(*arguments, out, "--overwrite", code=2).error
    assert (out / "thesis.txt").read_text() == (mine / "thesis.txt").read_text() == "years of work"


@pytest.mark.parametrize("record", ["{", '{"data": "x"}'])
def test_a_damaged_record_is_one_line(run, tmp_path, trained, table, record):
    shutil.copytree(trained, tmp_path / "run")
    (tmp_path / "run" / "results.json").write_text(record)
    found = run("predict", tmp_path / "run", table, code=2).error
    assert "results.json is damaged (" in found
    assert found.endswith("train again, or move it away")
