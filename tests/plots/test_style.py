import importlib
import sys

import matplotlib as mpl
import numpy as np
import pytest

import mnemosphere
from mnemosphere import plots
from mnemosphere.plots import checks, style


def test_names_are_short_and_no_formulas():
    assert style.plain("a$b$") == r"a\$b\$"
    assert style.plain("two\nlines") == "two lines"
    assert style.plain("abcdefghijklmnopqrst", 10) == "abcdef…rst"
    assert style.plain("abcdefghij", 10) == "abcdefghij"


def test_drawing_touches_no_global_state(tmp_path, monkeypatch):
    """Neither the settings of all nor pyplot, which holds figures and a backend for all."""
    before = dict(mpl.rcParams)
    for name in [name for name in sys.modules if name.startswith("mnemosphere.plots")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(mnemosphere, "plots", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)  # so that to import it fails
    fresh = importlib.import_module("mnemosphere.plots")
    assert fresh is not plots
    fresh.save(fresh.memories([[3.0, 1.0], [0.0, 2.0]]), tmp_path / "c.png")
    assert (tmp_path / "c.png").stat().st_size > 1000
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ([[1.0, np.nan]], ValueError, r"got shape \(1, 2\) with 1 that are not finite"),
        ([1.0], ValueError, r"w must be finite numbers with 2 axes, got shape \(1,\)"),
    ],
)
def test_bad_arrays_are_named(value, error, message):
    with pytest.raises(error, match=message):
        checks.as_array(value, "w", 2)
