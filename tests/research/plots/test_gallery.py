import numpy as np
import pytest

from mnemosphere.plots.style import new_axes
from research.plots.gallery import class_weights, memory_gallery

P, SHAPE, C = 31, (5, 7), 3


@pytest.fixture
def p():
    weight = np.random.default_rng(1).uniform(0.5, 1.5, P + 1)
    return weight[:, None] * np.random.default_rng(2).dirichlet([0.4] * (C + 1), size=P + 1)


def tick_names(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_the_matrix_holds_the_soft_labels_and_marks_the_maxima(p):
    chosen = [30, 0, 11, 5]
    ax = new_axes(4.0, 3.0)
    class_weights(ax, p, ["a", "b", "c"], np.array(chosen))
    expected = np.array([[p[k + 1, y] / p[k + 1].sum() for k in chosen] for y in range(C + 1)])
    np.testing.assert_allclose(ax.images[0].get_array(), expected)
    x, y = ax.lines[0].get_data()
    np.testing.assert_array_equal(x, range(4))
    assert [expected[int(row), column] for column, row in enumerate(y)] == list(expected.max(0))
    assert tick_names(ax.xaxis) == ["#30", "#0", "#11", "#5"]
    assert tick_names(ax.yaxis) == ["a", "b", "c", "none"]


def test_the_gallery_stands_above_its_matrix_with_the_same_names(p):
    w = np.random.default_rng(0).normal(size=(P, 35))
    figure = memory_gallery(w, p, classes="abc", image_shape=SHAPE, indices=[3, 1, 8])
    upper, lower = figure.axes[:2]
    figure.draw_without_rendering()
    assert upper.get_position().y0 > lower.get_position().y1
    assert (
        [text.get_text() for text in upper.texts] == tick_names(lower.xaxis) == ["#3", "#1", "#8"]
    )
    np.testing.assert_array_equal(upper.images[2].get_array().data, w[8].reshape(SHAPE))
    np.testing.assert_allclose(lower.images[0].get_array()[:, 2], p[9] / p[9].sum())
