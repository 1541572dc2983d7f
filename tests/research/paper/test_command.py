"""The command `reproduce`: what it accepts, says, leaves, and how it ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from research import paper
from research.paper import experiment
from research.paper.experiment import Experiment
from research.report import Comparison


def draw(result, folder):
    (folder / "picture.txt").write_text(str(result["measured"]["value"]))
    return [folder / "picture.txt"]


def make(name, value=7.25, **fields):
    return Experiment(
        name,
        f"Fig. ({name}): a number",
        lambda quick: {"quick": quick},
        lambda run: {"value": run.parts.step("only", lambda: value)},
        draw,
        lambda measured: [
            Comparison("reading", measured["value"], "7", 6.5, 7.5, unit="%", spread=0.125),
            Comparison("another", 1.0),
        ],
        **({"datasets": ()} | fields),
    )


def interrupt(run):
    run.parts.step("first", lambda: 1)
    raise KeyboardInterrupt


def break_down(run):
    raise RuntimeError("an accident")


@pytest.fixture
def registry(monkeypatch):
    """Experiments that take no time in the place of the real ones."""
    made = {name: make(name) for name in ("fig1", "fig2", "table1")}
    monkeypatch.setattr(paper, "REGISTRY", made)
    return made


def test_numbers_stand_beside_the_papers(run, registry, tmp_path):
    shown = run("reproduce", "fig1", "--device", "cpu", "--out", tmp_path)
    (line,) = [line for line in shown.stdout.splitlines() if "reading" in line]
    assert [cell.strip() for cell in line.strip("│").split("│")] == [
        "reading", "7.25 ± 0.12%", "7", "yes", "",
    ]  # fmt: skip
    folder = next((tmp_path / "fig1").iterdir())
    assert f"fig1/{folder.name}" in shown.stdout
    assert (folder / "picture.txt").read_text() == "7.25"


def test_finished_runs_are_not_done_again(run, registry, tmp_path):
    options = ("--device", "cpu", "--out", tmp_path)
    run("reproduce", "fig1", *options)
    registry["fig1"] = replace(registry["fig1"], run=break_down)
    shown = run("reproduce", "fig1", *options)
    assert "fig1: finished before, in" in shown.stderr
    assert run("reproduce", "fig1", *options, "--json").json["runs"][0]["status"] == (
        "finished before"
    )
    assert run("reproduce", "fig1", *options, "--quiet").stderr == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig11"], "unknown experiment 'fig11': did you mean fig1"),
        (["tabel1"], "did you mean table1?"),
        (["zebra"], "unknown experiment 'zebra': there are fig1, fig2, table1 and all"),
        ([], "say what to reproduce: fig1, fig2, table1 or all"),
        (["fig1", "--device", "tpu"], "device 'tpu' cannot be used here"),
        (["all", "--device", "tpu"], "device 'tpu' cannot be used here"),
        (["all", "--data", "no-such-folder"], "--data no-such-folder is not a folder"),
        (["--redraw"], "no finished run in"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(run, registry, tmp_path, arguments, message):
    shown = run("reproduce", *arguments, "--out", tmp_path, code=2)
    assert message in shown.stderr
    assert shown.stderr.startswith("error: ")
    assert len(shown.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_ctrl_c_keeps_what_is_finished(run, registry, tmp_path):
    whole = registry["fig2"]
    registry["fig2"] = replace(whole, run=interrupt)
    options = ("--device", "cpu", "--out", tmp_path)
    shown = run("reproduce", "all", *options, code=130)
    assert "interrupted in fig2" in shown.stderr
    assert "give the same command to go on" in shown.stderr
    assert list((tmp_path / "fig2").glob("*/parts/first.json"))
    registry["fig2"] = whole
    rows = run("reproduce", "all", *options, "--json").json["runs"]
    assert [row["status"] for row in rows] == ["finished before", "done", "done"]


def test_missing_data(run, registry, tmp_path, monkeypatch):
    def load(name, directory=None):
        raise FileNotFoundError(f"no files of {name} found: pass directory=DIR or set X=DIR")

    monkeypatch.setattr(experiment, "load", load)
    for name in ("fig1", "fig2"):
        registry[name] = make(name, datasets=("mnist",))
    options = ("--device", "cpu", "--out", tmp_path)
    shown = run("reproduce", "fig1", *options, code=2)
    assert "no files of mnist found: pass --data DIR" in shown.stderr
    rows = run("reproduce", "all", *options, "--json").json["runs"]
    assert [row["status"] for row in rows] == ["skipped", "skipped", "done"]
    del registry["table1"]
    run("reproduce", "all", *options, code=2)  # nothing was done


def test_one_failure_does_not_stop_the_others(run, registry, tmp_path):
    registry["fig1"] = replace(registry["fig1"], run=break_down)
    options = ("--device", "cpu", "--out", tmp_path)
    shown = run("reproduce", "all", *options, "--json", code=1)
    assert [row["status"] for row in shown.json["runs"]] == ["failed", "done", "done"]
    assert "fig1 failed: unexpected RuntimeError: an accident" in shown.stderr
    shown = run("reproduce", "fig1", *options, code=1)
    assert "error: unexpected RuntimeError: an accident" in shown.stderr
