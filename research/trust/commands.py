"""Every command with every bad file: one line, an exit code, and nothing destroyed or left."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import signal
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from typer.testing import CliRunner

import mnemosphere as mn
from mnemosphere.cli import app, main
from research.trust import Attempt
from research.trust.kills import fresh, same_bits

FAST = ["--memories", "5", "--varsigma", "0.9", "--normalize", "standard", "--max-iter", "2"]
WILD = ["\x1b[31mred\x1b[0m", "[bold]x[/red]", "<script>alert(1)</script>", "a\tb", "$(id)", "‮x"]
_CLUSTER = ["cluster", "{data}", "--clusters", "2", "--memories", "4", "--max-iter", "1"]
COMMANDS = {
    "train": ["train", "{data}", "--label", "kind", "--out", "{out}run", *FAST],
    "config": ["train", "--config", "{config}", "--out", "{out}run"],
    "resume": ["train", "--resume", "--out", "{draft}"],
    "cluster": [*_CLUSTER, "--out", "{out}clusters"],
    "predict": ["predict", "{model}", "{data}", "--out", "{out}answers.csv"],
    "predict json": ["predict", "{model}", "{data}", "--out", "{out}answers.json", "--json"],
    "reject": ["predict", "{model}", "{data}", "--reject", "0.2"],
    "prior": ["predict", "{model}", "{data}", "--prior", "ant=1,bee=2,cat=3"],
    "evaluate": ["evaluate", "{model}", "{data}"],
    "novel": ["evaluate", "{model}", "{table}", "--novel", "{data}"],
    "certify": ["evaluate", "{model}", "{data}", "--certify"],
    "explain": ["explain", "{model}", "{data}", "--out", "{out}why.png"],
    "recall": ["recall", "{model}", "{data}", "--hide", "0.3", "--out", "{out}recalled.csv"],
    "memories": ["plot", "memories", "{model}", "--out", "{out}memories.png"],
    "classes": ["plot", "classes", "{model}", "--out", "{out}classes.svg"],
    "history": ["plot", "history", "{model}", "--out", "{out}history.pdf"],
    "tree": ["plot", "tree", "{model}", "--out", "{out}tree.png"],
    "explore": ["explore", "{model}", "{data}", "--out", "{out}page.html"],
    "export": ["export", "{model}", "--out", "{out}card.md"],
    "graph": ["export", "{model}", "--out", "{out}graph.onnx"],
    "demo": ["demo", "--out", "{out}shown"],
    "too many": ["train", "{data}", "--label", "kind", "--out", "{out}run", "--memories",
                 "1000000000000"],
    "some rows": ["train", "{data}", "--label", "kind", "--out", "{out}run", "--max-rows", "9",
                  *FAST],
}  # fmt: skip
_STOPPED = 12  # moments at which training is interrupted, and killed


def frame(labels: list[str]) -> pd.DataFrame:
    """A small table with these labels."""
    rng = np.random.default_rng(0)
    y = np.arange(31) % len(labels)
    x = rng.normal(size=(31, 3)) + 4 * np.eye(3)[y % 3]
    return pd.DataFrame(x.round(4), columns=["a", "b", "c"]).assign(kind=[labels[k] for k in y])


def _text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content, encoding="utf-8")


def _raw(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def _npy(header: str) -> bytes:
    """An array file that claims to be of some shape, with next to nothing in it."""
    text = header.ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64)


def _bomb(path: Path) -> None:
    """A zip file whose parts claim to be larger than any memory."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("x.npy", _npy("{'descr': '<f8', 'fortran_order': False, 'shape': (9, 9)}"))
    content = bytearray(path.read_bytes())
    at = content.rindex(b"PK\x01\x02") + 24  # the size in the list of parts
    content[at : at + 4] = (2**32 - 2).to_bytes(4, "little")
    path.write_bytes(bytes(content))


def bad_tables() -> dict[str, Callable[[Path], object]]:
    """Files that are no good rows, by name, and how to write each."""
    good = frame(["ant", "bee", "cat"]).to_csv(index=False)
    buffer = io.BytesIO()
    np.savez(buffer, x=np.ones((4, 3)), y=np.zeros(3))
    huge = "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999, 3)}"
    return {
        "good.csv": _text(good),
        "wild.csv": lambda path: frame(WILD).to_csv(path, index=False),
        "wild_columns.csv": _text(good.replace("a,b,c", "a,\x1b[31mb,[red]c")),
        "empty.csv": _text(""),
        "blank.csv": _text("\n\n\n"),
        "header.csv": _text("a,b,c,kind\n"),
        "one.csv": _text("\n".join(good.splitlines()[:2])),
        "one_class.csv": lambda path: frame(["ant"]).to_csv(path, index=False),
        "ragged.csv": _text(good + "1,2\n1,2,3,4,5,6,7\n"),
        "quote.csv": _text(good + '"1,2,3,ant\n'),
        "nul.csv": _raw(good.encode() + b"\x00\x00,\x00\n"),
        "latin.csv": _raw("a,b,c,kind\n1,2,3,Käse\n".encode("latin-1")),
        "wide.csv": _text("a,b,c,kind\n" + "9" * 5000 + ",1,2,ant\n"),
        "infinite.csv": _text(good + "inf,1,2,ant\n"),
        "missing.csv": _text(good + ",,,\n,1,2,ant\n"),
        "twice.csv": _text(good.replace("a,b,c", "a,a,c")),
        "text.csv": _text(good.replace("0.", "x.")),
        "constant.csv": _text("a,b,c,kind\n" + "1,1,1,ant\n0,0,0,bee\n" * 9),
        "large.csv": _text("a,b,c,kind\n" + "1e308,-1e308,1e-320,ant\n1,1e308,2,bee\n" * 9),
        "other.csv": _text("p,q,kind\n" + "1,2,ant\n3,4,bee\n" * 9),
        "no.csv.gz": _raw(b"no gzip at all"),
        "cut.csv.gz": _raw(gzip.compress(good.encode())[:-9]),
        "no.parquet": _raw(b"PAR1" + bytes(40) + b"PAR1"),
        "no.feather": _raw(b"ARROW1" + bytes(40)),
        "no.npy": _raw(b"\x93NUMPY" + bytes(30)),
        "huge.npy": _raw(_npy(huge)),
        "object.npy": lambda path: np.save(path, np.array([{}, 1], dtype=object)),
        "flat.npy": lambda path: np.save(path, np.arange(5.0)),
        "text.npy": lambda path: np.save(path, np.array([["a", "b"]])),
        "lengths.npz": _raw(buffer.getvalue()),
        "no.npz": _raw(b"PK\x03\x04" + bytes(60)),
        "bomb.npz": _bomb,
        "images-idx3-ubyte": _raw(b"\x00\x00\x08\x03" + b"\xff" * 12),
        "notes.txt": _text("notes"),
        "folder.csv": lambda path: path.mkdir(),
        "pipe.csv": os.mkfifo,
    }


def bad_configs() -> dict[str, Callable[[Path], object]]:
    """Files of settings with something wrong."""
    return {
        "empty.toml": _text(""), "no.toml": _text("= ="), "deep.toml": _text("a = " + "[" * 9999),
        "bytes.toml": _raw(b"\xff\xfe\x00"), "key.toml": _text('data = "x.csv"\nmemorys = 3'),
        "type.toml": _text('data = 3\nmemories = "many"'), "list.toml": _text('data = ["a", 3]'),
        "date.toml": _text("data = 2020-01-01"), "table.toml": _text("[data]\na = 1"),
        "wild.toml": _text('data = "\\u001b[31m.csv"'),
        "digits.toml": _text("seed = " + "9" * 5000),
        "far.toml": _text('data = "digits"\nseed = -1\ntest_fraction = 1e400'),
        "pipe.toml": os.mkfifo, "folder.toml": lambda path: path.mkdir(),
    }  # fmt: skip


def bad_drafts(good: Path) -> dict[str, Callable[[Path], object]]:
    """Folders of runs that were not finished, beside the name that is to be resumed."""

    def draft(files: dict[str, bytes]) -> Callable[[Path], object]:
        def write(path: Path) -> None:
            folder = path.with_name(f"{path.name}.partial")
            folder.mkdir()
            for name, content in files.items():
                (folder / name).write_bytes(content)

        return write

    return {
        "none": lambda path: None,
        "empty": draft({}),
        "no_config": draft({"model.safetensors": b"x"}),
        "cut_config": lambda path: draft({"config.toml": (good / "config.toml").read_bytes()[:80]})(
            path
        ),
        "no_data": draft({"config.toml": b'data = "gone.csv"'}),
        "no_checkpoint": lambda path: draft({
            "config.toml": (good / "config.toml").read_bytes(), "checkpoint.safetensors.run": b"x",
        })(path),
        "file": lambda path: path.with_name(f"{path.name}.partial").write_bytes(b"x"),
    }  # fmt: skip


def bad_models(good: Path) -> dict[str, Callable[[Path], object]]:
    """Model files, and folders of runs with something wrong."""

    def changed(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
        return lambda path: path.write_bytes(change((good / "model.safetensors").read_bytes()))

    def noted(change: Callable[[Any], Any]) -> Callable[[Path], object]:
        def write(path: Path) -> None:
            shutil.copytree(good, path)
            text = change(json.loads((good / "results.json").read_text(encoding="utf-8")))
            text = text if isinstance(text, str) else json.dumps(text)
            (path / "results.json").write_text(text, encoding="utf-8")

        return write

    def about(**fields: Any) -> Callable[[Path], object]:
        return noted(lambda record: record | {"data": {**record["data"], **fields}})

    def wild(path: Path) -> None:
        shutil.copytree(good.with_name("wild"), path)

    return {
        "wild": wild,
        "empty": _raw(b""),
        "text": _text("hello"),
        "cut": changed(lambda content: content[:-100]),
        "changed": changed(lambda content: content[:-3] + b"abc"),
        "no_model": lambda path: path.mkdir(),
        "pipe": os.mkfifo,
        "no_json": noted(lambda record: "{"),
        "deep_json": noted(lambda record: "[" * 10_000),
        "no_text": noted(lambda record: "\x00\x1b"),
        "no_data": noted(lambda record: record | {"data": 3}),
        "seed": about(seed="x"),
        "fraction": about(test_fraction=7),
        "shape": about(image_shape=[0, -1]),
        "label": about(label="\x1b[31m"),
        "scores": noted(lambda record: record | {"novelty": {"held_out": "x"}}),
        "list": noted(lambda record: record | {"novelty": []}),
        "in_list": noted(lambda record: [record]),
        "nothing": noted(lambda record: {"data": {}}),
    }


def cases() -> list[tuple[str, str, str]]:
    """(command, what is bad about it, which one) of everything that is tried."""
    of = {"data": bad_tables(), "model": bad_models(Path()), "config": bad_configs(),
          "draft": bad_drafts(Path())}  # fmt: skip
    found = []
    for name, words in COMMANDS.items():
        for kind, files in of.items():
            found += [(name, kind, key) for key in files if f"{{{kind}}}" in words]
        if "--out" in words and name != "resume":
            found += [(name, "taken", "file"), (name, "taken", "overwrite")]
        if name not in ("demo", "resume", "config"):
            found.append((name, "closed pipe", ""))
    found += [(how, "moment", str(k)) for how in ("interrupt", "kill") for k in range(_STOPPED)]
    order = np.random.default_rng(0).permutation(len(found))
    return [found[k] for k in order]


def _seen(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder, by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def check(before: dict[str, bytes | None], folder: Path, code: int, said: str) -> str:
    """What came of a command that was given nothing to replace."""
    after = _seen(folder)
    if code not in (0, 2, 130, 141) or "Traceback" in said:
        last = (said.splitlines() or [""])[-1]
        raise RuntimeError(f"exit code {code}: {last[:300]}")
    if "\x1b" in said or "\x00" in said or "‮" in said:
        raise RuntimeError("text from the data reaches the terminal as it is")
    if any(after.get(name, b"") != content for name, content in before.items()):
        return "destroyed"
    raw = [name for name, content in after.items() if name.endswith((".html", ".md"))
           and content is not None and WILD[2].encode() in content]  # fmt: skip
    if raw:
        raise RuntimeError(f"text from the data stands in {raw[0]} as it is")
    if code == 2:
        lines = [line for line in said.splitlines() if line.startswith("error: ")]
        if len(lines) != 1:
            raise RuntimeError(f"not one line: {said[:300]}")
        return "clear error" if after == before else "litter"
    if any(Path(name).name.startswith(".") or ".partial" in name for name in after):
        return "litter"
    return {0: "done", 130: "interrupted", 141: "closed pipe"}[code]


def judge(folder: Path, arguments: list[str]) -> str:
    """Run a command in a folder and see what came of it."""
    before = _seen(folder)
    result = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1"}).invoke(app, arguments)
    said = result.stdout + result.stderr
    if result.exit_code == 1 and not isinstance(result.exception, SystemExit):
        said += repr(result.exception)
    return check(before, folder, result.exit_code, said)


def process(
    arguments: list[str], note: Path, *, after: float = 600.0, by: int = signal.SIGKILL,
    closed: bool = False,
) -> int:  # fmt: skip
    """The exit code of a command in a process of its own, which gets a signal after a while."""
    child = os.fork()
    if child == 0:
        code: Any = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            file = os.open(note, os.O_WRONLY | os.O_CREAT)
            there, here = os.pipe()
            os.close(there)
            os.dup2(here if closed else file, 1)
            os.dup2(file, 2)
            sys.stdout, sys.stderr = open(1, "w"), open(2, "w")  # noqa: SIM115
            sys.argv = ["mnemosphere", *arguments]
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


def stopped(home: Path, here: Path, moment: float, *, kill: bool) -> str:
    """Training that is interrupted or killed, and goes on to the same model."""
    long = ["--memories", "5", "--varsigma", "0.9", "--normalize", "standard", "--tol", "0",
            "--max-iter", "30", "--solver", "sgd", "--batch-size", "2"]  # fmt: skip
    words = ["train", str(home / "good.csv"), "--label", "kind", *long]
    straight, out = home / "straight", here / "run"
    if not straight.exists():
        began = time.monotonic()
        assert process([*words, "--out", str(straight)], here / "note") == 0
        (home / "seconds").write_text(str(time.monotonic() - began))
    seconds = float((home / "seconds").read_text())
    by = signal.SIGKILL if kill else signal.SIGINT
    code = process([*words, "--out", str(out)], here / "note", after=moment * seconds, by=by)
    said = (here / "note").read_text(encoding="utf-8", errors="replace")
    if code not in ((0, -signal.SIGKILL) if kill else (0, 130)) or "Traceback" in said:
        raise RuntimeError(f"exit code {code}: {said[-300:]}")
    draft = (here / "run.partial" / "config.toml").exists()
    if code != 0 and out.exists():
        return "litter"
    if code == 130 and not draft and (here / "run.partial").exists():
        return "litter"
    if code != 0:
        more = ["train", "--resume"] if draft else [*words, "--overwrite"]
        judged = process([*more, "--out", str(out)], here / "note")
        if judged != 0:
            raise RuntimeError((here / "note").read_text(encoding="utf-8")[-300:])
    left = {path.name for path in here.iterdir()}
    if left != {"run", "note"}:
        return "litter"
    one, two = (mn.load(path / "model.safetensors") for path in (straight, out))
    return "the same bits" if same_bits(one, two) else "another result"


def attempts(n: int, folder: Path, seed: int) -> Iterator[Attempt]:
    """Each command × each file; the seed says at which of them to begin."""
    home = folder / "home"
    home.mkdir()
    table, model = home / "good.csv", home / "run"
    frame(["ant", "bee", "cat"]).to_csv(table, index=False)
    frame(WILD).to_csv(home / "wild.csv", index=False)
    for path in (model, home / "wild"):
        data = table if path == model else home / "wild.csv"
        judge(home, ["train", str(data), "--label", "kind", "--out", str(path), *FAST])
    files = {"data": bad_tables(), "model": bad_models(model), "config": bad_configs(),
             "draft": bad_drafts(model)}  # fmt: skip

    def attempt(here: Path, name: str, kind: str, key: str) -> str:
        if kind == "moment":
            return stopped(home, here, (int(key) + 0.5) / _STOPPED, kill=name == "kill")
        used = {"data": str(table), "table": str(table), "model": str(model), "out": f"{here}/",
                "config": str(model / "config.toml"), "draft": str(here / "run")}  # fmt: skip
        if kind in files:
            used[kind] = str(here / key)
            files[kind][key](here / key)
        arguments = [word.format(**used) for word in COMMANDS[name]]
        if kind == "closed pipe":
            before = _seen(here)
            code = process(arguments, folder / "note", closed=True)
            said = (folder / "note").read_text(encoding="utf-8", errors="replace")
            (folder / "note").unlink()
            return check(before, here, code, said)
        if kind == "taken":
            out = Path(arguments[arguments.index("--out") + 1])
            if out.suffix:
                out.write_text("mine")
            else:  # with --overwrite too, since no run has written that
                out.mkdir()
                (out / "mine.txt").write_text("mine")
            if key == "overwrite":
                arguments.append("--overwrite")
                if out.suffix:
                    found = judge(here, arguments)
                    return "replaced, as asked for" if found == "destroyed" else found
        return judge(here, arguments)

    for name, kind, key in cases()[seed : seed + n]:

        def fresh_attempt(name: str = name, kind: str = kind, key: str = key) -> str:
            try:
                return attempt(fresh(folder / "here"), name, kind, key)
            finally:
                shutil.rmtree(folder / "here")

        yield f"{name}, {kind} {key}", fresh_attempt
