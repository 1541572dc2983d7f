"""Labels that spread among memories: against linear algebra, symmetry and known answers."""

import math

import numpy as np
import pytest
import torch

from mnemosphere.model import initialize, objectives
from mnemosphere.model.parameters import from_memories
from mnemosphere.training import semi_supervised
from mnemosphere.training.batches import Data
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.loop import judge, train


def partly(problem, **options):
    params, x, targets, weight = problem(**options)
    return params, Data(x, targets, weight)


@pytest.mark.parametrize("weighted", [False, True])
def test_soft_labels_solve_the_linear_system(problem, weighted):
    """(I − αA) F = D^(-1/2) Y row by row, with S and Y from explicit sums over rows."""
    params, data = partly(problem, seed=3, weighted=weighted)
    price = 0.7
    kappa = semi_supervised.sharpness(data.x @ params.w.T)
    share = (kappa * data.x @ params.w.T).softmax(1).numpy()
    weight = np.ones(23) if data.sample_weight is None else data.sample_weight.numpy()
    edges, seeds = np.zeros((5, 5)), np.zeros((5, 4))
    for b in range(23):
        edges += weight[b] * np.outer(share[b], share[b])
        seeds += weight[b] * np.outer(share[b], data.targets[b].numpy())
    d = edges.sum(1)
    # The random-walk form of the same: F = (D − αS)^(-1) Y.
    spread = np.linalg.solve(np.diag(d) - price * edges, seeds)
    soft = spread / spread.sum(1, keepdims=True)
    found = semi_supervised.label_memories(params, data, price=price)
    np.testing.assert_allclose(found.p[1:] / found.p_h[1:, None], soft, rtol=1e-9)
    np.testing.assert_allclose(found.p_h, params.p_h, rtol=1e-12)
    p_q = params.p_h[1:].numpy() @ soft
    np.testing.assert_allclose(found.p_q, p_q / p_q.sum(), rtol=1e-9)
    assert torch.equal(found.w, params.w)
    found.check()


def test_a_row_is_shared_by_as_many_memories_as_said(problem):
    params, x, *_ = problem(1, rows=211, memories=31, features=7)
    kappa = semi_supervised.sharpness(x @ params.w.T)
    share = (kappa * x @ params.w.T).softmax(1)
    perplexity = torch.special.entr(share).sum(1).exp().mean()
    assert float(perplexity) == pytest.approx(semi_supervised.SHARED_BY, rel=1e-6)


def test_labels_reach_memories_that_meet_none():
    """Two half circles of memories; one label at an end of each; the other end learns of it."""
    angle = torch.linspace(0, 2.4, 12, dtype=torch.float64)
    arc = torch.stack([angle.cos(), angle.sin()], 1)
    zero = torch.zeros(12, 2, dtype=torch.float64)
    w = torch.cat([torch.cat([arc, zero], 1), torch.cat([zero, arc], 1)])
    fine = torch.linspace(0, 2.4, 133, dtype=torch.float64)
    path = torch.stack([fine.cos(), fine.sin()], 1)
    zero = torch.zeros(133, 2, dtype=torch.float64)
    x = torch.cat([torch.cat([path, zero], 1), torch.cat([zero, path], 1)])
    classes = torch.full((266,), -1)
    classes[0], classes[133] = 0, 1
    data = Data(x, objectives.soft_labels(classes, 2, 0.1, dtype=torch.float64))
    params = from_memories(w, torch.tensor([0.45, 0.45, 0.1]).double(), beta=20.0)
    soft = semi_supervised.label_memories(params, data).p[1:, :2]
    assert (soft[:12, 0] > 1.5 * soft[:12, 1]).all()
    assert (soft[12:, 1] > 1.5 * soft[12:, 0]).all()


def test_without_a_label_the_prior_stays_and_unreached_memories_get_it(problem):
    params, data = partly(problem, seed=2, labels="none")
    found = semi_supervised.label_memories(params, data)
    torch.testing.assert_close(found.p, torch.outer(params.p_h, params.p_q))
    assert semi_supervised.applies(data)
    _, data = partly(problem, seed=2, labels="full")
    assert not semi_supervised.applies(data)


def test_the_order_of_memories_does_not_matter(problem):
    params, data = partly(problem, seed=5)
    turn = torch.tensor([3, 0, 4, 1, 2])
    rows = torch.cat([torch.zeros(1, dtype=torch.long), 1 + turn])
    other = params.replace(w=params.w[turn], p=params.p[rows], p_h=params.p_h[rows])
    one, two = (semi_supervised.label_memories(p, data) for p in (params, other))
    torch.testing.assert_close(one.p[rows], two.p, rtol=1e-10, atol=0)


def circles(rows, seed):
    """Two circles of latitude on the globe, half a radian apart: two classes."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(rows) % 2
    longitude = 2 * math.pi * torch.rand(rows, generator=generator, dtype=torch.float64)
    spread = 0.05 * torch.randn(rows, generator=generator, dtype=torch.float64)
    latitude = torch.where(y == 0, 0.25, -0.25) + spread
    x = torch.stack([longitude.cos() * latitude.cos(), longitude.sin() * latitude.cos(),
                     latitude.sin()], 1)  # fmt: skip
    return x, y


def test_few_labels_are_better_used_than_alone_and_than_from_nothing():
    """Three labels on each circle: a stranger may be nearer than one's own kind."""
    x, y = circles(901, 0)
    hidden = y.clone()
    hidden[6:] = -1
    data = Data(x, objectives.soft_labels(hidden, 2, 0.1, dtype=torch.float64))
    few = data.take(slice(0, 6))
    fresh_x, fresh_y = circles(997, 1)
    test = Data(fresh_x, objectives.soft_labels(fresh_y, 2, 0.1, dtype=torch.float64))

    def accuracy(rows, start):
        generator = torch.Generator().manual_seed(0)
        w = initialize.from_data(rows.x, 100, generator=generator)
        params = from_memories(w, few.targets.mean(0), beta=200.0)
        if start:
            found = semi_supervised.start(params, rows, batch_size=None, generator=generator)
            params = found.params
        found = train(params, rows, FixedPoint(None), max_epochs=15, generator=generator)
        return judge(found.params, test, objectives.joint)[1]

    informed, naive, alone = accuracy(data, True), accuracy(data, False), accuracy(few, False)
    assert informed > 0.95
    assert informed > alone + 0.2
    assert informed > naive + 0.2
