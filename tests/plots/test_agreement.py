import numpy as np

from mnemosphere.plots import agreement


def test_a_map_shows_its_values_on_one_scale():
    values = np.arange(15.0).reshape(3, 5) - 4
    ax = agreement.agreement_map(values)
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), values)
    assert image.get_clim() == (-10.0, 10.0)
    assert agreement.agreement_map(values, vmax=3.0).images[0].get_clim() == (-3.0, 3.0)


def test_the_image_is_outlined_where_it_is():
    ink = np.zeros((5, 7))
    ink[2, 4] = 1.0
    ax = agreement.agreement_map(np.ones((5, 7)), ink)
    (outline,) = ax.collections
    points = np.concatenate([path.vertices for path in outline.get_paths()])
    # Half way from the center of the pixel, at (4.5, 2.5), to those of its neighbors.
    np.testing.assert_allclose(np.abs(points - [4.5, 2.5]).max(1), 0.5)


def test_maps_share_a_scale_and_tell_the_overlap():
    maps = np.array([np.full((3, 4), 0.5), np.full((3, 4), -0.25)])
    drawn = []
    figure = agreement.agreement_figure(
        drawn.append, np.arange(12.0), maps, maps.sum((1, 2)), (3, 4)
    )
    assert len(drawn) == 1
    shown = [ax for ax in figure.axes if ax.images]
    assert [ax.images[0].get_clim() for ax in shown] == [(-0.5, 0.5)] * 2
    assert [ax.get_title() for ax in shown] == ["overlap 6.00", "overlap -3.00"]
