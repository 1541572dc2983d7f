import hashlib
import json
import tomllib

import numpy as np
import pytest
from safetensors.numpy import load_file

import mnemosphere
from mnemosphere.cli.progress import Live
from mnemosphere.cli.settings import Settings


def same_model(one, two):
    a, b = (load_file(folder / "model.safetensors") for folder in (one, two))
    return a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)


def interrupt_after(monkeypatch, passes):
    original = Live.on_epoch

    def on_epoch(self, record, params):
        original(self, record, params)
        if record.epoch == passes:
            raise KeyboardInterrupt

    monkeypatch.setattr(Live, "on_epoch", on_epoch)


def test_a_run_writes_model_config_and_results(trained, table, kit):
    assert {path.name for path in trained.iterdir()} == {
        "model.safetensors",
        "config.toml",
        "results.json",
    }
    model = mnemosphere.load(trained / "model.safetensors")
    assert model.n_memories_ == 11
    assert model.classes_.tolist() == kit.classes
    assert model.feature_names_in_.tolist() == kit.names
    assert len(model.history_) == 5

    results = json.loads((trained / "results.json").read_text())
    assert results["accuracy"] > 0.8
    assert results["measured_on"] == "test rows"
    # Each class lends a fifth of its rows, rounded: 31, 30, 30 rows give 6 + 6 + 6.
    assert results["data"]["rows"] == kit.n_rows - 18
    assert results["data"]["test_rows"] == 18
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    assert results["data"]["checksum"] == f"sha256:{digest}"
    assert results["history"] == model.history_
    assert results["seed"] == 0
    assert results["device"] == "cpu"
    assert results["versions"]["mnemosphere"] == mnemosphere.__version__
    assert results["command"].startswith("mnemosphere train ")
    assert "--memories 11" in results["command"]
    assert sum(map(sum, results["scores"]["confusion"])) == 18


def test_the_config_holds_every_setting_resolved(trained, table):
    config = tomllib.loads((trained / "config.toml").read_text())
    absent = {"labels", "test", "directory", "image_shape"}
    assert set(config) == set(Settings.__dataclass_fields__) - absent
    assert config["data"] == str(table)
    assert config["label"] == "kind"
    assert config["memories"] == 11
    assert config["device"] == "cpu"


def test_json_and_results_file_agree_and_stdout_is_pure(run, tmp_path, table, kit):
    result = run("train", table, "--label", "kind", "--out", tmp_path, *kit.fast, "--json")
    assert result.json == json.loads((tmp_path / "results.json").read_text())


def test_training_again_from_the_config_gives_the_same_bits(run, tmp_path, trained):
    again = tmp_path / "again"
    run("train", "--config", trained / "config.toml", "--out", again)
    assert same_model(trained, again)
    other = tmp_path / "other"
    run("train", "--config", trained / "config.toml", "--seed", "1", "--out", other)
    assert not same_model(trained, other)
    assert tomllib.loads((other / "config.toml").read_text())["seed"] == 1


def test_automatic_choices_are_written_as_chosen_and_reproduce(run, tmp_path, table):
    first, second = tmp_path / "first", tmp_path / "second"
    done = run("train", table, "--label=-1", "--epochs", "3", "--out", first, "--json").json
    config = tomllib.loads((first / "config.toml").read_text())
    for key, name in (("memories", "memories"), ("varsigma", "varsigma")):
        assert config[key] == done["chosen"][name]
    assert config["normalize"] == done["chosen"]["normalize"] != "auto"
    assert done["selection"]
    run("train", "--config", first / "config.toml", "--out", second)
    assert same_model(first, second)


def test_flags_win_over_the_config_and_hyphens_are_fine(run, tmp_path, table):
    config = tmp_path / "my.toml"
    config.write_text(
        f"data = {json.dumps(str(table))}\nlabel = 'kind'\nmemories = 5\nn-initial = 3\n"
        "varsigma = 1\nnormalize = 'unit'\nepochs = 2\n"
    )
    done = run(
        "train", "--config", config, "--memories", "7", "--out", tmp_path / "run", "--json"
    ).json
    assert done["chosen"]["memories"] == 7
    assert done["settings"]["n_initial"] == 3
    assert done["settings"]["varsigma"] == 1.0


def test_a_model_is_not_overwritten_by_accident(run, tmp_path, trained, kit, table):
    before = (trained / "model.safetensors").read_bytes()
    arguments = ["train", table, "--label", "kind", *kit.fast]
    result = run(*arguments, "--out", trained, code=2)
    assert "holds a model already" in result.stderr
    assert (trained / "model.safetensors").read_bytes() == before
    run(*arguments, "--out", tmp_path)
    run(*arguments, "--memories", "4", "--out", tmp_path, "--overwrite")
    assert mnemosphere.load(tmp_path / "model.safetensors").n_memories_ == 4


def test_interrupted_training_saves_a_usable_model(run, tmp_path, monkeypatch, table, kit):
    interrupt_after(monkeypatch, 2)
    arguments = ["train", table, "--label", "kind", *kit.fast, "--out", tmp_path]
    result = run(*arguments, code=130)
    assert "interrupted" in result.stderr.splitlines()[-1]
    assert "model.safetensors" in result.stderr
    assert "--resume" in result.stderr
    model = mnemosphere.load(tmp_path / "model.safetensors")
    assert len(model.history_) == 2
    assert json.loads((tmp_path / "results.json").read_text())["status"] == "interrupted"


def test_interrupted_training_resumes_to_the_same_bits(
    run, tmp_path, monkeypatch, table, kit, trained
):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        interrupt_after(patch, 2)
        run("train", table, "--label", "kind", *kit.fast, "--out", out, code=130)
    assert not same_model(trained, out)
    run("train", "--resume", "--out", out)
    assert same_model(trained, out)
    assert not list(out.glob("checkpoint*"))
    assert "nothing to resume" in run("train", "--resume", "--out", out, code=2).stderr


def test_interruption_before_training_saves_nothing(run, tmp_path, monkeypatch, table, kit):
    def stop(self, params, max_epochs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Live, "on_start", stop)
    arguments = ["train", table, "--label", "kind", *kit.fast, "--out", tmp_path / "run"]
    result = run(*arguments, code=130)
    assert result.stderr.splitlines()[-1] == "interrupted: nothing was saved"
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_rows_without_a_label_are_used_unlabelled(run, tmp_path, kit):
    x, y = kit.rows()
    labels = [str(k) for k in y]
    labels[:30] = [""] * 30
    path = kit.write_csv(tmp_path / "some.csv", x, labels)
    result = run("train", path, "--label", "kind", *kit.fast, "--out", tmp_path / "run", "--json")
    assert "30 of 79 rows have no label" in result.stderr
    assert result.json["data"]["test_rows"] == 12  # a fifth of the labelled ones
    assert result.json["scores"]["classes"] == [0, 1, 2]
    assert result.json["accuracy"] > 0.7


@pytest.mark.parametrize("form", ["npz", "npz with test", "npy", "npy with labels", "parquet"])
def test_every_format_trains(run, tmp_path, kit, form):
    x, y = kit.rows()
    more = []
    path = tmp_path / f"data.{form.split()[0]}"
    if form == "npz":
        np.savez(path, x=x, y=y)
    elif form == "npz with test":
        np.savez(path, x_train=x[:80], y_train=y[:80], x_test=x[80:], y_test=y[80:])
    elif form == "npy":
        np.save(path, np.column_stack([y, x]))
        more = ["--label", "0"]
    elif form == "npy with labels":
        np.save(path, x)
        np.save(tmp_path / "y.npy", y)
        more = ["--labels", tmp_path / "y.npy"]
    else:
        polars = pytest.importorskip("polars")
        frame = {name: x[:, k] for k, name in enumerate(kit.names)}
        polars.DataFrame({**frame, "kind": y}).write_parquet(path)
        more = ["--label", "kind"]
    done = run("train", path, *more, *kit.fast, "--out", tmp_path / "run", "--json").json
    assert done["data"]["features"] == 7
    assert done["data"]["test_rows"] == (11 if form == "npz with test" else 18)
    assert done["scores"]["classes"] == [0, 1, 2]
    assert done["accuracy"] > 0.6


def test_a_file_of_test_rows_in_another_order_of_columns(run, tmp_path, table, kit):
    x, y = kit.rows(seed=1, n_rows=37)
    labels = [kit.classes[k] for k in y]
    order = [3, 1, 0, 2, 6, 5, 4]
    test = kit.write_csv(tmp_path / "t.csv", x[:, order], labels, [kit.names[k] for k in order])
    straight = kit.write_csv(tmp_path / "s.csv", x, labels)
    common = ["train", table, "--label", "kind", *kit.fast, "--json"]
    one = run(*common, "--test", test, "--out", tmp_path / "1").json
    two = run(*common, "--test", straight, "--out", tmp_path / "2").json
    assert one["data"]["test_rows"] == 37
    assert one["data"]["rows"] == kit.n_rows
    assert one["scores"] == two["scores"]


def test_all_rows_can_be_trained_on(run, tmp_path, table, kit):
    arguments = ["train", table, "--label", "kind", *kit.fast, "--test-fraction", "0"]
    done = run(*arguments, "--out", tmp_path, "--json").json
    assert done["measured_on"] == "training rows"
    assert done["data"]["rows"] == kit.n_rows


def test_growth_and_sgd_by_flags(run, tmp_path, table, kit):
    common = ["train", table, "--label", "kind", *kit.fast, "--json"]
    grown = run(*common, "--growth", "split", "--n-initial", "3", "--out", tmp_path / "g").json
    assert {record["phase"] for record in grown["history"]} > {0}
    assert grown["history"][0]["n_memories"] == 3
    sgd = run(
        *common, "--solver", "sgd", "--batch-size", "all", "--learning-rate", "0.1",
        "--beta", "6", "--out", tmp_path / "s",
    ).json  # fmt: skip
    assert sgd["chosen"]["beta"] == 6.0
    assert sgd["settings"]["batch_size"] == "all"


def test_people_see_the_accuracy_and_where_things_are(run, tmp_path, table, kit):
    result = run("train", table, "--label", "kind", *kit.fast, "--out", tmp_path)
    results = json.loads((tmp_path / "results.json").read_text())
    assert f"{results['accuracy']:.2%} of 18 test rows" in result.stdout
    assert "model.safetensors" in result.stdout
    assert "mnemosphere explain" in result.stderr
    assert run(
        "train", table, "--label", "kind", *kit.fast, "--out", tmp_path / "q", "--quiet"
    ).stderr == ""  # fmt: skip
