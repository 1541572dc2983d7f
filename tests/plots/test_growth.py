import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection

from mnemosphere import plots
from mnemosphere.plots.growth import lineage_tree, tree_places

# A root that splits into 1 and 2; 1 splits into 3 and 4, 2 goes on as 5; beside it a root 6.
LEVELS = np.array([0, 1, 1, 2, 2, 2, 0])
PARENTS = np.array([-1, 0, 0, 1, 1, 2, -1])


def dots(ax):
    return np.concatenate(
        [
            np.asarray(c.get_offsets())
            for c in ax.collections
            if len(c.get_offsets()) and not isinstance(c, LineCollection)
        ]
    )


def tree(levels, parents, n_features=6, n_classes=3, **more):
    n = len(levels)
    w = torch.randn(n, n_features, generator=torch.Generator().manual_seed(0))
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
    shown = [text.get_text() for text in ax.texts]
    assert shown == [*(f"cla… {k % 3}" for k in range(7)), *(f"#{k}" for k in range(7))]
    ax.figure.draw_without_rendering()


def test_many_leaves_are_dots_colored_by_class():
    _, ax = tree([0] * 41, [-1] * 41, n_classes=11)
    assert not ax.images
    assert len(dots(ax)) == 41
    assert [t.get_text() for t in ax.get_legend().get_texts()] == [f"class {k}" for k in range(11)]
    looks = {(tuple(c.get_facecolor()[0]), c.get_paths()[0].vertices.tobytes())
             for c in ax.collections if not isinstance(c, LineCollection)}  # fmt: skip
    assert len(looks) == 11


def test_a_long_lineage_needs_no_recursion():
    n = 1501
    x, n_leaves = tree_places(np.arange(n) - 1)
    assert (len(x), n_leaves) == (n, 1)


@pytest.mark.parametrize(
    ("levels", "parents", "message"),
    [
        ([0, 1], [-1], "parents must have 2 entries, one per node"),
        ([0, 1], [-1, 2], r"node numbers 0..1, or -1"),
        ([1, 1], [-1, 0], "node 1 at level 1 has parent 0 at level 1"),
    ],
)
def test_bad_trees(levels, parents, message):
    with pytest.raises(ValueError, match=message):
        tree(levels, parents)


def test_the_spectrum_is_sorted_and_parted_by_beta_eff():
    values = [7.0, 2.0, 11.0, 5.0, 3.0, np.inf]
    ax = plots.split_spectrum(torch.tensor(values), 5.0)
    by_name = {line.get_label(): line for line in ax.lines}
    np.testing.assert_array_equal(by_name["saddle: 2"].get_xydata(), [[1, 2], [2, 3]])
    np.testing.assert_array_equal(by_name["minimum: 4"].get_xydata(), [[3, 5], [4, 7], [5, 11]])
    np.testing.assert_array_equal(by_name["of them infinite: 1"].get_xdata(), [6])
    (line,) = (line for line in ax.lines if list(line.get_ydata()) == [5.0, 5.0])
    assert line.get_color() == "black"
    low, high = ax.get_ylim()
    assert low < 2
    assert high > 11
