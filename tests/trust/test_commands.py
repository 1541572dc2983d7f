"""Every command with every kind of bad file: one line, an exit code, nothing destroyed or left behind."""

import gzip
import json
import os
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import mnemosphere as mn
from mnemosphere.cli import app, main
from processes import forking

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
FAST = ["--memories", "5", "--objective", "joint", "--geometry", "standard"]
WILD = ["\x1b[31mred\x1b[0m", "[bold]x[/red]", "<script>alert(1)</script>", "a\tb", "$(id)", "‮x"]
TRAIN = ["train", "{data}", "--label", "kind", "--out", "{out}run"]
COMMANDS = {
    "train": [*TRAIN, *FAST],
    "test": ["train", "{table}", "--test", "{data}", "--label", "kind", *FAST, "--out", "{out}run"],
    "predict": ["predict", "{model}", "{data}", "--out", "{out}answers.csv"],
    "parquet": ["predict", "{model}", "{data}", "--out", "{out}answers.parquet", "--json"],
    "reject": ["predict", "{model}", "{data}", "--reject", "0.2", "--ask"],
    "explain": ["explain", "{model}", "{data}", "--out", "{out}why.png"],
    "explore": ["explore", "{model}", "{data}", "--out", "{out}page.html"],
}  # fmt: skip


def frame(labels):
    y = np.arange(31) % len(labels)
    x = np.random.default_rng(0).normal(size=(31, 3)) + 4 * np.eye(3)[y % 3]
    return pd.DataFrame(x.round(4), columns=["a", "b", "c"]).assign(kind=[labels[k] for k in y])


GOOD = frame(["ant", "bee", "cat"]).to_csv(index=False)

TABLES = {
    "good.csv": GOOD,
    "wild.csv": frame(WILD).to_csv(index=False),
    "wild_columns.csv": GOOD.replace("a,b,c", "a,\x1b[31mb,[red]c"),
    "empty.csv": "",
    "header.csv": "a,b,c,kind\n",
    "one.csv": "\n".join(GOOD.splitlines()[:2]),
    "one_class.csv": frame(["ant"]).to_csv(index=False),
    "ragged.csv": GOOD + "1,2\n1,2,3,4,5,6,7\n",
    "nul.csv": GOOD + "\x00\x00,\x00\n",
    "wide.csv": "a,b,c,kind\n" + "9" * 5000 + ",1,2,ant\n",
    "infinite.csv": GOOD + "inf,1,2,ant\n",
    "missing.csv": GOOD + ",,,\n,1,2,ant\n",
    "twice.csv": GOOD.replace("a,b,c", "a,a,c"),
    "text.csv": GOOD.replace("0.", "x."),
    "constant.csv": "a,b,c,kind\n" + "1,1,1,ant\n0,0,0,bee\n" * 9,
    "large.csv": "a,b,c,kind\n" + "1e308,-1e308,1e-320,ant\n1,1e308,2,bee\n" * 9,
    "other.csv": "p,q,kind\n" + "1,2,ant\n3,4,bee\n" * 9,
    "cut.csv.gz": gzip.compress(GOOD.encode())[:-9],
    "no.parquet": b"PAR1" + bytes(40) + b"PAR1",
    "folder.csv": Path.mkdir,
    "pipe.csv": os.mkfifo,
}


def record(change, path, home):
    """A run whose results.json was changed."""
    shutil.copytree(home / "run", path)
    found = change(json.loads((path / "results.json").read_text(encoding="utf-8")))
    text = found if isinstance(found, str) else json.dumps(found)
    (path / "results.json").write_text(text, encoding="utf-8")


def model_bytes(change, path, home):
    path.write_bytes(change((home / "run" / "model.safetensors").read_bytes()))


MODELS = {
    "wild": lambda path, home: shutil.copytree(home / "wild", path),
    "empty": b"", "text": "hello", "no_model": Path.mkdir, "pipe": os.mkfifo,
    "cut": partial(model_bytes, lambda content: content[:-100]),
    "changed": partial(model_bytes, lambda content: content[:-3] + b"abc"),
    "no_json": partial(record, lambda found: "{"),
    "deep_json": partial(record, lambda found: "[" * 10_000),
    "no_text": partial(record, lambda found: "\x00\x1b"),
    "in_list": partial(record, lambda found: [found]),
    "nothing": partial(record, lambda found: {}),
    "label": partial(record, lambda found: found | {"label": "\x1b[31m", "id": "\x1b[31m"}),
}  # fmt: skip
BAD = {"data": TABLES, "model": MODELS}
CASES = [
    (name, kind, key)
    for name, words in COMMANDS.items()
    for kind, files in BAD.items()
    if f"{{{kind}}}" in words
    for key in files
]


def write(content, path, home):
    if isinstance(content, str | bytes):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    elif content in (Path.mkdir, os.mkfifo):
        content(path)
    else:
        content(path, home)


def seen(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def assert_nothing_lost(folder, before, code, said):
    """Nothing is replaced or left behind, raw text reaches neither terminal nor page."""
    assert code in (0, 2, 141), said[-300:]
    assert "Traceback" not in said
    assert not {"\x1b", "\x00", "‮"} & set(said)
    after = seen(folder)
    assert before.items() <= after.items()
    pages = [content for name, content in after.items() if name.endswith(".html")]
    assert not any(WILD[2].encode() in content for content in pages)
    if code == 2:
        assert sum(line.startswith("error: ") for line in said.splitlines()) == 1
        assert after == before
    assert not [name for name in after.keys() - before.keys() if "/." in f"/{name}"]


def invoke(folder, arguments):
    before = seen(folder)
    result = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"}).invoke(app, arguments)
    raised = not isinstance(result.exception, SystemExit | None)
    assert_nothing_lost(
        folder, before, result.exit_code, result.output + ("Traceback" if raised else "")
    )
    return result


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A good table and two runs: a plain one, and one with hostile labels."""
    folder = tmp_path_factory.mktemp("home")
    for name, text in (("run", GOOD), ("wild", TABLES["wild.csv"])):
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
        words = [word.format(data=folder / f"{name}.csv", out=f"{folder}/") for word in TRAIN[:-1]]
        assert CliRunner().invoke(app, [*words, str(folder / name), *FAST]).exit_code == 0
    return folder


def arguments(name, home, here, **changed):
    used = {"data": home / "run.csv", "table": home / "run.csv", "model": home / "run"} | changed
    used["out"] = f"{here}/"
    return [word.format(**used) for word in COMMANDS[name]]


def test_every_command_is_tried():
    known = {*typer.main.get_command(app).commands} - {"demo"}
    assert {words[0] for words in COMMANDS.values()} == known


@pytest.mark.parametrize(("name", "kind", "key"), CASES)
def test_bad_files(home, tmp_path, name, kind, key):
    write(BAD[kind][key], tmp_path / key, home)
    invoke(tmp_path, arguments(name, home, tmp_path, **{kind: tmp_path / key}))


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", [n for n, words in COMMANDS.items() if "--out" in words])
def test_outputs_that_exist(home, tmp_path, name, overwrite):
    """A file is replaced if that is asked for; in a folder other files than those of a run stay."""
    words = arguments(name, home, tmp_path)
    out = Path(words[words.index("--out") + 1])
    mine = out
    if not out.suffix:
        out.mkdir()
        mine = out / "mine.txt"
    mine.write_text("mine")
    if not overwrite:
        assert invoke(tmp_path, words).exit_code == 2
    else:
        assert CliRunner().invoke(app, [*words, "--overwrite"]).exit_code == 0
        assert (mine.read_bytes() == b"mine") == (mine != out)


def process(words, note, *, after=600.0, by=signal.SIGKILL, closed=False):
    """The exit code of a command in another process, which gets a signal after a while."""
    with forking():
        child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            file = os.open(note, os.O_WRONLY | os.O_CREAT)
            there, here = os.pipe()
            os.close(there)
            os.dup2(here if closed else file, 1)
            os.dup2(file, 2)
            sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
            sys.argv = ["mnemosphere", *words]
            main()
        except SystemExit as stop:
            code = stop.code
        finally:
            sys.stderr.flush()
            os._exit(code if isinstance(code, int) else 0)
    began = time.monotonic()
    while time.monotonic() - began < after:
        if (ended := os.waitpid(child, os.WNOHANG))[0]:
            return os.waitstatus_to_exitcode(ended[1])
        time.sleep(0.001)
    os.kill(child, by)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("name", COMMANDS)
def test_closed_pipes(home, tmp_path, name):
    here, note = tmp_path / "here", tmp_path / "note"
    here.mkdir()
    code = process(arguments(name, home, here), note, closed=True)
    assert_nothing_lost(here, {}, code, note.read_text(encoding="utf-8", errors="replace"))


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_training_that_is_stopped(home, tmp_path, by):
    """A model that can be used, or none; the next run needs no care."""
    words = ["train", str(home / "run.csv"), "--label", "kind"]
    note = tmp_path / "note"
    began = time.monotonic()
    assert process([*words, "--out", str(tmp_path / "straight")], note) == 0
    seconds = time.monotonic() - began
    x = frame(["ant"])[["a", "b", "c"]]
    for k in range(6):
        out = tmp_path / str(k)
        code = process([*words, "--out", str(out)], note, after=(k + 0.5) / 6 * seconds, by=by)
        assert code in (0, -by if by == signal.SIGKILL else 130)
        if (out / "model.safetensors").exists():
            assert np.isfinite(mn.load(out / "model.safetensors").predict_proba(x)).all()
        else:
            assert process([*words, "--out", str(out), "--overwrite"], note) == 0, note.read_text()
            assert len(list(out.iterdir())) == 3
