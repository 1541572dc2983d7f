import numpy as np
import pandas as pd

import mnemosphere as mn


def test_missing_values_of_a_table_are_completed_and_the_rest_stays(run, tmp_path, trained, kit):
    table = kit.frame(5, 13)
    holes = table.copy()
    rng = np.random.default_rng(0)
    mask = rng.random((13, 7)) < 0.3
    mask[:, 0] = False
    holes[kit.names] = holes[kit.names].mask(mask)
    holes.to_csv(tmp_path / "holes.csv", index=False)
    out = tmp_path / "whole.csv"
    run("recall", trained, tmp_path / "holes.csv", "--id", "tag", "--out", out)
    found = pd.read_csv(out)
    assert found["tag"].tolist() == table["tag"].tolist()
    values = found[kit.names].to_numpy()
    np.testing.assert_array_equal(values[~mask], table[kit.names].to_numpy()[~mask])
    model = mn.load(trained / "model.safetensors")
    expected = model.recall(holes[kit.names])
    np.testing.assert_allclose(values[mask], expected.to_numpy()[mask], rtol=1e-9)


def test_hidden_halves_of_images(run, tmp_path, digits):
    rows = ["--row", "test-3", "--row", "test-9"]
    arguments = ["recall", digits, "digits", "--hide", "bottom", *rows]
    found = run(*arguments, "--json").json
    data = mn.load_data("digits")
    x = data.x_test[[3, 9]]
    completed = np.array(found["completed"])
    np.testing.assert_allclose(completed[:, :32], x[:, :32])
    assert [row["missing"] for row in found["rows"]] == [32, 32]
    assert all(row["energy_after"] < row["energy_before"] for row in found["rows"])
    # In the units of the pixels: nearer to the hidden half than its mean value is.
    error = np.abs(completed[:, 32:] - x[:, 32:]).mean()
    assert error < np.abs(x[:, 32:] - x[:, 32:].mean(axis=1, keepdims=True)).mean()
    run(*arguments, "--out", tmp_path / "recall.svg")
    assert (tmp_path / "recall.svg").read_text().count("<svg") == 1


def test_completing_as_one_class(run, trained, table):
    arguments = ["recall", trained, table, "--hide", "0.6", "--class", "cat", "--json"]
    classes = [row["class"] for row in run(*arguments).json["rows"]]
    free = [row["class"] for row in run(*arguments[:-3], "--json").json["rows"]]
    assert classes.count("cat") > free.count("cat")
