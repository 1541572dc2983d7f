"""Latent classes: the loss they descend, their prior, where they start, how they train."""

import pytest
import torch

from draws import blobs, generator
from mnemosphere.model import objectives, one_pass
from mnemosphere.model.batch import Batch
from mnemosphere.model.memory_graph import group, share_graph
from mnemosphere.model.mixture import from_memories
from mnemosphere.training import latent
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit

N, C = 5, 3


def unlabeled(x, columns=1):
    return Batch(x, x.new_zeros(1, columns).expand(len(x), -1))


def memories_on_rows(x, every=7):
    """Every seventh row is a memory."""
    one = torch.ones(1, dtype=torch.float64)
    return from_memories(x[::every].clone(), one, beta=30.0, varsigma=0.9)


def started(prior=None, smoothing=0.1):
    x, cluster = blobs()
    params = memories_on_rows(x)
    graph = share_graph(params.w, unlabeled(x))
    groups = group(graph.edges, C, generator=generator())
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


def test_the_largest_prior_goes_to_the_largest_group():
    counts = torch.tensor([23.0, 31.0, 41.0], dtype=torch.float64)
    _, cluster, _, params = started(counts)
    assert torch.equal(latent.latent_class(params), torch.tensor([2, 1, 0])[cluster[::7]])


def test_class_weights_alone_descend_and_leave_the_density():
    x, _, _, params = started()
    rows, rule = ArrayDataset(unlabeled(x, C + 1)), objectives.Unsupervised(0.1)
    solver = latent.ClassWeightSGD(0.1, 0.9, len(x))
    result = fit(params, rows, solver, rule=rule, max_iter=20)
    losses = [record.loss for record in result.history]
    assert losses[-1] < losses[0]
    assert torch.equal(result.params.w, params.w)
    assert torch.equal(result.params.beta, params.beta)
    before, after = (one_pass.log_joint(p, x).logsumexp(1) for p in (params, result.params))
    assert torch.allclose(before, after, rtol=1e-6)
    assert not torch.allclose(result.params.p, params.p, rtol=1e-3)
