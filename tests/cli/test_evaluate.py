import json

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, log_loss, precision_score, recall_score, roc_auc_score

import mnemosphere as mn
from mnemosphere.interpret import classification_report


def test_it_agrees_with_scikit_learn(run, tmp_path, trained, kit):
    table = kit.frame(5, 41)
    table.to_csv(tmp_path / "fresh.csv", index=False)
    found = run("evaluate", trained, tmp_path / "fresh.csv", "--id", "tag", "--json").json
    model = mn.load(trained / "model.safetensors")
    x, y = table[kit.names], table["kind"]
    predicted, proba = model.predict(x), model.predict_proba(x)
    assert found["accuracy"] == np.mean(predicted == y)
    assert found["log_loss"] == pytest.approx(log_loss(y, proba), rel=1e-9)
    assert found["confusion"] == confusion_matrix(y, predicted).tolist()
    for key, measure in (("recall", recall_score), ("precision", precision_score)):
        expected = measure(y, predicted, average=None)
        assert [row[key] for row in found["per_class"]] == pytest.approx(expected.tolist())
    own = proba[np.arange(41), [kit.classes.index(label) for label in y]]
    worst = table["tag"].to_numpy()[np.argsort(own)[:10]]
    assert [row["tag"] for row in found["worst_rows"]] == worst.tolist()


def test_held_out_rows_of_the_training_file(run, trained, table, kit):
    record = json.loads((trained / "results.json").read_text())
    result = run("evaluate", trained, table, "--json")
    assert "18 held-out rows of 91" in result.stderr
    assert result.json["accuracy"] == record["accuracy"]
    assert result.json["log_loss"] == record["log_loss"]
    everything = run("evaluate", trained, table, "--split", "all", "--json").json
    assert everything["rows"] == kit.n_rows


def test_unknown_labels_count_as_wrong(run, tmp_path, trained, kit):
    table = kit.frame(5, 41)
    table.loc[:3, "kind"] = "dog"
    table.to_csv(tmp_path / "dogs.csv", index=False)
    result = run("evaluate", trained, tmp_path / "dogs.csv", "--json")
    assert "4 rows have labels the model does not know" in result.stderr
    right = mn.load(trained / "model.safetensors").predict(table[kit.names]) == table["kind"]
    assert result.json["accuracy"] == right.mean()
    assert sum(map(sum, result.json["confusion"])) == 37


def test_novelty_against_other_rows(run, tmp_path, trained, table, kit):
    other = kit.frame(7, 29)
    other[kit.names] *= -1
    other.to_csv(tmp_path / "other.csv", index=False)
    arguments = ["evaluate", trained, table, "--split", "all", "--novel", tmp_path / "other.csv"]
    found = run(*arguments, "--json").json["novelty"]
    model = mn.load(trained / "model.safetensors")
    scores = [model.novelty_score(t[kit.names]) for t in (kit.frame(), other)]
    truth = np.repeat([0, 1], [91, 29])
    assert found["auroc"] == roc_auc_score(truth, np.concatenate(scores)) > 0.8
    assert f"{found['auroc']:.4f} against 29 rows" in run(*arguments).stdout


def test_certificate_is_of_the_rows_trained_on(run, trained, table):
    arguments = ["evaluate", trained, table, "--certify"]
    found = run(*arguments, "--json").json["certificate"]
    assert found["rows"] == 73
    assert sum(found["counts"].values()) == len(found["memories"]) == 11
    assert sum(memory["rows"] for memory in found["memories"]) <= 73 + 1e-6
    assert found["at_rest"] == (found["n_iter"] < 100)
    assert "at fixed class weights" in run(*arguments).stdout


def test_the_report_of_rejected_rows_is_that_of_python(run, tmp_path, trained, kit):
    table = kit.frame(5, 41)
    table.loc[:3, "kind"] = "dog"  # a class that the model does not know
    table.to_csv(tmp_path / "fresh.csv", index=False)
    picture = tmp_path / "confusion.png"
    arguments = ["evaluate", trained, tmp_path / "fresh.csv", "--reject", "0.2"]
    found = run(*arguments, "--out", picture, "--json").json["rejection"]
    model = mn.load(trained / "model.safetensors")
    answers = model.predict_or_reject(table[kit.names], 0.2)
    wanted = classification_report(table["kind"], answers, model.classes_)
    assert found == wanted.as_dict()
    assert found["per_class"][-1]["class"] == mn.OUT_OF_SCOPE
    assert picture.stat().st_size > 0
    assert "of the answers right" in run(*arguments).stdout
