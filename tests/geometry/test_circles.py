"""Columns on circles against plain NumPy formulas, and the laws of ranks."""

import functools

import numpy as np
import torch
from numpy.testing import assert_allclose
from sklearn.datasets import load_breast_cancer

import mnemosphere as mn
from geometry_formula import mid_ranks, on_circles, ranks_of
from mnemosphere.geometry import Circles
from mnemosphere.geometry.base import on_sphere
from mnemosphere.geometry.circles import curves
from mnemosphere.rows.columns import Column, Columns
from mnemosphere.rows.rows import Rows

CPU = torch.device("cpu")
assert_close = functools.partial(torch.testing.assert_close, check_dtype=False)
B, N = 41, 5


def stored(x):
    return Rows.of(np.asarray(x), CPU)


def table(seed=0, n=B):
    """Numbers, few different values, zeros and ones, one constant, some missing."""
    rng = np.random.default_rng(seed)
    x = np.column_stack([
        rng.lognormal(size=n), rng.integers(0, 7, n), rng.random(n) < 0.2, np.full(n, 3.0),
        rng.normal(size=n),
    ])  # fmt: skip
    x[::11, 4] = np.nan
    return x


def test_coordinates_are_their_formula():
    x, fresh = table(), table(1, 23)
    geometry = Circles.fit(stored(x))
    unit, undirected = on_sphere(stored(fresh), geometry, torch.float64)
    assert not undirected.any()
    assert_allclose(unit.numpy(), on_circles(fresh, x), rtol=1e-10, atol=1e-12)
    column = geometry.tables.column.numpy()
    assert np.bincount(column, minlength=N).tolist() == [8, 8, 2, 0, 8]


def test_ranks_are_interpolated_and_weighted():
    x = table()
    weight = np.random.default_rng(2).integers(0, 4, B)
    once = Circles.fit(stored(x), weight=torch.from_numpy(weight).double())
    again = Circles.fit(stored(np.repeat(x, weight, axis=0)))
    fresh = torch.from_numpy(table(3))
    torch.testing.assert_close(once.positions(fresh), again.positions(fresh), equal_nan=True)
    torch.testing.assert_close(once.center, again.center)
    for j in range(N):
        expected = ranks_of(fresh[:, j].numpy(), *mid_ranks(x[:, j], weight))
        assert_allclose(once.positions(fresh)[:, j].numpy(), expected, rtol=1e-12)


def test_many_values_have_few_knots():
    """Ranks between them are still good, and heavy values keep their mass."""
    rng = np.random.default_rng(0)
    x = np.where(rng.random(3001) < 0.6, 0.0, rng.lognormal(size=3001))[:, None]
    circles = Circles.fit(stored(x))
    assert circles.knots.shape[1] < 200
    wanted = np.interp(x[:, 0], *mid_ranks(x[:, 0]))
    assert_allclose(circles.positions(torch.from_numpy(x))[:, 0].numpy(), wanted, atol=5e-3)
    mean = circles.coordinates(torch.from_numpy(x)).mean(0)
    assert_allclose(circles.center.numpy(), mean.numpy(), atol=5e-3)


def test_increasing_functions_of_a_column_change_nothing():
    x, fresh = table(), table()[::3]
    bent = [lambda v: np.log(v) * 1e200, lambda v: v**3 - 1e9, np.sqrt, lambda v: v, np.exp]

    def changed(rows):
        return np.column_stack([f(own) for f, own in zip(bent, rows.T, strict=True)])

    unit = Circles.fit(stored(x)).place(torch.from_numpy(fresh))[0]
    other = Circles.fit(stored(changed(x))).place(torch.from_numpy(changed(fresh)))[0]
    torch.testing.assert_close(unit, other, rtol=1e-9, atol=1e-9, equal_nan=True)


def test_rows_come_back():
    """A row is the row that resembles it most; of a category one number is 1."""
    x = table()[:, [0, 1, 4]]
    category = np.eye(3)[np.random.default_rng(5).integers(0, 3, B)]
    x = np.nan_to_num(np.hstack([x, category]), nan=0.25)
    geometry = Circles.fit(stored(x))
    unit = geometry.place(torch.from_numpy(x))[0]
    assert_allclose(geometry.restore(unit, [slice(3, 6)]).numpy(), x)
    points = torch.from_numpy(np.random.default_rng(6).normal(size=(29, unit.shape[1])))
    found = geometry.restore(points, [slice(3, 6)]).numpy()
    assert (found[:, 3:].sum(1) == 1).all()
    # The row has the largest product with the point among all rows with these values.
    best = (geometry.coordinates(torch.from_numpy(found)) * points).sum(1)
    every = geometry.coordinates(torch.from_numpy(x)) @ points.T
    assert (best >= every.max(0).values - 1e-9).all()


def test_curves_are_what_columns_contribute():
    x = table()
    circles = Circles.fit(stored(x))
    w = torch.from_numpy(np.random.default_rng(1).normal(size=(3, circles.n_coordinates(N))))
    found = curves(circles, w).overlaps * circles.length
    assert found.shape == (3, N, circles.knots.shape[1])
    z = circles.coordinates(torch.from_numpy(x))
    parts = by_column(circles, w[:, None] * (z - circles.center))  # (3, B, N)
    whole = ~np.isnan(x).any(1)
    total = parts.sum(2) + (w @ circles.center)[:, None]
    torch.testing.assert_close(total[:, whole], (w @ z.T)[:, whole])
    for j in (0, 1, 2):
        at = torch.searchsorted(circles.knots[j], torch.from_numpy(x[:, j]).contiguous())
        torch.testing.assert_close(found[:, j, at], parts[..., j])
        assert_allclose(parts[..., j].mean(1).numpy(), 0, atol=1e-12)


def by_column(circles, parts):
    """Parts (…, M) of coordinates summed by column (…, N)."""
    ends = (2 * circles.harmonics.long()).cumsum(0).tolist()
    return torch.stack(
        [parts[..., a:b].sum(-1) for a, b in zip([0, *ends], ends, strict=False)], -1
    )


NUMBERS = Column("a", "number"), Column("b", "number")
CATEGORY = Column("c", "category", tuple("0123456789"))


def with_a_category(n):
    """Two numbers, then the indicators of a category."""
    rng = np.random.default_rng(0)
    x = np.hstack([rng.normal(size=(n, 2)), np.eye(10)[np.arange(n) % 10]])
    return Rows.of(x, CPU, Columns(3, each=(*NUMBERS, CATEGORY)))


def test_a_category_is_as_long_as_a_number():
    rows = with_a_category(47)
    x = rows.values.clone()
    x[5:9, 2:] = torch.nan
    x[9:13, 0] = torch.nan
    unit = Circles.fit(rows).place(x)[0].nan_to_num(0.0)
    parts = by_column(Circles.fit(rows), unit.square())
    assert_close(parts[:5], torch.tensor([1 / 3, 1 / 3, *[1 / 30] * 10]).expand(5, -1))
    assert_close(
        parts[5:9, :2], torch.full((4, 2), 1 / 3)
    )  # not more since the category is missing
    assert_close(parts[9:13, 2:].sum(1), torch.full((4,), 1 / 3))


def test_the_order_of_columns_and_levels_changes_nothing():
    rows, order = with_a_category(43), [7, 9, 11, 3, 2, 10, 4, 8, 6, 5, 1, 0]
    other = Rows.of(rows.values[:, order], CPU, Columns(3, each=(CATEGORY, *NUMBERS)))
    w = torch.from_numpy(np.random.default_rng(1).normal(size=(5, 12, 8)))  # a memory by columns
    kernels = []
    for own, memory in ((rows, w), (other, w[:, order])):
        circles = Circles.fit(own)
        each = [memory[:, j, : int(2 * k)] for j, k in enumerate(circles.harmonics)]
        unit = circles.place(own.values)[0]
        kernels.append((unit @ unit.T, unit @ torch.cat(each, 1).T))
    for one, other in zip(*kernels, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_stored_and_read_back():
    x = table()
    geometry = Circles.fit(stored(x))
    tensors = geometry.tensors()
    same = Circles(**tensors)
    torch.testing.assert_close(
        same.place(torch.from_numpy(x))[0], geometry.place(torch.from_numpy(x))[0],
        equal_nan=True,
    )  # fmt: skip


def test_gradients_stay_finite_beside_missing_values():
    x = torch.from_numpy(table()[:, [0, 1, 4]])
    geometry = Circles.fit(stored(x.numpy()))
    missing = x[:2].clone()
    missing[0, 0] = torch.nan
    geometry.place(missing.requires_grad_())[0].sum().backward()
    assert torch.isfinite(missing.grad).all()


def test_values_beyond_the_training_rows_are_novel():
    """The ends of the range do not stand for them, however far away they are."""
    x, y = load_breast_cancer(return_X_y=True)
    for seed in range(3):
        model = mn.DAMClassifier(8, geometry="circles", random_state=seed).fit(x[::2], y[::2])
        limit = model.novelty_threshold_
        assert (model.novelty_score(-3 * x[1::2]) > limit).mean() > 0.99
        assert (model.novelty_score(x[1::2]) > limit).mean() < 0.1
    geometry = Circles.fit(stored(x))
    far = geometry.positions(torch.tensor([[-1e308], [1e308]]).double().expand(2, 30))
    wanted = geometry.ranks[:, [0, -1]].T + torch.tensor([[-0.5], [0.5]])
    torch.testing.assert_close(far, wanted, atol=1e-9, rtol=0)
