"""The page "The paper, reproduced" is what the stored results say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from research.pages import reproduced
from research.paper import REGISTRY
from research.paper.experiment import finished_folders, read_result
from research.report import STORED, to_json

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "paper-reproduced.md"
RESULTS = STORED / "paper"

TEXT = """# A page

<!-- begin: summary -->
old
<!-- end: summary -->

Words.

## fig1

<!-- begin: fig1 -->
<!-- end: fig1 -->

## fig2

<!-- begin: fig2 -->
<!-- end: fig2 -->
"""


def compared(what, measured, paper, within, spread=None, note=""):
    return {
        "what": what, "measured": measured, "paper": paper, "low": 1.0, "high": 2.0, "unit": "%",
        "spread": spread, "digits": 1, "within": within, "note": note,
    }  # fmt: skip


def store(results, folder, *, finished, quick=False, value=79.06, device="a device", kind="cuda"):
    result = {
        "name": "fig1",
        "title": "Fig. (some_label): a figure",
        "quick": quick,
        "command": f"python -m research reproduce fig1 --device {kind} --data DIR",
        "settings": {},
        "seeds": [0, 1, 2],
        "data": {"mnist": "mnist, 60000 + 10000 rows"},
        "device": device,
        "versions": {"torch": "2.0"},
        "seconds": 1234.5,
        "finished": finished,
        "measured": {},
        "paper": [
            compared("accuracy", value, "79%", True, 0.26),
            compared("another", 3.14, "5%", False),
            compared("a third", 2.0, "", None),
        ],
        "remarks": ["mind the gap"],
        "pictures": ["fig1.png"],
    }
    path = results / "fig1" / folder
    path.mkdir(parents=True)
    (path / "result.json").write_bytes(to_json(result))
    (path / "fig1.png").write_bytes(folder.encode())


@pytest.fixture
def site(tmp_path):
    """A page and a folder of results: an old run, the last one, and a quick one after it."""
    results = tmp_path / "results"
    store(results, "full-new", finished="2026-02-02")
    store(results, "full-old", finished="2026-01-01", value=11.0)
    store(results, "quick-newest", finished="2026-03-03", quick=True, value=22.0)
    (tmp_path / "page.md").write_text(TEXT, encoding="utf-8")
    return tmp_path / "page.md", results


def test_numbers_inside_sentences_are_those_of_the_results(site):
    results = site[1]
    text = TEXT + "Of these <!--=fig1 agree-->all<!--/--> agree, of\n<!--=fig1 agree-->two<!--/-->."
    new = reproduced.filled(text, results)
    assert (
        "Of these <!--=fig1 agree-->1 of 2<!--/--> agree, of\n<!--=fig1 agree-->1 of 2<!--/-->."
        in new
    )
    assert reproduced.filled(new, results) == new
    with pytest.raises(ValueError, match="the page wants 'color' of fig1"):
        reproduced.filled("<!--=fig1 color-->blue<!--/-->", results)


def test_the_last_full_run_is_shown(site):
    text, results = site[0].read_text(), site[1]
    new = reproduced.filled(text, results)
    assert "| accuracy | 79% | 79.1 ± 0.3% | yes |" in new
    assert "| another | 5% | 3.1% | **no** |" in new
    assert "| a third |  | 2.0% |  |" in new
    assert "| [fig1](#fig1) | Fig. (some_label) | 1 of 2 | 1,234 | a device |" in new
    assert "| [fig2](#fig2) |  | not run |  |  |" in new
    assert "3 seeds, mnist, 60000 + 10000 rows, a device, 1,234 s, torch 2.0" in new
    assert "*mind the gap*" in new
    assert "![Fig. (some_label): a figure](images/paper/fig1.png)" in new
    assert "No full run is stored yet: `python -m research reproduce fig2" in new
    assert "old\n" not in new
    assert "\nWords.\n" in new
    assert reproduced.filled(new, results) == new


def test_pages_are_written_and_checked(site):
    path, results = site
    copy = path.parent / "images" / "paper" / "fig1.png"
    assert reproduced.stale(path, results) == [path, copy]
    assert path.read_text() == TEXT
    reproduced.write(path, results)
    assert copy.read_bytes() == b"full-new"
    assert reproduced.stale(path, results) == []
    copy.write_bytes(b"edited")
    assert reproduced.stale(path, results) == [copy]


def test_every_experiment_has_its_section():
    text = PAGE.read_text(encoding="utf-8")
    for name in REGISTRY:
        assert f"\n## {name}\n" in text
        assert f"<!-- begin: {name} -->" in text


def test_stored_results_are_full_small_and_of_no_one_machine():
    for folder in (path for name in REGISTRY for path in finished_folders(RESULTS, name)):
        result = read_result(folder)
        assert not result["quick"]
        text = (folder / "result.json").read_text(encoding="utf-8")
        assert not re.search(r'[\s"=]/\w', text)  # no path from a root
        for path in folder.iterdir():
            limit = 300_000 if path.suffix == ".png" else 1_000_000
            assert path.stat().st_size < limit, path
            assert path.name in ("result.json", "arrays.npz", *result["pictures"])


def test_a_run_on_a_processor_has_a_section_of_its_own(tmp_path):
    results = tmp_path / "results"
    store(results, "full-gpu", finished="2026-02-02", value=1.5)
    store(results, "full-cpu", finished="2026-02-03", value=1.7, device="a processor", kind="cpu")
    text = (
        "<!-- begin: fig1 -->\n<!-- end: fig1 -->\n<!-- begin: fig1-cpu -->\n<!-- end: fig1-cpu -->"
    )
    first, second = reproduced.filled(text, results).split("<!-- end: fig1 -->")
    assert "1.5" in first
    assert "1.7" not in first
    assert "1.7" in second
    assert "images/paper/cpu-fig1.png" in second
    found = reproduced.pictures(text, results)
    assert found["fig1.png"].parent.name == "full-gpu"
    assert found["cpu-fig1.png"].parent.name == "full-cpu"
