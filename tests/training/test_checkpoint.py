from __future__ import annotations

import dataclasses
import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from mnemosphere.model import objectives
from mnemosphere.training import checkpoint as module
from mnemosphere.training.batches import Data
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.checkpoint import write_atomically
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.loop import train
from mnemosphere.training.sgd import SGD

SOLVERS = {
    "fixed point": FixedPoint(),
    "fixed point in batches": FixedPoint(batch_size=20),
    "sgd": SGD(learning_rate=0.1, batch_size=20),
    "paper": dataclasses.replace(SGD.paper(), batch_size=20),
}


class Interrupt(Callback):
    """Press Ctrl-C in the second batch of a pass."""

    def __init__(self, epoch):
        self.epoch, self.seen = epoch, 0

    def on_batch(self, epoch, share_done):
        self.seen += epoch == self.epoch
        if self.seen == 2:
            raise KeyboardInterrupt


@pytest.fixture(params=[torch.float32, torch.float64], ids=["float32", "float64"])
def case(request, problem):
    return problem(50, rows=53, varsigma=0.5, clustered=True, weighted=True, dtype=request.param)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.safetensors"


def run(case, solver, max_epochs, **kwargs):
    """A run as a new process would start it: everything anew from the same seed."""
    generator = torch.Generator().manual_seed(11)
    params = case.params.replace(w=case.params.w.clone())
    return train(params, case.data, solver, max_epochs=max_epochs, generator=generator, **kwargs)


def assert_same(a, b):
    for name in ("w", "p", "beta", "p_h", "p_q"):
        assert torch.equal(getattr(a.params, name), getattr(b.params, name)), name
    assert a.params.varsigma == b.params.varsigma
    assert a.state.keys() == b.state.keys()
    for name, value in a.state.items():
        assert torch.equal(value, b.state[name]), name
        assert value.dtype == b.state[name].dtype
    assert a.status == b.status
    strip = {"seconds": 0.0}
    assert [dataclasses.replace(r, **strip) for r in a.history] == [
        dataclasses.replace(r, **strip) for r in b.history
    ]


# Resuming


@pytest.mark.parametrize("solver", SOLVERS)
def test_three_and_three_passes_are_six(case, path, solver):
    straight = run(case, SOLVERS[solver], 6)
    run(case, SOLVERS[solver], 3, checkpoint=path)
    resumed = run(case, SOLVERS[solver], 6, checkpoint=path)
    assert_same(resumed, straight)
    assert len(resumed.history) == 6


@pytest.mark.parametrize("solver", ["fixed point in batches", "sgd"])
@pytest.mark.parametrize("epoch", [1, 3])
def test_interrupted_in_a_pass_and_resumed(case, path, solver, epoch):
    straight = run(case, SOLVERS[solver], 4)
    broken = run(case, SOLVERS[solver], 4, checkpoint=path, callbacks=[Interrupt(epoch)])
    assert broken.status == "interrupted"
    assert path.exists() == (epoch > 1)
    assert_same(run(case, SOLVERS[solver], 4, checkpoint=path), straight)


def test_the_generator_goes_on_where_it_was(case, path):
    """What is drawn after training does not depend on whether it was resumed."""
    draws = []
    for split in (False, True):
        file = path.with_suffix(f".{split}")
        if split:
            run(case, SOLVERS["sgd"], 2, checkpoint=file)
        generator = torch.Generator().manual_seed(11)
        train(
            case.params,
            case.data,
            SOLVERS["sgd"],
            max_epochs=4,
            generator=generator,
            checkpoint=file,
        )
        draws.append(torch.rand(3, generator=generator))
    assert torch.equal(*draws)


def test_the_best_and_the_patience_are_resumed(case, path):
    opposite = Data(-case.x, case.targets)
    solver = SGD(learning_rate=0.3, momentum=0.9, batch_size=20)
    settings = {"validation": opposite, "patience": 3}
    straight = run(case, solver, 40, **settings)
    assert straight.status == "stopped early"
    # Stop in the middle of the wait.
    run(case, solver, len(straight.history) - 2, checkpoint=path, **settings)
    assert_same(run(case, solver, 40, checkpoint=path, **settings), straight)
    # and once more, with nothing left to do
    assert_same(run(case, solver, 40, checkpoint=path, **settings), straight)


def test_a_finished_run_is_read_back(case, path):
    done = run(case, SOLVERS["sgd"], 2, checkpoint=path)
    before = path.read_bytes()
    assert_same(run(case, SOLVERS["sgd"], 2, checkpoint=path), done)
    assert path.read_bytes() == before


def test_the_file_is_alone_and_holds_no_code(case, path):
    run(case, SOLVERS["sgd"], 2, checkpoint=path)
    assert list(path.parent.iterdir()) == [path]
    assert {"params.w", "best.w", "state.w", "generator"} <= load_file(path).keys()


# Files that are no checkpoint of this run


@pytest.fixture
def saved(problem, path):
    case = problem(50, rows=53, varsigma=0.5)
    run(case, SOLVERS["sgd"], 1, checkpoint=path)
    return case


def resume(case, path, solver=SOLVERS["sgd"], **kwargs):
    return run(case, solver, 2, checkpoint=path, **kwargs)


def rewrite(path, **changes):
    """Change the header and keep the tensors."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        meta = json.loads(file.metadata()["mnemosphere"])
    save_file(load_file(path), path, {"mnemosphere": json.dumps(meta | changes)})


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def cut_header(path):
    path.write_bytes(path.read_bytes()[:20])


def empty(path):
    path.write_bytes(b"")


def garbage(path):
    path.write_bytes(bytes(range(256)) * 8)


def foreign(path):
    save_file({"a": torch.zeros(3)}, path)


def other_json(path):
    save_file({"a": torch.zeros(3)}, path, {"mnemosphere": "[1, 2]"})


def no_json(path):
    save_file({"a": torch.zeros(3)}, path, {"mnemosphere": "{"})


def lost_tensor(path):
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        meta = file.metadata()
    tensors = load_file(path)
    del tensors["best.w"]
    save_file(tensors, path, meta)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (truncate, "is damaged or not a safetensors file"),
        (cut_header, "is damaged or not a safetensors file"),
        (empty, "is damaged or not a safetensors file"),
        (garbage, "is damaged or not a safetensors file"),
        (no_json, "is damaged or not a safetensors file"),
        (foreign, "is not a mnemosphere-checkpoint file"),
        (other_json, "is not a mnemosphere-checkpoint file"),
        (lost_tensor, "lacks a part .*'w'"),
        (lambda path: rewrite(path, version=99), "has format version 99, this release reads 1"),
        (lambda path: rewrite(path, format="else"), "is not a mnemosphere-checkpoint file"),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_a_bad_file_is_refused_in_one_line(saved, path, spoil, message):
    spoil(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=message) as caught:
        resume(saved, path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == before


def test_a_checkpoint_of_another_run_is_refused(saved, path, problem):
    shuffled = saved._replace(x=saved.x.flip(0), targets=saved.targets.flip(0))
    weighted = saved._replace(sample_weight=torch.linspace(1, 2, 53, dtype=torch.float64))
    other_start = problem(50, rows=53, varsigma=0.5)
    w = other_start.params.w.flip(0)
    attempts = [
        lambda: resume(shuffled, path),
        lambda: resume(weighted, path),
        lambda: resume(saved, path, SGD(learning_rate=0.2, batch_size=20)),
        lambda: resume(saved, path, FixedPoint()),
        lambda: resume(saved, path, rule=objectives.conditional),
        lambda: resume(saved, path, validation=saved.data),
        lambda: resume(saved._replace(params=saved.params.replace(varsigma=0.25)), path),
        lambda: resume(saved._replace(params=saved.params.replace(w=w)), path),
        lambda: resume(
            saved._replace(params=saved.params.replace(beta=saved.params.beta * 2)), path
        ),
    ]
    for attempt in attempts:
        with pytest.raises(ValueError, match="is of another run"):
            attempt()
    resume(saved, path)  # and this one is the run


# Atomic writes


@pytest.mark.parametrize("broken", ["replace", "fsync"])
@pytest.mark.parametrize("existing", [True, False])
def test_a_failed_write_leaves_everything_as_it_was(tmp_path, monkeypatch, broken, existing):
    path = tmp_path / "file"
    if existing:
        path.write_bytes(b"old")

    def fail(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == (["file"] if existing else [])
    if existing:
        assert path.read_bytes() == b"old"


def test_ctrl_c_while_writing_leaves_everything_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


def test_the_new_file_is_on_disk_before_it_takes_the_name(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    events = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(fd):
        events.append("fsync")
        real_fsync(fd)

    def replace(a, b):
        events.append(("replace", path.read_bytes()))
        real_replace(a, b)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    write_atomically(path, b"new")
    assert events[:2] == ["fsync", ("replace", b"old")]
    assert path.read_bytes() == b"new"


def test_a_failed_write_stops_the_run_and_keeps_the_last_checkpoint(saved, path, monkeypatch):
    before = path.read_bytes()

    def fail(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr(module.os, "replace", fail)
    with pytest.raises(OSError, match="no space left"):
        resume(saved, path)
    assert path.read_bytes() == before
