"""The training loop: what it records, when it stops, what it returns and refuses."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.m_step import displacement
from mnemosphere.model.one_pass import accumulate, evaluate, log_joint
from mnemosphere.numerics import sphere
from mnemosphere.training.adam import Adam
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit, validate
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.sgd import SGD
from runs import Log, assert_same_params

SOLVERS = [
    FixedPoint(None, tol=0),
    FixedPoint(20, tol=0),
    SGD(learning_rate=0.1, batch_size=20, tol=0),
    Adam(steps=50, batch_size=20),
]


@pytest.fixture
def case(problem):
    return problem(40, rows=53, memories=5, varsigma=0.5, clustered=True)


@pytest.fixture
def opposite(case):
    """Validation rows that pull the other way: the first passes are the best."""
    return ArrayDataset.of(-case.x, case.targets)


@dataclass(frozen=True)
class InParts(ArrayDataset):
    """Rows too many to be one batch."""

    def batches(self, size, **more) -> Iterator[Batch]:
        yield from super().batches(17 if size is None else min(size, 17), **more)


# History


@pytest.mark.parametrize("solver", SOLVERS)
def test_records_say_what_happened(case, solver):
    validation = ArrayDataset(case.batch.take(slice(0, 17)))
    log = Log()
    result = fit(
        case.params, case.dataset, solver, max_iter=3, validation=validation, callbacks=[log]
    )
    assert [r.n_iter for r in result.history] == [1, 2, 3]
    assert result.status == "max_iter"
    ends = [params for _, params in log.of("pass")]
    for record, params in zip(result.history, ends, strict=True):
        assert record.beta == float(params.beta)
        assert record.n_memories == 5
        assert record.phase == 0
        assert record.seconds > 0
        assert record.validation_loss == validate(params, validation, objectives.joint)
    if solver.rows_per_step is None:
        starts = [case.params, *ends[:-1]]
        for record, before, after in zip(result.history, starts, ends, strict=True):
            assert record.loss == pytest.approx(
                evaluate(before, case.batch, objectives.joint), rel=1e-12
            )
            assert record.residual == float(displacement(before, after).largest)
    else:
        assert all(record.residual is None for record in result.history)


def test_loss_of_a_pass_weighs_batches_by_their_rows(case):
    """With a rate that moves nothing, the mean over uneven batches is the mean over all rows."""
    rows = replace(case.batch, sample_weight=torch.linspace(0.1, 2.0, 53, dtype=torch.float64))
    solver = SGD(learning_rate=1e-30, batch_size=20)
    result = fit(case.params, ArrayDataset(rows), solver, max_iter=1)
    expected = evaluate(case.params, rows, objectives.joint)
    assert result.history[0].loss == pytest.approx(expected, rel=1e-9)


# All rows in one step


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("solver", [FixedPoint(None, tol=0), SGD(0.1, batch_size=1000, tol=0)])
def test_rows_that_come_in_parts_are_one_step_all_the_same(problem, solver, weighted):
    case = problem(40, rows=53, clustered=True, weighted=weighted)
    rows = case.dataset.rows
    assert_same_run(case.params, rows, solver)


def test_a_dead_memory_is_put_on_as_much_as_one_row_of_all_parts(problem):
    case = problem(40, rows=53, clustered=True, beta=150.0)
    w = case.params.w.clone()
    w[3] = -sphere.project(case.x.mean(0))
    params = case.params.replace(w=w)
    # The row that is explained worst comes first, so that both ways look at it.
    rows = case.batch.take(log_joint(params, case.x).logsumexp(1).argsort())
    assert accumulate(params, rows, objectives.joint).mass[4] < 1e-6
    assert_same_run(params, rows, FixedPoint(None))


def assert_same_run(params, rows, solver):
    whole = fit(params, ArrayDataset(rows), solver, max_iter=3)
    parts = fit(params, InParts(rows), solver, max_iter=3)
    assert_close(parts.params.w, whole.params.w, rtol=1e-8, atol=1e-9)
    assert_close(parts.params.p, whole.params.p, rtol=1e-7, atol=1e-10)
    for one, two in zip(whole.history, parts.history, strict=True):
        assert two.loss == pytest.approx(one.loss, rel=1e-10)
        if solver.exact:
            assert two.residual == pytest.approx(one.residual, rel=1e-6)


def test_noise_is_laid_on_every_batch_and_never_on_validation(case):
    solver = Adam(1e-30, 1e-30, noise=0.8, batch_size=20)
    result = fit(case.params, case.dataset, solver, max_iter=2, validation=case.dataset)
    first, second = result.history
    assert first.loss != second.loss  # other noise
    assert first.validation_loss == pytest.approx(
        evaluate(case.params, case.batch, objectives.joint), rel=1e-9
    )
    assert first.loss > first.validation_loss + 0.05


# Stopping


def test_early_stopping_keeps_the_best(case, opposite):
    log = Log()
    result = fit(
        case.params,
        case.dataset,
        SGD(learning_rate=0.3, momentum=0.9, batch_size=20, tol=0, patience=3),
        max_iter=50,
        validation=opposite,
        callbacks=[log],
    )
    losses = [record.validation_loss for record in result.history]
    best = int(np.argmin(losses))
    assert result.status == "stopped early"
    assert len(losses) == best + 4
    assert min(losses) < losses[-1]
    ends = [params for _, params in log.of("pass")]
    assert_same_params(result.params, ends[best])
    assert not torch.equal(result.params.w, ends[-1].w)
    assert validate(result.params, opposite, objectives.joint) == min(losses)


def test_rows_in_parts_are_validated_as_one(case):
    rows = replace(case.batch, sample_weight=torch.linspace(0.1, 2.0, 53, dtype=torch.float64))
    one, two = (
        validate(case.params, d, objectives.joint) for d in (ArrayDataset(rows), InParts(rows))
    )
    assert two == pytest.approx(one, rel=1e-13)


# The border


def test_bad_settings_are_refused(case, tmp_path):
    for settings, message in (
        ({"max_iter": 0}, "max_iter must be >= 1, got 0"),
        ({"callbacks": [Checkpoint(tmp_path / "no" / "run")]}, "checkpoint: create it first"),
    ):
        with pytest.raises(ValueError, match=message):
            fit(case.params, case.dataset, FixedPoint(None), **settings)
    with pytest.raises(ValueError, match="train it with the SGD solver"):
        fit(case.params, case.dataset, FixedPoint(None), rule=objectives.conditional)
    with pytest.raises(ValueError, match="batch_size is 'auto': call resolve"):
        fit(case.params, case.dataset, FixedPoint())


def test_a_diverging_run_says_so(case):
    class Diverge(SGD):
        def step(self, params, state, stats, batch, share):
            return params.replace(w=params.w * math.nan), state

    with pytest.raises(FloatingPointError, match="lower the learning rate"):
        fit(case.params, case.dataset, Diverge(batch_size=20), max_iter=3)
