"""Bad input: one line that says what is wrong and what to do, exit code 2, nothing left behind."""

import errno

import numpy as np
import pytest
from safetensors.numpy import save_file

from mnemosphere.training import checkpoint


def error_of(result):
    """The one line of an error."""
    lines = result.stderr.strip().splitlines()
    errors = [line for line in lines if line.startswith("error: ")]
    assert len(errors) == 1, result.stderr
    assert lines[-1] == errors[0]
    assert result.stdout == ""
    return errors[0]


TRAIN = {
    "missing file": (["nowhere.csv"], "nowhere.csv does not exist: check the path"),
    "unknown data set": (["mnits"], "no data set or file called 'mnits': try one of mnist-small"),
    "unknown suffix": (["{folder}/notes.txt"], "cannot read files of type '.txt'"),
    "folder": (["{folder}"], "is a folder"),
    "no data": ([], "no data: pass DATA"),
    "unknown label column": (["{table}", "--label", "color"], "no column 'color', there are"),
    "label column out of range": (["{table}", "--label", "17"], "no column 17"),
    "label of a built-in": (["digits", "--label", "y"], "--label is for files of your own"),
    "NaN": (["{folder}/nan.csv"], "row 1, column 'b' is nan"),
    "empty cell": (["{folder}/empty.csv"], "the cell is empty"),
    "no labels": (["{folder}/plain.csv"], "no labels: name their column with --label"),
    "real labels": (["{folder}/real.csv"], "continuous"),
    "one row": (["{folder}/one.csv"], "row"),
    "foreign npz": (["{folder}/foreign.npz"], "foreign.npz is not a .npz file"),
    "pickled npy": (["{folder}/pickle.npy"], "save plain arrays"),
    "labels of another length": (
        ["{folder}/x.npy", "--labels", "{folder}/short.npy"],
        "labels of shape (2,), expected (5,)",
    ),
    "labels in a text file": (
        ["{folder}/x.npy", "--labels", "{folder}/notes.txt"],
        "not a .npy file",
    ),
    "missing labels file": (["{folder}/x.npy", "--labels", "gone.npy"], "gone.npy: No such file"),
    "negative memories": (["{table}", "--memories", "-3"], "--memories must be"),
    "word for memories": (
        ["{table}", "--memories", "many"],
        "memories must be a whole number or 'auto', got 'many'",
    ),
    "zero epochs": (["{table}", "--epochs", "0"], "--epochs must be"),
    "varsigma over 1": (["{table}", "--varsigma", "1.5"], "--varsigma must be"),
    "negative beta": (["{table}", "--beta", "-1"], "--beta must be"),
    "smoothing of 1": (["{table}", "--label-smoothing", "1"], "--label-smoothing must be"),
    "unknown solver": (["{table}", "--solver", "magic"], "--solver must be"),
    "unknown growth": (["{table}", "--growth", "up"], "growth must be 'none' or 'split'"),
    "unknown device": (["{table}", "--device", "abacus"], "device 'abacus' cannot be used here"),
    "unknown dtype": (["{table}", "--dtype", "float8"], "--dtype must be"),
    "test fraction": (["{table}", "--test-fraction", "1"], "--test-fraction must lie in [0, 1)"),
    "image shape": (["{table}", "--image-shape", "2x2"], "4 pixels but rows have 7"),
    "not unit rows": (["{table}", "--normalize", "none"], "wants unit rows"),
    "missing config": (["--config", "gone.toml"], "gone.toml: No such file"),
    "broken config": (["--config", "{folder}/notes.txt"], "is not a TOML file"),
    "unknown config key": (["--config", "{folder}/typo.toml"], "did you mean 'memories'?"),
    "config of wrong type": (["--config", "{folder}/type.toml"], "seed must be a whole number"),
    "unwritable folder": (["{table}", "--out", "{folder}/notes.txt/run"], "notes.txt"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory, kit):
    here = tmp_path_factory.mktemp("bad")
    (here / "notes.txt").write_text("these are = = notes\n")
    (here / "nan.csv").write_text("a,b,label\n1,2,x\n3,nan,y\n5,6,x\n")
    (here / "empty.csv").write_text("a,b,label\n1,2,x\n3,,y\n")
    (here / "plain.csv").write_text("a,b,c\n1,2,3\n4,5,6\n")
    (here / "real.csv").write_text("a,b,y\n1,2,0.5\n4,5,1.5\n3,3,2.25\n")
    (here / "one.csv").write_text("a,b,c,label\n")
    (here / "foreign.npz").write_bytes(b"not a zip file")
    np.save(here / "pickle.npy", np.array([{}, []], dtype=object), allow_pickle=True)
    np.save(here / "x.npy", np.arange(15.0).reshape(5, 3))
    np.save(here / "short.npy", np.array([0, 1]))
    (here / "typo.toml").write_text("data = 'digits'\nmemorys = 3\n")
    (here / "type.toml").write_text("data = 'digits'\nseed = [1, 2]\n")
    return here


@pytest.mark.parametrize("case", TRAIN)
def test_train_says_what_is_wrong(run, tmp_path, folder, table, case):
    arguments, message = TRAIN[case]
    arguments = [a.format(folder=folder, table=table) for a in arguments]
    if "--out" not in arguments:
        arguments += ["--out", str(tmp_path / "run")]
    if str(table) in arguments and "--label" not in arguments:
        arguments += ["--label", "kind"]
    found = error_of(run("train", *arguments, "--quiet", code=2))
    assert message in found, found
    assert not (tmp_path / "run" / "model.safetensors").exists()


MODEL = {
    "missing": (None, "no model file at"),
    "empty": (b"", "damaged or not a safetensors file"),
    "foreign bytes": (b"P6 255 255 a picture", "damaged or not a safetensors file"),
    "truncated": ("half", "damaged or not a safetensors file"),
    "of another program": ("other", "of another program"),
}


@pytest.mark.parametrize("case", MODEL)
@pytest.mark.parametrize("command", ["evaluate", "explain", "certify"])
def test_unreadable_models(run, tmp_path, trained, table, case, command):
    content, message = MODEL[case]
    path = tmp_path / "model.safetensors"
    if content == "half":
        whole = (trained / "model.safetensors").read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
    elif content == "other":
        save_file({"weights": np.zeros((3, 2))}, path)
    elif content is not None:
        path.write_bytes(content)
    found = error_of(run(command, path, table, "--label", "kind", code=2))
    assert str(path) in found
    assert message in found


def test_data_that_do_not_fit_the_model(run, tmp_path, trained, table, kit):
    model = trained / "model.safetensors"
    result = run("evaluate", model, "digits", code=2)
    assert "digits has 64 features but" in error_of(result)
    x, y = kit.rows()
    labels = [kit.classes[k] for k in y]
    other = kit.write_csv(tmp_path / "a.csv", x, labels, [*kit.names[:-1], "weight"])
    result = run("evaluate", model, other, "--label", "kind", code=2)
    assert "has no column 'length6'" in error_of(result)
    numbers = kit.write_csv(tmp_path / "b.csv", x, y)
    result = run("evaluate", model, numbers, "--label", "kind", code=2)
    assert "the labels are numbers, such as 0, but the model's are like 'ant'" in error_of(result)
    result = run("evaluate", model, table, "--label", "kind", "--split", "half", code=2)
    assert "--split must be train, test or all" in error_of(result)
    alone = kit.write_csv(tmp_path / "c.csv", x, labels[::-1])
    result = run("evaluate", model, alone, "--label", "kind", "--split", "test", code=2)
    assert "has no test split of its own" in error_of(result)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["explain", "--row", "500"], "--row must lie in [-18, 18), got 500"),
        (["explain", "--picture", "why.txt"], "end the name in .png"),
        (["certify", "--tol", "0"], "tol must be positive"),
        (["shrink", "--memories", "0", "--out", "s.safetensors"], "must lie in [1, 11]"),
        (["shrink", "--memories", "12", "--out", "s.safetensors"], "must lie in [1, 11]"),
    ],
)
def test_bad_options_of_commands_that_use_a_model(
    run, tmp_path, monkeypatch, trained, table, arguments, message
):
    monkeypatch.chdir(tmp_path)
    command, *more = arguments
    model = trained / "model.safetensors"
    result = run(command, model, table, "--label", "kind", *more, "--quiet", code=2)
    assert message in error_of(result)
    assert not list(tmp_path.iterdir())


def test_a_full_disk(run, tmp_path, monkeypatch, table, kit):
    original = checkpoint.write_atomically

    def full(path, content):
        if path.name == "model.safetensors":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        original(path, content)

    monkeypatch.setattr(checkpoint, "write_atomically", full)
    out = tmp_path / "run"
    arguments = ["train", table, "--label", "kind", *kit.fast, "--out", out]
    result = run(*arguments, "--json", code=2)
    found = error_of(result)
    assert "model.safetensors: No space left on device: free some space" in found
    assert not (out / "model.safetensors").exists()
    monkeypatch.undo()
    run("train", "--resume", "--out", out)  # the passes were not lost
    assert (out / "model.safetensors").exists()


def test_errors_leave_json_output_empty(run, tmp_path):
    result = run("train", tmp_path / "gone.csv", "--json", code=2)
    assert result.stdout == ""
    assert error_of(result)
