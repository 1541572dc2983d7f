import numpy as np
import pandas as pd
import pytest

import mnemosphere as mn


@pytest.fixture
def fresh(tmp_path, kit):
    table = kit.frame(5, 41)
    path = tmp_path / "fresh.csv"
    table.drop(columns="kind").to_csv(path, index=False)
    return table, path


@pytest.mark.parametrize("read", [pd.read_csv, pd.read_parquet])
def test_predictions_read_back_are_those_of_the_model(run, tmp_path, trained, fresh, kit, read):
    table, path = fresh
    out = tmp_path / read.__name__.replace("read_", "p.")
    run("predict", trained, path, "--id", "tag", "--out", out)
    found = read(out)
    model = mn.load(trained / "model.safetensors")
    x = table[kit.names]
    proba = found[[f"probability_{name}" for name in kit.classes]].to_numpy()
    np.testing.assert_allclose(proba, model.predict_proba(x), rtol=1e-12)
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
    mixed = table[[*kit.names[::-1], "kind", "tag"]]
    mixed.to_csv(tmp_path / "mixed.csv", index=False)
    one, two = (run("predict", trained, p, "--json").json for p in (path, tmp_path / "mixed.csv"))
    assert one["predictions"] == two["predictions"]
    assert [row["tag"] for row in one["predictions"]] == table["tag"].tolist()


def test_prior_is_bayes_rule(run, trained, fresh, kit):
    table, path = fresh
    found = run("predict", trained, path, "--prior", "ant=6,bee=3,cat=1", "--json").json
    model = mn.load(trained / "model.safetensors")
    odds = model.predict_proba(table[kit.names]) * [6, 3, 1] / model.class_prior_[:3]
    expected = odds / odds.sum(axis=1, keepdims=True)
    proba = [[row[f"probability_{c}"] for c in kit.classes] for row in found["predictions"]]
    np.testing.assert_allclose(proba, expected, rtol=1e-9)


def test_a_share_of_one_class_leaves_the_rest_to_the_others(run, trained, fresh, kit):
    _, path = fresh
    prior = mn.load(trained / "model.safetensors").class_prior_[:3]
    ant, bee, cat = 0.8, *(0.2 * prior[1:] / prior[1:].sum())
    asked = ("ant=0.8", f"ant={ant},bee={bee},cat={cat}")
    one, two = (run("predict", trained, path, "--prior", p, "--json").json for p in asked)
    got, wanted = (
        [[row[f"probability_{c}"] for c in kit.classes] for row in found["predictions"]]
        for found in (one, two)
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-9)
    found = run("predict", trained, path, "--prior", "ant=0.8,bee=0.3", code=2)
    assert "--prior gives some of the classes 1.1 of 1: name all, or give less" in found.error


def test_rejection_at_another_rate(run, trained, fresh, kit):
    table, path = fresh
    rows = run("predict", trained, path, "--reject", "0.4", "--json").json["predictions"]
    model = mn.load(trained / "model.safetensors")
    rejected = [value is None for value in model.predict_or_reject(table[kit.names], 0.4)]
    assert [row["prediction"] is None for row in rows] == rejected
    assert 0 < sum(rejected) < 41
    novel = model.novelty_score(table[kit.names]) > model.novelty_threshold_
    assert [row["novel"] for row in rows] == novel.tolist()
    found = mn.interpret.rejections(model.model_, table[kit.names], 0.4)
    assert [row.get("reason") for row in rows] == found.reasons


def test_rows_between_known_classes_are_asked_about(run, trained, fresh, kit):
    table, path = fresh
    found = run("predict", trained, path, "--reject", "0.4", "--ask", "--json").json["predictions"]
    model = mn.load(trained / "model.safetensors")
    answers = model.predict_or_reject(table[kit.names], 0.4, ask=True)
    assert [row["prediction"] for row in found] == answers.tolist()
    assert "ask" in answers
    assert all(
        row["reason"].startswith("undecided between ")
        for row in found
        if row["prediction"] == "ask"
    )
    assert "--ask is about rejected rows" in run("predict", trained, path, "--ask", code=2).error


def test_the_terminal_shows_class_percentages_and_novelty_at_any_width(run, trained, fresh):
    text = run("predict", trained, fresh[1], env={"COLUMNS": "40"}).stdout
    assert all(len(line) <= 40 for line in text.splitlines())
    for name in ("tag", "class", "P(cat)", "novel", "%"):
        assert name in text


def test_an_existing_file_stays(run, tmp_path, trained, fresh):
    out = tmp_path / "p.csv"
    out.write_text("mine")
    assert "p.csv exists" in run("predict", trained, fresh[1], "--out", out, code=2).error
    assert out.read_text() == "mine"
    run("predict", trained, fresh[1], "--out", out, "--overwrite")
    assert out.read_text().startswith("tag,")
    before = fresh[1].read_text()
    refused = run("predict", trained, fresh[1], "--out", fresh[1], "--overwrite", code=2)
    assert "is what is read" in refused.error
    assert fresh[1].read_text() == before


def _proba(path):
    return pd.read_csv(path).filter(like="probability_")


def test_columns_left_out_are_not_needed_and_missing_ones_count_as_missing(run, tmp_path, kit):
    table = kit.frame(3, 97)
    table.insert(0, "currency", "EUR")
    table.insert(1, "row_id", np.arange(97))
    table.insert(2, "color", np.where(table["kind"] == "ant", "red", "blue"))
    table.drop(columns="tag").to_csv(tmp_path / "all.csv", index=False)
    run("train", tmp_path / "all.csv", "--out", tmp_path / "run", "--label", "kind", *kit.fast)
    model = mn.load(tmp_path / "run" / "model.safetensors")
    rows = table.drop(columns=["tag", "kind"])
    few = rows.drop(columns=["currency", "row_id"])
    few.to_csv(tmp_path / "few.csv", index=False)
    told = run("predict", tmp_path / "run", tmp_path / "few.csv", "--out", tmp_path / "p.csv")
    assert "lacks" not in told.stderr
    np.testing.assert_allclose(_proba(tmp_path / "p.csv"), model.predict_proba(rows), rtol=1e-9)
    lost = ["length0", "length5", "color"]
    few.drop(columns=lost).to_csv(tmp_path / "less.csv", index=False)
    told = run("predict", tmp_path / "run", tmp_path / "less.csv", "--out", tmp_path / "q.csv")
    assert "lacks 'color', 'length0', 'length5': these columns count as missing" in told.stderr
    with_gaps = model.predict_proba(rows.assign(**dict.fromkeys(lost, np.nan)))
    np.testing.assert_allclose(_proba(tmp_path / "q.csv"), with_gaps, rtol=1e-9)
    rows[["currency", "row_id"]].to_csv(tmp_path / "none.csv", index=False)
    error = run("predict", tmp_path / "run", tmp_path / "none.csv", code=2).error
    assert "has none of the columns that the model needs, such as 'color', 'length0'" in error


def test_certified_radii_are_columns(run, tmp_path, trained, fresh, kit):
    table, path = fresh
    table.loc[3, kit.names[1]] = np.nan
    table.to_csv(path, index=False)
    out = tmp_path / "p.csv"
    run("predict", trained, path, "--radius", "--out", out)
    found = pd.read_csv(out)
    wanted = mn.load(trained / "model.safetensors").certified_radius(table[kit.names])
    np.testing.assert_allclose(found["certified_radius"], wanted.radius, rtol=1e-12)
    assert found["certified_radius"].isna().sum() == 1
    assert found["prediction"].tolist() == wanted.label.tolist()
    assert found["next_class"].dropna().tolist() == [b for b in wanted.other if b is not None]
