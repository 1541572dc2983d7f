import numpy as np
import pytest
from matplotlib.image import imread


@pytest.mark.parametrize("kind", ["memories", "history", "tree"])
def test_every_kind_is_drawn(run, tmp_path, monkeypatch, digits, kind):
    monkeypatch.chdir(tmp_path)
    assert run("plot", kind, digits).stdout == f"wrote {kind}.png\n"
    assert np.ptp(imread(f"{kind}.png")) > 0.5
    assert "exists" in run("plot", kind, digits, code=2).error
