"""Latent classes: the loss they descend, the graph, the groups, the start, the coherence."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mnemosphere.model import kernel, objectives
from mnemosphere.model.parameters import from_memories
from mnemosphere.numerics import vmf
from mnemosphere.training import latent
from mnemosphere.training.batches import Data
from mnemosphere.training.loop import train

SIZES = (41, 23, 31)
N, C = 5, 3


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def blobs(seed=0, concentration=60.0):
    """Rows around three orthogonal directions, their cluster."""
    cluster = torch.repeat_interleave(torch.arange(C), torch.tensor(SIZES))
    centers = torch.eye(N, dtype=torch.float64)[:C]
    kappa = torch.tensor(concentration, dtype=torch.float64)
    return vmf.sample(centers[cluster], kappa, generator=generator(seed)), cluster


def unlabelled(x, columns=1):
    return Data(x, x.new_zeros(1, columns).expand(len(x), -1))


def memories_on_rows(x, every=7):
    """Every seventh row is a memory."""
    one = torch.ones(1, dtype=torch.float64)
    return from_memories(x[::every].clone(), one, beta=30.0, varsigma=0.9)


# the loss


@given(st.integers(0, 10**6))
def test_without_smoothing_the_loss_is_marginal_plus_conditional(problem, oracle, seed):
    """Eq. (total_loss) with λ = 1, the conditional part being the entropy of the predictions."""
    p = problem(seed, labels="none")
    loss, _ = objectives.Unsupervised(0.0)(kernel.log_joint(p.params, p.x), p.targets)
    joint = oracle.log_joint(p.params, p.x)
    marginal = joint.logsumexp(1)
    posterior = (joint - marginal[:, None]).exp()
    entropy = torch.special.entr(posterior).sum(1)
    assert torch.allclose(loss, -marginal + entropy, rtol=1e-10, atol=1e-10)


# prior


def test_prior_is_the_mean_of_soft_labels():
    counts = torch.tensor([5, 3, 2])
    labels = torch.repeat_interleave(torch.arange(3), counts)
    soft = objectives.soft_labels(labels, 3, 0.2, dtype=torch.float64)
    assert torch.allclose(latent.latent_prior(counts.double(), 0.2), soft.mean(0), atol=1e-15)


# the graph


def test_graph_counts_rows_once_and_weights_as_copies():
    x, _ = blobs()
    params = memories_on_rows(x)
    graph = latent.affinity(params, unlabelled(x), generator=generator())
    assert float(graph.sum()) == pytest.approx(len(x), rel=1e-12)  # the shares of a row sum to 1
    assert torch.equal(graph, graph.T) or torch.allclose(graph, graph.T, rtol=1e-12)
    weight = 1.0 + (torch.arange(len(x)) % 3).double()
    weighted = Data(x, x.new_zeros(len(x), 1), weight)
    copies = unlabelled(x.repeat_interleave(weight.long(), 0))
    one, two = (latent.affinity(params, d, generator=generator()) for d in (weighted, copies))
    assert torch.allclose(one, two, rtol=1e-6)


def test_two_memories_share_a_row():
    """The mean entropy of the shares, computed here with NumPy, is log 2."""
    x, _ = blobs(concentration=8.0)
    params = memories_on_rows(x, every=3)
    beta = latent._sharing_temperature(params.w, unlabelled(x))
    h = beta * (x @ params.w.T).numpy()
    share = np.exp(h - h.max(1, keepdims=True))
    share /= share.sum(1, keepdims=True)
    entropy = -(share * np.log(np.maximum(share, 1e-300))).sum(1).mean()
    assert entropy == pytest.approx(math.log(2), rel=1e-5)


# groups


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
    found = latent.group(a, 2, generator=generator()).label
    best = min(
        normalized_cut(a, torch.tensor((0, *rest)))
        for rest in itertools.product((0, 1), repeat=6)
        if any(rest)
    )
    assert normalized_cut(a, found) == pytest.approx(best, rel=1e-12)


def test_groups_are_the_blobs_largest_first():
    x, cluster = blobs()
    params = memories_on_rows(x)
    graph = latent.affinity(params, unlabelled(x), generator=generator())
    groups = latent.group(graph, C, generator=generator())
    truth = cluster[::7]
    for y in range(C):
        assert truth[groups.label == y].unique().numel() == 1
    sizes = torch.bincount(groups.label)
    assert (sizes.diff() <= 0).all()


def test_as_many_groups_as_memories_and_copies_of_one():
    label = latent.group(torch.eye(5), 5, generator=generator()).label
    assert label.sort().values.tolist() == list(range(5))
    same = latent.group(torch.ones(6, 6), 2, generator=generator()).label
    assert torch.bincount(same, minlength=2).min() > 0


# where classes start


def started(prior=None, smoothing=0.1):
    x, cluster = blobs()
    params = memories_on_rows(x)
    graph = latent.affinity(params, unlabelled(x), generator=generator())
    groups = latent.group(graph, C, generator=generator())
    return x, cluster, groups, latent.start_classes(params, groups, prior, smoothing)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("prior", [None, [2.0, 3.0, 6.0]])
def test_start_lies_in_the_polytope(prior, smoothing):
    prior = None if prior is None else torch.tensor(prior, dtype=torch.float64)
    _, _, groups, params = started(prior, smoothing)
    params.check()
    assert torch.allclose(params.p.sum(1), params.p_h, rtol=1e-8, atol=0)
    assert torch.allclose(params.p.sum(0), params.p_q, rtol=1e-8, atol=0)
    counts = torch.bincount(groups.label).double()
    shares = counts / counts.sum() if prior is None else prior / 11
    smooth = (1 - smoothing) * shares + smoothing / 4
    assert torch.allclose(params.p_q[:-1], smooth, rtol=1e-12)


def test_own_proportions_keep_the_groups():
    _, _, groups, params = started()
    assert torch.equal(latent.latent_class(params), groups.label)


def test_the_largest_prior_goes_to_the_largest_group():
    counts = torch.tensor([23.0, 31.0, 41.0], dtype=torch.float64)
    _, cluster, _, params = started(counts)
    assert torch.equal(latent.latent_class(params), torch.tensor([2, 0, 1])[cluster[::7]])


def test_class_weights_alone_descend_and_leave_the_density():
    x, _, _, params = started()
    rows, rule = unlabelled(x, C + 1), objectives.Unsupervised(0.1)
    solver = latent.ClassWeightSGD(0.1, 0.9, len(x))
    result = train(params, rows, solver, rule=rule, max_epochs=20)
    losses = [record.loss for record in result.history]
    assert losses[-1] < losses[0]
    assert torch.equal(result.params.w, params.w)
    assert torch.equal(result.params.beta, params.beta)
    before, after = (kernel.log_joint(p, x).logsumexp(1) for p in (params, result.params))
    assert torch.allclose(before, after, rtol=1e-6)
    assert not torch.allclose(result.params.p, params.p, rtol=1e-3)


# coherence


def test_coherence_by_hand():
    w = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
    found = latent.coherence(w, torch.tensor([0, 0, 1]), generator=generator())
    assert found.within == pytest.approx(0.6)
    assert found.across == pytest.approx(0.4)  # of 0 and 0.8
    assert found.shuffled == pytest.approx((0.6 + 0.0 + 0.8) / 3, abs=0.1)


def test_alone_in_every_class_there_is_no_pair():
    found = latent.coherence(torch.eye(3), torch.arange(3), generator=generator())
    assert math.isnan(found.within)
    assert found.across == 0.0
