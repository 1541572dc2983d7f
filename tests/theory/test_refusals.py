"""What the theory cannot answer is refused, with what to try."""

import math

import pytest
import torch

from draws import generator
from mnemosphere import theory
from mnemosphere.theory import SaddlePointProblem, solver, symmetric
from mnemosphere.theory import saddle_point as sp
from mnemosphere.theory.diagnostics import estimate, split_r_hat
from mnemosphere.theory.teacher_student import sample_data, sample_posterior, sample_teacher
from symmetric_state import symmetric_state

INF, G = math.inf, generator(0)
TWO = SaddlePointProblem.uniform(2, 2, beta=8.0, rho=2.0, upsilon=1.0, n_features=300)
ENDLESS, STATE = TWO.replace(rho=INF), symmetric_state(TWO)
LABELED = TWO.replace(targets=torch.eye(2).double(), p_q=torch.tensor([0.5, 0.5]).double())
UNEQUAL = TWO.replace(p_h=torch.tensor([0.0, 0.4, 0.6]).double())
ALONE = SaddlePointProblem.uniform(1, 3, beta=4.0, rho=2.0, upsilon=1.0, n_features=300)
TEACHER = sample_teacher(2, 7, 1, upsilon=1.0, generator=G)
DATA = sample_data(TEACHER, 2.0, generator=G)


def broken(problem):
    m = torch.eye(problem.n_teacher, problem.n_student).double()
    return sp.OrderParameters(m, problem.p_h[:, None] * problem.p_q)


def solved(problem):
    starts = sp.random_starts(problem, 3, generator=G)
    return solver.solve(problem, starts, max_iter=1).raise_if_failed()


def posterior(**settings):
    given = {"n_memories": 2, "beta": 3.0, "generator": G} | settings
    return sample_posterior(TEACHER, DATA, **given)


REFUSED = [
    (lambda: TWO.replace(rho=0.0), "rho must be positive"),
    (lambda: TWO.replace(beta=INF), "beta must be finite"),
    (lambda: TWO.replace(p_h=torch.tensor([0.5, 0.5, 0.0])), "positive for every memory"),
    (lambda: LABELED.replace(p_q=torch.tensor([0.0, 1.0])), "p_q must be positive"),
    (lambda: TWO.replace(patterns=2.0 * torch.eye(2)), "unit rows"),
    (lambda: solved(TWO), r"3 of 3 starts .* raise max_iter"),
    (lambda: theory.free_entropy(ENDLESS, STATE.m, STATE.m, STATE.p), "a Solution has"),
    (lambda: symmetric.symmetric_transitions(TWO, "alpha"), "parameter must be one of"),
    (lambda: symmetric.symmetric_transitions(LABELED, "beta"), "all its class weights"),
    (lambda: symmetric.symmetric_transitions(ALONE, "beta"), "at least two"),
    (lambda: split_r_hat(torch.zeros(3, 3)), "draw more"),
    (lambda: estimate(torch.tensor([1.0, -1.0]).repeat(2, 6).double()).raise_if_failed(),
     "raise n_sweeps or n_chains"),
    (lambda: sample_teacher(0, 7, 2, upsilon=1.0, generator=G), "n_memories must be"),
    (lambda: sample_teacher(2, 7, 2, upsilon=0.0, generator=G), "upsilon must be positive"),
    (lambda: sample_data(TEACHER, 1e-3, generator=G), "gives no data"),
    (lambda: posterior(beta=-1.0), "beta must be"),
    (lambda: posterior(p_q=torch.tensor([1.0, 0.0])), "class that occurs in the data"),
    (lambda: posterior(start=torch.ones(1, 2, 7)), r"start must be \(chains, P, N\)"),
]  # fmt: skip


@pytest.mark.parametrize(("ask", "message"), REFUSED, ids=[text for _, text in REFUSED])
def test_what_cannot_be_answered_says_what_to_try(ask, message):
    with pytest.raises((ValueError, RuntimeError), match=message):
        ask()
