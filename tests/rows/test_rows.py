"""Rows as they came: every type and layout of NumPy and torch; laws of merging copies."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mnemosphere.rows.rows import Rows, sort_and_merge_duplicates

CPU = torch.device("cpu")


def stored(x):
    return Rows.of(x, CPU)


def whole(rows):
    return torch.cat([x for _, x in rows.chunks()]).numpy()


BASE = np.random.default_rng(0).integers(0, 100, (11, 7))
TYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
         "float16", "float32", "float64", "longdouble", ">f8", ">f4", ">i4", ">u2"]  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_of_number(dtype):
    x = BASE.astype(dtype)
    rows = stored(x)
    assert (rows.n_rows, rows.n_features) == (11, 7)
    np.testing.assert_array_equal(whole(rows), x.astype(np.float64))


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int64", "uint16", "float16", "bfloat16", "float32", "float64"]
)
def test_every_type_of_tensor(dtype):
    x = torch.from_numpy(BASE).to(getattr(torch, dtype))
    np.testing.assert_array_equal(whole(stored(x)), x.double().numpy())
    np.testing.assert_array_equal(whole(stored(x.T)), x.T.double().numpy())


def test_arrays_are_not_copied():
    x = BASE.astype(np.float64)
    assert stored(x).values.data_ptr() == x.ctypes.data
    assert not stored(torch.from_numpy(x).requires_grad_()).values.requires_grad


def test_chunks_cover_the_rows_in_order():
    """A million numbers at a time, and a row at least."""
    x = np.random.default_rng(0).normal(size=(5, 400_000)).astype(np.float32)
    assert [part for part, _ in stored(x).chunks()] == [slice(0, 2), slice(2, 4), slice(4, 5)]
    np.testing.assert_array_equal(whole(stored(x)), x)
    assert len(list(stored(x.reshape(2, -1)[:, :-1]).chunks())) == 2
    x[3, 7] = np.nan
    with pytest.raises(ValueError, match="row 3 of X is NaN in column 7"):
        stored(x).check_finite()


# numbers that are none


@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "inf")])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_first_number_that_is_none_is_named(value, word, dtype):
    x = BASE.astype(dtype)
    x[8, 4] = x[10, 1] = value
    with pytest.raises(ValueError, match=rf"^row 8 of X is .*{word}.* in column 4: drop the row"):
        stored(x).check_finite()
    with pytest.raises(ValueError, match=r"^row 8 of X is .* in column 'e': drop the row"):
        stored(x).check_finite(list("abcdefg"))
    order = torch.tensor([3, 10, 8])
    with pytest.raises(ValueError, match=r"^row 10 of X is .* in column 1: "):
        stored(x).take(order).check_finite()
    for finite in (np.full((5, 3), 1.7e308), BASE):  # a sum that overflows is no infinity
        rows = stored(finite)
        assert rows.check_finite() is rows


# merging


def merged(x, targets=None, weight=None):
    """{row: (weight, label weights)} of what comes out, and what came out."""
    n = len(x)
    q = np.zeros((n, 1)) if targets is None else targets
    _, (rows, labels, total) = sort_and_merge_duplicates(
        stored(x),
        torch.from_numpy(np.asarray(q, float)),
        None if weight is None else torch.from_numpy(np.asarray(weight, float)),
    )
    mass = torch.ones(rows.n_rows).double() if total is None else total
    for number, row in zip(rows.row_ids(torch.arange(rows.n_rows)), whole(rows), strict=True):
        np.testing.assert_array_equal(x[number], row)  # it is called by one of its copies
    table = {
        tuple(row): (float(m), tuple(label))
        for row, m, label in zip(whole(rows).tolist(), mass, labels.tolist(), strict=True)
    }
    assert len(table) == rows.n_rows  # each of them once
    return table, (rows, labels, total)


def by_hand(x, q, weight):
    table = {}
    for row, label, w in zip(np.asarray(x, float).tolist(), q, weight, strict=True):
        if w > 0:
            mass, mean = table.get(tuple(row), (0.0, np.zeros(len(label))))
            table[tuple(row)] = (mass + w, mean + w * np.asarray(label))
    return {row: (mass, mean / mass) for row, (mass, mean) in table.items()}


@given(
    seed=st.integers(0, 999),
    n=st.integers(1, 40),
    features=st.integers(1, 4),
    values=st.integers(1, 4),
    kind=st.sampled_from(["none", "ones", "counts", "fractions"]),
    dtype=st.sampled_from(["uint8", "int64", "float32", "float64", "bool"]),
)
def test_merging_is_adding_up_by_hand(seed, n, features, values, kind, dtype):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, values, (n, features)).astype(dtype)
    q = rng.dirichlet([1, 1, 1], n)
    weight = {
        "none": None,
        "ones": np.ones(n),
        "counts": rng.integers(0, 3, n) + (np.arange(n) == 0),
        "fractions": rng.random(n),
    }[kind]
    found, _ = merged(x, q, weight)
    expected = by_hand(x, q, np.ones(n) if weight is None else weight)
    assert found.keys() == expected.keys()
    for row, (mass, mean) in expected.items():
        assert found[row][0] == pytest.approx(mass, rel=1e-12)
        assert found[row][1] == pytest.approx(mean, rel=1e-9, abs=1e-12)


@given(seed=st.integers(0, 999))
def test_the_order_of_rows_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 3, (31, 3)).astype(float)
    q = np.eye(4)[rng.integers(0, 4, 31)]
    weight = rng.integers(1, 4, 31)
    shuffle = rng.permutation(31)
    one = merged(x, q, weight)[1]
    two = merged(x[shuffle], q[shuffle], weight[shuffle])[1]
    np.testing.assert_array_equal(whole(one[0]), whole(two[0]))
    np.testing.assert_allclose(one[1], two[1], rtol=1e-12, atol=1e-15)
    assert torch.equal(one[2], two[2])


@pytest.mark.parametrize("gap", [np.spacing(1e6), 1e-12, 5e-324])
def test_rows_that_nearly_agree_are_not_the_same(gap):
    """A difference in one feature that any sum over features would lose."""
    big = np.full((9, 3), 1e6)
    big[3:6, 1] += np.spacing(1e6)
    small = np.c_[big[:, :1], np.where(np.arange(9) % 2, gap, 0.0)]
    assert len(merged(big)[0]) == 2
    assert len(merged(small)[0]) == 2


def test_integers_beyond_double_precision_are_told_apart():
    most = np.iinfo(np.int64).max
    x = np.array([[most, 1], [most - 1, 1], [most, 1]])
    _, (rows, _, total) = sort_and_merge_duplicates(stored(x), torch.zeros(3, 1).double(), None)
    assert sorted(rows.values[:, 0].tolist()) == [most - 1, most]
    assert sorted(total.tolist()) == [1, 2]


def test_weights_of_one_are_no_weights_and_nothing_is_left_of_weight_zero():
    x = BASE.astype(float)
    assert merged(x)[1][2] is None
    assert merged(x, weight=np.ones(11))[1][2] is None
    weight = np.ones(11)
    weight[[2, 5]] = 0
    found, (rows, _, total) = merged(x, weight=weight)
    assert rows.n_rows == len(found) == 9
    assert total is None
    assert sorted(rows.row_ids(torch.arange(9))) == [0, 1, 3, 4, 6, 7, 8, 9, 10]


@pytest.mark.parametrize("copies", [0, 5, 40])
def test_large_data_are_merged_too(copies):
    x = np.random.default_rng(0).normal(size=(101, 10_000))
    x = np.r_[x, x[:copies]]
    _, (rows, _, total) = sort_and_merge_duplicates(
        stored(x), torch.zeros(len(x), 1).double(), None
    )
    assert rows.n_rows == 101
    if copies:
        assert float(total.sum()) == 101 + copies
    else:  # they stay, in the order they came
        assert total is None
        np.testing.assert_array_equal(whole(rows), x)


@pytest.mark.parametrize("unit", [2.0, 0.25, 2.54, 1e-200])
def test_the_units_of_a_column_do_not_change_the_order(unit):
    rng = np.random.default_rng(0)
    x = rng.poisson(0.7, size=(97, 5)).astype(float)
    x[:, 1] *= 100
    x[rng.random(x.shape) < 0.1] = np.nan
    orders = []
    for factor in (1.0, unit):
        scaled = x * np.array([1.0, factor, 1.0, 1.0, 1.0])
        _, (rows, *_) = sort_and_merge_duplicates(stored(scaled), torch.zeros(97, 1).double(), None)
        orders.append(rows.row_ids(torch.arange(rows.n_rows)))
    assert orders[0] == orders[1]
