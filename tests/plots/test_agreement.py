import numpy as np
import pytest

from mnemosphere import plots


def test_a_map_shows_its_values_on_one_scale():
    values = np.arange(15.0).reshape(3, 5) - 4
    ax = plots.agreement_map(values)
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), values)
    assert image.get_clim() == (-10.0, 10.0)
    assert plots.agreement_map(values, vmax=3.0).images[0].get_clim() == (-3.0, 3.0)


def test_the_image_is_outlined_where_it_is():
    ink = np.zeros((5, 7))
    ink[2, 4] = 1.0
    ax = plots.agreement_map(np.ones((5, 7)), ink)
    (outline,) = ax.collections
    points = np.concatenate([path.vertices for path in outline.get_paths()])
    # Half way from the center of the pixel, at (4.5, 2.5), to those of its neighbors.
    np.testing.assert_allclose(np.abs(points - [4.5, 2.5]).max(1), 0.5)


def test_a_blank_image_has_no_outline():
    assert not plots.agreement_map(np.ones((3, 4)), np.zeros((3, 4))).collections


def test_a_signal_is_a_line():
    ax = plots.agreement_map(np.array([[0.5, -1.0, 0.25]]))
    assert not ax.images
    assert ax.get_ylim() == (-1.0, 1.0)


def test_maps_share_a_scale_and_tell_the_overlap():
    maps = np.array([np.full((3, 4), 0.5), np.full((3, 4), -0.25)])
    drawn = []
    figure = plots.agreement_figure(drawn.append, np.arange(12.0), maps, maps.sum((1, 2)), (3, 4))
    assert len(drawn) == 1
    shown = [ax for ax in figure.axes if ax.images]
    assert [ax.images[0].get_clim() for ax in shown] == [(-0.5, 0.5)] * 2
    assert [ax.get_title() for ax in shown] == ["overlap 6.00", "overlap -3.00"]


def test_what_cannot_be_drawn():
    with pytest.raises(ValueError, match="agreement must have 2 axes"):
        plots.agreement_map(np.ones(3))
    with pytest.raises(ValueError, match="overlaps"):
        plots.agreement_figure(lambda _: None, np.ones(4), np.ones((2, 2, 2)), np.ones(3), (2, 2))
