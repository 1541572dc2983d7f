import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection

from mnemosphere import plots

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


def test_the_tree_stands_over_its_leaves():
    ax = plots.lineage_tree(LEVELS, PARENTS)
    place = dots(ax)
    # Leaves 3, 4, 5, 6 stand at 0..3; parents over the middle of their children.
    np.testing.assert_allclose(place[:, 0], [1.25, 0.5, 2.0, 0.0, 1.0, 2.0, 3.0])
    np.testing.assert_array_equal(place[:, 1], -LEVELS)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["0", "1", "2"]


def test_memories_are_the_nodes():
    memories = torch.randn(7, 6, generator=torch.Generator().manual_seed(0))
    names = ["cat", "dog", "hen"]
    ax = plots.lineage_tree(
        LEVELS,
        PARENTS,
        memories=memories,
        image_shape=(2, 3),
        labels=[0, 1, 2, 0, 1, 2, 0],
        classes=names,
    )
    assert len(ax.images) == 7
    for image, row, level in zip(ax.images, memories, LEVELS, strict=True):
        np.testing.assert_allclose(image.get_array(), row.reshape(2, 3))
        assert np.sign(image.get_extent()[2] + image.get_extent()[3]) == -np.sign(level)
    assert [text.get_text() for text in ax.texts] == [names[k] for k in (0, 1, 2, 0, 1, 2, 0)]
    ax.figure.draw_without_rendering()


def test_many_leaves_are_dots_colored_by_class():
    n = 41
    labels = np.arange(n) % 11
    ax = plots.lineage_tree(
        [0] * n,
        [-1] * n,
        memories=np.ones((n, 4)),
        image_shape=(2, 2),
        labels=labels,
        classes=range(11),
    )
    assert not ax.images
    assert len(dots(ax)) == n
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [str(k) for k in range(11)]
    looks = {(h.get_color(), h.get_marker()) for h in legend.legend_handles}
    assert len(looks) == 11


def test_a_long_lineage_needs_no_recursion():
    n = 1501
    ax = plots.lineage_tree(np.arange(n), np.arange(n) - 1)
    assert len(dots(ax)) == n
    assert len(ax.get_yticks()) <= 21


@pytest.mark.parametrize(
    ("levels", "parents", "more", "message"),
    [
        ([0, 1], [-1], {}, "parents must have 2 entries, one per node"),
        ([0, 1], [-1, 2], {}, r"node numbers 0..1, or -1"),
        ([1, 1], [-1, 0], {}, "node 1 at level 1 has parent 0 at level 1"),
        ([0, 1], [-1, 0], {"memories": np.ones((3, 4))}, "memories must have 2 entries"),
        ([0, 1], [-1, 0], {"labels": [0, 5], "classes": "ab"}, r"labels must lie in 0..1"),
        ([0, 1], [-1, 0], {"labels": [0]}, "labels must have 2 entries"),
        (
            [0, 1], [-1, 0], {"memories": np.ones((2, 4)), "image_shape": (2, 3)}, "6 pixels",
        ),
    ],
)  # fmt: skip
def test_bad_trees(levels, parents, more, message):
    with pytest.raises(ValueError, match=message):
        plots.lineage_tree(levels, parents, **more)


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
