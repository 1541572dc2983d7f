from __future__ import annotations

import math
import os

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mnemosphere import datasets
from mnemosphere.model import initialize, objectives
from mnemosphere.model.kernel import accumulate, evaluate, log_joint
from mnemosphere.model.parameters import from_memories
from mnemosphere.numerics import sphere
from mnemosphere.training.batches import Data
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.fixed_point import FixedPoint, residual
from mnemosphere.training.loop import judge, train
from mnemosphere.training.sgd import SGD

SOLVERS = [FixedPoint(), FixedPoint(batch_size=20), SGD(learning_rate=0.1, batch_size=20)]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def case(problem):
    return problem(40, rows=53, memories=5, varsigma=0.5, clustered=True)


class Log(Callback):
    """Write down every call."""

    def __init__(self):
        self.calls = []

    def on_start(self, params, max_epochs):
        self.calls.append(("start", params, max_epochs))

    def on_batch(self, epoch, share_done):
        self.calls.append(("batch", epoch, share_done))

    def on_epoch(self, record, params):
        self.calls.append(("epoch", record, params))

    def on_end(self, status):
        self.calls.append(("end", status))


class Interrupt(Callback):
    """Press Ctrl-C after some batches of a pass."""

    def __init__(self, epoch, batch):
        self.left, self.epoch = batch, epoch

    def on_batch(self, epoch, share_done):
        if epoch == self.epoch:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


def same(a, b):
    return all(torch.equal(getattr(a, k), getattr(b, k)) for k in ("w", "p", "beta", "p_h", "p_q"))


# History and callbacks


@pytest.mark.parametrize("solver", SOLVERS)
def test_records_say_what_happened(case, solver):
    validation = case.data.take(slice(0, 17))
    log = Log()
    result = train(
        case.params, case.data, solver, max_epochs=3, validation=validation, callbacks=[log]
    )
    assert [r.epoch for r in result.history] == [1, 2, 3]
    assert result.status == "max_epochs"
    ends = [params for kind, *rest in log.calls if kind == "epoch" for params in rest[1:]]
    for record, params in zip(result.history, ends, strict=True):
        assert record.beta == float(params.beta)
        assert record.n_memories == 5
        assert record.phase == 0
        assert record.seconds > 0
        loss, accuracy = judge(params, validation, objectives.joint)
        assert (record.validation_loss, record.validation_accuracy) == (loss, accuracy)
        assert record.as_dict()["loss"] == record.loss
    if solver.batch_size is None:
        starts = [case.params, *ends[:-1]]
        for record, before, after in zip(result.history, starts, ends, strict=True):
            assert record.loss == pytest.approx(
                evaluate(before, case.x, case.targets, objectives.joint), rel=1e-12
            )
            assert record.residual == float(residual(before, after))
    else:
        assert all(record.residual is None for record in result.history)


def test_loss_of_a_pass_weighs_batches_by_their_rows(case):
    """With a rate that moves nothing, the mean over uneven batches is the mean over all rows."""
    weight = torch.linspace(0.1, 2.0, 53, dtype=torch.float64)
    data = Data(case.x, case.targets, weight)
    result = train(case.params, data, SGD(learning_rate=1e-30, batch_size=20), max_epochs=1)
    expected = evaluate(*case[:3], objectives.joint, sample_weight=weight)
    assert result.history[0].loss == pytest.approx(expected, rel=1e-9)


def test_callbacks_are_called_in_order(case):
    logs = [Log(), Log()]
    shared = []
    logs[0].calls = logs[1].calls = shared
    result = train(case.params, case.data, SGD(batch_size=20), max_epochs=2, callbacks=logs)
    kinds = [call[0] for call in shared]
    one_pass = ["batch"] * 6 + ["epoch"] * 2
    assert kinds == ["start"] * 2 + one_pass * 2 + ["end"] * 2
    assert shared[0][1:] == (case.params, 2)
    shares = [call[2] for call in shared if call[0] == "batch"]
    assert shares[:6:2] == pytest.approx([20 / 53, 40 / 53, 1.0])
    assert [call[1] for call in shared if call[0] == "batch"] == [1] * 6 + [2] * 6
    assert [call[1] for call in shared if call[0] == "epoch"][::2] == list(result.history)
    assert shared[-1] == ("end", "max_epochs")


def test_looking_changes_nothing(case):
    plain = train(case.params, case.data, SOLVERS[2], max_epochs=2)
    watched = train(case.params, case.data, SOLVERS[2], max_epochs=2, callbacks=[Log()])
    assert same(plain.params, watched.params)


def test_arguments_are_left_as_they_were(case):
    before = [t.clone() for t in (case.x, case.targets, case.params.w, case.params.p)]
    train(case.params, case.data, FixedPoint(batch_size=20), max_epochs=2)
    for old, new in zip(before, (case.x, case.targets, case.params.w, case.params.p), strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize("solver", SOLVERS[1:])
def test_same_seed_same_bits(case, solver):
    a, b, c = (
        train(case.params, case.data, solver, max_epochs=2, generator=seeded(s)) for s in (7, 7, 8)
    )
    assert same(a.params, b.params)
    assert not torch.equal(a.params.w, c.params.w)


def test_a_state_is_taken_up(case):
    """Two runs of one pass with the state handed on are one run of two passes."""
    solver = SGD(learning_rate=0.1, batch_size=53)
    both = train(case.params, case.data, solver, max_epochs=2)
    first = train(case.params, case.data, solver, max_epochs=1)
    second = train(first.params, case.data, solver, max_epochs=1, state=first.state)
    assert same(both.params, second.params)
    for name, value in both.state.items():
        assert torch.equal(value, second.state[name])


# Stopping


def test_early_stopping_keeps_the_best(case):
    """Training rows pull one way, validation rows the other: the first pass is the best."""
    opposite = Data(-case.x, case.targets)
    log = Log()
    result = train(
        case.params,
        case.data,
        SGD(learning_rate=0.3, momentum=0.9, batch_size=20),
        max_epochs=50,
        validation=opposite,
        patience=3,
        callbacks=[log],
    )
    losses = [record.validation_loss for record in result.history]
    best = int(np.argmin(losses))
    assert result.status == "stopped early"
    assert len(losses) == best + 4
    assert min(losses) < losses[-1]
    ends = [call[2] for call in log.calls if call[0] == "epoch"]
    assert same(result.params, ends[best])
    assert not same(result.params, ends[-1])
    assert judge(result.params, opposite, objectives.joint)[0] == min(losses)
    assert "stopped improving" in result.message


def test_the_best_is_kept_without_patience_too(case):
    opposite = Data(-case.x, case.targets)
    solver = SGD(learning_rate=0.3, momentum=0.9, batch_size=20)
    result = train(case.params, case.data, solver, max_epochs=20, validation=opposite)
    assert result.status == "max_epochs"
    losses = [record.validation_loss for record in result.history]
    assert judge(result.params, opposite, objectives.joint)[0] == min(losses) < losses[-1]


def test_without_validation_the_last_is_returned(case):
    log = Log()
    result = train(case.params, case.data, SOLVERS[2], max_epochs=3, callbacks=[log])
    assert same(result.params, log.calls[-2][2])
    assert [(r.validation_loss, r.validation_accuracy) for r in result.history] == [
        (None, None)
    ] * 3


def test_convergence_by_relative_loss(case):
    result = train(case.params, case.data, FixedPoint(), max_epochs=200, tol=1e-3)
    assert result.status == "converged"
    losses = [record.loss for record in result.history]
    changes = np.abs(np.diff(losses)) / np.abs(losses[1:])
    assert changes[-1] < 1e-3
    assert (changes[:-1] >= 1e-3).all()
    assert result.message == f"converged after {len(losses)} passes"


def test_convergence_by_residual(problem):
    """Where the loss is large only the step tells that nothing moves any more."""
    case = problem(41, rows=53, memories=2, labels="full", clustered=True, contrast=0.5)
    result = train(case.params, case.data, FixedPoint(), max_epochs=100, tol=1e-12)
    assert result.status == "converged"
    assert min(r.residual for r in result.history) == result.history[-1].residual


def test_tol_zero_never_converges(case):
    params = case.params.replace(w=case.params.w)
    assert train(params, case.data, FixedPoint(), max_epochs=5).status == "max_epochs"


def test_validation_tail():
    x = torch.arange(20.0).reshape(10, 2)
    data = Data(x, x, torch.arange(10.0))
    head, tail = data.split_tail(0.3)
    assert torch.equal(head.x, x[:7])
    assert torch.equal(tail.x, x[7:])
    assert torch.equal(tail.targets, x[7:])
    assert tail.sample_weight.tolist() == [7, 8, 9]
    for fraction in (0.0, 0.01, 1.0):
        with pytest.raises(ValueError, match="leaves one side empty"):
            data.split_tail(fraction)


def test_accuracy_counts_labelled_rows_only(problem):
    case = problem(42, rows=5, classes=2)
    scores = log_joint(case.params, case.x)[:, :-1]
    right = scores.argmax(1)
    q = torch.zeros(5, 3, dtype=torch.float64)
    q[0, right[0]] = 1.0  # right
    q[1, 1 - right[1]] = 1.0  # wrong
    q[2, right[2]] = 1.0  # right, but of no weight
    q[3, 2] = 1.0  # labelled "none of the classes", which is never predicted
    weight = torch.tensor([1.0, 3.0, 0.0, 1.0, 1.0], dtype=torch.float64)
    loss, accuracy = judge(case.params, Data(case.x, q, weight), objectives.joint)
    assert accuracy == 0.5
    assert loss == pytest.approx(
        evaluate(case.params, case.x, q, objectives.joint, sample_weight=weight)
    )
    assert judge(case.params, Data(case.x, torch.zeros_like(q)), objectives.joint)[1] is None


# Ctrl-C


@pytest.mark.parametrize("solver", SOLVERS[1:])
def test_an_interrupted_run_is_usable(case, solver):
    log = Log()
    result = train(
        case.params, case.data, solver, max_epochs=9, callbacks=[log, Interrupt(epoch=3, batch=2)]
    )
    assert result.status == "interrupted"
    assert [record.epoch for record in result.history] == [1, 2]
    assert log.calls[-1] == ("end", "interrupted")
    result.params.check()
    # It stands where it was interrupted, two batches into the third pass, and can go on from there.
    two_passes = train(case.params, case.data, solver, max_epochs=2)
    assert not torch.equal(result.params.w, two_passes.params.w)
    train(result.params, case.data, solver, max_epochs=1, state=result.state)
    assert "usable" in result.message


def test_interrupted_in_the_first_batch(case):
    result = train(
        case.params, case.data, SOLVERS[2], max_epochs=9, callbacks=[Interrupt(epoch=1, batch=1)]
    )
    assert result.status == "interrupted"
    assert result.history == ()
    result.params.check()


def test_an_interrupted_run_with_validation_returns_the_best(case):
    result = train(
        case.params,
        case.data,
        SOLVERS[2],
        max_epochs=9,
        validation=case.data,
        callbacks=[Interrupt(epoch=4, batch=1)],
    )
    losses = [record.validation_loss for record in result.history]
    assert judge(result.params, case.data, objectives.joint)[0] == min(losses)


def test_other_errors_are_not_swallowed(case):
    class Broken(Callback):
        def on_batch(self, epoch, share_done):
            raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="disk on fire"):
        train(case.params, case.data, SOLVERS[2], callbacks=[Broken()])


# The border


def spoil(t, value, index=(3, 2)):
    t = t.clone()
    t[index] = value
    return t


ROW = slice(None)
BAD_DATA = {
    "NaN": (lambda d: Data(spoil(d.x, math.nan), d.targets), "row 3 of x has entries that are not"),
    "inf": (lambda d: Data(spoil(d.x, math.inf), d.targets), "row 3 of x has entries that are not"),
    "off the sphere": (
        lambda d: Data(spoil(d.x, 2 * d.x[5], 5), d.targets),
        "row 5 of x has norm 2, not 1",
    ),
    "zero row": (lambda d: Data(spoil(d.x, 0.0, 4), d.targets), "row 4 of x has norm 0, not 1"),
    "features": (lambda d: Data(d.x[:, :6], d.targets), r"x must be \(B, 7\) .* got \(53, 6\)"),
    "vector": (lambda d: Data(d.x[0], d.targets), r"x must be \(B, 7\)"),
    "rows": (lambda d: Data(d.x[1:], d.targets), r"targets must be \(52, 4\) .* got \(53, 4\)"),
    "columns": (lambda d: Data(d.x, d.targets[:, 1:]), r"targets must be \(53, 4\)"),
    "dtype of x": (
        lambda d: Data(d.x.float(), d.targets),
        "x is torch.float32 on cpu but the parameters are torch.float64",
    ),
    "dtype of targets": (lambda d: Data(d.x, d.targets.float()), "targets is torch.float32"),
    "integer targets": (lambda d: Data(d.x, d.targets.long()), "targets is torch.int64"),
    "no rows": (lambda d: d.take(slice(0, 0)), "x has no rows"),
    "negative target": (
        lambda d: Data(d.x, spoil(d.targets, -0.1)),
        "targets must be label weights",
    ),
    "NaN target": (lambda d: Data(d.x, spoil(d.targets, math.nan)), "targets must be label"),
    "sum above 1": (lambda d: Data(d.x, spoil(d.targets, 1.5)), "at most 1 in a row's sum"),
    "weights of another shape": (
        lambda d: Data(d.x, d.targets, d.x[1:, 0].abs()),
        r"sample_weight must be \(53,\), got \(52,\)",
    ),
    "weights of another dtype": (
        lambda d: Data(d.x, d.targets, d.x[:, 0].abs().float()),
        "sample_weight is torch.float32",
    ),
    "negative weight": (
        lambda d: Data(d.x, d.targets, spoil(torch.ones(53).double(), -1.0, 3)),
        "sample_weight must be finite and >= 0",
    ),
    "NaN weight": (
        lambda d: Data(d.x, d.targets, spoil(torch.ones(53).double(), math.nan, 3)),
        "sample_weight must be finite and >= 0",
    ),
    "no weight": (
        lambda d: Data(d.x, d.targets, torch.zeros(53).double()),
        "sample_weight is zero everywhere",
    ),
}


@pytest.mark.parametrize("name", BAD_DATA)
@pytest.mark.parametrize("as_validation", [False, True])
def test_bad_data_are_refused_in_one_line(case, name, as_validation):
    break_it, message = BAD_DATA[name]
    bad = break_it(case.data)
    data, validation = (case.data, bad) if as_validation else (bad, None)
    with pytest.raises(ValueError, match=message) as caught:
        train(case.params, data, FixedPoint(), validation=validation)
    assert "\n" not in str(caught.value)


def test_bad_parameters_are_refused(case):
    with pytest.raises(ValueError, match="row 0 of memories has norm 2"):
        train(case.params.replace(w=2 * case.params.w), case.data, FixedPoint())
    with pytest.raises(ValueError, match="must have equal totals"):
        train(case.params.replace(p_q=2 * case.params.p_q), case.data, FixedPoint())


def test_bad_settings_are_refused(case, tmp_path):
    for settings, message in (
        ({"max_epochs": 0}, "max_epochs must be >= 1, got 0"),
        ({"patience": 2}, "patience needs validation rows"),
        ({"patience": 0, "validation": case.data}, "patience must be >= 1 or None, got 0"),
        ({"checkpoint": tmp_path / "no" / "run"}, "for the checkpoint: create it first"),
    ):
        with pytest.raises(ValueError, match=message):
            train(case.params, case.data, FixedPoint(), **settings)


def test_a_diverging_run_says_so(case):
    class Diverge(SGD):
        def step(self, params, state, stats, batch):
            return params.replace(w=params.w * math.nan), state

    with pytest.raises(FloatingPointError, match="lower the learning rate"):
        train(case.params, case.data, Diverge(), max_epochs=3)


# Digits


def digits(name, directory=None):
    """(training data, test rows and classes), as the paper prepares them."""
    source = datasets.load(name, directory)

    def rows(images):
        x = torch.from_numpy(np.asarray(images, dtype=np.float32))
        return sphere.project(x - x.mean(1, keepdim=True))

    train_classes = torch.from_numpy(source.y_train)
    targets = objectives.soft_labels(train_classes, 10, 0.1)
    return Data(rows(source.x_train), targets), rows(source.x_test), torch.from_numpy(source.y_test)


def fit_and_score(data, x_test, classes, *, n_memories, batch_size, passes, seed):
    generator = seeded(seed)
    w = initialize.from_data(data.x, n_memories, generator=generator)
    beta = initialize.estimate_beta(w, data.x, 0.25, generator=generator)
    params = from_memories(w, data.targets.mean(0), beta=beta, varsigma=0.25)
    result = train(
        params, data, FixedPoint(batch_size=batch_size), max_epochs=passes, generator=generator
    )
    predicted = log_joint(result.params, x_test)[:, :-1].argmax(1)
    return float((predicted == classes).float().mean()), result


def test_small_mnist_is_learned_in_a_few_passes():
    data, x_test, classes = digits("mnist-small")
    accuracy, result = fit_and_score(
        data, x_test, classes, n_memories=100, batch_size=500, passes=4, seed=0
    )
    assert accuracy > 0.9
    assert result.history[-1].loss < result.history[0].loss
    mass = accumulate(result.params, data.x, data.targets, objectives.joint).mass
    assert_close(float(mass.sum()), 5000.0, rtol=1e-3, atol=0)


@pytest.mark.slow
def test_mnist_to_96_percent_in_five_passes():
    if not os.environ.get("MNEMOSPHERE_DATA"):
        pytest.skip("set MNEMOSPHERE_DATA to a folder with the IDX files")
    data, x_test, classes = digits("mnist")
    scores = [
        fit_and_score(data, x_test, classes, n_memories=1000, batch_size=3000, passes=5, seed=seed)[
            0
        ]
        for seed in range(3)
    ]
    print("test accuracies", scores)
    assert sum(scores) / 3 >= 0.960
