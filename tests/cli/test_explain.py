import numpy as np
import pytest


def test_rows_are_called_by_the_id_column_of_training_or_by_line(
    run, tmp_path, trained, model, table, kit
):
    lines = tmp_path / "lines.csv"
    kit.frame().drop(columns="tag").to_csv(lines, index=False)
    x = kit.frame()[kit.names].iloc[[7, 2]]
    why, proba = model.explain(x, 3), model.predict_proba(x)
    frame, shares = kit.frame().set_index("tag"), model.transform(kit.frame()[kit.names])
    for path, kind, names in ((table, "tag", ["bug-7", "bug-2"]), (lines, "line", ["9", "4"])):
        rows = [word for name in names for word in ("--row", name)]
        told = run("explain", trained, path, "--top", "3", *rows, "--json").json["rows"]
        assert [row[kind] for row in told] == names
        for k, row in enumerate(told):
            assert [m["memory"] for m in row["memories"]] == [r.memory for r in why[k]]
            assert [m["share"] for m in row["memories"]] == [r.share for r in why[k]]
            assert [own["column"] for own in row["columns"]] == [p.column for p in why.pulls(k)]
            assert row["columns"][0]["pull"] == pytest.approx(why.pulls(k)[0].pull)
            assert row["prediction"] == why.predicted[k]
            assert [*row["probabilities"].values()] == pytest.approx(proba[k].tolist())
            for memory in row["memories"]:  # typical rows have the user's names
                near = frame.index.get_indexer(memory["typical_rows"])
                share = shares[:, memory["memory"]]
                assert (share[near] > np.quantile(share, 0.8)).all()


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


def test_what_would_have_to_change(run, trained, model, table, kit):
    arguments = ["explain", trained, table, "--row", "bug-7", "--counterfactual"]
    told = run(*arguments, "cat", "--fixed", "length0,length4", "--json").json["rows"][0]
    row = kit.frame().set_index("tag").loc[["bug-7"], kit.names]
    wanted = model.counterfactual(row, "cat", fixed=["length0", "length4"])
    assert told["counterfactual"]["changes"] == [change._asdict() for change in wanted[0]]
