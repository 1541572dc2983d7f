"""A run in progress, and the callbacks that watch and stop it."""

from __future__ import annotations

import itertools

import pytest

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.training.callbacks import (
    Callback,
    Convergence,
    EarlyStopping,
    PassRecord,
    Run,
)
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.sgd import SGD
from runs import Log, assert_same_params, seeded


@pytest.fixture
def case(problem):
    return problem(40, rows=53, memories=5, varsigma=0.5, clustered=True)


def record(n_iter, loss=1.0, validation_loss=None, residual=None):
    return PassRecord(n_iter, loss, validation_loss, None, 4.0, residual, 5, 0.25)


@pytest.fixture
def run(case):
    return Run(case.params, {}, seeded(), max_iter=20)


def add_losses(run, losses, residuals=None):
    for n, loss in enumerate(losses):
        residual = None if residuals is None else residuals[n]
        run.add(record(n + 1, loss=loss, residual=residual), run.params, run.state)


# The run


def test_a_run_keeps_the_best_by_validation_loss(case, run):
    models = [case.params.replace(beta=case.params.beta * k) for k in range(1, 7)]
    waits, best = [], []
    for n, loss in enumerate([3.0, 2.0, 2.5, 2.0, 1.9, 4.0]):
        run.add(record(n + 1, validation_loss=loss), models[n], {"step": models[n].beta})
        waits.append(run.waited)
        best.append(float(run.best.beta / case.params.beta))
        assert run.params is models[n]
        assert run.state["step"] is models[n].beta
    assert waits == [0, 0, 1, 2, 0, 1]  # a loss as low as the best is no better
    assert best == [1, 2, 2, 2, 5, 5]
    assert run.best_loss == 1.9
    assert run.n_iter == 6


# When to stop


@pytest.mark.parametrize(
    ("losses", "stops"),
    [
        ([], False),
        ([1.0], False),  # a first pass tells of no change
        ([2.0, 1.0], False),
        ([1.0009, 1.0], True),
        ([1.0, 1.0009], True),  # up as well as down
        ([1.0011, 1.0], False),
        ([-1000.0, -1000.9], True),  # relative, also below zero
        ([-1000.0, -1001.1], False),
        ([5.0, 1.0005, 1.0], True),
        ([1.0, 1.0, 5.0], False),  # the last two alone count
    ],
)
def test_convergence_by_the_loss(run, losses, stops):
    add_losses(run, losses)
    assert Convergence(1e-3).stop_reason(run) == ("converged" if stops else None)


@pytest.mark.parametrize(
    ("residuals", "stops"),
    [([1.0, 0.9e-3], True), ([1.0, 1.1e-3], False), ([1e-9, 1.0], False), ([None, None], False)],
)
def test_convergence_by_the_step(run, residuals, stops):
    add_losses(run, [5.0, 1.0], residuals)
    assert Convergence(1e-3).stop_reason(run) == ("converged" if stops else None)


def test_early_stopping_after_so_many_passes_without_gain(run):
    stopping = EarlyStopping(2)
    reasons = []
    for n, loss in enumerate([3.0, 3.1, 2.9, 3.0, 2.95]):
        run.add(record(n + 1, validation_loss=loss), run.params, run.state)
        reasons.append(stopping.stop_reason(run))
    assert reasons == [None, None, None, None, "stopped early"]


@pytest.mark.parametrize("tol", [1e-2, 1e-3])
def test_tol_and_patience_are_these_callbacks(case, tol):
    by_name = fit(case.params, case.dataset, FixedPoint(None), max_iter=99, tol=tol)
    by_hand = fit(
        case.params, case.dataset, FixedPoint(None), max_iter=99, callbacks=[Convergence(tol)]
    )
    assert by_name.status == by_hand.status == "converged"
    assert len(by_name.history) == len(by_hand.history)
    assert_same_params(by_name.params, by_hand.params)
    solver = SGD(0.3, 0.9, 20)
    rows = case.dataset
    by_name = fit(case.params, rows, solver, max_iter=99, validation=rows, patience=1)
    stop = [EarlyStopping(1)]
    by_hand = fit(case.params, rows, solver, max_iter=99, validation=rows, callbacks=stop)
    assert by_name.status == by_hand.status == "stopped early"
    assert_same_params(by_name.params, by_hand.params)


def test_the_first_reason_counts(case):
    class Reason(Callback):
        def __init__(self, text):
            self.text = text

        def stop_reason(self, run):
            return self.text

    result = fit(
        case.params, case.dataset, SGD(batch_size=20), callbacks=[Reason("one"), Reason("two")]
    )
    assert result.status == "one"
    assert result.history == ()
    assert_same_params(result.params, case.params)


# What they see


def test_callbacks_are_called_in_order(case):
    logs = [Log(), Log()]
    shared = []
    logs[0].calls = logs[1].calls = shared
    result = fit(case.params, case.dataset, SGD(batch_size=20), max_iter=2, callbacks=logs)
    kinds = [call[0] for call in shared]
    one_pass = ["batch"] * 6 + ["pass"] * 2
    assert kinds == ["start"] * 2 + one_pass * 2 + ["end"] * 2
    assert shared[0][1:] == (case.params, 2)
    shares = [call[2] for call in shared if call[0] == "batch"]
    assert shares[:6:2] == pytest.approx([20 / 53, 40 / 53, 1.0])
    assert [call[1] for call in shared if call[0] == "batch"] == [0] * 6 + [1] * 6
    assert [call[1] for call in shared if call[0] == "pass"][::2] == list(result.history)
    assert shared[-1] == ("end", "max_iter")


def test_only_who_needs_it_has_the_data_looked_at(case, monkeypatch):
    """A fingerprint takes a look at every row."""
    seen = []
    monkeypatch.setattr(type(case.dataset), "checksum", lambda self: "the rows")

    class Marked(Callback):
        def on_start(self, run):
            seen.append(run.fingerprint)

    class Needs(Marked):
        needs_fingerprint = True

    for callbacks in ([Marked()], [Needs()]):
        fit(case.params, case.dataset, FixedPoint(None), max_iter=1, callbacks=callbacks)
    assert seen[0] == ""
    assert "the rows" in seen[1]


def test_fingerprints_tell_runs_apart(case):
    marks = []

    class Needs(Callback):
        needs_fingerprint = True

        def on_start(self, run):
            marks.append(run.fingerprint)

    def mark(params=case.params, rows=case.dataset, solver=SGD(batch_size=20), **settings):  # noqa: B008
        fit(params, rows, solver, max_iter=1, callbacks=[Needs()], **settings)

    mark()
    mark(case.params.replace(beta=case.params.beta * 1.5))
    mark(rows=ArrayDataset(case.dataset.rows.take(slice(0, 20))))
    mark(solver=SGD(batch_size=21))
    mark(tol=1e-3)
    mark(stage="phase0")
    mark(phase=1)
    mark(validation=case.dataset)
    mark(validation=case.dataset, patience=1)
    assert all(one != two for one, two in itertools.combinations(marks, 2))
    mark()
    assert marks[0] == marks[-1]
