import json

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, log_loss, precision_score, recall_score

import mnemosphere


@pytest.fixture
def fresh(tmp_path, kit):
    """Rows the model has not seen."""
    x, y = kit.rows(seed=5, n_rows=41)
    labels = np.array([kit.classes[k] for k in y])
    return x, labels, kit.write_csv(tmp_path / "fresh.csv", x, labels)


def test_evaluate_agrees_with_scikit_learn(run, trained, fresh):
    x, labels, path = fresh
    path_to_model = trained / "model.safetensors"
    found = run("evaluate", path_to_model, path, "--label", "kind", "--json").json
    model = mnemosphere.load(path_to_model)
    del model.feature_names_in_
    verdict, proba = model.predict(x), model.predict_proba(x)
    assert found["rows"] == 41
    assert found["accuracy"] == np.mean(verdict == labels)
    assert found["log_loss"] == pytest.approx(log_loss(labels, proba), rel=1e-9)
    assert found["confusion"] == confusion_matrix(labels, verdict).tolist()
    per_class = found["per_class"]
    assert [row["class"] for row in per_class] == found["classes"]
    for key, measure in (("recall", recall_score), ("precision", precision_score)):
        expected = measure(labels, verdict, average=None)
        assert [row[key] for row in per_class] == pytest.approx(expected.tolist())


def test_evaluate_shows_tables(run, trained, fresh, kit):
    path = fresh[2]
    text = run("evaluate", trained / "model.safetensors", path, "--label", "kind").stdout
    assert "of 41 rows right" in text
    assert all(text.count(name) >= 2 for name in kit.classes)


def test_the_training_file_is_split_as_it_was(run, trained, table, kit):
    results = json.loads((trained / "results.json").read_text())
    model = trained / "model.safetensors"
    result = run("evaluate", model, table, "--label", "kind", "--json")
    assert result.json["rows"] == results["data"]["test_rows"]
    assert result.json["accuracy"] == results["accuracy"]
    assert "its test rows" in result.stderr
    every = run("evaluate", model, table, "--label", "kind", "--split", "all", "--json")
    assert every.json["rows"] == kit.n_rows
    assert every.stderr == ""


def test_columns_in_another_order_are_put_right(run, tmp_path, trained, fresh, kit):
    x, labels, path = fresh
    order = [6, 0, 5, 1, 4, 2, 3]
    names = [kit.names[k] for k in order]
    mixed = kit.write_csv(tmp_path / "mixed.csv", x[:, order], labels, names)
    model = trained / "model.safetensors"
    one, two = (run("evaluate", model, p, "--label", "kind", "--json").json for p in (path, mixed))
    assert one["log_loss"] == two["log_loss"]


def test_labels_the_model_does_not_know_count_as_wrong(run, tmp_path, trained, fresh, kit):
    x, labels, _ = fresh
    strange = labels.copy()
    strange[:4] = "dog"
    other = kit.write_csv(tmp_path / "dogs.csv", x, strange)
    model = trained / "model.safetensors"
    result = run("evaluate", model, other, "--label", "kind", "--json")
    assert "4 rows have labels the model does not know" in result.stderr
    assert result.json["unknown_labels"] == 4
    assert result.json["rows"] == 41
    assert sum(map(sum, result.json["confusion"])) == 37
    known = kit.write_csv(tmp_path / "rest.csv", x[4:], labels[4:])
    rest = run("evaluate", model, known, "--label", "kind", "--json").json
    assert result.json["accuracy"] == pytest.approx(rest["accuracy"] * 37 / 41)
    assert result.json["log_loss"] == pytest.approx(rest["log_loss"])


def test_explain_names_the_memories_that_decided(run, tmp_path, trained, fresh):
    x, labels, path = fresh
    picture = tmp_path / "pictures" / "why.svg"
    path_to_model = trained / "model.safetensors"
    arguments = ["explain", path_to_model, path, "--label", "kind", "--row", "7"]
    found = run(*arguments, "--nearest", "3", "--picture", picture, "--json").json
    model = mnemosphere.load(path_to_model)
    del model.feature_names_in_
    assert found["row"] == 7
    assert found["truth"] == labels[7]
    assert found["verdict"] == model.predict(x[7:8])[0]
    assert found["probability"] == pytest.approx(model.predict_proba(x[7:8]).max())
    expected = model.explain(x[7:8], 3)[0]
    assert [m["memory"] for m in found["memories"]] == [r.memory for r in expected]
    assert [m["share"] for m in found["memories"]] == [r.share for r in expected]
    assert picture.read_text().count("<svg") == 1
    text = run(*arguments).stdout
    assert f"row 7: {found['verdict']}" in text
    assert f"#{found['memories'][0]['memory']}" in text


def test_rows_count_from_the_end_too(run, trained, fresh):
    arguments = ["explain", trained / "model.safetensors", fresh[2], "--json"]
    assert run(*arguments, "--row", "-1").json == run(*arguments, "--row", "40").json


def test_certify_tells_minima_from_saddles(run, tmp_path, table, kit):
    arguments = ["train", table, "--label", "kind", "--varsigma", "1", "--normalize", "standard"]
    arguments += ["--memories", "3", "--epochs", "150", "--tol", "0", "--dtype", "float64"]
    run(*arguments, "--beta", "3", "--no-checkpoint", "--out", tmp_path)
    model = tmp_path / "model.safetensors"
    found = run("certify", model, table, "--label", "kind", "--tol", "1e-4", "--json").json
    assert found["converged"]
    assert sum(found["counts"].values()) == 3
    assert found["counts"]["not converged"] == 0
    assert found["beta_eff"] == 3.0
    for memory in found["memories"]:
        saddle = memory["beta_split"] < found["beta_eff"]
        assert memory["verdict"] == ("saddle" if saddle else "minimum")
        assert (memory["lambda_min"] < 0) == saddle
    # The memories share the training rows out among themselves.
    results = json.loads((tmp_path / "results.json").read_text())
    assert sum(m["rows"] for m in found["memories"]) <= results["data"]["rows"] + 1e-6
    text = run("certify", model, table, "--label", "kind").stdout
    assert "β_split/β_eff" in text


def test_certify_says_what_to_do_where_training_was_short(run, trained, table):
    result = run("certify", trained / "model.safetensors", table, "--label", "kind", "--tol=1e-9")
    assert "11 not converged" in result.stdout
    assert "train longer" in result.stdout


def test_shrink_writes_a_smaller_model_and_tells_the_cost(run, tmp_path, trained, table):
    out = tmp_path / "small" / "model.safetensors"
    common = ["shrink", trained / "model.safetensors", table, "--label", "kind"]
    found = run(*common, "--memories", "5", "--out", out, "--json").json
    assert found["memories_before"] == 11
    model = mnemosphere.load(out)
    assert model.n_memories_ == found["memories"] == 5
    before = mnemosphere.load(trained / "model.safetensors")
    assert model.feature_names_in_.tolist() == before.feature_names_in_.tolist()
    again = run("evaluate", out, table, "--label", "kind", "--split", "all", "--json").json
    assert again["rows"] == 91
    results = json.loads((trained / "results.json").read_text())
    assert found["accuracy_before"] == results["accuracy"]
    assert "11 → 5" in run(*common, "--memories", "5", "--out", out).stdout


def test_class_names_of_built_in_data_are_shown(run, digits_model):
    found = run("evaluate", digits_model, "digits", "--json").json
    assert found["rows"] == 355
    assert found["classes"] == list(range(10))
    train = run("evaluate", digits_model, "digits", "--split", "train", "--json").json
    assert train["rows"] == 1442
