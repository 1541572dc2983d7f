import json

import pytest

import mnemosphere
from mnemosphere.cli import demo, rows

PICTURES = {
    "memories.png",
    "confusion.png",
    "curves.png",
    "histogram.png",
    "explanation.png",
    "mistake.png",
}


@pytest.fixture
def few_digits(monkeypatch):
    """The demonstration on a few small digits."""
    data = mnemosphere.datasets.load("digits")
    few = rows.Source(
        name="few digits",
        train=rows.Part(data.x_train[:150], data.y_train[:150]),
        test=rows.Part(data.x_test[:100], data.y_test[:100]),
        checksum="sha256:0",
        image_shape=data.image_shape,
        class_names=data.class_names,
    )
    monkeypatch.setattr(rows, "load_source", lambda name: few)


def test_the_demonstration_shows_and_writes_what_it_promises(run, tmp_path, few_digits):
    out = tmp_path / "demo"
    result = run("demo", "--out", out)
    found = json.loads((out / "results.json").read_text())
    assert {path.name for path in out.iterdir()} == {
        *PICTURES,
        "model.safetensors",
        "results.json",
    }
    assert set(found["files"]) == {path.name for path in out.iterdir()}
    assert 0.6 < found["accuracy"] < 1.0
    text = result.stdout
    assert f"{found['accuracy']:.2%} of 100 digits" in text
    assert all(word in text for word in ("memories", "ς", "β", "normalization", "why is test row"))
    assert "AA: 0" in text  # the first memory shown is of the first class
    assert text.count("%)") >= 15  # each with its soft label
    assert "@" in text or "#" in text  # the ink of drawn digits
    assert "\x1b[" not in text  # a pipe gets no colours
    model = mnemosphere.load(out / "model.safetensors")
    assert found["chosen"]["memories"] == model.n_memories_
    parts = found["seconds"]
    assert {"starting up", "training", "judging", "pictures"} < set(parts)
    assert all(seconds >= 0 for seconds in parts.values())


def test_the_demonstration_speaks_json(run, tmp_path, few_digits, monkeypatch):
    monkeypatch.setattr(demo, "_write_pictures", lambda *args: [])
    found = run("demo", "--out", tmp_path, "--json", "--quiet").json
    assert found == json.loads((tmp_path / "results.json").read_text())
    assert found["scores"]["rows"] == 100
