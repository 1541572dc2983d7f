"""Random class weights of the teacher: the best student of each, by brute force and by Gibbs."""

import numpy as np
import pytest
import torch
from scipy import optimize

from draws import generator
from mnemosphere.theory import random_labels, saddle_point, solver
from mnemosphere.theory.problem import SaddlePointProblem

SETTING = {"beta": 5.0, "rho": 1.0, "upsilon": 0.3, "n_features": 250}


def best_of(problem, seed=0):
    starts = saddle_point.random_starts(problem, 12, generator=generator(seed))
    found = solver.solve(problem, starts).raise_if_failed()
    index = int(found.objective.argmax())
    return found.m[index], float(found.objective[index])


def brute_force(g, p_q):
    """Largest f/(ϱ P*) over two memories and one free class weight, by plain optimization."""
    n, rho = SETTING["n_features"], SETTING["rho"]
    problem = SaddlePointProblem.uniform(2, 2, **SETTING)  # for β_eff and Ω_N alone
    beta, log_ratio = problem.beta_eff, problem.log_ratio
    assert problem.n_features == n

    def negative(z):
        w = z[:4].reshape(2, 2)  # teachers × memories
        length = np.hypot(*w)
        w = w * np.tanh(length) / np.maximum(length, 1e-12)  # inside the unit ball
        share = np.clip(p_q[0] / 2 + np.tanh(z[4]) * min(p_q) / 2, 1e-12, None)
        p = np.array([[share, 0.5 - share], [p_q[0] - share, 0.5 - p_q[0] + share]])
        energy = (g * np.log(np.exp(beta * w - log_ratio) @ p)).sum()
        return -(rho * energy + 0.5 * np.log1p(-(np.tanh(length) ** 2)).sum()) / (2 * rho)

    rng = np.random.default_rng(0)
    runs = [optimize.minimize(negative, rng.normal(size=5) * 0.7, tol=1e-12) for _ in range(12)]
    return -min(run.fun for run in runs)


@pytest.mark.slow
def test_each_draw_is_solved_to_its_best():
    average = random_labels.solve_random_labels(
        2, 2, 1, **SETTING, n_draws=3, n_starts=8, generator=generator(1)
    )
    assert average.labels.shape == (3, 2, 2)
    for g, value in zip(average.labels.numpy(), average.free_entropy, strict=True):
        assert float(value) == pytest.approx(brute_force(g, g.mean(0)), abs=2e-9)
    assert average.mean_free_entropy == pytest.approx(float(average.free_entropy.mean()))
    assert average.standard_error > 0
    # Labels tell the teacher's vectors apart, and that breaks the symmetry.
    assert float(average.spread.max()) > 0.02


def test_equal_class_weights_give_the_papers_equation():
    p_q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    average = random_labels.solve_random_labels(
        3, 2, 2, **SETTING, labels=p_q.expand(2, 3, 3), n_starts=6, generator=generator(3)
    )
    papers = SaddlePointProblem.uniform(3, 2, **SETTING, p_q_teacher=p_q)
    assert papers.uniform_teacher
    _, value = best_of(papers)
    assert average.free_entropy.tolist() == pytest.approx([value, value], abs=1e-9)
    # Where labels say nothing the symmetric state is the best, at this temperature.
    assert float(average.spread.max()) < 1e-4


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="labels must be"):
        random_labels.solve_random_labels(
            2, 2, 1, **SETTING, labels=torch.ones(1, 3, 2) / 2, generator=generator()
        )
    both = {"labels": torch.ones(2, 2) / 2, "p_q_teacher": torch.ones(2) / 2}
    with pytest.raises(ValueError, match="pass one of"):
        SaddlePointProblem.uniform(2, 2, **SETTING, **both)
