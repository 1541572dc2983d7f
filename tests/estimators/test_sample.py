"""Rows to choose by."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mnemosphere.data import StoredRows
from mnemosphere.estimators.sample import Sample, labeled_in_turn


@pytest.mark.parametrize("weighted", [True, False])
def test_rows_of_some_classes(weighted):
    """Those of the first rows, in the order of classes; each row keeps its label and its weight."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(61, 3)), torch.from_numpy(rng.permutation(61) % 7)
    targets = 0.9 * torch.nn.functional.one_hot(y, 8).double() + 0.1 / 8
    weight = torch.arange(61.0) if weighted else None
    sample = Sample(StoredRows.of(x, torch.device("cpu")), targets, weight, torch.float64)
    few = sample.of_classes(3)
    classes = sorted(dict.fromkeys(y.tolist()))
    first = sorted([*dict.fromkeys(y.tolist())][:3])
    own = np.isin(y, first)
    assert 0 < own.sum() < 61
    assert torch.equal(few.targets, targets[own][:, [*first, 7]])
    assert torch.equal(few.targets.argmax(1), torch.tensor([first.index(k) for k in y[own]]))
    np.testing.assert_array_equal(next(few.rows.chunks())[1], x[own])
    assert (few.weight is None) == (not weighted)
    if weighted:
        assert torch.equal(few.weight, weight[own])
    assert torch.equal(sample.of_classes(len(classes)).targets, targets)


def test_labeled_rows_and_others_come_in_turn():
    labeled = torch.tensor([False, True, False, False, True, False, False])
    order = torch.tensor([3, 0, 4, 6, 2, 1, 5])
    assert labeled_in_turn(order, labeled).tolist() == [4, 3, 1, 0, 6, 2, 5]
