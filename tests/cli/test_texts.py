"""A new user's ten minutes with a CSV of texts: train, explain, predict with rejections, a page."""

import csv
import json

import numpy as np
import pytest

import mnemosphere as mn

ENCODER = ("--encoder", "hashed_words:hashed_words")
FAST = ("--objective", "joint", "--memories", "20", "--varsigma", "0.5", "--geometry", "unit")
NEW = [
    "Somebody stole my card",
    "How do I change my PIN?",
    "quokka wombat numbat bandicoot platypus echidna bilby possum",
]


def write(path, **columns):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([list(columns), *zip(*columns.values(), strict=True)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory, call):
    """tickets.csv, new.csv, and a run on the first."""
    path, d = tmp_path_factory.mktemp("texts"), mn.load_data("banking-small")
    write(path / "tickets.csv", number=range(300), message=d.x_train, intent=d.y_train)
    write(path / "new.csv", message=NEW)
    call("train", path / "tickets.csv", "--text", "message", "--label", "intent", *ENCODER, *FAST,
         "--out", path / "run", "--quiet")  # fmt: skip
    return path


def test_explain_shows_the_texts_behind_the_decision(run, folder):
    told = run("explain", folder / "run", folder / "new.csv", *ENCODER).stdout
    assert 'line 2 "Somebody stole my card": lost_or_stolen_card' in " ".join(told.split())
    assert "a typical row of it" in told
    found = run("explain", folder / "run", folder / "new.csv", *ENCODER, "--json").json
    known = {" ".join(text.split())[:200] for text in mn.load_data("banking-small").x_train}
    rows = [text for memory in found["rows"][0]["memories"] for text in memory["typical_rows"]]
    assert rows
    assert {*rows} <= known


def test_predictions_come_with_texts_and_rejections(run, folder):
    out = folder / "predictions.csv"
    run("predict", folder / "run", folder / "new.csv", *ENCODER, "--reject", "0.05", "--out", out)
    with out.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["message"] for row in rows] == NEW
    assert [row["prediction"] for row in rows] == ["lost_or_stolen_card", "change_pin", ""]
    shown = run("predict", folder / "run", folder / "new.csv", *ENCODER, "--reject", "0.05").stdout
    assert shown.count(" rejected\n") == 1
    assert max(map(len, shown.splitlines())) <= 80
    assert '"How do I change my PIN?"' in shown


def test_evaluate_names_the_worst_texts(run, folder):
    found = run("evaluate", folder / "run", folder / "tickets.csv", *ENCODER, "--json").json
    assert found["rows"] == 60
    assert found["accuracy"] > 0.5
    assert all(row["text"].startswith('"') for row in found["worst_rows"])


def test_other_columns_and_files_without_texts(run, folder):
    write(folder / "other.csv", body=NEW, note=[1, 2, 3])
    found = run(
        "predict", folder / "run", folder / "other.csv", *ENCODER, "--text", "body", "--json"
    )
    assert [row["body"] for row in found.json["predictions"]] == NEW
    run("cluster", folder / "tickets.csv", "--text", "message", *ENCODER, "--clusters", "5",
        "--memories", "5", "--out", folder / "clusters")  # fmt: skip
    found = json.loads((folder / "clusters" / "results.json").read_text(encoding="utf-8"))
    assert len(found["clusters"]) == 5
    assert all(row["typical"].startswith('"') for row in found["clusters"])


def test_texts_and_columns(run, folder):
    """--text and --features together, and a page."""
    out = folder / "both"
    run("train", folder / "tickets.csv", "--text", "message", "--features", "number", "--label", "intent",
        *ENCODER, "--objective", "joint", "--memories", "20", "--varsigma", "0.5", "--out", out)  # fmt: skip
    assert mn.load(out / "model.safetensors").feature_names_in_.tolist() == ["number", "message"]
    told = run("explain", out, folder / "tickets.csv", *ENCODER, "--row", "3").stdout
    assert "message" in told
    run("explore", out, folder / "tickets.csv", *ENCODER, "--out", folder / "both.html")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("predict run other.csv ENCODER", "no column 'message'"),
        ("predict run new.csv", "encoder 'hashed_words', which its file does not hold"),
        ("predict run new.csv --encoder hashed_words:other_words", "gives other vectors than"),
        ("predict run new.csv --encoder nowhere:encode", "--encoder nowhere:encode cannot be imp"),
        ("train tickets.csv --out x --label intent --drop number", "--text learns from texts"),
        ("recall run new.csv", "texts have none"),
    ],
)  # fmt: skip
def test_errors_are_one_line(run, folder, monkeypatch, command, told):
    monkeypatch.chdir(folder)
    if not (folder / "other.csv").exists():
        write(folder / "other.csv", body=NEW, note=[1, 2, 3])
    found = run(*command.replace("ENCODER", " ".join(ENCODER)).split(), code=2)
    assert told in found.error


def test_the_questions_of_the_package_train(run, tmp_path):
    pytest.importorskip("wordllama")
    run("train", "banking-small", "--text", "text", *FAST, "--out", tmp_path / "run")
    assert run("evaluate", tmp_path / "run", "banking-small", "--json").json["accuracy"] > 0.9
    found = run("predict", tmp_path / "run", "banking-small", "--json").json["predictions"]
    assert np.mean([row["novel"] for row in found]) < 0.1
