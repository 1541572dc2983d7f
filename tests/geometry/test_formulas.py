"""Rows on the sphere against plain NumPy formulas, for every kind and every type of number."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from geometry_formula import on_sphere as by_numpy
from mnemosphere.geometry import KINDS, Center, Standard
from mnemosphere.geometry.base import on_sphere
from mnemosphere.rows.rows import Rows

CPU = torch.device("cpu")
TYPES = ["float64", "float32", "float16", "uint8", "int64", "int8", "uint16", "bool"]


def stored(x):
    return Rows.of(np.asarray(x), CPU)


def table(dtype, n=23, features=7, seed=0):
    x = 40 * np.random.default_rng(seed).random((n, features)) + 1
    if dtype == "bool":
        x = x > 20
        x[:, 0], x[:, 1] = True, False  # no row of one value
    return x.astype(dtype)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", ["center", "unit", "standard"])
def test_each_kind_is_its_formula(kind, dtype):
    x, fresh = table(dtype), table(dtype, 11, seed=1)
    geometry = KINDS[kind].fit(stored(x))
    unit, undirected = on_sphere(stored(fresh), geometry, torch.float64)
    assert not undirected.any()
    assert unit.shape[1] == 7 + geometry._n_constant
    assert_allclose(unit.numpy(), by_numpy(kind, fresh, x), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("factor", [1e300, 1e-300, 1.7e308 / 41])
def test_units_of_a_feature_mean_nothing_to_standard(factor):
    x = table("float64")
    scale = np.array([factor, 1, 1, 1, 1, 1, 1 / factor])
    geometry = Standard.fit(stored(scale * x))
    unit, undirected = geometry.place(torch.from_numpy(scale * x))
    assert not undirected.any()
    assert_allclose(unit.numpy(), by_numpy("standard", x, x), rtol=1e-9)
    assert_allclose((geometry.restore(unit) / torch.from_numpy(scale)).numpy(), x, rtol=1e-9)


def test_the_smallest_numbers_there_are():
    """One bit is left of 5e-324; which entries are zero is all that such rows tell."""
    pattern = np.array([[0, 1, 0, 1], [1, 0, 0, 1], [1, 1, 0, 1], [0, 1, 1, 0]], float)
    x = torch.from_numpy(5e-324 * pattern)
    assert bool((x[pattern == 1] > 0).all())
    for kind in ("unit", "center"):
        unit, undirected = KINDS[kind].of().place(x)
        assert not undirected.any()
        assert_allclose(unit.numpy(), by_numpy(kind, pattern, None), rtol=1e-12)
    unit, undirected = Standard.fit(stored(x.numpy())).place(x)
    assert not undirected.any()
    assert_allclose(unit.norm(dim=1).numpy(), 1, rtol=1e-12)
    assert len({tuple(row) for row in unit.tolist()}) == 4  # still distinct


def test_the_largest_numbers():
    """Differences and squares of which would be infinite."""
    signs = np.array([[1, -1, 1], [-1, 1, 1], [1, 1, -1], [1, -1, -1]])
    for kind in ("unit", "center", "standard"):
        for most in (1.7e308, np.iinfo(np.int64).max):
            x = most * signs
            unit, undirected = on_sphere(stored(x), KINDS[kind].fit(stored(x)), torch.float64)
            assert not undirected.any()
            expected = by_numpy(kind, signs, signs)
            assert_allclose(unit.numpy(), expected, rtol=1e-12, atol=1e-15)
    # A row as far away as can be points along its one huge feature.
    geometry = Standard.fit(stored(1e-3 * np.eye(3)))
    unit, _ = geometry.place(torch.tensor([[0.0, -1.7e308, 0.0]], dtype=torch.float64))
    assert_allclose(unit.numpy(), [[0, -1, 0, 0]], atol=1e-12)


# rows without direction


def test_zero_rows_and_constant_rows():
    x = torch.tensor([[1.0, 2, 4], [0, 0, 0], [7.1, 7.1, 7.1], [1e-320, 0, 0]]).double()
    x[3, 0] = 1e-320
    for kind, expected in (
        ("unit", [False, True, False, False]),
        ("center", [False, True, True, False]),
        ("standard", [False] * 4),
    ):
        unit, undirected = KINDS[kind].fit(stored(x.numpy())).place(x)
        assert undirected.tolist() == expected
        assert not unit[undirected].any()
        assert_allclose(unit[~undirected].norm(dim=1).numpy(), 1, rtol=1e-12)
    # The mean of 0.1 five times is not 0.1 to the last bit; a hundredth more is a difference.
    x = torch.full((2, 5), 0.1, dtype=torch.float64)
    x[1, 0] += 1e-2
    assert Center().place(1e6 + x)[1].tolist() == [True, False]


# what "standard" learns


def test_standard_by_weight_is_standard_of_repeated_rows():
    x = table("float64")
    weight = np.random.default_rng(2).integers(0, 4, len(x))
    one = Standard.fit(stored(x), weight=torch.from_numpy(weight.astype(float)))
    two = Standard.fit(stored(np.repeat(x, weight, axis=0)))
    for a, b in ((one.mean, two.mean), (one.scale, two.scale)):
        assert_allclose(a.numpy(), b.numpy(), rtol=1e-12)
    fraction = np.random.default_rng(3).random(len(x))
    unit, _ = Standard.fit(stored(x), weight=torch.from_numpy(fraction)).place(torch.from_numpy(x))
    assert_allclose(unit.numpy(), by_numpy("standard", x, x, fraction), rtol=1e-12)


@pytest.mark.parametrize("kind", ["center", "unit", "standard"])
def test_rows_in_several_chunks(kind):
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(5, 300_000)), rng.random(5)
    geometry = KINDS[kind].fit(stored(x), weight=torch.from_numpy(weight))
    assert len(list(stored(x).chunks())) == 2
    unit, _ = on_sphere(stored(x), geometry, torch.float64)
    assert_allclose(unit.numpy(), by_numpy(kind, x, x, weight), rtol=1e-9, atol=1e-15)


def test_a_large_offset_does_not_drown_the_spread():
    """Two sweeps: the textbook difference of moments would have no digit left."""
    x = np.random.default_rng(0).normal(size=(101, 3))
    geometry = Standard.fit(stored(1e9 + x))
    assert_allclose(geometry.scale.numpy(), x.std(axis=0), rtol=1e-6)


# back again


def test_restore_undoes_standard():
    x = table("float64")
    geometry = Standard.fit(stored(x))
    unit, _ = geometry.place(torch.from_numpy(x))
    assert_allclose(geometry.restore(unit).numpy(), x, rtol=1e-12)
    # Also of more axes, as a path of recall has.
    path = geometry.restore(torch.stack([unit, unit]))
    assert_allclose(path.numpy(), np.stack([x, x]), rtol=1e-12)
    # The center of the data is the pole of the sphere.
    pole = torch.zeros(1, 8, dtype=torch.float64)
    pole[0, -1] = 1
    assert_allclose(geometry.restore(pole)[0].numpy(), x.mean(axis=0), rtol=1e-12)


def test_a_point_beyond_the_largest_number_is_shown_at_it():
    rows = stored(np.array([[-1.5e308, 1.0], [1.5e308, 2.0]]))
    far = torch.tensor([[3.0, 0.0, 1.0]], dtype=torch.float64)
    shown = Standard.fit(rows).restore(far)
    assert shown[0, 0] == torch.finfo(torch.float64).max
    assert shown[0, 1] == pytest.approx(1.5)


# gaps


@pytest.mark.parametrize("kind", ["center", "unit"])
def test_shares_of_the_norm_are_those_of_known_values(kind):
    """Columns that hardly a row has, or none: what fills them is rounding, and has no share."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(61, 11)) + 3.0
    x[2:, 5:7] = np.nan
    x[:, 7:] = np.nan
    energy = KINDS[kind].fit(stored(x)).energy
    unit, undirected = KINDS[kind].of().place(torch.from_numpy(x[2:, :5]))
    assert not undirected.any()
    assert energy.sum() == pytest.approx(1, abs=1e-12)
    assert (energy[7:] < 1e-15).all()
    ratio = unit.square().mean(0)
    torch.testing.assert_close(energy[:5] / energy[0], ratio / ratio[0], rtol=0.3, atol=0)
    only = np.full((1, 11), np.nan)
    only[0, 8:10] = 1.0, 2.0
    placed, undirected = KINDS[kind].of(energy).place(torch.from_numpy(only))
    assert not undirected.any()
    assert 0 < placed.nan_to_num(0.0).norm() < 1e-6
