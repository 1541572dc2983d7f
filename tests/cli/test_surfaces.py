"""Pictures, a page and a graph from the command line."""

import numpy as np
import pytest
from matplotlib.image import imread


@pytest.mark.parametrize("kind", ["memories", "history", "tree"])
def test_every_kind_is_drawn(run, tmp_path, monkeypatch, digits, kind):
    monkeypatch.chdir(tmp_path)
    assert run("plot", kind, digits).stdout == f"wrote {kind}.png\n"
    assert np.ptp(imread(f"{kind}.png")) > 0.5
    assert "exists" in run("plot", kind, digits, code=2).error


def test_a_page_has_the_figures_of_evaluate_or_none(run, tmp_path, trained, table, kit):
    wanted = run("evaluate", trained, table, "--json").json
    run("explore", trained, table, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert f'"measured":{{"n":{wanted["rows"]},"accuracy":{wanted["accuracy"]!r},' in page
    out = tmp_path / "all"
    run("train", table, "--label", "kind", *kit.fast, "--test-fraction", "0", "--out", out, "-q")
    note = run("explore", out, table, "--out", tmp_path / "none.html").stderr
    assert "no rows were held out in training: there are no figures" in note
