"""Every command with every bad file: one line, an exit code, and nothing destroyed or left."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from mnemosphere.cli import app
from research.trust import Attempt, Tally, run

FAST = ["--memories", "5", "--varsigma", "0.9", "--normalize", "standard", "--max-iter", "2"]
WILD = ["\x1b[31mred\x1b[0m", "[bold]x[/red]", "<script>alert(1)</script>", "a\tb", "$(id)", "‮x"]
COMMANDS = {
    "train": ["train", "{data}", "--label", "kind", "--out", "{out}run", *FAST],
    "cluster": ["cluster", "{data}", "--out", "{out}clusters", "--clusters", "2", "--memories", "4",
                "--max-iter", "1"],
    "predict": ["predict", "{model}", "{data}", "--out", "{out}answers.csv"],
    "reject": ["predict", "{model}", "{data}", "--reject", "0.2"],
    "evaluate": ["evaluate", "{model}", "{data}"],
    "explain": ["explain", "{model}", "{data}", "--out", "{out}why.png"],
    "recall": ["recall", "{model}", "{data}", "--out", "{out}recalled.csv"],
    "plot": ["plot", "memories", "{model}", "--out", "{out}memories.png"],
    "explore": ["explore", "{model}", "{data}", "--out", "{out}page.html"],
    "export": ["export", "{model}", "--out", "{out}card.md"],
}  # fmt: skip


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


def bad_models(good: Path) -> dict[str, Callable[[Path], object]]:
    """Model files, and folders of runs with something wrong."""
    content = (good / "model.safetensors").read_bytes()

    def noted(text: str) -> Callable[[Path], object]:
        def write(path: Path) -> None:
            shutil.copytree(good, path)
            (path / "results.json").write_text(text, encoding="utf-8")

        return write

    record = json.loads((good / "results.json").read_text(encoding="utf-8"))
    changed = [
        record | {"data": 3}, record | {"data": {**record["data"], "seed": "x"}},
        record | {"data": {**record["data"], "test_fraction": 7}},
        record | {"data": {**record["data"], "image_shape": [0, -1]}},
        record | {"novelty": {"held_out": "x"}}, record | {"novelty": []}, [record], {"data": {}},
    ]  # fmt: skip
    return {
        "empty": _raw(b""),
        "text": _text("hello"),
        "cut": _raw(content[:-100]),
        "changed": _raw(content[:-3] + b"abc"),
        "no_model": lambda path: path.mkdir(),
        "pipe": os.mkfifo,
        "no_json": noted("{"),
        "deep_json": noted("[" * 10_000),
        "no_text": noted("\x00\x1b"),
        **{f"record{i}": noted(json.dumps(each)) for i, each in enumerate(changed)},
    }


def _seen(folder: Path) -> dict[str, bytes | None]:
    """Everything in a folder, by name."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def judge(folder: Path, arguments: list[str], *, taken: bool) -> str:
    """Run a command in a folder and see what came of it; taken: its output is there already."""
    before = _seen(folder)
    env = {"COLUMNS": "100", "NO_COLOR": "1"}
    result = CliRunner(env=env).invoke(app, arguments)
    after = _seen(folder)
    said = result.stdout + result.stderr
    if result.exit_code not in (0, 2) or "Traceback" in said:
        last = (result.stderr.splitlines() or [""])[-1]
        raise RuntimeError(f"exit code {result.exit_code}: {last[:300]} {result.exception!r}")
    if "\x1b" in said or "\x00" in said:
        raise RuntimeError("text from the data reaches the terminal as it is")
    if any(after.get(name, b"") != content for name, content in before.items()):
        return "destroyed"
    if result.exit_code == 2:
        lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
        if len(lines) != 1:
            raise RuntimeError(f"not one line: {result.stderr[:300]}")
        return "clear error" if after == before else "litter"
    if any(name.startswith(".") or ".partial" in name for name in after):
        return "litter"
    return "destroyed" if taken and "--out" in arguments else "done"


def attempts(n: int, folder: Path, seed: int) -> Iterator[Attempt]:
    """Each command × each file; n of them drawn at random, 0 for all."""
    home = folder / "home"
    home.mkdir()
    table = home / "good.csv"
    frame(["ant", "bee", "cat"]).to_csv(table, index=False)
    model = home / "run"
    judge(home, ["train", str(table), "--label", "kind", "--out", str(model), *FAST], taken=False)
    tables, models = bad_tables(), bad_models(model)
    cases: list[tuple[str, str, str | None, str | None, bool]] = []
    for name, words in COMMANDS.items():
        if "{data}" in words:
            cases += [(name, "data", key, None, False) for key in tables]
        if "{model}" in words:
            cases += [(name, "model", None, key, False) for key in models]
        if "--out" in words:
            cases += [(name, "taken", None, None, True)]
    if n:
        chosen = np.random.default_rng(seed).choice(
            len(cases), size=min(n, len(cases)), replace=False
        )
        cases = [cases[i] for i in chosen]
    for k, (name, kind, data, broken, taken) in enumerate(cases):

        def attempt(
            k: int = k, name: str = name, data: str | None = data, broken: str | None = broken,
            taken: bool = taken,
        ) -> str:  # fmt: skip
            here = folder / str(k)
            here.mkdir()
            used = {"data": str(table), "model": str(model), "out": f"{here}/"}
            if data is not None:
                used["data"] = str(here / data)
                tables[data](here / data)
            if broken is not None:
                used["model"] = str(here / broken)
                models[broken](here / broken)
            arguments = [word.format(**used) for word in COMMANDS[name]]
            if taken:
                out = Path(arguments[arguments.index("--out") + 1])
                if out.suffix:
                    out.write_text("mine")
                else:
                    out.mkdir()
                    (out / "config.toml").write_text("mine")
            try:
                return judge(here, arguments, taken=taken)
            finally:
                shutil.rmtree(here)

        yield f"{name} {kind} {data or broken or ''}", attempt


def campaign(n: int, folder: Path, seed: int = 0) -> Tally:
    """Each command with each bad file, or n of these."""
    return run(attempts(n, folder, seed))
