"""`train` and `cluster` as torchrun starts them: many processes, one voice, one folder."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

import mnemosphere as mn
import mnemosphere.plots.fitted  # before the fork: it takes long to import
from mnemosphere.cli import app
from processes import run_group

FAST = ["--memories", "4", "--varsigma", "0.9", "--normalize", "unit", "--max-iter", "2",
        "--objective", "joint"]  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> str:
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = rng.normal(size=(60, 3)) + 4 * np.eye(3)[y]
    path = tmp_path_factory.mktemp("data") / "rows.csv"
    pd.DataFrame(x, columns=["a", "b", "c"]).assign(kind=y).to_csv(path, index=False)
    return str(path)


class Ended(Exception):  # noqa: N818
    """A process that ended with an error."""


def run(size: int, *words: str, restarts: int = 0) -> list[tuple[int, str, str]]:
    """(exit code, output, errors) of every process; those that write a file and should not fail."""

    def work(rank: int) -> Any:
        # The agent of another machine does not count a fault that was not among its processes.
        again = restarts if rank == size - 1 else 0
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
                       "TORCHELASTIC_RESTART_COUNT": str(again),
                       "TORCHELASTIC_MAX_RESTARTS": str(3 * (restarts > 0))}  # fmt: skip
        out, err, code = io.StringIO(), io.StringIO(), 0

        def refuse(event: str, given: tuple[Any, ...]) -> None:
            if event == "open" and given[2] & (os.O_WRONLY | os.O_RDWR) and given[0] != os.devnull:
                raise PermissionError(f"rank {rank} writes {given[0]}")

        if rank > 0:
            sys.addaudithook(refuse)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                app(list(words), prog_name="mnemosphere")
            except SystemExit as end:
                code = end.code
        if code:
            raise Ended(code, out.getvalue(), err.getvalue())  # the others are not left waiting
        return code, out.getvalue(), err.getvalue()

    return [found.args if isinstance(found, Ended) else found for found in run_group(size, work)]


def test_many_processes_write_one_model(table, tmp_path):
    found = run(2, "train", table, "--label", "kind", "--out", str(tmp_path / "run"), *FAST)
    assert [code for code, *_ in found] == [0, 0], found
    assert "wrote" in found[0][1]
    assert found[1][1:] == ("", "")
    names = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert names == ["config.toml", "history.png", "memories.png", "model.safetensors",
                     "results.json"]  # fmt: skip
    (alone,) = run(1, "train", table, "--label", "kind", "--out", str(tmp_path / "one"), *FAST)
    assert alone[0] == 0
    one, many = (mn.load(tmp_path / name / "model.safetensors") for name in ("one", "run"))
    np.testing.assert_allclose(many.memories_, one.memories_, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_a_restart_goes_on_with_the_run(table, tmp_path):
    out, draft = tmp_path / "run", tmp_path / "run.partial"
    draft.mkdir()
    (draft / "config.toml").write_text("seed = 5\nmemories = 4\nvarsigma = 0.9\n", encoding="utf-8")
    words = ["train", table, "--label", "kind", "--out", str(out), "--max-iter", "1"]
    refused = run(2, *words)
    assert {code for code, *_ in refused} == {2}
    found = run(2, *words, "--normalize", "unit", "--objective", "joint", restarts=1)
    assert [code for code, *_ in found] == [0, 0], found
    assert "seed = 5" in (out / "config.toml").read_text(encoding="utf-8")
    assert not draft.exists()


@pytest.mark.parametrize("command", ["train", "cluster"])
def test_a_restart_after_the_last_file_was_written_has_nothing_to_do(table, tmp_path, command):
    out = tmp_path / "run"
    out.mkdir()
    (out / "results.json").write_text("{}", encoding="utf-8")
    words = [command, table, "--label", "kind", "--out", str(out)]
    assert {code for code, *_ in run(2, *words)} == {2}
    found = run(2, *words, restarts=2)
    assert found == [(0, "", f"{out} was finished before the fault\n"), (0, "", "")]


def test_a_restart_discards_what_cannot_go_on(table, tmp_path):
    draft = tmp_path / "run.partial"
    draft.mkdir()
    (draft / ".config.toml.0").touch()
    words = ["cluster", table, "--label", "kind", "--out", str(tmp_path / "run"), "--clusters", "2",
             "--memories", "2", "--max-iter", "1", "--normalize", "unit"]  # fmt: skip
    assert {code for code, *_ in run(2, *words)} == {2}
    found = run(2, *words, restarts=1)
    assert [code for code, *_ in found] == [0, 0], found
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_processes_say_what_is_wrong(table, tmp_path):
    out = str(tmp_path / "run")
    for words, text in (
        (["train", table, "--label", "nosuch", "--out", out], "no column 'nosuch'"),
        (["predict", out, table], "only train and cluster are for many processes"),
    ):
        found = run(2, *words)
        assert {code for code, *_ in found} == {2}
        assert any(text in err for *_, err in found), found
    assert list(tmp_path.iterdir()) == []
