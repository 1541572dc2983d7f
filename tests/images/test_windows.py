"""Windows and patches, against loops over pixels."""

import numpy as np
import pytest
import torch

from draws import generator
from mnemosphere.images.windows import Windows, draw_patches

CPU = torch.device("cpu")
CASES = {
    "gray": Windows((7, 11, 1), (3, 5), (1, 1)),
    "strided": Windows((11, 7, 1), (5, 2), (3, 2)),
    "color": Windows((5, 7, 3), (2, 3), (2, 1)),
    "signal": Windows((1, 13, 1), (1, 5), (1, 2)),
    "not centered": Windows((7, 5, 1), (3, 3), (2, 2), center=False),
}


def patches_by_loops(windows, row):
    """Patches of one image, one pixel at a time."""
    image = row.reshape(windows.shape)
    found = []
    for top in range(0, windows.shape[0] - windows.size[0] + 1, windows.stride[0]):
        for left in range(0, windows.shape[1] - windows.size[1] + 1, windows.stride[1]):
            patch = []
            for i in range(windows.size[0]):
                for j in range(windows.size[1]):
                    for channel in range(windows.shape[2]):
                        patch.append(image[top + i, left + j, channel])
            found.append(patch)
    return np.array(found)


def images(windows, n=5, seed=0):
    """Random images with a blank left third."""
    stack = np.random.default_rng(seed).integers(1, 256, (n, *windows.shape)).astype(np.uint8)
    stack[:, :, : windows.shape[1] // 2 + 1] = 9
    return stack.reshape(n, -1)


def dataset(windows, rows, n_patches=None, seed=0):
    return draw_patches(
        torch.from_numpy(rows), windows, n_patches,
        dtype=torch.float64, device=CPU, generator=generator(seed),
    )  # fmt: skip


def unit_by_loops(windows, rows):
    """Unit patches of all images that are not blank."""
    patches = np.concatenate([patches_by_loops(windows, row) for row in rows]).astype(float)
    if windows.center:
        patches -= patches.mean(1, keepdims=True)
    norm = np.linalg.norm(patches, axis=1)
    return patches[norm > 1e-9] / norm[norm > 1e-9, None]


@pytest.fixture(params=CASES)
def windows(request):
    return CASES[request.param]


def test_every_patch_that_is_not_blank_is_a_row(windows):
    rows = images(windows)
    expected = unit_by_loops(windows, rows)
    patches = dataset(windows, rows).rows
    assert len(expected) < windows.n_places * 5 or not windows.center
    np.testing.assert_allclose(patches.x.numpy(), expected, rtol=0, atol=1e-14)
    assert patches.targets.shape == (len(expected), 1)
    assert not patches.targets.any()


def test_some_patches_drawn_at_random():
    windows = CASES["gray"]
    rows = images(windows, n=29)
    everything = {tuple(np.round(x, 9)) for x in unit_by_loops(windows, rows)}
    one, same, other = (dataset(windows, rows, 31, seed) for seed in (0, 0, 1))
    assert one.n_rows == 31
    x = one.rows.x
    assert {tuple(np.round(row, 9)) for row in x.numpy()} <= everything
    assert torch.equal(x, same.rows.x)
    assert not torch.equal(x, other.rows.x)
