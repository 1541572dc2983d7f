"""Direct training of the conditional likelihood: starts, targets, stacked problems."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from draws import generator
from mnemosphere.model import initialize, objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.one_pass import evaluate, log_joint
from mnemosphere.numerics import sphere
from mnemosphere.training import stacked
from mnemosphere.training.adam import Adam
from mnemosphere.training.conditional import class_targets, start_conditional
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit
from mnemosphere.training.joint import start_joint, start_memories
from mnemosphere.training.train import Spec, train


def clusters(seed, rows=97, features=7, classes=3, per_class=2, spread=0.4):
    """(unit rows, classes): several directions per class."""
    generator = torch.Generator().manual_seed(seed)
    centers = sphere.sample_uniform(
        classes * per_class, features, generator=generator, dtype=torch.float64
    )
    own = torch.randint(classes * per_class, (rows,), generator=generator)
    noise = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    return sphere.project(centers[own] + spread * noise / features**0.5), own % classes


def labeled(seed, **settings):
    x, y = clusters(seed, **settings)
    n_classes = settings.get("classes", 3)
    return Batch(x, objectives.soft_labels(y, n_classes, 0.1, dtype=torch.float64)), y


def test_memories_start_inside_their_classes():
    batch, y = labeled(1)
    w, labels, classes = initialize.within_classes(
        batch.x, batch.targets, 11, generator=generator(0)
    )
    assert_close(labels[:, :-1].argmax(1), classes.argmax(1))
    assert w.shape == (11, 7)
    assert_close(w.norm(dim=1), torch.ones(11).double(), rtol=1e-12, atol=0)
    for own, label in zip(w, labels.argmax(1).tolist(), strict=True):
        near = y[(batch.x @ own).topk(3).indices]
        assert (near == label).all()


@pytest.mark.parametrize(
    ("counts", "n", "expected"),
    [([50, 50], 4, [2, 2]), ([90, 10], 4, [2, 2]), ([90, 10], 30, [23, 7]), ([40, 3, 1], 7, None)],
)
def test_each_class_has_some_memories_and_large_ones_more(counts, n, expected):
    y = torch.cat([torch.full((c,), k) for k, c in enumerate(counts)])
    x = sphere.sample_uniform(len(y), 5, generator=generator(0), dtype=torch.float64)
    targets = objectives.soft_labels(y, len(counts), 0.0, dtype=torch.float64)
    start = initialize.within_classes(x, targets, n, generator=generator(0))
    labels = start.labels
    found = labels.argmax(1).bincount(minlength=len(counts)).tolist()
    assert sum(found) == n
    assert min(found) >= 1
    assert expected is None or found == expected


def test_targets_are_net_of_smoothing_and_without_none():
    """Whatever smoothing they had: the same shares among the C classes, total weight kept."""
    soft = torch.tensor([[0.7, 0.3, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.0]]).double()
    for smoothing in (0.0, 0.1, 0.6):
        total = soft.sum(1, keepdim=True)
        smoothed = (1 - smoothing) * soft + smoothing * total / 4
        given = torch.cat([smoothed, smoothing * total / 4], 1)
        found = class_targets(given)
        assert (found[:, -1] == 0).all()
        assert_close(found.sum(1), soft.sum(1))
        assert_close(found[0, :3], 0.98 * soft[0] + 0.02 / 3, rtol=1e-12, atol=1e-15)
        assert found[0, 2] > class_targets(given, 1)[0, 2] > class_targets(given, 2)[0, 2] > 0


def start(batch, memories, seed=0):
    found = initialize.within_classes(batch.x, batch.targets, memories, generator=generator(seed))
    return start_conditional(found, batch.label_mass(), beta=None)


def test_a_row_starts_memories_of_all_its_classes_in_proportion():
    """One row is of three classes at once, and no class is the commonest of the others."""
    generator = torch.Generator().manual_seed(0)
    x = sphere.sample_uniform(7, 5, generator=generator, dtype=torch.float64)
    q = torch.tensor([0.6, 0.3, 0.1, 0.0], dtype=torch.float64).repeat(7, 1)
    found = initialize.within_classes(x, q, 3, generator=generator, steps=0)
    assert_close(found.classes.sum(0), torch.ones(3).double())
    assert_close(found.labels, q[:3])
    params = start_conditional(found, q.sum(0), beta=None)
    assert_close(params.p_q[:-1], q[0, :-1], rtol=1e-12, atol=0)
    assert bool((params.p[1:, :-1] > 0).sum(1).eq(1).all())
    few = start_conditional(
        found._replace(classes=found.classes[:, [0, 0, 1]]), q.sum(0), beta=None
    )
    assert_close(few.p_q[:-1], q[0, :-1], rtol=1e-12, atol=0)
    # A row counts by its weight: the memory of the second class points to their weighted mean.
    q[0] = torch.tensor([0.1, 0.9, 0.0, 0.0], dtype=torch.float64)
    one = initialize.within_classes(x, q, 3, generator=generator, steps=0)
    mean = q[:, 1] @ x
    own = one.w[one.classes.argmax(1) == 1]
    assert_close(own[0], mean / mean.norm())


def test_varsigma_and_the_bessel_functions_do_not_matter():
    """Without a uniform component, P(y|x) depends on β_eff alone."""
    batch, _ = labeled(3)
    params = start(batch, 7)
    other = params.replace(beta=params.beta / 0.3, varsigma=0.3)
    one, two = (log_joint(p, batch.x)[:, :-1].log_softmax(1) for p in (params, other))
    assert_close(one, two, rtol=1e-10, atol=1e-10)


def test_problems_of_any_size_side_by_side_are_those_alone():
    """Memories without weight and coordinates that are 0 change nothing."""
    batches = [labeled(seed, rows=61, features=n)[0] for seed, n in ((4, 7), (5, 11), (6, 7))]
    rows = [Batch(b.x, class_targets(b.targets)) for b in batches]
    starts = [start(b, n) for b, n in zip(batches, (5, 9, 7), strict=True)]
    solver = Adam(batch_size=61, steps=12)
    params, together = stacked.stack(starts, rows)

    def trained(start, batch, solver=solver):
        how = {"rule": objectives.conditional, "max_iter": 12, "generator": generator(0)}
        return fit(start, ArrayDataset(batch), solver, **how).params

    found = trained(params, together)
    noisy = trained(params, together, replace(solver, noise=0.5))
    for k, (own, batch) in enumerate(zip(starts, rows, strict=True)):
        alone = trained(own, batch)
        n_memories, n = own.w.shape
        w, p = found.w[k, :n_memories, :n], found.p[k, : n_memories + 1]
        assert_close(w, alone.w, rtol=1e-9, atol=1e-9)
        assert_close(p, alone.p, rtol=1e-9, atol=1e-12)
        assert_close(found.beta[k], alone.beta, rtol=1e-9, atol=0)
        assert (noisy.w[k, :n_memories, :n] - alone.w).abs().max() > 1e-3


def test_a_trial_that_goes_on_ends_where_the_training_of_a_model_ends():
    """A trial of one cycle that goes on is a trial of two, and the model walks the same way."""
    batch, _ = labeled(6, rows=83)
    data, draws = ArrayDataset(batch), generator(3)
    one, two = (Spec("unit", 7, "conditional", cycles=cycles) for cycles in (1, 2))
    whole = train(data, two, generator=generator(3))
    first = train(data, one, generator=draws)
    then = train(data, two, start=first.params, done=1, generator=draws)
    assert [r.loss for r in whole.history] == [r.loss for r in first.history + then.history]
    assert [r.phase for r in whole.history] == [0] * first.n_iter + [1] * (2 * first.n_iter)
    assert torch.equal(whole.params.w, then.params.w)
    assert whole.history[-1].loss < first.history[-1].loss


def test_joint_problems_side_by_side_keep_the_loss_falling():
    batch, _ = labeled(8)
    found = start_memories(batch, 7, own_labels=True, generator=torch.Generator())
    first = start_joint(found, batch, varsigma=0.9)
    losses = [
        evaluate(stacked.joint(first, batch, learn_beta=True, max_iter=n), batch, objectives.joint)
        for n in (1, 3, 9)
    ]
    assert losses[0] > losses[1] > losses[2]
