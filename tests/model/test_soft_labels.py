"""Class probabilities of a memory: against SciPy's functions and formulas in NumPy."""

import math

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from class_formula import FLOOR, log_omega, log_probabilities, log_shares, net_of_smoothing
from mnemosphere.model.batch import Batch
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.objectives import soft_labels
from mnemosphere.model.one_pass import log_joint
from mnemosphere.model.soft_labels import (
    LOG_T,
    best_temperature,
    label_frequencies,
    label_shares,
    mean_shares,
    net_class_weights,
    tempered_losses,
)

EPSILON = 0.1

# Soft labels net of smoothing


def with_soft_labels(params, clean, smoothing=EPSILON):
    """Mixture whose soft labels are `clean` ones (P+1, C+1), smoothed."""
    n = clean.shape[1]
    p = params.p_h[:, None] * ((1 - smoothing) * clean + smoothing / n)
    return params.replace(p=p, p_q=p.sum(0))


@pytest.fixture
def smoothed(problem):
    params = problem(1, memories=11, classes=5).params
    generator = torch.Generator().manual_seed(2)
    clean = torch.rand(12, 5, generator=generator, dtype=torch.float64) ** 4
    clean[3] = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0])
    clean = torch.cat([clean / clean.sum(1, keepdim=True), torch.zeros(12, 1).double()], 1)
    return with_soft_labels(params, clean), clean


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])
def test_any_class_weights_keep_the_weight_of_their_memory(problem, smoothing):
    """Weights that no smoothing made too: entries below its part count as nothing."""
    params = problem(3, memories=13, classes=4, contrast=3.0).params
    net = net_class_weights(params, smoothing, label_frequencies(params.p.sum(0), smoothing))
    assert_close(net.sum(1), params.p.sum(1), rtol=1e-13, atol=0)
    expected = params.p.sum(1, keepdim=True).numpy() * net_of_smoothing(params.p.numpy(), smoothing)
    np.testing.assert_allclose(net[1:].numpy(), expected[1:], rtol=1e-12, atol=1e-18)


def test_counted_labels_are_those_of_the_rows(smoothed):
    """Rows of one-hot labels, smoothed; a fiftieth of a row of the prior is added."""
    params, _ = smoothed
    generator = torch.Generator().manual_seed(3)
    rows = 5 * torch.rand(12, 5, generator=generator, dtype=torch.float64) ** 3
    rows[4] = 0.0  # answers for nothing
    rows = torch.cat([rows, torch.zeros(12, 1).double()], 1)
    counts = (1 - EPSILON) * rows + EPSILON / 6 * rows.sum(1, keepdim=True)
    prior = params.p[:, :-1].sum(0) / params.p[:, :-1].sum()
    prior = torch.cat([prior, torch.zeros(1).double()])
    soft = (rows + 0.02 * prior) / (rows.sum(1, keepdim=True) + 0.02)
    expected = params.p_h[:, None] * ((1 - FLOOR) * soft + FLOOR * prior)
    net = net_class_weights(params, EPSILON, params.p.sum(0), counts)
    assert_close(net[1:], expected[1:], rtol=1e-11, atol=1e-17)


def test_a_row_like_no_memory_gets_the_class_frequencies(problem):
    """The uniform component has no opinion, whatever label training has given it."""
    case = problem(2, memories=3, features=29, beta=90.0, labels="full")
    p = case.params.p.clone()
    p[0] = torch.tensor([0.97, *[0.03 / (p.shape[1] - 1)] * (p.shape[1] - 1)]) * p[0].sum()
    frequencies = label_frequencies(case.targets.sum(0), 0.0)
    params = case.params.replace(p=p)
    votes = params.with_classes(net_class_weights(params, 0.0, frequencies))
    far = -case.params.w.mean(0, keepdim=True)
    found = log_joint(votes, far / far.norm())[0, :-1].softmax(0)
    assert_close(found, frequencies[:-1] / frequencies[:-1].sum(), rtol=1e-6, atol=0)


# Temperature


def exponents(params, x):
    """h (B, P+1) with log Ω from SciPy."""
    beta = float(params.beta)
    h = params.varsigma * beta * (x @ params.w.T) - log_omega(beta, params.n_features)
    return torch.cat([torch.zeros(len(x), 1).double(), h], 1)


@pytest.mark.parametrize("temperature", [0.1, 1.7, 4000.0])
@pytest.mark.parametrize(("n", "beta"), [(2, 0.4), (7, 0.05), (784, 900.0)])
def test_exponents_are_divided_by_the_temperature(problem, n, beta, temperature):
    case = problem(4, features=n, beta=beta, varsigma=0.4)
    tempered = case.params.at(temperature)
    h = exponents(case.params, case.x) / temperature
    assert torch.equal(tempered.w, case.params.w)
    assert torch.equal(tempered.p, case.params.p)
    assert tempered.temperature == temperature
    # And so log Σ p exp(h/T), the uniform component not left out.
    expected = (case.params.p.log()[None] + h[:, :, None]).logsumexp(1)
    assert_close(log_joint(tempered, case.x), expected, rtol=1e-9, atol=1e-9)
    back = tempered.at(1.0)
    assert_close(log_joint(back, case.x), log_joint(case.params, case.x), rtol=1e-9, atol=1e-9)


def test_at_a_high_temperature_every_row_gets_the_class_frequencies(problem):
    case = problem(5, beta=9.0, weighted=True)
    params, weight = case.params, case.sample_weight
    p = torch.cat([torch.zeros_like(params.p[:1]), params.p[1:]])  # no uniform component
    params = params.replace(p=p / p.sum())
    rows, h = Batch(case.x, case.targets, weight), exponents(params, case.x) + p.sum(1).log()
    mean = weight @ h.softmax(1) / weight.sum()
    soft = params.p / params.p.sum(1, keepdim=True).clamp_min(1e-300)
    # Classes with their frequencies in the mean: then it is the mean.
    share = mean_shares(params, params.p, rows, mean @ soft)
    assert_close(share[1:], mean[1:], rtol=1e-10, atol=1e-10)
    votes = params.with_classes(params.p, share=share)
    far = log_joint(votes.at(1e7), case.x).softmax(1)
    assert_close(far, (mean @ soft).expand_as(far), rtol=1e-4, atol=1e-5)
    # Others: shares go there, all the way if components have one class each.
    n_columns = soft.shape[1]
    alone = torch.eye(n_columns).double()[torch.arange(len(soft)) % n_columns]
    alone = params.replace(p=alone * params.p.sum(1, keepdim=True))
    wanted = torch.arange(1, n_columns + 1).double() / sum(range(n_columns + 1))
    share = mean_shares(alone, alone.p, rows, wanted)
    far = log_joint(alone.with_classes(alone.p, share=share).at(1e7), case.x).softmax(1)
    assert_close(far, wanted.expand_as(far), rtol=1e-4, atol=1e-5)
    there_and_back = log_joint(votes.at(3.7).at(1.0), case.x).softmax(1)
    assert_close(there_and_back, log_joint(params, case.x).softmax(1), rtol=1e-9, atol=1e-12)
    # Losses at several temperatures are those of the votes there.
    rows = Batch(case.x, case.targets)
    losses, odd = tempered_losses(votes, rows)
    for k in (0, 9):
        log_p = log_joint(votes.at(math.exp(LOG_T[k])), case.x)[:, :-1].log_softmax(1)
        assert_close(
            torch.from_numpy(losses[:, k]), -(label_shares(case.targets) * log_p).sum(1),
            rtol=1e-9, atol=1e-9,
        )  # fmt: skip
        mean = label_shares(case.targets).mean(0)  # labels that have nothing to do with rows
        assert_close(torch.from_numpy(odd[:, k]), -(log_p @ mean), rtol=1e-9, atol=1e-9)


# The best temperature


def case_of(problem, seed, *, varsigma=1.0, flips=0.15, classes=3, **settings):
    """Labeled rows near memories with classes of their own, some with another class's label."""
    case = problem(seed, beta=18.0, varsigma=varsigma, classes=classes, clustered=True, **settings)
    params, n = case.params, case.params.n_memories
    generator = torch.Generator().manual_seed(seed)
    own = torch.arange(n + 1) % classes
    params = params.replace(p_h=torch.full((n + 1,), 1 / (n + 1)).double())
    params = with_soft_labels(params, torch.eye(classes + 1).double()[own])
    params = params.replace(p=net_class_weights(params, EPSILON, params.p.sum(0)))
    index = own[1:][(case.x @ params.w.T).argmax(1)]
    other = torch.randint(classes, index.shape, generator=generator)
    index = torch.where(torch.rand(index.shape, generator=generator) < flips, other, index)
    targets = soft_labels(index, classes, EPSILON, dtype=torch.float64)
    return params, Batch(case.x, targets, case.sample_weight), index.numpy()


def plain_loss(pairs):
    """Summed −log P of the labels as a function of log T, out of SciPy's sums, and the sum of weights."""

    def loss(log_t):
        total = 0.0
        for params, rows, index in pairs:
            p, w = params.p.numpy(), params.w.numpy()
            beta, x = float(params.beta), rows.x.numpy()
            shares = log_shares(w, p.sum(1), beta, params.varsigma, math.exp(log_t), x)
            each = log_probabilities(shares, p / p.sum(1, keepdims=True))
            weight = 1.0 if rows.sample_weight is None else rows.sample_weight.numpy()
            total -= (weight * each[np.arange(len(index)), index]).sum()
        return total

    weights = [
        np.ones(len(i)) if r.sample_weight is None else r.sample_weight.numpy() for _, r, i in pairs
    ]
    return loss, np.concatenate(weights)


def posterior_mean(pairs):
    """Of log T by the trapezoidal rule on a fine grid; rows count half, log T ~ N(0, 1)."""
    loss, weight = plain_loss(pairs)
    grid = np.linspace(-3.5, 3.5, 141)
    effective = weight.sum() ** 2 / (weight**2).sum()  # so many rows of equal weight
    score = np.array([-0.5 * (loss(g) / weight.sum() * effective + g * g) for g in grid])
    density = np.exp(score - score.max())
    return np.trapezoid(density * grid, grid) / np.trapezoid(density, grid)


@pytest.mark.parametrize(
    "sizes",
    [
        [{"rows": 307, "memories": 7}],
        [{"rows": 307, "memories": 7, "varsigma": 0.3, "flips": 0.0}],
        [{"rows": 101, "memories": 5}, {"rows": 211, "memories": 11, "weighted": True}],
        [{"rows": 101, "memories": 31, "classes": 23, "flips": 0.6, "weighted": True}],
    ],
    ids=["one", "cold", "several", "many classes"],
)
def test_the_temperature_is_the_posterior_mean(problem, sizes):
    pairs = [case_of(problem, 11 + k, **size) for k, size in enumerate(sizes)]
    found = math.log(best_temperature([(params, rows) for params, rows, _ in pairs]))
    assert found == pytest.approx(posterior_mean(pairs), abs=2e-2)
    assert abs(found) > 0.02  # the rows have something to say


@pytest.mark.parametrize("classes", [3, 43])
def test_losses_of_problems_side_by_side(problem, classes):
    """Each is what SciPy's sums have for it, whatever stands beside it."""
    sizes = {"rows": 83, "memories": 89, "classes": classes}
    pairs = [case_of(problem, 19 + k, **sizes) for k in range(2)]
    params, rows, index = pairs[1]  # the other's classes belong to other memories
    pairs[1] = params.replace(p=torch.cat([params.p[:1], params.p[1:].roll(7, 0)])), rows, index
    losses, _ = tempered_losses(
        Mixture.stack([params for params, *_ in pairs]),
        Batch.stack([rows for _, rows, _ in pairs]),
    )
    for k, pair in enumerate(pairs):
        expected = [plain_loss([pair])[0](log_t) for log_t in LOG_T]
        np.testing.assert_allclose(losses[k].sum(0), expected, rtol=1e-9)
