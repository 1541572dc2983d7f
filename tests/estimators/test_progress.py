"""`verbose`: stages of the choice and passes of training, on standard error, after a second."""

from __future__ import annotations

import io
import re
import time

import numpy as np
import pytest
import torch
from rich.console import Console
from sklearn.base import clone
from sklearn.datasets import load_digits

import mnemosphere as mn
from mnemosphere.data.rows import StoredRows
from mnemosphere.estimators.choice import Sample, Settings, choose
from mnemosphere.estimators.progress import Progress
from mnemosphere.model.objectives import soft_labels


class Slow(mn.Callback):
    """A training that takes more than a second."""

    def on_pass(self, run):
        if run.n_iter == 1:
            time.sleep(1.1)


@pytest.fixture(scope="module")
def rows():
    x, y = load_digits(return_X_y=True)
    return x[:120], y[:120]


QUIET = {
    "classifier": mn.DAMClassifier(random_state=0, callbacks=[Slow()]),
    "clusterer": mn.DAMClusterer(4, random_state=0, callbacks=[Slow()]),
    "encoder": mn.PatchEncoder(n_memories=7, n_patches=900, random_state=0, callbacks=[Slow()]),
}


@pytest.mark.parametrize("name", QUIET)
def test_it_shows_the_fit_and_changes_nothing(rows, capsys, name):
    quiet, told = clone(QUIET[name]).fit(*rows), clone(QUIET[name]).set_params(verbose=1)
    assert capsys.readouterr() == ("", "")
    told.fit(*rows)
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"^training \d+ memories.* \d+/\d+", err, re.MULTILINE)
    np.testing.assert_array_equal(told.transform(rows[0]), quiet.transform(rows[0]))
    assert told.model_.record.settings == quiet.model_.record.settings


def test_quick_fits_stay_silent(data, capsys):
    mn.DAMClassifier(3, search=None, verbose=True).fit(*data)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("width", [40, 100])
def test_what_a_terminal_shows(data, width):
    page = io.StringIO()
    console = Console(file=page, force_terminal=True, width=width, color_system=None)
    with Progress(1, console) as progress:
        time.sleep(1)
        mn.DAMClassifier(7, search=None, max_iter=3, callbacks=[progress]).fit(*data)
    last = [line for line in re.split(r"[\r\n]", page.getvalue()) if "3/3" in line][-1]
    assert re.search(r"training 7 memories.* 3/3.* \d\d:\d\d\s*$", last)
    assert ("loss" in last) == (width > 72)


def test_stages_of_the_choice(data):
    told = []

    class Recorder(Progress):
        def show(self, stage, done, total, note=""):
            told.append((stage, done, total))

    targets = soft_labels(torch.from_numpy(data.y), 3, 0.1, dtype=torch.float64)
    rows = StoredRows(torch.from_numpy(data.x), torch.device("cpu"))
    settings = Settings.of(mn.DAMClassifier().get_params())
    choose(Sample(rows, targets, None, torch.float32), settings, Recorder(1))
    stages = ["trying geometries", "trying the joint objective", "trying noise", "trying widths"]
    assert list(dict.fromkeys(stage for stage, _, _ in told)) == stages
    ends = {stage: done == total for stage, done, total in told}
    assert all(ends.values())
