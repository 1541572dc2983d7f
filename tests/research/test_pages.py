"""Commands are listed; tables of results that differ, or that are of another version, are refused."""

import pytest

from research import __main__ as start
from research import pages, report
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


def test_tables_on_pages_have_results():
    for page in pages.PAGES:
        for name in pages.marks.names(page.read_text(encoding="utf-8")):
            assert name in pages.TABLES, f"{page.name}: {name}"


def test_commands_name_no_place_on_one_machine():
    words = ["field", "--data", "here/there", "--seeds", "3", "--out=x.json"]
    assert report.command_line(words) == "python -m research field --data DIR --seeds 3"
