"""Accuracy and time against width: the fits, the bookkeeping, and the quick run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import linregress

from mnemosphere.training import PassRecord, SplitRecord
from research.paper.laws import best_fit, fit, n_splits, sweeps, work_of
from research.paper.performance import METHODS

WIDTHS = list(range(1000, 2001, 125))


@settings(deadline=None, max_examples=200)
@given(initial=st.integers(1, 300), p_max=st.integers(1, 5000))
def test_splits_are_the_doublings_it_takes(initial, p_max):
    width, count = initial, 0
    while width < p_max:
        width = min(2 * width, p_max)
        count += 1
    assert n_splits(initial, p_max) == count


def test_fits_recover_a_line_and_agree_with_scipy():
    generator = np.random.default_rng(1)
    exact = fit(WIDTHS, [3.0 + 0.25 * p for p in WIDTHS])
    assert exact["a"] == pytest.approx(3.0)
    assert exact["b"] == pytest.approx(0.25)
    assert exact["r2"] == pytest.approx(1.0)
    noisy = [3.0 + 0.25 * p + e for p, e in zip(WIDTHS, generator.normal(size=9) * 40, strict=True)]
    found, oracle = fit(WIDTHS, noisy), linregress(WIDTHS, noisy)
    assert found["a"] == pytest.approx(oracle.intercept)
    assert found["b"] == pytest.approx(oracle.slope)
    assert found["r2"] == pytest.approx(oracle.rvalue**2)
    assert 0.5 < found["r2"] < 1
    assert fit([1, 2, 3], [5, 5, 5]) == {"a": 5.0, "b": 0.0, "r2": None}
    assert fit([2, 2, 2], [1, 2, 3]) == {"a": 2.0, "b": 0.0, "r2": 0.0}


def test_the_better_law_is_told_by_its_fit():
    stairs = best_fit(WIDTHS, [2.0 + 7.0 * (4 if p <= 1600 else 5) for p in WIDTHS], 100)
    assert stairs["staircase"]["a"] == pytest.approx(2.0)
    assert stairs["staircase"]["b"] == pytest.approx(7.0)
    assert stairs["staircase"]["r2"] == pytest.approx(1.0)
    assert stairs["line"]["r2"] < 0.9
    line = best_fit(WIDTHS, [0.5 * p for p in WIDTHS], 100)
    assert line["line"]["r2"] == pytest.approx(1.0)
    assert line["staircase"]["r2"] < 0.9
    power = best_fit(WIDTHS, [3.0 * p**1.7 for p in WIDTHS], 100)["power"]
    assert power["b"] == pytest.approx(1.7)
    assert power["r2"] == pytest.approx(1.0)
    assert "staircase" not in best_fit([1000, 1500], [1.0, 2.0], 100)  # four splits for both


def test_work_counts_products_of_rows_and_memories():
    def passed(n):
        return PassRecord(1, -1.0, None, None, 9.0, None, n, 0.5)

    split = SplitRecord(0, 10, 10, -1.0, 0.25, 4.0, 0.1)
    # 10 and 20 memories meet 900 rows, and 100 rows by half; four passes of 10 memories more.
    found = work_of([passed(10), passed(20)], [split], 900, 100)
    assert found == pytest.approx((30 * 950 + 10 * 4 * 900) / 1e6)


def test_sweeps_average_over_seeds_in_order_of_width():
    row = {"data": "mnist", "method": "sgd", "work": 1.0, "passes": 3, "splits": 0}
    rows = [
        {**row, "p_max": p, "accuracy": p + s, "seconds": 2.0 * s}
        for p in (20, 10)
        for s in (1, 2, 6)
    ]
    found = sweeps(rows)["mnist"]["sgd"]
    assert found["p_max"] == [10, 20]
    assert found["accuracy"] == pytest.approx([13.0, 23.0])
    assert found["seconds"] == pytest.approx([6.0, 6.0])
    assert found["seconds_std"] == pytest.approx([np.sqrt((16 + 4 + 36) / 3)] * 2)


def test_every_part_ran_to_its_width(quick_runs):
    result = quick_runs.result("fig6")
    chosen, rows = result["settings"], result["measured"]["rows"]
    (sizes,) = chosen["sizes"].values()
    assert list(sizes) == list(METHODS)
    assert len(rows) == sum(len(widths) * seeds for widths, seeds, _ in sizes.values())
    for row in rows:
        own = chosen["sgd" if row["method"].startswith("sgd") else "fixed_point"]
        assert row["memories"] == row["p_max"]
        assert row["seconds"] > 0
        if row["method"].endswith("split"):
            assert row["splits"] >= n_splits(own["initial"], row["p_max"])
            assert 0 < row["delta"] <= 0.25
            assert row["status"] == "grown"
        else:
            assert row["splits"] == 0
            limit = own["epochs"]
            if row["method"] == "sgd":
                limit = round(limit[0] + limit[1] * row["p_max"])
            assert row["passes"] <= limit


def test_accuracy_with_splitting_is_like_that_without(quick_runs):
    methods = quick_runs.result("fig6")["measured"]["sweeps"]["mnist"]
    plain, split = (np.array(methods[m]["accuracy"]) for m in ("sgd", "sgd-split"))
    assert abs((split - plain).mean()) < 4
    for method in METHODS:
        accuracy = methods[method]["accuracy"]
        assert accuracy[-1] > accuracy[0] + 2  # more memories help
        assert accuracy[-1] > 80


def test_splitting_saves_arithmetic_and_more_of_it_at_larger_widths(quick_runs):
    measured = quick_runs.result("fig6")["measured"]
    methods = measured["sweeps"]["mnist"]
    saved = np.array(methods["sgd"]["work"]) / np.array(methods["sgd-split"]["work"])
    assert saved[-1] > 1.2
    assert saved[-1] > saved[0]
    line = measured["fits"]["mnist"]["sgd"]["work"]["line"]
    assert line["r2"] > 0.95
    assert line["b"] > 0
