import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mnemosphere.data.patches import extract_patches


def by_loop(images, size, stride, drop_blank):
    """List (pixels, image, row, column) of every patch, one at a time."""
    found = []
    for n, image in enumerate(images.tolist()):
        for row in range(0, len(image) - size + 1, stride):
            for column in range(0, len(image[0]) - size + 1, stride):
                lines = [line[column : column + size] for line in image[row : row + size]]
                pixels = [value for line in lines for value in line]
                if not (drop_blank and len(set(pixels)) == 1):
                    found.append((pixels, n, row, column))
    return found


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 999),
    shape=st.tuples(st.integers(1, 3), st.integers(3, 11), st.integers(3, 11)),
    size=st.integers(1, 3),
    stride=st.integers(1, 4),
    drop_blank=st.booleans(),
    flat=st.booleans(),
)
def test_against_a_loop(seed, shape, size, stride, drop_blank, flat):
    # Few ones among zeros, so that blank patches do occur.
    images = (np.random.default_rng(seed).random(shape) < 0.15).astype(np.uint8)
    want = by_loop(images, size, stride, drop_blank)
    patches = extract_patches(
        images.reshape(len(images), -1) if flat else images,
        size,
        stride,
        image_shape=shape[1:] if flat else None,
        drop_blank=drop_blank,
    )
    places = zip(patches.image, patches.row, patches.column, strict=True)
    got = [(x, *map(int, place)) for x, place in zip(patches.x.tolist(), places, strict=True)]
    assert got == want
    assert len(patches) == len(want)
    assert patches.x.shape == (len(want), size * size)
    assert patches.x.dtype == np.uint8


def test_a_constant_patch_is_blank_whatever_its_value():
    images = np.full((2, 7, 7), 3.5)
    images[1, 6, 6] = 4.5
    patches = extract_patches(images, 3, 2)
    assert (patches.image.tolist(), patches.row.tolist(), patches.column.tolist()) == (
        [1],
        [4],
        [4],
    )
    np.testing.assert_array_equal(patches.x, [[3.5] * 8 + [4.5]])
    assert len(extract_patches(images, 3, 2, drop_blank=False)) == 18
    assert repr(patches) == "Patches(1 of 3x3)"


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (np.zeros((3, 35)), {}, "flat images need image_shape"),
        (np.zeros((3, 35)), {"image_shape": (5, 6)}, "5x6 needs rows of 30 pixels, got 35"),
        (np.zeros((3, 7, 11)), {"image_shape": (11, 7)}, r"the images are \(7, 11\)"),
        (np.zeros((3, 7, 11, 3)), {}, r"got shape \(3, 7, 11, 3\)"),
        (np.zeros(7), {}, r"got shape \(7,\)"),
        (np.zeros((3, 7, 11)), {"size": 8}, "size must be 1 to 7 for these images, got 8"),
        (np.zeros((3, 7, 11)), {"size": 0}, "size must be 1 to 7"),
        (np.zeros((3, 7, 11)), {"stride": 0}, "stride must be at least 1, got 0"),
    ],
)
def test_errors(images, options, message):
    with pytest.raises(ValueError, match=message):
        extract_patches(images, **options)
