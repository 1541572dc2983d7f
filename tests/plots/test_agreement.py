import numpy as np

from mnemosphere.plots import agreement
from mnemosphere.plots.style import new_axes


def test_the_image_is_outlined_where_it_is():
    ink, values = np.zeros((5, 7)), np.arange(35.0).reshape(5, 7) - 4
    ink[2, 4] = 1.0
    ax = new_axes(2.0, 2.0)
    agreement.agreement_map(ax, values, ink, 3.0)
    np.testing.assert_array_equal(ax.images[0].get_array(), values)
    assert ax.images[0].get_clim() == (-3.0, 3.0)
    (outline,) = ax.collections
    points = np.concatenate([path.vertices for path in outline.get_paths()])
    # Half way from the center of the pixel, at (4.5, 2.5), to those of its neighbors.
    np.testing.assert_allclose(np.abs(points - [4.5, 2.5]).max(1), 0.5)
