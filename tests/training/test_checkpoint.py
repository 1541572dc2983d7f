import pytest
import torch

from draws import generator
from mnemosphere.training.adam import Adam
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.sgd import SGD
from runs import Break, Log, assert_same_params, assert_same_state, timeless

SOLVERS = {
    "fixed point in batches": FixedPoint(20, tol=0),
    "sgd": SGD(learning_rate=0.1, batch_size=20, tol=0),
    "adam": Adam(steps=18, batch_size=20, noise=0.2),
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
    kwargs = {"generator": generator(11), **kwargs}
    return fit(params, case.dataset, solver, max_iter=max_iter, callbacks=callbacks, **kwargs)


def assert_same(a, b):
    assert_same_params(a.params, b.params)
    assert_same_state(a.state, b.state)
    assert a.status == b.status
    assert timeless(a.history) == timeless(b.history)


# Resuming


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_broken_run_goes_on_after_its_last_pass(problem, path, solver):
    case = problem(51, rows=53, varsigma=0.5, clustered=True, weighted=True)
    settings = {"validation": case.dataset}
    straight = run(case, SOLVERS[solver], 2, **settings)
    for k in range(1, 6):  # of six batches in two passes
        file = path.with_suffix(f".{k}")
        broken = run(case, SOLVERS[solver], 2, file, [Break("batch", k)], **settings)
        assert (broken.status, len(broken.history)) == ("interrupted", k // 4)
        resumed = run(case, SOLVERS[solver], 2, file, [log := Log()], **settings)
        assert len(log.of("batch")) == (3 if k > 3 else 6)
        assert_same(resumed, straight)


def test_the_best_and_the_patience_are_resumed(case, path):
    opposite = ArrayDataset.of(-case.x, case.targets)
    solver = SGD(learning_rate=0.3, momentum=0.9, batch_size=20, tol=0)
    settings = {"validation": opposite}
    straight = run(case, solver, 40, **settings)
    assert straight.status == "stopped early"
    # Stop in the middle of the wait.
    run(case, solver, len(straight.history) - 2, path=path, **settings)
    assert_same(run(case, solver, 40, path=path, **settings), straight)
    # and once more, with nothing left to do
    assert_same(run(case, solver, 40, path=path, **settings), straight)


def test_a_model_of_another_size_is_refused(problem, path):
    run(problem(50, rows=53, memories=5), SOLVERS["sgd"], 1, path)
    with pytest.raises(ValueError, match="is of a model of another size: delete it, or choose"):
        run(problem(50, rows=53, memories=4), SOLVERS["sgd"], 2, path)


def test_a_damaged_file_is_refused_with_one_line(problem, path):
    case = problem(50, rows=53)
    run(case, SOLVERS["sgd"], 1, path)
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(content)
    with pytest.raises(ValueError, match="is damaged") as caught:
        run(case, SOLVERS["sgd"], 2, path)
    assert "\n" not in str(caught.value)
