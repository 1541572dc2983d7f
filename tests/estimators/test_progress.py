"""The progress bar: on standard error, and only where it is asked for."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

import mnemosphere as mn
from mnemosphere.estimators import ProgressBar

SETTINGS = {
    "objective": "joint",
    "n_memories": 7,
    "normalize": "unit",
    "varsigma": 0.9,
    "random_state": 0,
}


def test_progress_bar_goes_to_standard_error(data, capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    mn.DAMClassifier(**SETTINGS, callbacks=[mn.ProgressBar()]).fit(*data)
    out, err = capsys.readouterr()
    assert out == ""
    assert "7 memories" in err


@pytest.mark.parametrize("solver", ["sgd", "fixed-point"])
def test_figures_of_the_passes_and_the_splits(make_clusters, solver):
    x, y = make_clusters(rows=305)
    page = io.StringIO()
    bar = ProgressBar(Console(file=page, force_terminal=True, width=100, color_system=None))
    model = mn.DAMClassifier(**SETTINGS, growth=3, max_iter=3, solver=solver, callbacks=[bar])
    model.fit(x, y)
    text = page.getvalue()
    assert "3 memories" in text
    assert "split " in text
    assert f"{len(model.lineage_.members[1])} now" in text
    last = model.history_[-1]
    assert f"/3  loss {last['loss']:.3f}" in text
    if solver == "sgd":
        assert f"{last['validation_accuracy']:.1%}" in text


@pytest.mark.parametrize("width", [30, 80])
def test_time_left_is_shown_in_narrow_terminals(data, width):
    page = io.StringIO()
    bar = ProgressBar(Console(file=page, force_terminal=True, width=width, color_system=None))
    mn.DAMClassifier(**SETTINGS, max_iter=3, callbacks=[bar]).fit(*data)
    lines = [line for line in re.split(r"[\r\n]", page.getvalue()) if "3/3" in line]
    assert re.search(r"3/3.* \d\d:\d\d\s*$", lines[-1])
