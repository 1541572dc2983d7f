"""Memories sorted by latent class: the order, and what stands where in the picture."""

from __future__ import annotations

import numpy as np

from mnemosphere.plots.style import new_axes
from research.plots.latent import latent_classes

# Five memories, three classes and "none": classes 2, 0, 2, 0 and 2, class 1 is empty.
SOFT = np.array(
    [
        [0.1, 0.1, 0.8, 0.0],
        [0.6, 0.2, 0.1, 0.1],
        [0.0, 0.0, 1.0, 0.0],
        [0.9, 0.1, 0.0, 0.0],
        [0.2, 0.2, 0.5, 0.1],
    ]
)
P = np.vstack([np.full(4, 0.125), SOFT * 0.1])
W = np.arange(30.0).reshape(5, 6) - 12


def test_every_memory_stands_in_the_row_of_its_class():
    ax = new_axes(4.0, 3.0)
    latent_classes(ax, W, P, image_shape=(2, 3), vmax=17.0)
    rows = [t for t in ax.texts if "(" in t.get_text()]
    texts = [t.get_text() for t in rows]
    assert texts == ["0  (2)", "1  (0)", "2  (3)"]  # "none" has no memory and no row
    heights = [t.get_position()[1] for t in rows]
    assert heights == sorted(heights, reverse=True)
    for y, members in enumerate([[3, 1], [], [2, 0, 4]]):
        in_row = [
            image
            for image in ax.images
            if image.get_extent()[2] < heights[y] < image.get_extent()[3]
        ]
        shown = [image.get_array() for image in sorted(in_row, key=lambda i: i.get_extent()[0])]
        assert len(shown) == len(members)
        for image, memory in zip(shown, members, strict=True):
            assert np.array_equal(image, W[memory].reshape(2, 3))
            assert ax.images[0].get_clim() == (-17.0, 17.0)  # one scale for all


def test_long_classes_break_and_none_has_a_row_where_it_is_used():
    p = np.zeros((46, 3))
    p[:, 2] = 1 / 46
    ax = new_axes(4.0, 3.0)
    latent_classes(ax, np.eye(45), p, image_shape=(5, 9), vmax=1.0)
    rows = [t.get_text() for t in ax.texts if "(" in t.get_text()]
    assert rows == ["0  (0)", "1  (0)", "none  (45)"]
    assert len({round(line.get_ydata()[0], 6) for line in ax.lines}) == 3  # 20, 20 and 5
