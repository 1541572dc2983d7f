"""Memories merge where the closed form says, as exact training finds."""

import math

import pytest
import torch

from draws import generator, unit_rows
from mnemosphere.numerics import bessel
from research.theory.merging import merging_varsigma


def trained_apart(x, group, varsigma, seed=0):
    """Distance of two memories of each group after exact steps with β learned, from near copies."""
    n_groups, n = int(group.max()) + 1, x.shape[1]
    mean = torch.stack([x[group == k].mean(0) for k in range(n_groups)]).repeat_interleave(2, 0)
    w = mean + 0.02 * unit_rows(len(mean), n, seed)
    w = w / w.norm(dim=1, keepdim=True)
    mine = group[:, None] == torch.arange(n_groups).repeat_interleave(2)  # rows keep to their group
    beta = 1.0
    for _ in range(1000):
        logits = (varsigma * beta * x @ w.T).masked_fill(~mine, -math.inf)
        total = torch.softmax(logits, 1).T @ x
        w = total / total.norm(dim=1, keepdim=True)
        beta = float(bessel.inverse_mean_resultant(varsigma * total.norm(dim=1).sum() / len(x), n))
    return (w[::2] - w[1::2]).norm(dim=1)


@pytest.mark.parametrize("n_groups", [1, 2])
def test_memories_merge_below_the_predicted_varsigma(n_groups):
    g = generator(5)
    centers = unit_rows(2 * n_groups, 11, 3)
    place = torch.arange(200) % (2 * n_groups)
    x = centers[place] + 0.25 * torch.randn(200, 11, dtype=torch.float64, generator=g)
    x, group = x / x.norm(dim=1, keepdim=True), place // 2
    edges = merging_varsigma(x, group)
    assert edges.shape == (n_groups,)
    assert bool((edges < 0.97).all())
    first = float(edges.min())
    below, above = (trained_apart(x, group, ratio * first) for ratio in (0.96, 1.04))
    assert float(below.max()) < 1e-3
    assert float(above[edges.argmin()]) > 0.05


def test_rows_without_spread_merge_at_every_varsigma():
    x = unit_rows(1, 7).expand(5, 7)
    assert merging_varsigma(x).tolist() == [math.inf]
