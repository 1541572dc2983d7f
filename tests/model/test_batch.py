"""A batch of rows: parts, means by weight, and what is refused."""

import math
from dataclasses import replace
from fractions import Fraction

import pytest
import torch

from mnemosphere.model.batch import Batch


def test_a_part_keeps_rows_labels_and_weights_together(problem):
    batch = problem(1, rows=11, weighted=True).batch
    order = [7, 0, 3]
    for rows in (torch.tensor(order), torch.arange(11) % 3 == 1, slice(2, 11, 4)):
        part = batch.take(rows)
        picked = torch.arange(11)[rows].tolist()
        assert part.n_rows == len(picked)
        for here, there in enumerate(picked):
            assert torch.equal(part.x[here], batch.x[there])
            assert torch.equal(part.targets[here], batch.targets[there])
            assert part.sample_weight[here] == batch.sample_weight[there]
    assert replace(batch, sample_weight=None).take(torch.tensor(order)).sample_weight is None


def test_mean_and_total_are_exact_where_float32_is_not():
    """A thousand weights of 2^-25 beside a weight of 1: against fractions."""
    weight = torch.tensor([1.0] + [2.0**-25] * 1000)
    values = torch.tensor([3.0] + [1.0] * 1000)
    batch = Batch(torch.zeros(1001, 2), torch.zeros(1001, 2), weight)
    total = 1 + Fraction(1000, 2**25)
    assert batch.total_weight == float(total)
    assert batch.mean(values) == pytest.approx(float((total + 2) / total), rel=1e-15)
    plain = replace(batch, sample_weight=None)
    assert plain.total_weight == 1001.0
    assert plain.mean(values) == pytest.approx(float(Fraction(1003, 1001)), rel=1e-15)


# What is refused


def spoil(t, value, index=(3, 2)):
    t = t.clone()
    t[index] = value
    return t


ONES = torch.ones(53, dtype=torch.float64)
BAD_ROWS = {
    "inf": (lambda b: replace(b, x=spoil(b.x, math.inf)), "row 3 of x has entries that are not"),
    "zero row": (lambda b: replace(b, x=spoil(b.x, 0.0, 4)), "row 4 of x has norm 0, not 1"),
    "features": (lambda b: replace(b, x=b.x[:, :6]), r"x must be \(B, 7\) .* got \(53, 6\)"),
    "rows": (lambda b: replace(b, x=b.x[1:]), r"targets must be \(52, 4\), got \(53, 4\)"),
    "dtype": (lambda b: replace(b, x=b.x.float()), "x is torch.float32 on cpu but the parameters"),
    "no rows": (lambda b: b.take(slice(0, 0)), "x has no rows"),
    "NaN target": (lambda b: replace(b, targets=spoil(b.targets, math.nan)), "targets must be fin"),
    "short": (lambda b: replace(b, sample_weight=ONES[1:]), r"must be \(53,\), got \(52,\)"),
    "negative": (lambda b: replace(b, sample_weight=spoil(ONES, -1.0, 3)), "finite and >= 0"),
    "no weight": (lambda b: replace(b, sample_weight=0 * ONES), "sample_weight is zero everywhere"),
}


@pytest.mark.parametrize("name", BAD_ROWS)
def test_bad_rows_are_refused_in_one_line(problem, name):
    break_it, message = BAD_ROWS[name]
    case = problem(40, rows=53)
    with pytest.raises(ValueError, match=message) as caught:
        break_it(case.batch).check(case.params)
    assert "\n" not in str(caught.value)
