"""Runs that are killed, or whose checkpoint is changed, end bitwise identical or with a clear error."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mnemosphere as mn
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.distributed import current
from problems import Case, slow_but
from processes import forking, run_forked, run_group
from runs import Break

pytestmark = pytest.mark.filterwarnings("ignore")
some = settings(
    max_examples=15 if "CAMPAIGN" in os.environ else 6,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
KINDS = [
    "fixed point", "batches", "sgd", "growth", "conditional", "few labels", "clusters",
    "clusters sgd", "files", "files sgd", "files growth", "files conditional", "files clusters",
]  # fmt: skip
GROUPED = ["fixed point", "sgd", "growth", "files", "files clusters"]
STOPS = (1, 3, 9, 20)  # batches after which a run is broken off


class Slow(Callback):
    """Take some time for every batch, so that a kill can hit all parts of a fit."""

    def on_batch(self, run, share_done):
        time.sleep(0.002)


def problem(kind, folder):
    """(estimator, rows, labels) of one kind."""
    rng = np.random.default_rng(0)
    y = np.arange(83) % 3
    x = 3 * rng.normal(size=(3, 6))[y] + 0.6 * rng.normal(size=(83, 6))
    wide = {"varsigma": 0.9, "geometry": "unit", "max_iter": 3, "random_state": 0}
    wide["objective"] = "conditional" if "conditional" in kind else "joint"
    if "sgd" in kind:
        wide["solver"] = mn.SGD(0.1, 0.9, batch_size=16, tol=0)
    elif kind in ("fixed point", "batches", "growth"):
        wide["solver"] = mn.FixedPoint(16 if kind == "batches" else None, tol=0)
    if "clusters" in kind:
        wide = {k: v for k, v in wide.items() if k not in ("varsigma", "objective")}
        model = mn.DAMClusterer(3, n_memories=7, **wide)
    elif "growth" in kind:
        model = mn.DAMClassifier(9, growth=2, **wide)
    elif kind == "few labels":
        model, y = mn.DAMClassifier(7, unlabeled=-1, **wide), np.where(np.arange(83) % 4, -1, y)
    else:
        model = mn.DAMClassifier(7, **wide)
    if not kind.startswith("files"):
        return model, x, y
    for name, values in (("x", np.tile(x, (3, 1))), ("y", np.tile(y, 3))):
        if not (folder / f"{name}.npy").exists():
            np.save(folder / f"new_{name}.npy", values)
            os.replace(folder / f"new_{name}.npy", folder / f"{name}.npy")
    label = str(folder / "y.npy")
    return model, mn.Dataset.open(folder / "x.npy", label=label, memory=1 << 12), None


def identical(one, two):
    return one.n_iter_ == two.n_iter_ and all(
        np.array_equal(getattr(one, part), getattr(two, part))
        for part in ("memories_", "class_weights_", "beta_")
    )


def fit(kind, folder):
    """A slow fit with a checkpoint; the model goes to `folder`."""
    model, *rows = problem(kind, folder)
    stored = mn.Checkpoint(folder / "run")
    mn.save(model.set_params(callbacks=[Slow(), stored]).fit(*rows), folder / "model")


def forked(kind, folder, seconds):
    """Fit in another process that is killed after so many seconds; whether it was alive."""
    with forking():
        child = os.fork()
    if not child:
        try:
            fit(kind, folder)
        finally:
            os._exit(0)
    began = time.monotonic()
    while time.monotonic() - began < seconds:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


@pytest.mark.parametrize("kind", slow_but(["files conditional"], KINDS))
def test_killed_fits_go_on(tmp_path, kind):
    straight = tmp_path / "straight"
    straight.mkdir()
    fit(kind, straight)  # also imports everything, so that forks need not
    began = time.monotonic()
    model, *rows = problem(kind, straight)
    model.set_params(callbacks=[Slow(), mn.Checkpoint(straight / "again")])
    model.fit(*rows)
    seconds = time.monotonic() - began
    rng = np.random.default_rng(KINDS.index(kind))
    for k in range(2):
        place = tmp_path / str(k)
        place.mkdir()
        for moment in rng.uniform(0, seconds, size=3):
            forked(kind, place, float(moment))
        assert not forked(kind, place, 300.0)
        assert identical(mn.load(place / "model"), mn.load(straight / "model"))


class Signal(Callback):
    """The signal of Ctrl-C in the middle of a long fit."""

    def on_pass(self, run):
        if run.n_iter == 3:
            os.kill(os.getpid(), signal.SIGINT)


def test_a_real_signal():
    def work():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        x = np.random.default_rng(0).normal(size=(200, 5))
        model = mn.DAMClassifier(max_iter=10**6, callbacks=[Signal()]).fit(x, x[:, 0] > 0)
        return model.status_, len(model.history_), model.score(x, x[:, 0] > 0)

    status, passes, score = run_forked(work)
    assert (status, passes in (2, 3, 4)) == ("interrupted", True)
    assert score > 0.7


def grouped(folder, kind, kill):
    """The work of one rank, which dies after the k-th batch if `kill` = (rank, k) names it."""

    def work(rank):
        model, *rows = problem(kind, folder)
        callbacks = [mn.Checkpoint(folder / "run")]
        if kill is not None and kill[0] == rank:
            callbacks.append(Die(kill[1]))
        return model.set_params(callbacks=callbacks).fit(*rows).set_params(callbacks=())

    return work


class Die(Callback):
    """Kill this process at the k-th batch."""

    def __init__(self, k):
        self.left = k

    def on_batch(self, run, share_done):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("kind", GROUPED)
@pytest.mark.parametrize("ranks", [2, 3])
def test_killed_groups_go_on(tmp_path, kind, ranks):
    rng = np.random.default_rng(ranks)
    problem(kind, tmp_path)  # writes the files before there are several processes
    expected = run_group(ranks, grouped(tmp_path, kind, None))
    for path in tmp_path.glob("run*"):
        path.unlink()
    for _ in range(3):
        kill = (int(rng.integers(ranks)), int(rng.integers(1, 6)))
        run_group(ranks, grouped(tmp_path, kind, kill))
    for one, two in zip(run_group(ranks, grouped(tmp_path, kind, None)), expected, strict=True):
        assert identical(one, two)


@pytest.mark.slow
def test_torchrun_starts_a_killed_group_again(tmp_path):
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
             "--max-restarts", "2", __file__, str(tmp_path), json.dumps([[1, 3], [0, 2]])]  # fmt: skip
    env = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(words, timeout=500, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (tmp_path / "alone").mkdir()
    model, *rows = problem("files", tmp_path / "alone")
    found = mn.load(tmp_path / "model")
    np.testing.assert_allclose(found.memories_, model.fit(*rows).memories_, atol=1e-6)


# --- checkpoints that were changed


FAST = ["sgd", "growth", "conditional", "few labels", "files"]


@pytest.fixture(scope="module", params=slow_but(FAST, KINDS))
def broken_off(request, tmp_path_factory):
    """A model, its rows, the finished fit, and the checkpoint files after some batches."""
    folder = tmp_path_factory.mktemp("runs")
    model, *rows = problem(request.param, folder)
    straight = type(model)(**model.get_params()).fit(*rows)
    moments = []
    for batches in STOPS:
        place = folder / str(batches)
        place.mkdir()
        stored = mn.Checkpoint(place / "run")
        try:
            model.set_params(callbacks=[stored, Break("batch", batches, EOFError)]).fit(*rows)
        except EOFError:
            moments.append({path.name: path.read_bytes() for path in place.iterdir()})
    assert all(moments)
    return Case(
        name=request.param, model=model.set_params(callbacks=()), rows=rows, straight=straight,
        moments=moments,
    )  # fmt: skip


def resume(model, rows, place, files):
    """Fit from these checkpoint files; None if that is refused with one line."""
    place.mkdir(exist_ok=True)
    for path in place.iterdir():
        path.unlink()
    for name, content in files.items():
        (place / name).write_bytes(content)
    fresh = type(model)(**model.get_params() | {"callbacks": [mn.Checkpoint(place / "run")]})
    try:
        return fresh.fit(*rows)
    except (ValueError, TypeError) as error:
        said = str(error)
        assert "\n" not in said
        return None


def test_broken_off_runs_go_on(tmp_path, broken_off):
    case = broken_off
    for k, files in enumerate(case.moments):
        found = resume(case.model, case.rows, tmp_path / str(k), files)
        assert identical(found, case.straight)
        assert found.status_ == case.straight.status_
        assert torch.equal(found.model_.votes.slope, case.straight.model_.votes.slope)


@some
@given(moment=st.integers(0, 99), file=st.integers(0, 99), at=st.floats(0, 1, exclude_max=True),
       kind=st.sampled_from(["bit", "cut", "other", "lost"]))  # fmt: skip
def test_changed_checkpoints(tmp_path, broken_off, moment, file, at, kind):
    moments = broken_off.moments
    files = dict(moments[moment % len(moments)])
    name = sorted(files)[file % len(files)]
    content = bytearray(files[name])
    if kind == "bit":
        content[int(at * len(content))] ^= 4
    elif kind == "cut":
        del content[int(at * len(content)) :]
    elif kind == "other":  # of another moment
        content = moments[file % len(moments)].get(name, b"")
    files[name] = bytes(content)
    if kind == "lost":
        del files[name]
    found = resume(broken_off.model, broken_off.rows, tmp_path / "run", files)
    assert found is None or identical(found, broken_off.straight)


if __name__ == "__main__":  # one of the processes that torchrun starts
    place, kills = Path(sys.argv[1]), json.loads(sys.argv[2])
    group, again = current(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if group.first:
        problem("files", place)
    group.broadcast(None)  # the files are there
    kill = kills[again] if again < len(kills) else None
    model = grouped(place, "files", kill)(group.rank)
    if group.first:
        mn.save(model, place / "model")
