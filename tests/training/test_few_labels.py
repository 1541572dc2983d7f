"""Labels that spread among memories: against linear algebra, symmetry and known answers."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from draws import circles
from draws import generator as seeded
from mnemosphere.model import initialize, objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.memory_graph import share_graph
from mnemosphere.model.mixture import from_memories
from mnemosphere.model.one_pass import log_joint
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.few_labels import PHASE, fit_unlabeled_start, label_memories
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from runs import Log, assert_same_params


@pytest.mark.parametrize("weighted", [False, True])
def test_class_weights_solve_the_linear_system(problem, weighted):
    """(D − αS) F = Y on the graph of the memories, at the price 0.85 of a step."""
    case = problem(3, weighted=weighted)
    params = case.params
    graph = share_graph(params.w, case.batch)
    edges = graph.edges.numpy()
    spread = np.linalg.solve(np.diag(edges.sum(1)) - 0.85 * edges, graph.labels.numpy())
    soft = spread / spread.sum(1, keepdims=True)
    found = label_memories(params, case.batch).check()
    np.testing.assert_allclose(found.p[1:] / found.p_h[1:, None], soft, rtol=1e-6)
    np.testing.assert_allclose(found.p_h, params.p_h, rtol=1e-12)
    p_q = params.p_h[1:].numpy() @ soft
    np.testing.assert_allclose(found.p_q, p_q / p_q.sum(), rtol=1e-6)
    assert torch.equal(found.w, params.w)
    # Far from all memories one knows but the prior.
    assert_close(found.p[0] / found.p_h[0], found.p_q, rtol=1e-12, atol=0)


# Memories that settle


@pytest.fixture
def case(problem):
    return problem(6, rows=211, memories=13, clustered=True, labels="mixed")


def test_memories_settle_with_labels_unseen(case):
    """Other labels, the same memories; the loss is that of the marginal and falls."""
    log = Log()
    settled = fit_unlabeled_start(
        case.params, case.dataset, learn_beta=True, generator=seeded(1), callbacks=[log]
    )
    other = ArrayDataset.of(case.x, case.targets.flip(1))
    blind = fit_unlabeled_start(case.params, other, learn_beta=True, generator=seeded(1))
    assert_close(blind.params.w, settled.params.w, rtol=0, atol=1e-12)
    assert not torch.allclose(blind.params.p, settled.params.p, rtol=1e-2)
    losses = [record.loss for record in settled.history]
    first = -log_joint(case.params, case.x).logsumexp(1).mean()
    assert losses[0] == pytest.approx(float(first), rel=1e-12)
    assert (np.diff(losses) <= 1e-10).all()
    assert losses[-1] < losses[0] - 0.01
    assert {record.phase for record in settled.history} == {PHASE}
    # The labels are those of the memories where they settled.
    last = log.of("pass")[-1][1]
    assert_same_params(settled.params, label_memories(last, case.dataset.rows))


def test_few_labels_are_better_used_than_alone_and_than_from_nothing():
    """Three labels on each circle: the nearest labeled row may be of the other circle."""
    x, y = circles(901, 0)
    hidden = y.clone()
    hidden[6:] = -1
    data = Batch(x, objectives.soft_labels(hidden, 2, 0.1, dtype=torch.float64))
    few = data.take(slice(0, 6))
    fresh_x, fresh_y = circles(997, 1)
    test = ArrayDataset.of(fresh_x, objectives.soft_labels(fresh_y, 2, 0.1, dtype=torch.float64))

    def accuracy(rows, start):
        generator, dataset = seeded(0), ArrayDataset(rows)
        w = initialize.from_data(rows.x, 100, generator=generator)
        params = from_memories(w, few.targets.mean(0), beta=200.0)
        if start:
            params = fit_unlabeled_start(
                params, dataset, learn_beta=True, generator=generator
            ).params
        found = fit(params, dataset, FixedPoint(None, tol=0), max_iter=15, generator=generator)
        best = log_joint(found.params, test.whole.x)[:, :-1].argmax(1)
        return float((best == test.whole.targets.argmax(1)).double().mean())

    informed, naive, alone = accuracy(data, True), accuracy(data, False), accuracy(few, False)
    assert informed > 0.95
    assert informed > alone + 0.2
    assert informed > naive + 0.2
