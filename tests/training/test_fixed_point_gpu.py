"""Fixed-point steps that stay on a GPU: the path of the kernels, on a processor where none is."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch.testing import assert_close

from fixed_points import assert_feasible, crowd, walk
from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import accumulate, evaluate, log_joint
from mnemosphere.model.m_step import maximize_bound
from mnemosphere.model.objectives import joint, soft_labels
from mnemosphere.model.parameters import from_memories
from mnemosphere.numerics import maximize_gpu, polytope
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint


def captured_where(n_columns, size, *, cuda=True):
    params = SimpleNamespace(w=SimpleNamespace(is_cuda=cuda), n_columns=n_columns)
    return FixedPoint(size).can_capture(params)


def test_batches_on_a_gpu_can_be_captured_where_the_kernel_works(problem, monkeypatch):
    assert not FixedPoint(7).can_capture(problem().params)  # on a processor
    for works in (False, True):
        monkeypatch.setattr(maximize_gpu, "_works", lambda works=works: works)
        assert captured_where(11, 7) == works
        assert captured_where(32, 7) == works
        assert not captured_where(33, 7)
        assert not captured_where(11, None)
        assert not captured_where(11, 7, cuda=False)


@pytest.fixture
def stand_in(monkeypatch):
    """The device's path on the processor: the exact maximizer in the kernel's place."""
    answer = {"error": None, "calls": 0}

    def maximize(p_bar, rows, cols, lam, omega, *, tol, max_iter):
        answer["calls"] += 1
        found = polytope.maximize(p_bar, rows, cols)
        lam.copy_(found.col_multipliers)
        omega.copy_(found.row_multipliers)
        error = found.error if answer["error"] is None else torch.tensor(answer["error"]).double()
        return found.p, error

    monkeypatch.setattr(maximize_gpu, "maximize", maximize)
    monkeypatch.setattr(maximize_gpu, "usable", lambda n_columns: True)
    monkeypatch.setattr(FixedPoint, "can_capture", lambda self, params: True)
    return answer


def three_passes(case, solver, params=None):
    return [*walk(case, solver, params)][-1]


@pytest.mark.parametrize("learn_beta", [False, True])
def test_steps_on_the_device_are_those_of_the_host(problem, stand_in, monkeypatch, learn_beta):
    """The same but for β, which comes near within a pass; then it is that of the running mean."""
    case = problem(16, rows=97, memories=5, varsigma=0.6, clustered=True, contrast=1.0)
    solver = FixedPoint(batch_size=17, learn_beta=learn_beta)
    there, state = three_passes(case, solver)
    assert stand_in["calls"] == 3 * (6 + 1)
    expected = maximize_bound(there, state["w_bar"], state["p_bar"], learn_beta=learn_beta)
    assert_close(there.w, expected.w, rtol=1e-12, atol=1e-12)
    assert_close(there.p, expected.p, rtol=1e-9, atol=1e-12)
    assert_close(there.beta, expected.beta, rtol=1e-9, atol=0)
    assert float(state["passes"]) == pytest.approx(3.0)
    monkeypatch.setattr(FixedPoint, "can_capture", lambda self, params: False)
    here, kept = three_passes(case, solver)
    assert_feasible(there)
    losses = [evaluate(params, case.batch, joint) for params in (there, here)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)
    if not learn_beta:
        assert_close(there.w, here.w, rtol=1e-9, atol=1e-9)
        assert_close(there.p, here.p, rtol=1e-9, atol=1e-9)
        assert_close(state["w_bar"], kept["w_bar"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("error", [math.nan, 0.5])
def test_class_weights_stay_where_the_device_fails_until_the_host_mends_them(
    problem, stand_in, error
):
    case = problem(17, rows=97, memories=5)
    solver = FixedPoint(batch_size=17)
    stand_in["error"] = error
    batch = next(iter(case.dataset.batches(17)))
    stats = accumulate(case.params, batch, joint)
    params, state = solver.step(case.params, solver.start(case.params), stats, batch, 17 / 97)
    assert torch.equal(params.p, case.params.p)
    assert not torch.equal(params.w, case.params.w)
    assert (state["col_multipliers"] == 0).all()  # the next search starts anew
    assert (state["row_multipliers"] == 0).all()
    after, state = solver.end_pass(params, state, batch, 97)
    exact = maximize_bound(params, state["w_bar"], state["p_bar"])
    assert_close(after.p, exact.p, rtol=1e-10, atol=1e-14)
    assert_close(after.beta, exact.beta, rtol=1e-10, atol=0)
    assert_feasible(after)


def test_a_rough_solution_is_used_within_a_pass_and_mended_at_its_end(problem, stand_in):
    case = problem(17, rows=97, memories=5)
    solver = FixedPoint(batch_size=17)
    stand_in["error"] = 1e-3
    batch = next(iter(case.dataset.batches(17)))
    stats = accumulate(case.params, batch, joint)
    params, state = solver.step(case.params, solver.start(case.params), stats, batch, 17 / 97)
    assert_close(params.p, maximize_bound(params, state["w_bar"], state["p_bar"]).p)
    assert (state["row_multipliers"] > 0).any()
    _, mended = solver.end_pass(params, state, batch, 97)
    assert (mended["row_multipliers"] == 0).all()


def test_dead_memories_are_put_on_rows_at_the_end_of_a_pass(stand_in):
    params, rows = crowd()
    solver = FixedPoint(batch_size=20)
    state = solver.start(params)
    for first in (0, 20, 40):
        batch = rows.take(slice(first, first + 20))
        stats = accumulate(params, batch, joint)
        params, state = solver.step(params, state, stats, batch, 1 / 3)
    mass = state["p_bar"].sum(1)
    assert mass[1:].min() < 1e-3 * mass.sum() / 60  # dead, and left so on the device
    assert float((rows.x @ params.w[mass[1:].argmin()]).max()) < 1 - 1e-9
    dead = int(mass[1:].argmin())
    params, state = solver.end_pass(params, state, rows, 60)
    assert float((rows.x @ params.w[dead]).max()) > 1 - 1e-12
    assert_feasible(params)


def test_an_exact_solver_has_nothing_to_do_at_the_end_of_a_pass(problem, stand_in):
    case = problem(9)
    solver = FixedPoint(None)
    state = solver.start(case.params)
    assert solver.end_pass(case.params, state, case.batch, 23) == (case.params, state)
    assert stand_in["calls"] == 0


@pytest.mark.skipif(
    not maximize_gpu.usable(4), reason="needs a GPU and Triton: captured steps are not tested"
)
@pytest.mark.parametrize("weighted", [False, True])
def test_a_captured_fit_is_as_good_as_that_on_the_processor(problem, weighted):
    case = problem(
        18, rows=1009, memories=11, features=13, beta=9.0, varsigma=0.7, labels="full",
        clustered=True, contrast=1.0, weighted=weighted,
    )  # fmt: skip
    own = torch.arange(11) % 3
    index = own[(case.x @ case.params.w.T).argmax(1)]
    rows = Batch(case.x, soft_labels(index, 3, 0.1, dtype=torch.float64), case.sample_weight)
    start = from_memories(case.x[:11], rows.targets.mean(0), beta=9.0)
    accuracy = []
    for device in ("cpu", "cuda"):
        weight = None if rows.sample_weight is None else rows.sample_weight.to(device)
        data = ArrayDataset.of(rows.x.to(device), rows.targets.to(device), weight)
        result = fit(start.to(device=device), data, FixedPoint(101), max_iter=6)
        params = result.params.to(device="cpu")
        assert_feasible(params, tol=1e-6)
        found = log_joint(params, case.x)[:, :-1].argmax(1)
        accuracy.append(float((found == index).double().mean()))
    assert accuracy[0] > 0.8
    assert accuracy[1] == pytest.approx(accuracy[0], abs=0.02)


def test_one_wait_at_the_end_of_a_pass_on_a_device(problem, stand_in):
    """The kernel's path: once per pass, β exact, nothing within it."""
    case = problem(44, rows=97, memories=5, varsigma=0.6, clustered=True)
    there, state = three_passes(case, FixedPoint(batch_size=17, once_per_pass=True))
    assert stand_in["calls"] == 3
    expected = maximize_bound(there, state["w_bar"], state["p_bar"])
    assert_close(there.p, expected.p, rtol=1e-9, atol=1e-12)
    assert_close(there.beta, expected.beta, rtol=1e-9, atol=0)


def test_a_look_ahead_finds_multipliers(problem, stand_in):
    case = problem(45, rows=97, memories=5, clustered=True)
    solver = FixedPoint(batch_size=17, once_per_pass=True)
    state = solver.start(case.params)
    state["p_bar"] += accumulate(case.params, case.batch, joint).p_bar
    find = solver.look_ahead(case.params, state)
    seen = state["p_bar"].clone()
    state["p_bar"].zero_()  # steps go on before it is done
    find()
    right = polytope.maximize(seen, case.params.p_h, case.params.p_q)
    assert_close(state["col_multipliers"], right.col_multipliers)
    assert FixedPoint(batch_size=17).look_ahead(case.params, state) is None
    assert stand_in["calls"] == 1
