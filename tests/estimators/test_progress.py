"""`verbose`: stages of the choice and passes of training, on standard error, after a second."""

import re
import sys
import time

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

import mnemosphere as mn
from mnemosphere.estimators import progress
from mnemosphere.estimators.progress import Progress


@pytest.fixture
def at_once(monkeypatch):
    """As if a second were over when a fit begins."""
    monkeypatch.setattr(progress, "_SILENT", 0.0)


QUIET = {
    "classifier": mn.DAMClassifier(10, geometry="center", random_state=0),
    "clusterer": mn.DAMClusterer(4, random_state=0),
}


@pytest.mark.parametrize("name", QUIET)
def test_it_shows_the_fit_and_changes_nothing(at_once, capsys, name):
    rows = [part[:120] for part in load_digits(return_X_y=True)]
    quiet, told = clone(QUIET[name]).fit(*rows), clone(QUIET[name]).set_params(verbose=1)
    assert capsys.readouterr() == ("", "")
    told.fit(*rows)
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"^training \d+ memories.* \d+/\d+", err, re.MULTILINE)
    np.testing.assert_array_equal(told.transform(rows[0]), quiet.transform(rows[0]))
    assert told.model_.record.settings == quiet.model_.record.settings


def test_nothing_is_shown_in_the_first_second(capsys):
    with Progress(True) as progress:
        progress.show("training", 1, 2)
        assert capsys.readouterr().err == ""
        time.sleep(1)
        progress.show("training", 2, 2)
    assert capsys.readouterr().err == "training 2/2\n"


def test_what_a_terminal_shows(data, at_once, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    mn.DAMClassifier(7, search=None, max_iter=3, verbose=1).fit(*data)
    told = capsys.readouterr().err
    assert "\n" not in told
    assert told.endswith("\r\x1b[K")  # the line goes at the end
    lines = [line.removeprefix("\x1b[K") for line in told.split("\r")]
    assert max(map(len, lines)) < 60
    assert re.search(r"training 7 memories.* 3/3  loss", lines[-2])
