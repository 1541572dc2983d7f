"""Help is quick, whatever happens is one line and an exit code, and what is wrong is named."""

import shlex
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import typer

import mnemosphere
from mnemosphere.cli import app
from mnemosphere.cli.shell import describe

COMMANDS = typer.main.get_command(app).commands
HEAVY = {"torch", "sklearn", "numpy", "pandas", "matplotlib", "scipy"}


def test_help_loads_nothing_heavy_and_a_closed_pipe_is_no_error():
    """The reader is gone before anything is written."""
    code = f"""
import os, sys
from mnemosphere.cli import main

def run(*words):
    sys.argv = ["mnemosphere", *words]
    try:
        main()
    except SystemExit as stop:
        return stop.code

assert not any(run(*words) for words in (["--help"], ["--version"], ["train", "--help"]))
assert not {HEAVY!r} & set(sys.modules)
read, write = os.pipe()
os.close(read)
os.dup2(write, 1)
sys.exit(run("train", "--help"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 141, done.stderr
    assert done.stderr == ""
    assert f"mnemosphere {mnemosphere.__version__}\n" in done.stdout


def test_there_are_five_commands_and_each_explains_itself(run):
    assert list(COMMANDS) == ["demo", "train", "predict", "explain", "explore"]
    for name in COMMANDS:
        assert f" {name} " in run("--help").stdout
        assert "--overwrite" in run(name, "--help").stdout


def test_a_bug_is_called_one():
    message, code = describe(RuntimeError("odd\nthing"))
    assert code == 1
    assert "RuntimeError: odd thing (this is a bug" in message


WRONG = {  # what is typed in a folder with the run `made`, irises.csv and some bad files, what is said
    "trian irises.csv": "did you mean 'train'?",
    "train": "missing argument",
    "train irises.csv --memorise 3": "--memorise",
    "train no.csv": "no file no.csv: check the path",
    "train .": "no file .: check the path",
    "train irises.csv --label specie": "no column 'specie': did you mean 'species'?",
    "train irises.csv --drop color": "no column 'color': there are 'flower', 'sepal length (cm)'",
    "train irises.csv --features species": "no column is left to learn from",
    "train irises.csv --label 'sepal length (cm)'": "unknown label type: continuous",
    "train irises.csv --memories many": "'n_memories' parameter",
    "train irises.csv --geometry round": "'geometry' parameter",
    "train irises.csv --out taken": "taken exists: choose another name with --out, or pass --over",
    "train irises.csv --label sepal --test two.csv": "no column 'sepal'",
    "train irises.csv --label species --features flower --test other.csv": "classes that irises.csv lacks: oak",
    "train empty.csv": "empty.csv cannot be read: no columns to parse",
    "train header.csv": "header.csv cannot be read: it has no rows",
    "train ragged.csv": "ragged.csv cannot be read: error tokenizing data",
    "train latin.csv": "latin.csv cannot be read: 'utf-8' codec can't decode",
    "train bad.parquet": "bad.parquet cannot be read",
    "train bad.xlsx": "bad.xlsx cannot be read",
    "train bad.csv.gz": "bad.csv.gz cannot be read",
    "train words.txt": "words.txt cannot be read: its name must end in .csv, .tsv",
    "train infinite.csv": "is infinite (inf) in column 'a'",
    "predict no irises.csv": "no model file at no: check the path",
    "predict irises.csv irises.csv": "irises.csv is damaged or not a safetensors file",
    "predict damaged irises.csv": "results.json is damaged",
    "predict made words.csv": "none of the columns of the model, such as 'sepal length (cm)'",
    "predict made irises.csv --out p.doc": "cannot write 'p.doc': end the name in .csv",
    "predict made irises.csv --out irises.csv --overwrite": "irises.csv is what is read",
    "predict made irises.csv --reject 2": "between 0 and 1",
    "predict made irises.csv --ask": "say how many with --reject",
    "explain made irises.csv --row f999": "no flower 'f999': there are f0 to f149",
    "explain made irises.csv --counterfactual oak": "must be next or one of setosa, versicolor, vir",
    "explain made irises.csv --row f1 --row f2 --out w.png": "a picture shows one row, got 2",
    "explain made irises.csv --out why.doc": "cannot write 'why.doc'",
    "explore made irises.csv --label kind": "no column 'kind'",
    "explore made irises.csv --out taken": "taken exists",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch, trained, table, irises):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made").symlink_to(trained)
    (tmp_path / "irises.csv").symlink_to(table)
    for name in ("taken", "damaged"):
        (tmp_path / name).mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    (tmp_path / "damaged" / "results.json").write_text("{")
    (tmp_path / "damaged" / "model.safetensors").symlink_to(trained / "model.safetensors")
    for name in ("bad.parquet", "bad.xlsx", "bad.csv.gz", "words.txt"):
        (tmp_path / name).write_text("words")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("a,b\n")
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n1,2,3\n")
    (tmp_path / "latin.csv").write_bytes("a,b\nJosé,1\n".encode("latin-1"))
    (tmp_path / "words.csv").write_text("word\noak\n")
    (tmp_path / "two.csv").write_text("flower,species\nf1,setosa\n")
    (tmp_path / "other.csv").write_text("flower,species\nf1,oak\n")
    pd.DataFrame({"a": np.r_[np.inf, np.arange(29.0)], "y": ["u", "v", "v"] * 10}).to_csv(
        "infinite.csv", index=False
    )
    return tmp_path


def test_what_is_wrong_is_named_in_one_line_and_nothing_changes(run, folder):
    def files():
        return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    before, missed = files(), []
    for typed, said in WRONG.items():
        error = run(*shlex.split(typed), code=2).error
        missed += [f"{typed}: {error}"] * (said not in error and said not in error.lower())
    assert missed == []
    assert files() == before


def test_what_could_command_the_terminal_is_shown_as_it_is_written(run, tmp_path, irises):
    wild = irises.replace({"species": {"setosa": "[red]\x1b[31ms\x07\u202e"}})
    wild.to_csv(tmp_path / "t.csv", index=False)
    words = ["--label", "species", "--id", "flower", "--memories", "6", "--objective", "joint"]
    told = run("train", tmp_path / "t.csv", *words, "--geometry", "unit", "--out", tmp_path / "r")
    shown = told.stdout + told.stderr
    for command in ("predict", "explain"):
        shown += run(command, tmp_path / "r", tmp_path / "t.csv").stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert shown.count("[red]\\x1b[31ms\\x07\\u202e") > 2
