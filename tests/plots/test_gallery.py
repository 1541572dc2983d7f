import numpy as np
import pytest
import torch

from mnemosphere import plots

P, SHAPE = 31, (5, 7)
N = 35


@pytest.fixture
def w():
    w = np.random.default_rng(0).normal(size=(P, N))
    return w / np.linalg.norm(w, axis=1, keepdims=True)


def texts(ax):
    return [text.get_text() for text in ax.texts]


def tick_names(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_each_image_is_its_memory_on_a_scale_that_all_share(w):
    ax = plots.memories(torch.tensor(w), SHAPE)
    largest = np.abs(w[:25]).max()
    assert len(ax.images) == 25
    for k, image in enumerate(ax.images):
        np.testing.assert_allclose(image.get_array(), w[k].reshape(SHAPE), rtol=0)
        assert image.get_clim() == (-largest, largest)
    assert texts(ax) == [f"#{k}" for k in range(25)]


def test_rows_that_are_no_images_become_bars(w):
    ax = plots.memories(w, None, indices=[4, 9])
    bars = [[bar.get_height() for bar in container] for container in ax.containers]
    largest = np.abs(w[[4, 9]]).max()
    np.testing.assert_allclose(np.array(bars) / np.abs(bars).max(), w[[4, 9]] / largest)


def test_features_that_differ_most_by_memories(w):
    names = [f"size {k}" for k in range(N)]
    ax = plots.memories(w, feature_names=names, indices=[3, 1, 8], labels="abc")
    few = w[[3, 1, 8]]
    order = sorted(sorted(range(N), key=lambda j: -few[:, j].std())[:25])
    np.testing.assert_array_equal(ax.images[0].get_array().data, few[:, order].T)
    assert tick_names(ax.yaxis) == [names[j] for j in order]
    assert tick_names(ax.xaxis) == ["#3 a", "#1 b", "#8 c"]
    ax.figure.draw_without_rendering()
