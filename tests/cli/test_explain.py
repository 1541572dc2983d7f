import numpy as np
import pytest

import mnemosphere as mn


def test_rows_are_called_by_the_id_column_of_training_or_by_line(
    run, tmp_path, trained, table, kit
):
    arguments = [trained, "--top", "3", "--json"]
    by_id = run("explain", *arguments, table, "--row", "bug-7", "--row", "bug-2").json["rows"]
    lines = tmp_path / "lines.csv"
    kit.frame().drop(columns="tag").to_csv(lines, index=False)
    by_line = run("explain", *arguments, lines, "--row", "9", "--row", "4").json["rows"]
    assert [row["tag"] for row in by_id] == ["bug-7", "bug-2"]
    assert [row["line"] for row in by_line] == ["9", "4"]
    x = kit.frame()[kit.names].iloc[[7, 2]]
    model = mn.load(trained / "model.safetensors")
    for k, reasons in enumerate(model.explain(x, 3)):
        for found in (by_id[k], by_line[k]):
            assert [m["memory"] for m in found["memories"]] == [r.memory for r in reasons]
            assert [m["share"] for m in found["memories"]] == [r.share for r in reasons]
            assert found["prediction"] == model.predict(x)[k]
            probabilities = model.predict_proba(x)[k]
            assert list(found["probabilities"].values()) == pytest.approx(probabilities.tolist())
    why = model.explain(x, 3)
    for k, row in enumerate(by_id):
        assert [own["column"] for own in row["columns"]] == [own.column for own in why.pulls(k)]
        assert row["columns"][0]["pull"] == pytest.approx(why.pulls(k)[0].pull)


def test_typical_rows_are_called_as_the_user_calls_them(run, trained, table, kit):
    """Not by their places among the rows that were trained on."""
    frame = kit.frame().set_index("tag")
    found = run("explain", trained, table, "--id", "tag", "--row", "bug-7", "--json").json["rows"]
    model = mn.load(trained / "model.safetensors")
    for memory in found[0]["memories"]:
        near = frame.loc[memory["typical_rows"], kit.names]
        share = model.transform(frame[kit.names])[:, memory["memory"]]
        assert (model.transform(near)[:, memory["memory"]] > np.quantile(share, 0.8)).all()


def test_picture_and_words(run, tmp_path, trained, table):
    out = tmp_path / "new" / "why.svg"
    arguments = ["explain", trained, table, "--row", "bug-7", "--row", "bug-2", "--out", out]
    text = run(*arguments, env={"COLUMNS": "40"}).stdout
    assert "tag bug-7: " in text
    assert "tag bug-2: " in text
    assert all(len(line) <= 40 or "wrote" in line for line in text.splitlines())
    assert out.read_text().count("<svg") == 1


def test_text_from_data_cannot_command_the_terminal(run, tmp_path, kit):
    table = kit.frame().drop(columns="tag")
    table["kind"] = table["kind"].replace({"ant": "[red]\x1b[31mant\x07"})
    table.to_csv(tmp_path / "t.csv", index=False)
    run("train", tmp_path / "t.csv", *kit.fast, "--out", tmp_path / "r", "-q")
    result = run("evaluate", tmp_path / "r", tmp_path / "t.csv")
    assert "\x1b" not in result.stdout + result.stderr
    assert "[red]\\x1b[31mant\\x07" in result.stdout


def test_what_would_have_to_change(run, trained, table, kit):
    arguments = ["explain", trained, table, "--id", "tag", "--row", "bug-7"]
    told = run(*arguments, "--counterfactual", "cat", "--fixed", "length0,length4", "--json").json
    change = told["rows"][0]["counterfactual"]
    assert change["found"]
    row = kit.frame().set_index("tag").loc[["bug-7"], kit.names]
    for feature in change["changes"]:
        assert feature["column"] not in ("length0", "length4")
        assert row[feature["column"]].item() == feature["before"]
        row[feature["column"]] = feature["after"]
    assert mn.load(trained / "model.safetensors").predict(row) == ["cat"]
    error = run(*arguments, "--counterfactual", "dog", code=2).error
    assert "--counterfactual must be one of 'ant', 'bee', 'cat'" in error


def test_a_proven_radius_and_a_row_beyond_it(run, trained, table, kit):
    arguments = ["explain", trained, table, "--id", "tag", "--row", "bug-7"]
    model = mn.load(trained / "model.safetensors")
    row = kit.frame().set_index("tag").loc[["bug-7"], kit.names]
    (radius,) = model.certified_radius(row).radius
    found = run(*arguments, "--counterfactual", "next", "--json").json["rows"][0]
    assert found["certified_radius"] == radius
    assert found["certified_unit"] == "standard units"
    away = found["counterfactual"]["distance"]
    assert 0 < radius < away
    text = run(*arguments, "--counterfactual", "next").stdout.replace("\n", " ")
    assert f"no row within {radius:.3g} standard units changes this prediction; this one, " in text
