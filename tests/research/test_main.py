"""`python -m research`: the list, one of everything in it, and how it ends."""

from __future__ import annotations

import json

import pytest

from research import __main__ as start
from research.benchmarks import maximize
from research.paper import REGISTRY


def test_everything_is_listed_one_line_each(capsys):
    assert start.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.partition("  ")[0].strip() for line in lines]
    assert len(set(names)) == len(names)
    assert all(line.partition("  ")[2].strip() for line in lines)
    assert {f"reproduce {name}" for name in REGISTRY} <= set(names)
    studies = ("solve", "phase-diagram", "overlaps", "bifurcation", "free-entropy", "spectrum")
    assert {f"theory {name}" for name in studies} <= set(names)
    assert {*start.benchmarks(), "reproduce all", "pages", "bench"} <= set(names)
    assert start.main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines() == lines


def test_an_unknown_name_is_wrong_usage(capsys):
    assert start.main(["maximizer"]) == 2
    assert "did you mean maximize" in capsys.readouterr().err
    assert start.main(["zebra"]) == 2
    assert "python -m research lists all" in capsys.readouterr().err


@pytest.mark.parametrize("name", start.benchmarks())
def test_every_benchmark_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as stop:
        start.main([name, "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert f"python -m research {name}" in text
    assert "--out" in text


def test_a_benchmark_leaves_a_report_with_a_head(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(maximize, "N_MEMORIES", 97)
    out = tmp_path / "report.json"
    assert start.main(["maximize", "--repeats", "1", "--passes", "1", "--out", str(out)]) == 0
    content = json.loads(out.read_text(encoding="utf-8"))
    assert content["command"] == "python -m research maximize --repeats 1 --passes 1"
    assert content["seeds"] == [0]
    assert {"versions", "device", "threads"} <= set(content)
    assert len(content["rows"]) == 4
    assert "digits, pass 1" in capsys.readouterr().out
