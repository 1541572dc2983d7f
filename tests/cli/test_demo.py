import json

import numpy as np

import mnemosphere as mn
from mnemosphere.cli import demo
from mnemosphere.cli.options import Columns
from mnemosphere.cli.rows import open_rows


def few_digits(*_, **__):
    """The demonstration on a few small digits."""
    everything = open_rows("digits", Columns())
    at = np.flatnonzero(everything.is_test)[:100]
    return everything.take(np.concatenate([np.arange(150), at]))


def test_it_shows_and_writes_what_it_promises(run, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "open_rows", few_digits)
    out = tmp_path / "demo"
    text = run("demo", "--out", out).stdout
    record = json.loads((out / "results.json").read_text())
    pictures = {"memories.png", "history.png", "explanation.png", "recall.png"}
    files = {*pictures, "page.html", "model.safetensors", "results.json"}
    assert {path.name for path in out.iterdir()} == files
    assert 0.6 < record["accuracy"] < 1.0
    assert f"{record['accuracy']:.2%} of 100 held-out rows" in text
    assert "why? row test-" in text
    assert "\x1b[" not in text  # a pipe gets no colors
    assert mn.load(out / "model.safetensors").n_memories_ == record["chosen"]["memories"]
    assert "not empty" in run("demo", "--out", out, code=2).error
