"""Commands on images that an encoder of patches sees first."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

import mnemosphere as mn


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """The file and its rows; labels are words."""
    x, y = load_digits(n_class=3, return_X_y=True)
    path = tmp_path_factory.mktemp("data") / "images.npz"
    np.savez(path, x=x[:131].astype(np.uint8), y=np.array(["zero", "one", "two"])[y[:131]])
    return path, x[:131].astype(np.uint8)


@pytest.fixture(scope="module")
def two_layers(images, tmp_path_factory, call):
    out = tmp_path_factory.mktemp("runs") / "run"
    call(
        "train", images[0], "--encoder", "patches", "--image-shape", "8x8", "--memories", "11",
        "--varsigma", "0.5", "--max-iter", "2", "--out", out, "--quiet",
    )  # fmt: skip
    return out


def test_the_folder_holds_both_layers(two_layers, images):
    pipeline = mn.load(two_layers / "model.safetensors")
    encoder, model = pipeline[0], pipeline[-1]
    assert encoder.image_shape_ == (8, 8)
    assert model.geometry_ == "unit"
    assert model.n_features_in_ == encoder.transform(images[1][:1]).shape[1]
    assert (two_layers / "memories.png").stat().st_size > 1000


def test_an_explanation_has_its_map(run, two_layers, images, tmp_path):
    pictures = [tmp_path / f"{k}.png" for k in range(2)]
    found = run("explain", two_layers, images[0], "--row", "5", "--out", pictures[0], "--json").json
    wanted = mn.explain_images(mn.load(two_layers / "model.safetensors"), images[1][5:6])
    assert found["rows"][0]["prediction"] == wanted.predicted[0]
    shares = [memory["share"] for memory in found["rows"][0]["memories"]]
    np.testing.assert_allclose(shares, wanted.share[0], atol=1e-12)
    assert pictures[0].stat().st_size > 10_000
    run("plot", "memories", two_layers, "--out", pictures[1])
    assert pictures[1].stat().st_size > 10_000


def test_what_only_memories_of_pixels_can_do_is_refused(run, two_layers, images):
    assert "train without --encoder" in run("recall", two_layers, images[0], code=2).error
