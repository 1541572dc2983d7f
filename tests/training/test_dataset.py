"""Rows in memory: passes, samples, the hold-out, label mass."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from draws import generator as seeded
from mnemosphere.model.batch import Batch
from mnemosphere.numerics import sphere
from mnemosphere.training.dataset import ArrayDataset, held_out
from mnemosphere.training.distributed import Group

N_ROWS, N, COLUMNS = 53, 7, 4


def numbered(n: int = N_ROWS, *, weighted: bool = True) -> Batch:
    """Rows that differ in their first label weight and their sample weight."""
    x = sphere.sample_uniform(n, N, generator=seeded(1), dtype=torch.float64)
    targets = torch.zeros(n, COLUMNS, dtype=torch.float64)
    targets[:, 0] = (1 + torch.arange(n)) / (n + 1)
    weight = 1 + torch.arange(n, dtype=torch.float64)
    return Batch(x, targets, weight if weighted else None)


def numbers(batch: Batch, whole: Batch) -> list[int]:
    """Which rows of `whole` these are; all their parts must say the same."""
    found = [int((whole.x == row).all(1).nonzero()[0, 0]) for row in batch.x]
    assert torch.equal(batch.targets, whole.targets[found])
    if whole.sample_weight is None:
        assert batch.sample_weight is None
    else:
        assert torch.equal(batch.sample_weight, whole.sample_weight[found])
    return found


# A pass


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [1, 5, 17, 52, 53, 100, None])
@pytest.mark.parametrize("seed", [None, 3])
def test_batches_cover_every_row_once(size, seed, weighted):
    rows = numbered(weighted=weighted)
    generator = None if seed is None else seeded(seed)
    batches = list(ArrayDataset(rows).batches(size, generator=generator))
    sizes = [batch.n_rows for batch in batches]
    full = N_ROWS if size is None else min(size, N_ROWS)
    assert sizes == [full] * (N_ROWS // full) + [N_ROWS % full] * (N_ROWS % full > 0)
    order = [row for batch in batches for row in numbers(batch, rows)]
    assert sorted(order) == list(range(N_ROWS))
    stored = generator is None or len(batches) == 1
    assert (order == list(range(N_ROWS))) == stored
    # The order is that of the seed, and another one in the next pass.
    for other, same in ((seeded(3), True), (generator, stored)):
        again = ArrayDataset(rows).batches(size, generator=None if generator is None else other)
        assert ([row for batch in again for row in numbers(batch, rows)] == order) == same


@pytest.mark.parametrize("size", [5, 11, 27, 30, 53])
def test_a_last_batch_of_half_the_size_is_filled_up_with_rows_of_the_one_before(size):
    rows = numbered()
    data = ArrayDataset(rows)
    plain, filled = (
        [numbers(batch, rows) for batch in data.batches(size, generator=seeded(3), fill=fill)]
        for fill in (False, True)
    )
    left = N_ROWS % size
    if left < size / 2:
        assert filled == plain
        return
    *before, last = filled
    assert before == plain[:-1]
    assert len(last) == size
    assert last[-left:] == plain[-1]
    if before:
        assert last[:-left] == before[-1][left - size :]
    sort_and_merge_duplicates = data.batches(size, fill=True)
    assert [batch.n_rows for batch in sort_and_merge_duplicates] == [size] * (N_ROWS // size) + [
        left
    ]


# A sample


def test_a_sample_has_distinct_rows_and_follows_the_generator():
    rows = numbered()
    dataset = ArrayDataset(rows)
    drawn = numbers(dataset.sample(11, generator=seeded(2)), rows)
    assert len(set(drawn)) == 11
    assert drawn == numbers(dataset.sample(11, generator=seeded(2)), rows)
    assert drawn != numbers(dataset.sample(11, generator=seeded(3)), rows)
    for n in (N_ROWS, 10**12):
        assert numbers(dataset.sample(n, generator=seeded(2)), rows) == list(range(N_ROWS))


# The hold-out


def labels(classes: list[int]) -> torch.Tensor:
    """One-hot label weights; −1 has no label."""
    label = torch.tensor(classes)
    q = torch.nn.functional.one_hot(label.clamp_min(0), COLUMNS).double()
    q[label < 0] = 0.0
    return q


@given(
    counts=st.lists(st.integers(0, 40), min_size=COLUMNS + 1, max_size=COLUMNS + 1),
    fraction=st.floats(0.01, 0.99),
    seed=st.integers(0, 1000),
)
def test_of_each_class_that_share_rounded_down(counts, fraction, seed):
    classes = np.repeat(np.arange(-1, COLUMNS), counts)
    np.random.default_rng(seed).shuffle(classes)
    if len(classes) == 0:
        return
    held = held_out(labels(classes.tolist()), fraction, generator=seeded(seed)).numpy()
    if sum(counts[1:]) == 0:  # no labels: of all rows
        assert abs(held.sum() - fraction * len(classes)) < 1 + 1e-9
        return
    assert held[classes == -1].sum() == 0
    for y, n in enumerate(counts[1:]):
        # n·fraction may round to either side of a whole number it is equal to.
        assert held[classes == y].sum() in {
            math.floor(n * fraction - 1e-9),
            math.floor(n * fraction + 1e-9),
        }


def test_split_is_disjoint_exhaustive_and_in_order():
    rows = numbered()
    rows = replace(rows, targets=labels([0, 1, 2] * 17 + [0, 1]))
    dataset = ArrayDataset(rows)
    learn, held = dataset.split(0.2, generator=seeded(3))
    a, b = numbers(learn.rows, rows), numbers(held.rows, rows)
    assert sorted(a + b) == list(range(N_ROWS))
    assert a == sorted(a)
    assert b == sorted(b)
    held = held_out(rows.targets, 0.2, generator=seeded(3))
    assert b == held.nonzero()[:, 0].tolist()
    assert len(b) == 3 + 3 + 3  # ⌊0.2·18⌋ twice and ⌊0.2·17⌋


def test_a_split_that_would_hold_nothing_says_so():
    dataset = ArrayDataset(replace(numbered(4), targets=labels([0, 1, 2, 0])))
    learn, held = dataset.split(0.1, generator=seeded(3))
    assert held is None
    assert learn is dataset


# Label mass, weights


@pytest.mark.parametrize("weighted", [False, True])
def test_label_mass_is_the_weighted_sum(weighted):
    rows = numbered(weighted=weighted)
    expected = np.zeros(COLUMNS)
    for b in range(N_ROWS):
        expected += (b + 1 if weighted else 1) * rows.targets[b].numpy()
    np.testing.assert_allclose(ArrayDataset(rows).label_mass(), expected, rtol=1e-14)
    assert ArrayDataset(rows.to(dtype=torch.float32)).label_mass().dtype == torch.float64


def test_rows_of_no_weight_are_left_out():
    rows = numbered()
    weight = rows.sample_weight * (torch.arange(N_ROWS) % 3 > 0)
    dataset = ArrayDataset.of(rows.x, rows.targets, weight)
    kept = [k for k in range(N_ROWS) if k % 3]
    assert numbers(dataset.rows, rows) == kept
    for weight in (rows.sample_weight, None):
        same = ArrayDataset.of(rows.x, rows.targets, weight)
        assert same.n_rows == N_ROWS
        assert same.rows.x is rows.x  # nothing is copied where nothing is left out


@pytest.mark.parametrize("weighted", [True, False])
def test_processes_have_the_rows_of_a_batch_together(weighted):
    dataset, groups = ArrayDataset(numbered(weighted=weighted)), [Group(k, 3) for k in range(3)]
    parts = [list(dataset.batches(17, generator=seeded(3), group=group)) for group in groups]
    for at, batch in enumerate(dataset.batches(17, generator=seeded(3))):
        mine = [part[at] for part in parts]
        assert torch.equal(torch.cat([part.x for part in mine]), batch.x)
        assert torch.equal(torch.cat([part.targets for part in mine]), batch.targets)
        assert mine[0].n_rows >= max(part.n_rows for part in mine)  # the first always has some
