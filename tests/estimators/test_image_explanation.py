"""Why an image got its class: maps that add up to the overlaps they explain."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import mnemosphere as mn
from quick_models import small

SHAPES = {"gray": (8, 9), "color": (6, 7, 3), "signal": (37,)}


@pytest.fixture(
    scope="module", params=[("gray", "center"), ("color", "unit"), ("signal", "standard")], ids=str
)
def case(request):
    """A fitted pipeline, and images it was not fitted on; the last one is blank."""
    shape, geometry = SHAPES[request.param[0]], request.param[1]
    rng = np.random.default_rng(0)
    y = np.arange(61) % 3
    kinds = rng.normal(size=(3, *shape))
    x = (kinds[y] + 0.5 * rng.normal(size=(61, *shape))).reshape(61, -1)
    encoder = mn.PatchEncoder(
        shape, patch=(3, 4), grid=2, n_memories=5, max_iter=3, random_state=0
    )  # fmt: skip
    model = small(geometry=geometry, varsigma=0.5, precision="float64")
    return make_pipeline(encoder, model).fit(x[:50], y[:50]), np.vstack([x[50:], 0 * x[:1] + 3])


def test_maps_add_up_to_the_overlaps(case):
    pipeline, x = case
    found = mn.explain_images(pipeline, x, 3)
    over_pixels = found.agreement.sum((2, 3))
    over_cells = sum(cells.sum((2, 3)) for cells in found.cells)
    np.testing.assert_allclose(over_pixels + found.elsewhere, found.overlap, rtol=0, atol=1e-10)
    np.testing.assert_allclose(over_cells + found.elsewhere, found.overlap, rtol=0, atol=1e-10)
    if pipeline[-1].geometry_ != "standard":
        assert not found.elsewhere.any()
        assert not found.agreement[-1].any()  # the blank one


def test_the_part_of_a_cell_by_hand(case):
    """⟨w, x⟩ over the columns whose names say that they were counted in the cell."""
    pipeline, x = case
    found = mn.explain_images(pipeline, x[:5], 2)
    encoder, model = pipeline[0], pipeline[-1]
    rows = encoder.transform(x[:5])
    if model.geometry_ == "center":
        rows = rows - rows.mean(1, keepdims=True)
    elif model.geometry_ == "standard":
        training = model.model_.geometry
        rows = (rows - training.mean.numpy()) / training.scale.numpy()
        rows = np.hstack([rows, np.full((5, 1), np.sqrt(rows.shape[1]))])
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    names = encoder.get_feature_names_out()
    for size, cells in zip(("3x3", "4x4") if x.shape[1] != 37 else ("1x3", "1x4"), found.cells,
                           strict=True):  # fmt: skip
        for i, j in np.ndindex(cells.shape[2:]):
            here = np.flatnonzero([name.startswith(f"patch{size}_cell{i},{j}_") for name in names])
            assert len(here) == 5
            w = model.model_.votes.w.numpy()[found.memory][..., here]
            expected = (w * rows[:, None, here]).sum(-1)
            np.testing.assert_allclose(cells[:, :, i, j], expected, rtol=0, atol=1e-10)


def test_the_rest_is_the_explanation_of_the_second_layer(case):
    pipeline, x = case
    found = mn.explain_images(pipeline, x, 3)
    below = pipeline[-1].explain(pipeline[0].transform(x), 3)
    assert str(found) == str(below)
    assert np.array_equal(found.predicted, pipeline.predict(x))
    np.testing.assert_allclose(found.overlap, below.overlap, rtol=0, atol=1e-10)
    assert np.array_equal(found.rows, x)
    pictures = mn.memory_pictures(pipeline)
    assert pictures.shape == (7, x.shape[1])
    np.testing.assert_allclose(found.memories, pictures[found.memory], rtol=0, atol=1e-10)


def test_an_agreement_lies_where_the_patches_of_its_cell_do():
    """One cell agrees: the pixels that its patches cover share it, in proportion."""
    encoder = mn.PatchEncoder((5, 6), patch=2, grid=(1, 2), n_memories=3, random_state=0)
    encoder.fit(np.random.default_rng(0).normal(size=(11, 30)))
    layer = encoder.layers_[0]
    value = layer.params.w.new_tensor([[0.0, 7.0]])
    found = layer.spread(value).reshape(5, 6).numpy()
    covered = np.zeros((5, 6))
    for top in range(4):
        # Of five places the middles of two cells are those of the second and the fourth, nearly.
        for left, weight in zip((1, 2, 3, 4), (0.1, 0.5, 0.9, 1.0), strict=True):
            covered[top : top + 2, left : left + 2] += weight
    np.testing.assert_allclose(found, 7 * covered / covered.sum(), rtol=1e-12)
