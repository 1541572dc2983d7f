import numpy as np
import pandas as pd

import mnemosphere as mn


def test_missing_values_of_a_table_are_completed_and_the_rest_stays(
    run, tmp_path, trained, model, kit
):
    holes = kit.frame(5, 13)
    mask = np.random.default_rng(0).random((13, 7)) < 0.3
    mask[:, 0] = False
    holes[kit.names] = holes[kit.names].mask(mask)
    holes.to_csv(tmp_path / "holes.csv", index=False)
    run("recall", trained, tmp_path / "holes.csv", "--id", "tag", "--out", tmp_path / "whole.csv")
    found = pd.read_csv(tmp_path / "whole.csv")
    assert found["tag"].tolist() == holes["tag"].tolist()
    np.testing.assert_array_equal(found[kit.names].mask(mask), holes[kit.names])
    expected = model.recall(holes[kit.names])
    np.testing.assert_allclose(found[kit.names], expected, rtol=1e-9)


def test_hidden_halves_of_images(run, tmp_path, digits):
    rows = ["--row", "test-3", "--row", "test-9"]
    arguments = ["recall", digits, "digits", "--hide", "bottom", *rows]
    found = run(*arguments, "--json").json
    x, completed = mn.load_data("digits").x_test[[3, 9]], np.array(found["completed"])
    np.testing.assert_allclose(completed[:, :32], x[:, :32])
    # In the units of the pixels: nearer to the hidden half than its mean value is.
    hidden = x[:, 32:]
    error = np.abs(completed[:, 32:] - hidden).mean()
    assert error < np.abs(hidden - hidden.mean(axis=1, keepdims=True)).mean()
    assert [row["missing"] for row in found["rows"]] == [32, 32]
    assert all(row["energy_after"] < row["energy_before"] for row in found["rows"])
    run(*arguments, "--out", tmp_path / "recall.svg")
    assert (tmp_path / "recall.svg").read_text().count("<svg") == 1


def test_completing_as_one_class(run, trained, table):
    arguments = ["recall", trained, table, "--hide", "0.6", "--json"]
    free, asked = ([row["class"] for row in run(*arguments, *more).json["rows"]]
                   for more in ([], ["--class", "cat"]))  # fmt: skip
    assert asked.count("cat") > free.count("cat")
