"""Capacity: the theory's load in its limits, and recall below and above it."""

import math

import pytest
import torch

from research.paper.capacity import critical_load, growth_rates, recalled


def test_the_critical_load_has_its_limits():
    assert critical_load(1e-3, 0.8) == pytest.approx(0.8e-3, rel=1e-2)  # e^{βm} patterns
    assert critical_load(50.0, 0.8) == pytest.approx(-0.5 * math.log(1 - 0.64))  # nearest pattern
    # The other patterns' terms, summed by brute force over their density (1 − t²)^{N/2}.
    slope, t = 0.7, torch.linspace(-0.999, 0.999, 200001, dtype=torch.float64)
    level = float((0.5 * torch.log1p(-t * t) + slope * t).max())
    assert critical_load(slope, 0.8) == pytest.approx(slope * 0.8 - level, abs=1e-6)


def test_patterns_are_found_below_it_and_lost_above():
    generator = torch.Generator().manual_seed(0)
    load = critical_load(0.5, 0.8)
    few, many = (round(math.exp(part * load * 24)) for part in (0.6, 1.6))
    assert recalled(24, few, 12.0, 0.8, tries=50, generator=generator) > 0.95
    assert recalled(24, many, 12.0, 0.8, tries=50, generator=generator) < 0.05


def test_rates_are_slopes_of_log_p():
    rows = [{"slope": "1", "features": n, "half": (0.4 * n + 2) / n} for n in (10, 20, 30)]
    found = growth_rates({"theory": {"1": 0.4, "2": 0.5}, "rows": rows})
    assert found == {"1": pytest.approx(0.4)}
