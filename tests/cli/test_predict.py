import numpy as np
import pandas as pd
import pytest

import mnemosphere as mn
from mnemosphere.interpret import rejections


@pytest.fixture
def fresh(tmp_path, kit):
    table = kit.frame(5, 41)
    path = tmp_path / "fresh.csv"
    table.drop(columns="kind").to_csv(path, index=False)
    return table, path


def probabilities(table):
    return pd.DataFrame(table).filter(like="probability_").to_numpy()


@pytest.mark.parametrize("read", [pd.read_csv, pd.read_parquet])
def test_predictions_read_back_are_those_of_the_model(
    run, tmp_path, trained, model, fresh, kit, read
):
    table, path = fresh
    out = tmp_path / read.__name__.replace("read_", "p.")
    run("predict", trained, path, "--id", "tag", "--out", out)
    found, x = read(out), table[kit.names]
    np.testing.assert_allclose(probabilities(found), model.predict_proba(x), rtol=1e-12)
    assert found["prediction"].tolist() == model.predict(x).tolist()
    assert found["tag"].tolist() == table["tag"].tolist()
    np.testing.assert_allclose(found["novelty_score"], model.novelty_score(x), rtol=1e-11)
    assert found["novel"].equals(found["novelty_score"] > model.novelty_threshold_)
    why = model.explain(x, 3)
    for k in range(3):
        assert found[f"memory_{k + 1}"].tolist() == [f"#{m}" for m in why.memory[:, k]]
        np.testing.assert_allclose(found[f"share_{k + 1}"], why.share[:, k], rtol=1e-11)


def test_columns_are_found_by_name_the_id_column_too(run, tmp_path, trained, fresh, kit):
    table, path = fresh
    table[[*kit.names[::-1], "kind", "tag"]].to_csv(tmp_path / "mixed.csv", index=False)
    one, two = (run("predict", trained, p, "--json").json for p in (path, tmp_path / "mixed.csv"))
    assert one["predictions"] == two["predictions"]
    assert [row["tag"] for row in one["predictions"]] == table["tag"].tolist()


@pytest.mark.parametrize("asked", ["ant=6,bee=3,cat=1", "ant=0.8"])
def test_other_class_frequencies(run, trained, model, fresh, kit, asked):
    """Weights of all classes, or a share of one, which leaves the rest to the others."""
    table, path = fresh
    frequency = model.class_prior_[:3]
    share = [0.8, *(0.2 * frequency[1:] / frequency[1:].sum())]
    found = run("predict", trained, path, "--prior", asked, "--json").json["predictions"]
    weights = share if asked == "ant=0.8" else [6, 3, 1]
    odds = model.predict_proba(table[kit.names]) * weights / frequency  # Bayes' rule
    expected = odds / odds.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(probabilities(found), expected, rtol=1e-9)


@pytest.mark.parametrize("more", [[], ["--ask"]])
def test_rejection_at_another_rate(run, trained, model, fresh, kit, more):
    table, path = fresh
    rows = run("predict", trained, path, "--reject", "0.4", *more, "--json").json["predictions"]
    answers = model.predict_or_reject(table[kit.names], 0.4, ask=bool(more)).tolist()
    assert [row["prediction"] for row in rows] == answers
    assert {*answers} & {None, "ask"}
    reasons = rejections(model.model_, table[kit.names], 0.4).reasons
    assert [row.get("reason") for row in rows] == reasons


def test_the_terminal_shows_class_percentages_and_novelty_at_any_width(run, trained, fresh):
    text = run("predict", trained, fresh[1], env={"COLUMNS": "40"}).stdout
    assert all(len(line) <= 40 for line in text.splitlines())
    for name in ("tag", "class", "P(cat)", "novel", "%"):
        assert name in text


def test_columns_left_out_are_not_needed_and_missing_ones_count_as_missing(run, tmp_path, kit):
    table = kit.frame(3, 97)
    table.insert(0, "currency", "EUR")
    table.insert(1, "row_id", np.arange(97))
    table.insert(2, "color", np.where(table["kind"] == "ant", "red", "blue"))
    table.drop(columns="tag").to_csv(tmp_path / "all.csv", index=False)
    run("train", tmp_path / "all.csv", "--out", tmp_path / "run", "--label", "kind", *kit.fast)
    model = mn.load(tmp_path / "run" / "model.safetensors")
    rows = table.drop(columns=["tag", "kind"])
    few, lost = rows.drop(columns=["currency", "row_id"]), ["length0", "length5", "color"]
    for left, wanted, said in (
        (few, rows, ""),
        (few.drop(columns=lost), rows.assign(**dict.fromkeys(lost, np.nan)),
         "lacks 'color', 'length0', 'length5': these columns count as missing"),
    ):  # fmt: skip
        left.to_csv(tmp_path / "few.csv", index=False)
        told = run("predict", tmp_path / "run", tmp_path / "few.csv", "--out", tmp_path / "p.csv",
                   "--overwrite").stderr  # fmt: skip
        assert said in told if said else "lacks" not in told
        found = probabilities(pd.read_csv(tmp_path / "p.csv"))
        np.testing.assert_allclose(found, model.predict_proba(wanted), rtol=1e-9)
    rows[["currency", "row_id"]].to_csv(tmp_path / "none.csv", index=False)
    error = run("predict", tmp_path / "run", tmp_path / "none.csv", code=2).error
    assert "has none of the columns that the model needs, such as 'color', 'length0'" in error
