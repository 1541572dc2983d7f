"""Sampling, novelty and shares, against moments, mpmath and enumeration."""

import math

import mpmath
import pytest
import torch

from draws import generator
from mnemosphere.model import retrieval
from mnemosphere.model.gaps import overlaps
from mnemosphere.model.mixture import Mixture
from mnemosphere.numerics import sphere
from mnemosphere.numerics.bessel import inverse_mean_resultant

# Sampling


def sampled_model(varsigma: float = 1.0, beta: float = 6.0) -> Mixture:
    """Orthogonal memories with one class each; the last class is half uniform, half memory 0."""
    w = torch.eye(5, dtype=torch.float64)[:3]
    p = torch.tensor(
        [[0.0, 0.05, 0.15], [0.1, 0.0, 0.15], [0.0, 0.3, 0.0], [0.25, 0.0, 0.0]],
        dtype=torch.float64,
    )
    beta_tensor = torch.tensor(beta, dtype=torch.float64)
    return Mixture(w, p, beta_tensor, varsigma, p.sum(1), p.sum(0)).check()


def resultant(kappa: float, n: int) -> float:
    return float(mpmath.besseli(n / 2, kappa) / mpmath.besseli(n / 2 - 1, kappa))


N_DRAWS = 20_000
FIVE_SIGMA = 5 / math.sqrt(N_DRAWS)


@pytest.mark.parametrize("varsigma", [1.0, 0.9])
def test_sampled_classes_and_moments(varsigma):
    """Class frequencies are p_q; per class, the mean is Σ_μ p[μ,y] A w^μ / p_q(y)."""
    params = sampled_model(varsigma)
    a = resultant(6.0, 5) / varsigma  # for ς < 1: the overlap of the rows before noise
    assert a < 1
    generator = torch.Generator().manual_seed(1)
    x, y = retrieval.sample(params, N_DRAWS, generator=generator)
    sphere.check(x)
    for column in range(3):
        of_class = y == column
        share = float(params.p_q[column])
        assert float(of_class.double().mean()) == pytest.approx(share, abs=FIVE_SIGMA / 2)
        mean = a * (params.p[1:, column] @ params.w) / share
        error = (x[of_class].mean(0) - mean).abs().max()
        assert error < 2.5 / math.sqrt(N_DRAWS * share)


def test_a_class_for_each_draw_and_no_component_of_weight_zero():
    params = sampled_model(beta=1e9)
    wanted = torch.arange(1009) % 3
    x, y = retrieval.sample(params, 1009, class_index=wanted, generator=generator(3))
    assert torch.equal(y, wanted)
    overlap = x @ params.w.T
    on_memory = (overlap > 0.999).double().argmax(1).where((overlap > 0.999).any(1), -1)
    pairs = {(int(c), int(m)) for c, m in zip(y, on_memory, strict=True)}
    assert pairs == {(0, 0), (0, 2), (1, -1), (1, 1), (2, -1), (2, 0)}


def test_sampling_with_a_learned_beta_has_the_overlap_of_the_data():
    """Rows around one memory; β solves A_N(β) = ς·overlap; new rows lie as far off as those."""
    generator = torch.Generator().manual_seed(4)
    params = sampled_model(varsigma=0.25)
    overlap = 0.83
    beta = inverse_mean_resultant(torch.tensor(0.25 * overlap, dtype=torch.float64), 5)
    x, _ = retrieval.sample(params.replace(beta=beta), N_DRAWS, generator=generator, class_index=0)
    # Class 0 is memories 0 and 2, which are orthogonal: a row's mean over both is linear.
    assert float((x @ params.w[[0, 2]].T).sum(1).mean()) == pytest.approx(overlap, abs=FIVE_SIGMA)


def test_too_cold_for_the_noise_draws_the_memories():
    params = sampled_model(varsigma=0.25, beta=1e3)
    x, _ = retrieval.sample(params, 11, class_index=0, generator=generator(5))
    assert ((x @ params.w.T).amax(1) > 1 - 1e-6).all()


# Density, novelty, shares


def component_densities(params: Mixture, x: torch.Tensor) -> list:
    """p[γ,y] exp(h_γ) for one row, in mpmath: a (P+1) × (C+1) table."""
    mpmath.mp.dps = 30
    n, beta = params.n_features, mpmath.mpf(float(params.beta))
    half = mpmath.mpf(n) / 2 - 1
    ratio = mpmath.gamma(half + 1) * (2 / beta) ** half * mpmath.besseli(half, beta)
    overlap = [float(w @ x) for w in params.w]
    weight = [mpmath.mpf(1)] + [mpmath.exp(params.varsigma * beta * o) / ratio for o in overlap]
    return [
        [mpmath.mpf(float(p)) * e for p in row] for row, e in zip(params.p, weight, strict=True)
    ]


@pytest.mark.parametrize("beta", [2.0, 50.0])
def test_novelty_and_shares_match_mpmath(problem, beta):
    params, x, _, _ = problem(9, rows=3, beta=beta, varsigma=0.7)
    score = retrieval.novelty_score(params, x)
    log_marginal = retrieval.log_marginal(params, x)
    for row in range(3):
        table = component_densities(params, x[row])
        total = sum(sum(line) for line in table)
        memories = total - sum(table[0])
        assert float(score[row]) == pytest.approx(-float(mpmath.log(memories)), rel=1e-12)
        assert float(log_marginal[row]) == pytest.approx(float(mpmath.log(total)), rel=1e-12)
        for y in (None, 1, 3):
            parts = [sum(line) if y is None else line[y] for line in table]
            parts = [float(part / sum(parts)) for part in parts]
            column = None if y is None else torch.full((3,), y)
            overlap = overlaps(params, x[:3])
            share = retrieval.scores(params, overlap, column).softmax(1)[row]
            assert share.tolist() == pytest.approx(parts, rel=1e-11)


def test_bad_input_is_refused(problem):
    params, _x, _, _ = problem(0)
    generator = torch.Generator()
    empty = params.p.clone()
    empty[:, 1] = 0
    with pytest.raises(ValueError, match="class 1 has no weight"):
        retrieval.sample(params.replace(p=empty), 3, class_index=1, generator=generator)
