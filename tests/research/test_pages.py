"""Commands are listed; tables of results that differ, or that are older than the code, are refused."""

from __future__ import annotations

import pytest

from research import __main__ as start
from research import pages, report
from research.pages import stored
from research.paper import REGISTRY


def test_everything_is_listed_one_line_each(capsys):
    assert start.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.partition("  ")[0].strip() for line in lines]
    assert len(set(names)) == len(names)
    assert {f"reproduce {name}" for name in REGISTRY} <= set(names)
    assert {*start.benchmarks(), "theory overlaps", "field", "pages"} <= set(names)
    assert start.main(["open_word"]) == 2
    assert "did you mean open_world" in capsys.readouterr().err


@pytest.mark.parametrize("name", start.benchmarks())
def test_every_benchmark_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as stop:
        start.main([name, "--help"])
    assert stop.value.code == 0
    assert f"python -m research {name}" in capsys.readouterr().out


def head(**changes):
    return report.head("python -m research field", describes=("numerics",)) | changes


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (head(), None),
        (head(command="python -m research field --again"), None),
        (head(versions={"mnemosphere": "0.0.1"}), "more than one version: "),
        (head(device="another processor"), "more than one machine: "),
        (head(defaults="other"), "more than one defaults: "),
        (head(code="other"), "older than the code it describes: python -m research field"),
        (head(describes=("model",)), "older than the code it describes"),
        ({"command": "peer", "device": head()["device"], "threads": head()["threads"],
          "describes": []}, None),  # a baseline is not our code
    ],
)  # fmt: skip
def test_tables_that_may_not_be_shown(other, message):
    found = stored.problems("ranks", [head(), other])
    assert (found == []) if message is None else (message in found[0])


def test_words_of_the_code_do_not_count(tmp_path, monkeypatch):
    def code(text):
        (tmp_path / "one.py").write_text(text)
        return report.code_of(["one.py"])

    monkeypatch.setattr(report.mnemosphere, "__file__", str(tmp_path / "__init__.py"))
    plain = code("def f(x):\n    return x + 1\n")
    assert plain == code('def f(x):  # why\n    """What."""\n    return x + 1\n')
    assert plain != code("def f(x):\n    return x + 2\n")


def test_tables_on_pages_have_results():
    for page in pages.PAGES:
        for name in pages.marks.names(page.read_text(encoding="utf-8")):
            assert name in stored.FINISHED or name in pages.TABLES, f"{page.name}: {name}"


def test_commands_name_no_place_on_one_machine():
    words = ["field", "--data", "here/there", "--seeds", "3", "--out=x.json"]
    assert report.command_line(words) == "python -m research field --data DIR --seeds 3"
