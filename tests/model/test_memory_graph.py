"""Memories that share rows: against sums over rows, linear algebra, enumeration and symmetry."""

import itertools
import math

import numpy as np
import pytest
import torch

from draws import blobs, generator
from mnemosphere.model import memory_graph
from mnemosphere.model.batch import Batch
from mnemosphere.model.memory_graph import (
    Graph,
    group,
    share_graph,
    sharing_temperature,
    spread_labels,
)

N, C = 5, 3


def unlabeled(x, weight=None):
    return Batch(x, x.new_zeros(len(x), 1), weight)


def entropies(kappa, overlap):
    """Of the shares of each row, with NumPy."""
    h = kappa * overlap.numpy()
    share = np.exp(h - h.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    return -(share * np.log(np.maximum(share, 1e-300))).sum(1)


# The temperature


@pytest.mark.parametrize("shared_by", [2.0, 2.5])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_row_is_shared_by_as_many_memories_as_said(problem, shared_by, weighted):
    case = problem(1, rows=211, memories=31, features=7, weighted=weighted)
    overlap = case.x @ case.params.w.T
    kappa = sharing_temperature(overlap, shared_by, case.sample_weight)
    weight = None if case.sample_weight is None else case.sample_weight.numpy()
    mean = np.average(entropies(kappa, overlap), weights=weight)
    assert mean == pytest.approx(math.log(shared_by), rel=1e-6)


# The graph


@pytest.mark.parametrize("weighted", [False, True])
def test_the_graph_is_the_sum_over_rows(problem, weighted):
    case = problem(3, weighted=weighted)
    graph = share_graph(case.params.w, case.batch)
    overlap = case.x @ case.params.w.T
    share = (sharing_temperature(overlap, 2.0, case.sample_weight) * overlap).softmax(1).numpy()
    weight = np.ones(23) if case.sample_weight is None else case.sample_weight.numpy()
    edges, labels = np.zeros((5, 5)), np.zeros((5, 4))
    for b in range(23):
        edges += weight[b] * np.outer(share[b], share[b])
        labels += weight[b] * np.outer(share[b], case.targets[b].numpy())
    np.testing.assert_allclose(graph.edges, edges, rtol=1e-12)
    np.testing.assert_allclose(graph.labels, labels, rtol=1e-12, atol=1e-15)


# Labels


def test_labels_stay_in_their_part_of_the_graph():
    """Two chains without a tie and a memory alone: it hears of no label."""
    chain = torch.tensor([[2.0, 1.0, 0.0], [1.0, 2.0, 1.0], [0.0, 1.0, 2.0]], dtype=torch.float64)
    edges = torch.block_diag(chain, chain, torch.ones(1, 1, dtype=torch.float64))
    labels = torch.zeros(7, 2, dtype=torch.float64)
    labels[0, 0] = labels[5, 1] = 1.0
    soft, reached = spread_labels(Graph(edges, labels), 0.85)
    expected = [[1, 0]] * 3 + [[0, 1]] * 3 + [[0, 0]]
    assert soft.tolist() == expected
    assert reached.tolist() == [True] * 6 + [False]


# Groups


def normalized_cut(graph, label):
    """Σ over groups of the ties that leave it, over its ties in all."""
    groups = [label == y for y in label.unique()]
    return sum(float(graph[g][:, ~g].sum() / graph[g].sum()) for g in groups)


@pytest.mark.parametrize("seed", range(3))
def test_groups_make_the_smallest_normalized_cut(seed):
    """Against every way to divide seven memories in two."""
    a = torch.rand(7, 7, generator=generator(seed), dtype=torch.float64)
    block = (torch.arange(7) < 3).double()
    a = 0.2 * (a + a.T) + torch.outer(block, block) + torch.outer(1 - block, 1 - block)
    found = group(a, 2, generator=generator()).label
    best = min(
        normalized_cut(a, torch.tensor((0, *rest)))
        for rest in itertools.product((0, 1), repeat=6)
        if any(rest)
    )
    assert normalized_cut(a, found) == pytest.approx(best, rel=1e-12)


def test_groups_are_the_blobs_largest_first():
    x, cluster = blobs()
    graph = share_graph(x[::7], unlabeled(x))
    groups = group(graph.edges, C, generator=generator())
    truth = cluster[::7]
    for y in range(C):
        assert truth[groups.label == y].unique().numel() == 1
    sizes = torch.bincount(groups.label)
    assert (sizes.diff() <= 0).all()
    # Every memory is closest to its own group.
    assert torch.equal(groups.closeness.argmax(1), groups.label)
    assert groups.closeness.abs().max() <= 1 + 1e-12


def test_memories_without_rows_go_with_those_like_them():
    x, cluster = blobs()
    far = -x[::13]  # no row is nearest to these
    w = torch.cat([x[::7], far])
    found = memory_graph.group_memories(w, unlabeled(x), C, generator=generator()).label
    names = {int(cluster[7 * i]): int(found[i]) for i in range(len(x[::7]))}
    assert sorted(names.values()) == [0, 1, 2]
    assert [names[int(c)] for c in cluster[::7]] == found[: len(x[::7])].tolist()
    kin = (far @ x[::7].T).argmax(1)
    assert torch.equal(found[len(x[::7]) :], found[: len(x[::7])][kin])
