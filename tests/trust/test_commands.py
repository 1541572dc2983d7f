"""Every command with every kind of bad file: one line, an exit code, nothing destroyed or left behind."""

import gzip
import io
import json
import os
import shutil
import signal
import sys
import time
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import mnemosphere as mn
from mnemosphere.cli import app, main
from processes import forking

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
FAST = ["--memories", "5", "--varsigma", "0.9", "--geometry", "standard", "--max-iter", "2"]
WILD = ["\x1b[31mred\x1b[0m", "[bold]x[/red]", "<script>alert(1)</script>", "a\tb", "$(id)", "‮x"]
TRAIN = ["train", "{data}", "--label", "kind", "--out", "{out}run"]
COMMANDS = {
    "train": [*TRAIN, *FAST],
    "resume": ["train", "{data}", "--label", "kind", *FAST, "--resume", "--out", "{draft}"],
    "cluster": ["cluster", "{data}", "--clusters", "2", "--memories", "4", "--max-iter", "1", "--out", "{out}run"],
    "predict": ["predict", "{model}", "{data}", "--out", "{out}answers.csv"],
    "json": ["predict", "{model}", "{data}", "--out", "{out}answers.parquet", "--json"],
    "prior": ["predict", "{model}", "{data}", "--prior", "ant=1,bee=2,cat=3", "--reject", "0.2"],
    "evaluate": ["evaluate", "{model}", "{data}", "--certify"],
    "novel": ["evaluate", "{model}", "{table}", "--novel", "{data}"],
    "explain": ["explain", "{model}", "{data}", "--out", "{out}why.png"],
    "recall": ["recall", "{model}", "{data}", "--hide", "0.3", "--out", "{out}recalled.csv"],
    "memories": ["plot", "memories", "{model}", "--out", "{out}memories.png"],
    "explore": ["explore", "{model}", "{data}", "--out", "{out}page.html"],
    "graph": ["export", "{model}", "--out", "{out}graph.onnx"],
    "too many": [*TRAIN, "--memories", "1000000000000"],
    "some rows": [*TRAIN, "--max-rows", "9", *FAST],
}  # fmt: skip


def frame(labels):
    y = np.arange(31) % len(labels)
    x = np.random.default_rng(0).normal(size=(31, 3)) + 4 * np.eye(3)[y % 3]
    return pd.DataFrame(x.round(4), columns=["a", "b", "c"]).assign(kind=[labels[k] for k in y])


GOOD = frame(["ant", "bee", "cat"]).to_csv(index=False)


def npy(header):
    """An array file that claims a shape, with next to nothing in it."""
    text = header.ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64)


def saved(save, *values, **named):
    buffer = io.BytesIO()
    save(buffer, *values, **named)
    return buffer.getvalue()


def bomb():
    """A zip file that claims a part larger than any memory."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("x.npy", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (9, 9)}"))
    content = bytearray(buffer.getvalue())
    at = content.rindex(b"PK\x01\x02") + 24  # the size in the list of parts
    content[at : at + 4] = (2**32 - 2).to_bytes(4, "little")
    return bytes(content)


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
    "huge.npy": npy("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 3)}"),
    "object.npy": saved(np.save, np.array([{}, 1], dtype=object)),
    "lengths.npz": saved(np.savez, x=np.ones((4, 3)), y=np.zeros(3)),
    "bomb.npz": bomb(),
    "images-idx3-ubyte": b"\x00\x00\x08\x03" + b"\xff" * 12,
    "folder.csv": Path.mkdir,
    "pipe.csv": os.mkfifo,
}


def record(change, path, home):
    """A run whose results.json was changed."""
    shutil.copytree(home / "run", path)
    found = change(json.loads((path / "results.json").read_text(encoding="utf-8")))
    text = found if isinstance(found, str) else json.dumps(found)
    (path / "results.json").write_text(text, encoding="utf-8")


def about(path, home, **fields):
    record(lambda found: found | {"data": {**found["data"], **fields}}, path, home)


def model_bytes(change, path, home):
    path.write_bytes(change((home / "run" / "model.safetensors").read_bytes()))


def draft(files, path, home):
    """A run that was not finished, next to the name that is to be resumed."""
    folder = path.with_name(f"{path.name}.partial")
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)


MODELS = {
    "wild": lambda path, home: shutil.copytree(home / "wild", path),
    "empty": b"", "text": "hello", "no_model": Path.mkdir, "pipe": os.mkfifo,
    "cut": partial(model_bytes, lambda content: content[:-100]),
    "changed": partial(model_bytes, lambda content: content[:-3] + b"abc"),
    "no_json": partial(record, lambda found: "{"),
    "deep_json": partial(record, lambda found: "[" * 10_000),
    "no_text": partial(record, lambda found: "\x00\x1b"),
    "no_data": partial(record, lambda found: found | {"data": 3}),
    "scores": partial(record, lambda found: found | {"novelty": {"held_out": "x"}}),
    "in_list": partial(record, lambda found: [found]),
    "nothing": partial(record, lambda found: {"data": {}}),
    "seed": partial(about, seed="x"), "fraction": partial(about, test_fraction=7),
    "shape": partial(about, image_shape=[0, -1]), "label": partial(about, label="\x1b[31m"),
}  # fmt: skip
DRAFTS = {
    "none": lambda path: None, "empty": partial(draft, {}),
    "no_checkpoint": partial(draft, {"model.safetensors": b"x"}),
    "cut_checkpoint": partial(draft, {"checkpoint.safetensors.run": b"x"}),
}  # fmt: skip
BAD = {"data": TABLES, "model": MODELS, "draft": DRAFTS}
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
    elif content in (Path.mkdir, os.mkfifo, DRAFTS["none"]):
        content(path)
    else:
        content(path, home)


def seen(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def assert_nothing_lost(folder, before, code, said):
    """Nothing is replaced or left behind, raw text reaches neither terminal nor page."""
    assert code in (0, 2, 141), said[-300:]
    assert "Traceback" not in said
    assert not {"\x1b", "\x00", "‮"} & set(said)
    after = seen(folder)
    assert before.items() <= after.items()
    pages = [content for name, content in after.items() if name.endswith((".html", ".md"))]
    assert not any(WILD[2].encode() in (content or b"") for content in pages)
    if code == 2:
        assert sum(line.startswith("error: ") for line in said.splitlines()) == 1
        assert after == before
    assert not [
        name for name in after.keys() - before.keys() if ".partial" in name or "/." in f"/{name}"
    ]


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
    used = {"data": home / "run.csv", "table": home / "run.csv", "model": home / "run", "out": f"{here}/",
            "draft": here / "run"} | changed  # fmt: skip
    return [word.format(**used) for word in COMMANDS[name]]


def test_every_command_is_tried():
    known = {command.name for command in app.registered_commands} - {"demo"}
    assert {words[0] for words in COMMANDS.values()} == known


@pytest.mark.parametrize(("name", "kind", "key"), CASES)
def test_bad_files(home, tmp_path, name, kind, key):
    write(BAD[kind][key], tmp_path / key, home)
    place = tmp_path / ("run" if kind == "draft" else key)
    if kind == "draft" and (tmp_path / f"{key}.partial").exists():
        (tmp_path / f"{key}.partial").rename(tmp_path / "run.partial")
    found = invoke(tmp_path, arguments(name, home, tmp_path, **{kind: place}))
    assert found.exit_code in (0, 1, 2)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "name", [n for n, words in COMMANDS.items() if "--out" in words and n != "resume"]
)
def test_outputs_that_exist(home, tmp_path, name, overwrite):
    words = arguments(name, home, tmp_path)
    out = Path(words[words.index("--out") + 1])
    if out.suffix:
        out.write_text("mine")
    else:  # with --overwrite too, since no run has written that
        out.mkdir()
        (out / "mine.txt").write_text("mine")
    if overwrite and out.suffix:
        assert CliRunner().invoke(app, [*words, "--overwrite"]).exit_code == 0
        assert out.read_bytes() != b"mine"
    else:
        assert invoke(tmp_path, [*words, "--overwrite"] if overwrite else words).exit_code == 2


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


@pytest.mark.parametrize("name", [n for n in COMMANDS if n != "resume"])
def test_closed_pipes(home, tmp_path, name):
    here, note = tmp_path / "here", tmp_path / "note"
    here.mkdir()
    code = process(arguments(name, home, here), note, closed=True)
    assert_nothing_lost(here, {}, code, note.read_text(encoding="utf-8", errors="replace"))


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGKILL])
def test_training_that_is_stopped_goes_on(home, tmp_path, by):
    long = [*FAST[:-1], "30", "--tol", "0", "--solver", "sgd", "--batch-size", "2"]
    words = ["train", str(home / "run.csv"), "--label", "kind", *long]
    note, straight = tmp_path / "note", tmp_path / "straight"
    began = time.monotonic()
    assert process([*words, "--out", str(straight)], note) == 0
    seconds = time.monotonic() - began
    for k in range(6):
        out = tmp_path / str(k) / "run"
        out.parent.mkdir()
        code = process([*words, "--out", str(out)], note, after=(k + 0.5) / 6 * seconds, by=by)
        assert code in (0, -by if by == signal.SIGKILL else 130)
        kept = any(out.with_name("run.partial").glob("checkpoint*"))
        if code != 0:
            assert not out.exists()
            more = "--resume" if kept else "--overwrite"
            assert process([*words, more, "--out", str(out)], note) == 0, note.read_text()
        assert [path.name for path in out.parent.iterdir()] == ["run"]
        one, two = (mn.load(path / "model.safetensors") for path in (straight, out))
        assert np.array_equal(one.memories_, two.memories_)
        assert one.n_iter_ == two.n_iter_
