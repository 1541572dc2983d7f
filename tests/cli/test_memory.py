import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import mnemosphere


def test_recall_counts_what_is_right_again(run, tmp_path, digits_model):
    picture = tmp_path / "strips.svg"
    arguments = ["recall", digits_model, "digits", "--mask", "0.4", "--seed", "3"]
    found = run(*arguments, "--picture", picture, "--json").json
    model = mnemosphere.load(digits_model)
    data = mnemosphere.datasets.load("digits")
    assert found["rows"] == len(data.y_test)
    assert found["right"]["intact"] == pytest.approx(model.score(data.x_test, data.y_test))
    assert found["right"]["damaged"] <= found["right"]["intact"] + 0.02
    for row in found["first_rows"]:
        assert row["energy_after"] <= row["energy_before"]
        assert row["truth"] == data.y_test[row["row"]]
    assert picture.read_text().count("<svg") == 1
    text = run(*arguments).stdout
    assert f"{found['right']['recalled']:.1%}" in text


@pytest.mark.parametrize("method", ["fixed-point", "gradient"])
def test_recall_of_one_class_ends_there(run, digits_model, method):
    arguments = ["recall", digits_model, "digits", "--noise", "0.5", "--class", "3"]
    found = run(*arguments, "--row", "5", "--row", "-1", "--method", method, "--json").json
    assert [row["row"] for row in found["first_rows"]] == [5, 354]
    assert found["mask"] == 0.0
    assert [row["recalled"] for row in found["first_rows"]] == [3, 3]


def test_samples_are_those_of_the_model(run, tmp_path, digits_model):
    out, picture = tmp_path / "new" / "drawn.npz", tmp_path / "drawn.png"
    arguments = ["sample", digits_model, "-n", "11", "--seed", "5", "--class", "7"]
    found = run(*arguments, "--out", out, "--picture", picture, "--json").json
    assert found["classes"] == {"7": 11}
    x, y = mnemosphere.load(digits_model).sample(11, 7, random_state=5)
    with np.load(out) as stored:
        np.testing.assert_array_equal(stored["x"], x)
        np.testing.assert_array_equal(stored["y"], y)
    assert picture.stat().st_size > 1000
    assert "4 patterns drawn" in run("sample", digits_model, "-n", "4").stdout


def test_novelty_sets_a_threshold_and_tells_kinds_apart(run, tmp_path, trained, table, kit):
    x, y = kit.rows(seed=9, n_rows=61)
    strange = kit.write_csv(tmp_path / "strange.csv", -x, [kit.classes[k] for k in y])
    out, picture = tmp_path / "model.safetensors", tmp_path / "histogram.pdf"
    path = trained / "model.safetensors"
    arguments = ["novelty", path, table, "--label", "kind", "--split", "all", "--rate", "0.1"]
    found = run(*arguments, "--against", strange, "--out", out, "--picture", picture, "--json").json
    model = mnemosphere.load(out)
    assert model.novelty_threshold_ == found["threshold"]
    assert model.feature_names_in_.tolist() == kit.names
    del model.feature_names_in_
    inside = model.novelty_score(np.loadtxt(table, delimiter=",", skiprows=1, usecols=range(7)))
    outside = model.novelty_score(-x)
    truth = np.repeat([0, 1], [91, 61])
    expected = roc_auc_score(truth, np.concatenate([inside, outside]))
    assert found["auroc"] == pytest.approx(expected)
    assert found["against_rejected"] == pytest.approx(np.mean(outside > found["threshold"]))
    assert found["most_novel"][0]["score"] == pytest.approx(inside.max())
    assert picture.stat().st_size > 1000
    assert "AUROC" in run(*arguments, "--against", strange).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recall", "MODEL", "digits", "--mask", "1"], "--mask must lie in [0, 1), got 1"),
        (["recall", "MODEL", "digits", "--row", "999"], "--row must lie in [-355, 355)"),
        (["recall", "MODEL", "digits", "--class", "x"], "--class must be one of 0, 1, 2"),
        (["sample", "MODEL", "--class", "x"], "--class must be one of 0, 1, 2"),
        (["sample", "MODEL", "--out", "a.csv"], "end the name in .npz"),
        (["novelty", "MODEL", "digits", "--rate", "0.001"], "at least 999 held-out rows"),
        (["novelty", "MODEL", "digits", "--against", "nothing"], "no data set or file"),
    ],
)
def test_bad_calls(run, digits_model, arguments, message):
    result = run(*(digits_model if a == "MODEL" else a for a in arguments), code=2)
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
