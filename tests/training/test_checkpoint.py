from __future__ import annotations

import pytest
import torch

from mnemosphere.model import objectives
from mnemosphere.training.adam import Adam
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.noise import SphereNoise
from mnemosphere.training.sgd import SGD
from runs import Break, Log, assert_same_params, assert_same_state, seeded, timeless

SOLVERS = {
    "fixed point in batches": FixedPoint(20),
    "sgd": SGD(learning_rate=0.1, batch_size=20),
    "adam": Adam(steps=18, batch_size=20),
}


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def case(request, problem):
    return problem(50, rows=53, varsigma=0.5, clustered=True, weighted=True, dtype=request.param)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


def run(case, solver, max_iter, path=None, callbacks=(), **kwargs):
    """A run as a new process would start it: everything anew from the same seed."""
    params = case.params.replace(w=case.params.w.clone())
    if path is not None:
        callbacks = [*callbacks, Checkpoint(path)]
    kwargs = {"generator": seeded(11), **kwargs}
    return fit(params, case.dataset, solver, max_iter=max_iter, callbacks=callbacks, **kwargs)


def assert_same(a, b):
    assert_same_params(a.params, b.params)
    assert_same_state(a.state, b.state)
    assert a.status == b.status
    assert timeless(a.history) == timeless(b.history)


# Resuming


@pytest.mark.parametrize("solver", SOLVERS)
def test_inside_a_pass_at_most_an_interval_is_lost(problem, path, solver):
    case = problem(51, rows=53, varsigma=0.5, clustered=True, weighted=True)
    settings = {"noise": SphereNoise(0.2), "validation": case.dataset}
    straight = run(case, SOLVERS[solver], 2, **settings)
    # Of six batches, so many are left; the third ends a pass, which is stored a little later.
    for k, left in enumerate((5, 4, 4, 2, 1), start=1):
        file = path.with_suffix(f".{k}")
        watching = [Checkpoint(file, interval=0.0), Break("batch", k)]
        broken = run(case, SOLVERS[solver], 2, callbacks=watching, **settings)
        assert (broken.status, len(broken.history)) == ("interrupted", k // 4)
        resumed = run(case, SOLVERS[solver], 2, file, [log := Log()], **settings)
        assert len(log.of("batch")) == left
        assert_same(resumed, straight)


def test_the_best_and_the_patience_are_resumed(case, path):
    opposite = ArrayDataset.of(-case.x, case.targets)
    solver = SGD(learning_rate=0.3, momentum=0.9, batch_size=20)
    settings = {"validation": opposite, "patience": 3}
    straight = run(case, solver, 40, **settings)
    assert straight.status == "stopped early"
    # Stop in the middle of the wait.
    run(case, solver, len(straight.history) - 2, path=path, **settings)
    assert_same(run(case, solver, 40, path=path, **settings), straight)
    # and once more, with nothing left to do
    assert_same(run(case, solver, 40, path=path, **settings), straight)


def test_more_passes_than_asked_for_are_refused(problem, path):
    case = problem(50, rows=53, varsigma=0.5)
    run(case, SOLVERS["sgd"], 3, path)
    with pytest.raises(ValueError, match="has 3 passes, more than max_iter=2: raise max_iter"):
        run(case, SOLVERS["sgd"], 2, path)


# Files that are no checkpoint of this run


@pytest.fixture
def saved(problem, path):
    case = problem(50, rows=53, varsigma=0.5)
    run(case, SOLVERS["sgd"], 1, path=path, validation=case.dataset)
    return case


def resume(case, path, solver=SOLVERS["sgd"], **kwargs):
    return run(case, solver, 2, path=path, **({"validation": case.dataset} | kwargs))


def test_a_changed_file_is_refused_in_one_line(saved, path):
    before = bytearray(path.read_bytes())
    before[-1] ^= 1
    path.write_bytes(before)
    with pytest.raises(ValueError, match="is damaged: it has been changed") as caught:
        resume(saved, path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


def test_a_checkpoint_of_another_run_is_refused(saved, path):
    start = SOLVERS["sgd"].start(saved.params)
    attempts = [
        lambda: resume(saved, path, SGD(learning_rate=0.2, batch_size=20)),
        lambda: resume(saved, path, rule=objectives.conditional),
        lambda: resume(saved, path, validation=ArrayDataset(saved.dataset.rows.take(slice(0, 20)))),
        lambda: resume(saved, path, patience=2),
        lambda: resume(saved, path, noise=SphereNoise(0.1)),
        lambda: resume(saved, path, generator=seeded(12)),
        lambda: resume(saved, path, state={k: v + 1 for k, v in start.items()}),
        lambda: resume(saved._replace(params=saved.params.replace(w=saved.params.w.flip(0))), path),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError, match="is of another run"):
            attempt()
    resume(saved, path)  # and this one is the run
