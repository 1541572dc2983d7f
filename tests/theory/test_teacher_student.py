"""Teachers, their data, and what the student's posterior says about them."""

import numpy as np
import pytest
import torch
from scipy import special, stats

from draws import generator
from mnemosphere.theory.teacher_student import (
    Posterior,
    sample_data,
    sample_posterior,
    sample_teacher,
)


def ratio(n, kappa):
    """A_N(κ), the mean of a von Mises–Fisher variable along its direction."""
    return special.ive(n / 2, kappa) / special.ive(n / 2 - 1, kappa)


def test_data_follow_the_teacher():
    n, n_memories, upsilon, rho = 13, 3, 0.7, 101.0
    g = generator(1)
    teacher = sample_teacher(n_memories, n, 2, upsilon=upsilon, generator=g)
    data = sample_data(teacher, rho, generator=g)
    assert data.x.shape == (round(rho * n_memories * n), n)
    assert data.x.dtype == torch.float64
    for mu in range(n_memories):
        x, y = data.x[data.cluster == mu], data.y[data.cluster == mu]
        along = x @ teacher.w[mu]
        error = float(along.std()) / len(x) ** 0.5
        assert float(along.mean()) == pytest.approx(ratio(n, upsilon * n), abs=4.5 * error)
        across = x.mean(0) - along.mean() * teacher.w[mu]
        assert float(across.norm()) < 4.5 * (n / len(x)) ** 0.5 * 0.3
        counts = np.bincount(y.numpy(), minlength=3)
        assert stats.chisquare(counts, teacher.g[mu].numpy() * len(x)).pvalue > 1e-3
    counts = np.bincount(data.cluster.numpy(), minlength=n_memories)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_chains_are_put_in_one_order():
    # Two chains hold the same overlaps in two orders; P = 3 memories, P* = 2.
    base = torch.tensor([[0.9, 0.1, 0.4], [0.2, 0.8, 0.3]], dtype=torch.float64)
    noise = 0.01 * torch.randn(2, 200, 2, 3, generator=generator(6), dtype=torch.float64)
    order = torch.tensor([[0, 1, 2], [2, 0, 1]])
    trace = torch.stack([base[:, order[0]], base[:, order[1]]])[:, None] + noise
    posterior = Posterior(trace, torch.ones(2, 200, 4, 1), None)
    result = posterior.overlaps().raise_if_failed()
    torch.testing.assert_close(result.mean, base, rtol=0, atol=0.005)
    assert float(posterior.mean_overlap().mean) == pytest.approx(float(trace.mean()), rel=1e-12)


@pytest.mark.slow
def test_broken_phase_keeps_the_permutation_and_learns_the_labels():
    g = generator(5)
    soft = torch.tensor([[0.9, 0.05, 0.05], [0.1, 0.8, 0.1]], dtype=torch.float64)
    teacher = sample_teacher(2, 79, 2, upsilon=1.0, soft_labels=soft, generator=g)
    data = sample_data(teacher, 2.0, generator=g)
    kwargs = {"n_memories": 2, "beta": 10.0, "n_chains": 3, "n_burn_in": 20, "n_sweeps": 60}
    informed = sample_posterior(teacher, data, start="teacher", generator=g, **kwargs)
    random = sample_posterior(teacher, data, start="random", generator=g, **kwargs)
    for posterior in (informed, random):
        mean = posterior.overlaps().raise_if_failed().mean
        # Theory: ς(2 β_eff ϱ) = 0.960 on the diagonal as N grows.
        assert float((mean.diagonal() - 0.960).abs().max()) < 0.03
        assert float((mean - mean.diagonal().diag()).abs().max()) < 0.3
        order = torch.nn.functional.pad(posterior.order() + 1, (1, 0))  # the uniform row first
        p = posterior.class_weights.take_along_dim(order[..., None], 2).mean((0, 1))
        # Labels of 158 rows a memory: their frequencies, within sampling error.
        assert float((2 * p[1:] - soft).abs().max()) < 0.12
        assert float(p[0].abs().max()) == 0.0
        torch.testing.assert_close(p.sum(0), teacher.p_q, rtol=0, atol=1e-12)
