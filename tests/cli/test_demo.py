import mnemosphere as mn


def test_it_shows_and_writes_what_it_promises(run, tmp_path, monkeypatch):
    """On a few small digits."""
    d = mn.load_data("digits")
    few = mn.NamedData(
        "digits", d.x_train[:150], d.y_train[:150], d.x_test[:100], d.y_test[:100], d.image_shape,
        d.class_names,
    )  # fmt: skip
    monkeypatch.setattr(mn, "load_data", lambda name: few, raising=False)
    out = tmp_path / "demo"
    text = run("demo", "--out", out).stdout
    files = {"memories.png", "explanation.png", "page.html", "model.safetensors"}
    assert {path.name for path in out.iterdir()} == files
    accuracy = mn.load(out / "model.safetensors").score(few.x_test, few.y_test)
    assert accuracy > 0.6
    assert f"{accuracy:.2%} of 100 held-out digits" in text
    assert text.startswith("row 0: ")
    assert "exists" in run("demo", "--out", out, code=2).error
