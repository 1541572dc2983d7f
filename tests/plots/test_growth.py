import numpy as np
import pytest

from mnemosphere.plots.growth import lineage_tree, tree_places

# A root that splits into 1 and 2; 1 splits into 3 and 4, 2 goes on as 5; beside it a root 6.
LEVELS = np.array([0, 1, 1, 2, 2, 2, 0])
PARENTS = np.array([-1, 0, 0, 1, 1, 2, -1])


def tree(levels, parents, n_features=6, n_classes=3, **more):
    n = len(levels)
    w = np.random.default_rng(0).normal(size=(n, n_features))
    names = [f"class {k}" for k in range(n_classes)]
    label = np.arange(n) % n_classes
    nodes = [f"#{k}" for k in range(n)]
    return w, lineage_tree(levels, parents, w, labels=label, classes=names, names=nodes, **more)


def test_the_tree_stands_over_its_leaves_and_memories_are_the_nodes():
    memories, ax = tree(LEVELS, PARENTS, image_shape=(2, 3))
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "1", "2"]
    # Leaves 3, 4, 5, 6 stand at 0..3; parents over the middle of their children.
    place = [1.25, 0.5, 2.0, 0.0, 1.0, 2.0, 3.0]
    assert len(ax.images) == 7
    for image, row, level, x in zip(ax.images, memories, LEVELS, place, strict=True):
        np.testing.assert_allclose(image.get_array(), row.reshape(2, 3))
        assert sum(image.get_extent()[:2]) / 2 == pytest.approx(x)
        assert np.sign(image.get_extent()[2] + image.get_extent()[3]) == -np.sign(level)
    assert [text.get_text() for text in ax.texts][7:] == [f"#{k}" for k in range(7)]
    ax.figure.draw_without_rendering()


def test_a_long_lineage_needs_no_recursion():
    n = 1501
    x, n_leaves = tree_places(np.arange(n) - 1)
    assert (len(x), n_leaves) == (n, 1)
