import json

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, log_loss, precision_score, recall_score, roc_auc_score

from mnemosphere.interpret import classification_report


@pytest.fixture
def dogs(tmp_path, kit):
    """Rows that are new, some of a class that the model does not know."""
    table = kit.frame(5, 41)
    table.loc[:3, "kind"] = "dog"
    table.to_csv(tmp_path / "dogs.csv", index=False)
    return table, tmp_path / "dogs.csv"


def test_it_agrees_with_scikit_learn(run, trained, model, dogs, kit):
    """A class that the model does not know counts as wrong, and in no other figure."""
    table, path = dogs
    result = run("evaluate", trained, path, "--json")
    assert "4 rows have labels the model does not know" in result.stderr
    found, y = result.json, table["kind"].to_numpy()
    predicted, proba = model.predict(table[kit.names]), model.predict_proba(table[kit.names])
    assert found["accuracy"] == np.mean(predicted == y)
    known = y != "dog"
    assert found["log_loss"] == pytest.approx(log_loss(y[known], proba[known]), rel=1e-9)
    assert found["confusion"] == confusion_matrix(y[known], predicted[known]).tolist()
    for key, measure in (("recall", recall_score), ("precision", precision_score)):
        expected = measure(y[known], predicted[known], average=None)
        assert [row[key] for row in found["per_class"]] == pytest.approx(expected.tolist())
    own = (proba * (y[:, None] == np.array(kit.classes))).sum(axis=1)
    worst = table["tag"].to_numpy()[np.argsort(own, kind="stable")[:10]]
    assert [row["tag"] for row in found["worst_rows"]] == worst.tolist()


def test_held_out_rows_of_the_training_file(run, trained, table, kit):
    record = json.loads((trained / "results.json").read_text())
    result = run("evaluate", trained, table, "--json")
    assert "18 held-out rows of 91" in result.stderr
    assert result.json["accuracy"] == record["accuracy"]
    assert result.json["log_loss"] == record["log_loss"]
    everything = run("evaluate", trained, table, "--split", "all", "--json").json
    assert everything["rows"] == kit.n_rows


def test_novelty_against_other_rows(run, tmp_path, trained, model, table, kit):
    other = kit.frame(7, 29)
    other[kit.names] *= -1
    other.to_csv(tmp_path / "other.csv", index=False)
    arguments = ["evaluate", trained, table, "--split", "all", "--novel", tmp_path / "other.csv"]
    found = run(*arguments, "--json").json["novelty"]
    scores = [model.novelty_score(t[kit.names]) for t in (kit.frame(), other)]
    truth = np.repeat([0, 1], [91, 29])
    assert found["auroc"] == roc_auc_score(truth, np.concatenate(scores)) > 0.8
    assert f"{found['auroc']:.4f} against 29 rows" in run(*arguments).stdout


def test_certificate_is_of_the_rows_trained_on(run, trained, table):
    arguments = ["evaluate", trained, table, "--certify"]
    found = run(*arguments, "--json").json["certificate"]
    assert found["rows"] == 73
    assert sum(found["counts"].values()) == 11
    assert "11 memories" in run(*arguments).stdout


def test_the_report_of_rejected_rows_is_that_of_python(run, tmp_path, trained, model, dogs, kit):
    table, path = dogs
    picture = tmp_path / "confusion.png"
    arguments = ["evaluate", trained, path, "--reject", "0.2"]
    found = run(*arguments, "--out", picture, "--json").json["rejection"]
    answers = model.predict_or_reject(table[kit.names], 0.2)
    assert found == classification_report(table["kind"], answers, model.classes_).as_dict()
    assert picture.stat().st_size > 0
    assert "of the answers right" in run(*arguments).stdout
