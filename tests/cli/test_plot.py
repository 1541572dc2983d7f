import struct

import pytest

KINDS = ["memories", "weights", "curves", "histogram"]


def size(path):
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", head[16:24])


@pytest.mark.parametrize("kind", [*KINDS, "lineage"])
def test_pictures_of_a_model_alone(run, tmp_path, digits_model, kind):
    out = tmp_path / f"{kind}.png"
    found = run("plot", kind, digits_model, "--out", out, "--json").json
    assert found["picture"] == str(out)
    assert min(size(out)) > 200


@pytest.mark.parametrize("kind", ["confusion", "explanation", "spectrum"])
def test_pictures_that_need_data(run, tmp_path, trained, table, kind):
    model = trained / "model.safetensors"
    out = tmp_path / "deep" / f"{kind}.png"
    assert "needs DATA" in run("plot", kind, model, code=2).stderr
    text = run("plot", kind, model, table, "--label", "kind", "--out", out).stdout
    assert "wrote" in text
    assert min(size(out)) > 200


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_are_no_images_are_drawn_too(run, tmp_path, trained, kind):
    out = tmp_path / f"{kind}.png"
    run("plot", kind, trained / "model.safetensors", "--out", out)
    assert min(size(out)) > 200


def test_the_shape_of_images_is_remembered_or_given(run, tmp_path, digits_model):
    remembered, given, flat = (tmp_path / f"{name}.png" for name in "abc")
    run("plot", "memories", digits_model, "--out", remembered)
    alone = tmp_path / "model.safetensors"
    alone.write_bytes(digits_model.read_bytes())
    run("plot", "memories", alone, "--image-shape", "8x8", "--out", given)
    run("plot", "memories", alone, "--out", flat)
    assert remembered.read_bytes() == given.read_bytes() != flat.read_bytes()


def test_the_default_file_is_named_after_the_kind(run, tmp_path, monkeypatch, trained):
    monkeypatch.chdir(tmp_path)
    run("plot", "histogram", trained / "model.safetensors")
    assert min(size(tmp_path / "histogram.png")) > 200


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lineage"], "--growth split"),
        (["memories", "--image-shape", "3x3"], "9 pixels but rows have 7"),
        (["memories", "--image-shape", "big"], "must look like 28x28"),
        (["memories", "--out", "picture.gif"], "end the name in .png"),
        (["flowers"], "flowers"),
    ],
)
def test_what_cannot_be_drawn(run, trained, arguments, message):
    kind, *more = arguments
    assert message in run("plot", kind, trained / "model.safetensors", *more, code=2).stderr
