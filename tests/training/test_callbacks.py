"""A run in progress, and the callbacks that watch and stop it."""

import pytest

from draws import generator
from mnemosphere.training.callbacks import Callback, PassRecord, Run
from mnemosphere.training.fit import fit
from mnemosphere.training.sgd import SGD
from runs import Log, assert_same_params


@pytest.fixture
def case(problem):
    return problem(40, rows=53, memories=5, varsigma=0.5, clustered=True)


def record(n_iter, loss=1.0, validation_loss=None, residual=None):
    return PassRecord(n_iter, loss, validation_loss, 4.0, residual, 5, 0.25)


@pytest.fixture
def run(case):
    return Run(case.params, {}, generator(), max_iter=20)


def add_losses(run, losses, residuals=None):
    for n, loss in enumerate(losses):
        residual = None if residuals is None else residuals[n]
        run.history.append(record(n + 1, loss=loss, residual=residual))


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
    assert run.converged(1e-3) == stops


@pytest.mark.parametrize(
    ("residuals", "stops"),
    [([1.0, 0.9e-3], True), ([1.0, 1.1e-3], False), ([1e-9, 1.0], False), ([None, None], False)],
)
def test_convergence_by_the_step(run, residuals, stops):
    add_losses(run, [5.0, 1.0], residuals)
    assert run.converged(1e-3) == stops


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
    assert result.history == []
    assert_same_params(result.params, case.params)


# What they see


def test_callbacks_are_called_in_order(case):
    logs = [Log(), Log()]
    shared = []
    logs[0].calls = logs[1].calls = shared
    result = fit(case.params, case.dataset, SGD(batch_size=20), max_iter=2, callbacks=logs)
    kinds = [call[0] for call in shared]
    one_pass = ["batch"] * 6 + ["pass"] * 2
    assert kinds == ["start"] * 2 + one_pass * 2
    assert shared[0][1:] == (case.params, 2)
    shares = [call[2] for call in shared if call[0] == "batch"]
    assert shares[:6:2] == pytest.approx([20 / 53, 40 / 53, 1.0])
    assert [call[1] for call in shared if call[0] == "batch"] == [0] * 6 + [1] * 6
    assert [call[1] for call in shared if call[0] == "pass"][::2] == result.history
