"""Soft counts of patch memories, against loops over patches; its laws; pipelines."""

import pickle

import numpy as np
import pytest
import torch
from scipy.special import gammaln, ive
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import mnemosphere as mn
from quick_models import small

SHAPES = {
    "gray": {"image_shape": (11, 13), "patch": [(3, 5)], "grid": (2, 3)},
    "color": {"image_shape": (7, 8, 3), "patch": 3, "grid": 2, "stride": 2},
    "signal": {"image_shape": (29,), "patch": 7, "grid": 5},
    "two sizes": {"image_shape": (8, 9), "patch": (3, (2, 5)), "grid": 3},
    "powers": {"image_shape": (8, 8), "patch": 3, "power": 0.3, "beta": 5.0, "geometry": "unit"},
    "cells of unlike sizes": {"image_shape": (9, 11), "patch": 3, "grid": (2, 4)},
}


@parametrize_with_checks([mn.PatchEncoder(n_memories=5, random_state=0)])
def test_check_estimator(estimator, check):
    check(estimator)


def encoder(**settings):
    settings = {"n_memories": 5, "beta": 11.0, "max_iter": 3} | settings
    return mn.PatchEncoder(random_state=0, **settings)


def pictures(shape, n=7, seed=0):
    """Random images with a blank band across."""
    stack = np.random.default_rng(seed).normal(size=(n, *shape))
    stack[:, : shape[0] // 2] = 0.7
    return stack.reshape(n, -1)


@pytest.fixture(scope="module", params=SHAPES)
def case(request):
    settings = SHAPES[request.param]
    x = pictures(settings["image_shape"])
    return encoder(**settings).fit(x), x


def log_omega(beta, n):
    """log Ω_N(β)/Ω_N(0) = log Γ(N/2) (2/β)^(N/2−1) I_(N/2−1)(β)."""
    order = n / 2 - 1
    return gammaln(n / 2) + order * np.log(2 / beta) + np.log(ive(order, beta)) + beta


def cell_weights(n_places, n_cells):
    """How far each place belongs to each cell: straight lines from middle to middle."""
    middles = (np.arange(n_cells) + 0.5) * n_places / n_cells
    own = np.eye(n_cells)
    return np.array([np.interp(np.arange(n_places) + 0.5, middles, line) for line in own]).T


def counts_by_loops(image, model, k):
    """Soft counts of one image (rows, columns, channels) for the k-th size of patches, (cells, P)."""
    w, beta = model.patch_memories_[k], model.betas_[k]
    grid = (model.grid, model.grid) if isinstance(model.grid, int) else model.grid
    size = model.patch if isinstance(model.patch, int) else model.patch[k]
    height, width = (size, size) if isinstance(size, int) else size
    height, n = min(height, len(image)), w.shape[1]
    tops = range(0, image.shape[0] - height + 1, model.stride)
    lefts = range(0, image.shape[1] - width + 1, model.stride)
    grid = min(grid[0], len(tops)), min(grid[1], len(lefts))
    counts = np.zeros((*grid, len(w)))
    down, across = cell_weights(len(tops), grid[0]), cell_weights(len(lefts), grid[1])
    for i, top in enumerate(tops):
        for j, left in enumerate(lefts):
            patch = image[top : top + height, left : left + width].reshape(-1)
            if model.geometry == "center":
                patch = patch - patch.mean()
            if np.linalg.norm(patch) < 1e-9:
                continue
            # Every memory and the uniform component weigh the same before the patch is seen.
            density = np.exp(beta * w @ (patch / np.linalg.norm(patch)) - log_omega(beta, n))
            share = density / (1 + density.sum())
            counts += np.einsum("a,b,m->abm", down[i], across[j], share)
    return counts.reshape(-1, len(w))


def features_by_loops(model, x):
    shape = model.image_shape_
    shape = (1, *shape, 1) if len(shape) == 1 else (*shape, 1)[:3]
    rows = []
    for image in x.reshape(-1, *shape):
        parts = [
            counts_by_loops(image, model, k).ravel() ** model.power
            for k in range(len(model.patch_memories_))
        ]
        row = np.concatenate([part / np.linalg.norm(part) for part in parts])
        rows.append(row / np.linalg.norm(row))
    return np.array(rows)


# what it computes


def test_soft_counts_by_loops(case):
    model, x = case
    found = model.transform(x)
    np.testing.assert_allclose(found, features_by_loops(model, x), rtol=0, atol=1e-10)
    assert found.shape == (7, len(model.get_feature_names_out()))


def test_memories_are_the_patches_that_images_are_made_of():
    """Tiles of three kinds, cut apart by the stride: the memories are the tiles."""
    rng = np.random.default_rng(0)
    tiles = rng.normal(size=(3, 4, 4))
    kind = rng.integers(0, 3, size=(60, 3, 5))
    x = tiles[kind].transpose(0, 1, 3, 2, 4).reshape(60, 12 * 20)
    x = x + 0.01 * rng.normal(size=x.shape)
    model = mn.PatchEncoder((12, 20), patch=4, stride=4, grid=1, n_memories=11, random_state=0)
    counts = model.fit(x).transform(x) ** 2
    centered = tiles.reshape(3, -1) - tiles.reshape(3, -1).mean(1, keepdims=True)
    centered /= np.linalg.norm(centered, axis=1, keepdims=True)
    overlaps = centered @ model.patch_memories_[0].T
    assert (overlaps.max(0) > 0.999).all()
    nearest = np.eye(3)[overlaps.argmax(0)]  # several memories of one tile share its count
    shares = np.stack([(kind == k).mean((1, 2)) for k in range(3)], axis=1)
    np.testing.assert_allclose(counts @ nearest, shares, atol=0.01)


# laws


def test_blank_images_are_zeros_and_blank_parts_do_not_count(case):
    model, x = case
    x = np.vstack([x, np.full_like(x[:1], 3.0)])
    if model.geometry == "center":
        assert np.array_equal(model.transform(x)[-1], np.zeros(len(model.get_feature_names_out())))
    assert np.allclose(np.linalg.norm(model.transform(x)[:-1], axis=1), 1.0)


def test_a_shift_by_a_cell_shifts_the_counts_by_a_cell():
    """16 places a side in 4 cells: a spot that moves by 4 pixels moves by a cell."""
    rng = np.random.default_rng(0)
    model = encoder(image_shape=(20, 20), patch=5, grid=4)
    model.fit(rng.normal(size=(7, 400)))
    spot = rng.normal(size=(3, 3))

    def encoded(top, left):
        image = np.zeros((20, 20))
        image[top : top + 3, left : left + 3] = spot
        return model.transform(image.reshape(1, -1)).reshape(4, 4, -1)

    start = encoded(6, 6)
    assert start[1, 1].any()
    np.testing.assert_allclose(encoded(10, 6)[1:], start[:-1], atol=1e-12)
    np.testing.assert_allclose(encoded(6, 10)[:, 1:], start[:, :-1], atol=1e-12)
    np.testing.assert_allclose(encoded(10, 10)[1:, 1:], start[:-1, :-1], atol=1e-12)


# rows in


def test_bytes_tensors_and_stacks_are_the_same_images():
    stack = np.random.default_rng(0).integers(0, 256, (7, 9, 8)).astype(np.uint8)
    flat = stack.reshape(7, -1)
    model = encoder(image_shape=(9, 8), patch=4).fit(flat)
    bits = model.transform(flat)
    assert bits.dtype == np.float32
    assert np.array_equal(encoder(patch=4).fit(stack).transform(stack), bits)
    tensor = torch.from_numpy(stack)
    assert np.array_equal(encoder(patch=4).fit(tensor).transform(tensor), bits)
    wide = model.transform(flat.astype(np.float64))
    assert wide.dtype == np.float64
    np.testing.assert_allclose(wide, bits, atol=1e-7)


@pytest.mark.parametrize(("n_features", "shape"), [(64, (8, 8)), (63, (63,)), (49, (49,))])
def test_shapes_that_are_guessed(n_features, shape):
    x = np.random.default_rng(0).normal(size=(5, n_features))
    assert encoder(max_iter=1).fit(x).image_shape_ == shape


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "3072 features are no square image"),
        ({"image_shape": (32, 32)}, "does not fit rows of 3072"),
        ({"image_shape": (32, 32, 3), "patch": [(2, 3, 4)]}, "rows, columns"),
        ({"image_shape": (32, 32, 3), "grid": (0, 2)}, "whole number >= 1"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    x = np.random.default_rng(0).normal(size=(2, 3072))
    with pytest.raises(ValueError, match=message):
        encoder(**settings).fit(x)


def test_images_that_cannot_be():
    with pytest.raises(ValueError, match="every patch of 64 feature"):
        encoder().fit(np.ones((5, 64)))
    x = np.random.default_rng(0).normal(size=(5, 8, 8))
    model = encoder().fit(x)
    with pytest.raises(ValueError, match=r"shape \(4, 16\), expected \(8, 8\)"):
        model.transform(x.reshape(5, 4, 16))


# two layers


def small_classifier():
    return small(
        n_memories=20, geometry="center", varsigma=0.15, solver=mn.FixedPoint(100), max_iter=5,
        device="cpu",
    )  # fmt: skip


@pytest.fixture(scope="module")
def images():
    return mn.load_data("mnist-small")


@pytest.fixture(scope="module")
def pipeline(images):
    layer = mn.PatchEncoder(
        n_memories=64, n_patches=20_000, max_iter=5, random_state=0, device="cpu"
    )
    return make_pipeline(layer, small_classifier()).fit(images.x_train[:400], images.y_train[:400])


def test_two_layers_beat_one(pipeline, images):
    one = small_classifier().fit(images.x_train[:400], images.y_train[:400])
    x, y = images.x_test[:200], images.y_test[:200]
    assert pipeline.score(x, y) > one.score(x, y) + 0.02


def test_a_pickled_pipeline_answers_bitwise_alike_and_the_encoder_holds_plain_values(
    pipeline, images
):
    loaded, x = pickle.loads(pickle.dumps(pipeline)), images.x_test[:50]
    assert np.array_equal(loaded.predict_proba(x), pipeline.predict_proba(x))
    held = [*vars(pipeline[0]).values(), *pipeline[0].patch_memories_, *pipeline[0].betas_]
    plain = str | int | float | tuple | list | np.ndarray | None
    assert all(isinstance(value, plain) for value in held)
