"""What the commands write and print is what the library says in Python."""

import json
import os
import stat

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import accuracy_score, log_loss, recall_score

import mnemosphere as mn
from commands import FAST
from mnemosphere.base.files import plain
from mnemosphere.interpret import rejections


def features(irises):
    return irises.drop(columns=["flower", "species"])


def test_train_is_a_fit_in_python_and_scikit_learn_measures_it(trained, model, irises):
    record = json.loads((trained / "results.json").read_text())
    names = ["memories.png", "model.safetensors", "results.json"]
    assert sorted(path.name for path in trained.iterdir()) == names
    held = np.zeros(150, dtype=bool)
    held[record["held_out"]] = True
    assert irises["species"][held].value_counts().tolist() == [10, 10, 10]  # a fifth of each
    clf = mn.DAMClassifier(6, objective="joint", geometry="standard", random_state=0)
    rest = irises[~held].set_index("flower")
    clf.fit(rest.drop(columns="species"), rest["species"])
    x, truth = features(irises)[held], irises["species"][held]
    proba = clf.predict_proba(x)
    np.testing.assert_array_equal(model.predict_proba(x), proba)
    assert record["rows"] == 120
    assert record["accuracy"] == accuracy_score(truth, clf.predict(x))
    assert record["log_loss"] == pytest.approx(log_loss(truth, proba))
    recall = recall_score(truth, clf.predict(x), average=None)
    assert [record["classes"][name]["recall"] for name in clf.classes_] == recall.tolist()
    assert record["settings"]["n_memories"] == record["memories"] == 6


def test_held_out_rows_in_a_file(run, tmp_path, table, irises):
    irises[::3].to_csv(tmp_path / "test.csv", index=False)
    words = ["train", table, "--drop", "flower", *FAST, "--test", tmp_path / "test.csv"]
    found = run(*words, "--out", tmp_path / "r", "--json").json
    assert (found["rows"], found["held_out"]) == (150, [])
    model = mn.load(tmp_path / "r" / "model.safetensors")
    assert found["accuracy"] == model.score(features(irises)[::3], irises["species"][::3])


def test_rows_without_label_and_few_rows(run, tmp_path, irises):
    some = irises.copy()
    some.loc[::4, "species"] = None
    some.to_csv(tmp_path / "some.csv", index=False)
    found = run("train", tmp_path / "some.csv", *FAST, "--out", tmp_path / "r", "--json").json
    assert not [k for k in found["held_out"] if k % 4 == 0]
    irises[::40].to_csv(tmp_path / "few.csv", index=False)
    told = run("train", tmp_path / "few.csv", "--drop", "flower", "--memories", "3", "--objective",
               "joint", "--geometry", "unit", "--out", tmp_path / "few").stdout  # fmt: skip
    assert "no class has enough rows to hold some out" in told


@pytest.mark.parametrize("suffix", ["csv", "tsv.gz", "parquet"])
def test_predictions_read_back_are_those_of_python(run, tmp_path, trained, model, irises, suffix):
    """Columns are found by name, in any order; the rest of a table is ignored."""
    x, out = features(irises), tmp_path / "new" / f"p.{suffix}"
    irises.iloc[:, ::-1].to_csv(tmp_path / "mixed.csv", index=False)
    run("predict", trained, tmp_path / "mixed.csv", "--out", out)
    read = pd.read_parquet if suffix == "parquet" else pd.read_csv
    found = read(out, **({"sep": "\t"} if suffix == "tsv.gz" else {})).reset_index()
    assert found["flower"].tolist() == irises["flower"].tolist()
    proba = found[[f"probability_{name}" for name in model.classes_]]
    np.testing.assert_allclose(proba, model.predict_proba(x), rtol=1e-12)
    assert found["prediction"].tolist() == model.predict(x).tolist()
    np.testing.assert_allclose(found["novelty_score"], model.novelty_score(x), rtol=1e-12)
    assert (found["novel"] == (found["novelty_score"] > model.novelty_threshold_)).all()


@pytest.mark.parametrize("more", [[], ["--ask"]])
def test_rejected_rows(run, tmp_path, trained, model, table, irises, more):
    words = ["predict", trained, table, "--reject", "0.3", *more]
    found = run(*words, "--json").json
    x = features(irises)
    wanted = model.predict_or_reject(x, 0.3, ask=bool(more)).tolist()
    assert [row["prediction"] for row in found] == wanted
    assert None in wanted
    assert [row["reason"] for row in found] == rejections(model.model_, x, 0.3).reasons
    run(*words, "--out", tmp_path / "p.parquet")
    stored = pd.read_parquet(tmp_path / "p.parquet")["prediction"]
    assert [None if pd.isna(own) else own for own in stored] == wanted
    assert all(len(line) <= 80 for line in run(*words, env={"COLUMNS": "80"}).stdout.splitlines())


def test_every_line_of_a_file_gets_an_answer(run, tmp_path, trained, model, irises):
    """Empty lines and missing values too; a column that is not there is missing in every row."""
    x = features(irises)[:9].astype(object)
    x.iloc[3, 1] = None
    x.iloc[[5, 8]] = None
    x = x.drop(columns=x.columns[2])
    lines = x.to_csv(index=False).replace("\n,,\n", "\n\n")
    assert lines.count("\n\n") == 2
    (tmp_path / "holes.csv").write_text(lines)
    words = ["predict", trained, tmp_path / "holes.csv", "--json"]
    result = run(*words)
    assert [row["row"] for row in result.json] == list(range(9))
    found = pd.DataFrame(result.json).filter(like="probability_")
    whole = x.astype(float).reindex(columns=model.feature_names_in_)
    np.testing.assert_allclose(found, model.predict_proba(whole), rtol=1e-12)
    assert "the table lacks 'petal length (cm)': they count as missing" in result.stderr


def test_a_class_may_be_called_na_and_an_empty_cell_is_missing(run, tmp_path, irises):
    table = irises.drop(columns="flower").replace({"species": {"setosa": "NA"}})
    table.loc[::7, "petal width (cm)"] = np.nan
    table.to_csv(tmp_path / "gaps.csv", index=False)
    table.to_excel(tmp_path / "gaps.xlsx", index=False)
    for name in ("gaps.csv", "gaps.xlsx"):
        out = tmp_path / name.replace(".", "-")
        run("train", tmp_path / name, *FAST, "--out", out)
        model = mn.load(out / "model.safetensors")
        assert model.classes_.tolist() == ["NA", "versicolor", "virginica"]
        run("predict", out, tmp_path / name, "--out", out / "p.csv")
        found = pd.read_csv(out / "p.csv", keep_default_na=False)
        assert (found["prediction"] == model.predict(table.iloc[:, :4])).all()


@pytest.mark.parametrize("name", ["semi.csv", "tab.tsv.gz", "a.parquet", "a.xlsx", "a.jsonl"])
def test_files_of_every_kind_say_the_same(run, tmp_path, trained, table, irises, name):
    path = tmp_path / name
    if name.endswith(".csv"):
        irises.to_csv(path, sep=";", index=False)
    elif ".tsv" in name:
        irises.to_csv(path, sep="\t", index=False)
    elif ".jsonl" in name:
        irises.to_json(path, orient="records", lines=True)
    else:
        (irises.to_parquet if ".parquet" in name else irises.to_excel)(path, index=False)
    one, two = (run("predict", trained, p, "--json").json for p in (table, path))
    assert pd.DataFrame(one).equals(pd.DataFrame(two))


def test_rows_are_named_by_the_index_of_a_parquet_file(run, tmp_path, trained, irises):
    irises.set_index("flower").to_parquet(tmp_path / "a.parquet")
    found = run("predict", trained, tmp_path / "a.parquet", "--json").json
    assert [row["flower"] for row in found] == irises["flower"].tolist()


def test_names_of_rows_do_not_get_lost(run, tmp_path, trained, irises):
    """A column of names that is called like one of the answers."""
    irises.rename(columns={"flower": "prediction"}).to_csv(tmp_path / "t.csv", index=False)
    told = run("predict", trained, tmp_path / "t.csv", "--id", "prediction", code=2).error
    assert "predictions have a column 'prediction': name rows by another --id" in told


def test_explain_says_what_python_says(run, tmp_path, trained, model, table, irises):
    words = ["explain", trained, table, "--row", "f77", "--row", "f2"]
    rows = irises.set_index("flower").drop(columns="species").loc[["f2", "f77"]]
    why = model.explain(rows)
    found = pd.DataFrame(run(*words, "--json").json)
    pd.testing.assert_frame_equal(found, why.table().map(plain))
    text = run(*words, env={"COLUMNS": "60"}).stdout
    assert text == why.as_text(60) + "\n"
    assert {"row f77: ", "row f2: "} <= {line[:9] for line in text.splitlines()} | {"row f2: "}
    one = run("explain", trained, table, "--out", tmp_path / "new" / "why.svg").stdout
    assert one.startswith("row f0: setosa")
    assert (tmp_path / "new" / "why.svg").read_text().count("<svg") == 1


def test_what_would_have_to_change(run, trained, model, table, irises):
    fixed = "petal width (cm)"
    words = ["explain", trained, table, "--row", "f77", "--fixed", fixed, "--counterfactual"]
    row = irises.set_index("flower").drop(columns="species").loc[["f77"]]
    for label in (None, "setosa"):
        wanted = model.counterfactual(row, label, fixed=[fixed]).as_text(80)
        told = run(*words, label or "next", env={"COLUMNS": "80"}).stdout
        assert told.endswith(f"\n\n{wanted}\n")


def test_a_page_measures_on_rows_that_were_not_trained_on(
    run, tmp_path, monkeypatch, trained, table, irises
):
    out = tmp_path / "page.html"
    run("explore", trained, "--out", out)
    assert "<html" in out.read_text()
    seen = []

    def explore(self, path, X=None, y=None, **more):
        seen.append((X, y, more))
        path.write_text("")

    monkeypatch.setattr(mn.DAMClassifier, "explore", explore)
    irises[:9].to_csv(tmp_path / "new.csv", index=False)
    for data in (table, tmp_path / "new.csv"):
        run("explore", trained, data, "--out", out, "--overwrite", "--rows", "7")
    held = json.loads((trained / "results.json").read_text())["held_out"]
    for (x, y, more), wanted in zip(seen, (irises.iloc[held], irises[:9]), strict=True):
        assert x.index.tolist() == wanted["flower"].tolist()
        assert y.tolist() == wanted["species"].tolist()
        assert more == {"max_rows": 7, "title": "run"}


def test_files_keep_their_permissions_and_nothing_else_is_touched(run, tmp_path, table, trained):
    """A file of mode 0600 stays one; links beside a run are left alone."""
    out, precious = tmp_path / "run", tmp_path / "precious.txt"
    precious.write_text("precious")
    (tmp_path / ".run.lock").symlink_to(precious)
    words = ["train", table, "--id", "flower", *FAST, "--out", out]
    run(*words)
    (out / "mine.txt").write_text("mine")
    os.chmod(out / "results.json", 0o600)
    before = (out / "model.safetensors").read_bytes()
    assert "exists" in run(*words, code=2).error
    run(*words, "--seed", "1", "--overwrite")
    assert (out / "model.safetensors").read_bytes() != before
    assert stat.S_IMODE((out / "results.json").stat().st_mode) == 0o600
    assert (out / "mine.txt").read_text() == "mine"
    assert precious.read_text() == "precious"
    names = {"model.safetensors", "results.json", "memories.png", "mine.txt"}
    assert {path.name for path in out.iterdir()} == names
    assert {path.name for path in tmp_path.iterdir()} == {"run", "precious.txt", ".run.lock"}
    old = os.umask(0o027)
    try:
        run("predict", trained, table, "--out", tmp_path / "p.csv")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "p.csv").stat().st_mode) == 0o640


def test_an_interrupted_fit_leaves_its_model(run, tmp_path, monkeypatch, table):
    class Stop(mn.Callback):
        def on_pass(self, run):
            if run.n_iter == 2:
                raise KeyboardInterrupt

    fit = mn.DAMClassifier.fit
    monkeypatch.setattr(
        mn.DAMClassifier, "fit", lambda self, X, y: fit(self.set_params(callbacks=[Stop()]), X, y)
    )
    result = run("train", table, "--id", "flower", *FAST, "--out", tmp_path / "r", code=130)
    assert "interrupted after 2 passes" in result.stderr
    assert mn.load(tmp_path / "r" / "model.safetensors").n_iter_ == 2


def test_texts(run, tmp_path):
    """Texts alone, and beside other columns."""
    pytest.importorskip("wordllama")
    d = mn.load_data("banking-small")
    table = pd.DataFrame({"number": range(300), "message": d.x_train, "intent": d.y_train})
    table.to_csv(tmp_path / "tickets.csv", index=False)
    new = ["Somebody stole my card", "", "quokka wombat numbat bandicoot platypus echidna"]
    pd.DataFrame({"message": new, "number": range(3)}).to_csv(tmp_path / "new.csv", index=False)
    fast = ["--objective", "joint", "--memories", "20", "--label", "intent", "--text", "message"]
    words = ["train", tmp_path / "tickets.csv", *fast, "--out"]
    found = run(*words, tmp_path / "run", "--geometry", "unit", "--json").json
    assert found["accuracy"] > 0.8
    rows = run("predict", tmp_path / "run", tmp_path / "new.csv", "--reject", "0.05", "--json").json
    assert [row["prediction"] for row in rows] == ["lost_or_stolen_card", None, None]
    told = run("explain", tmp_path / "run", tmp_path / "new.csv").stdout
    assert 'row 0 "Somebody stole my card": lost_or_stolen_card' in " ".join(told.split())
    run(*words, tmp_path / "both", "--features", "number")
    model = mn.load(tmp_path / "both" / "model.safetensors")
    assert model.feature_names_in_.tolist() == ["number", "message"]
    assert "message" in run("explain", tmp_path / "both", tmp_path / "new.csv").stdout
