"""Fits that are killed, or ended by a signal: the same call goes on, and ends with the same model."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import mnemosphere as mn
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.distributed import current
from processes import forking, run_forked

pytestmark = pytest.mark.filterwarnings("ignore")
WIDE = {"n_memories": 7, "varsigma": 0.9, "geometry": "unit", "max_iter": 3, "random_state": 0}
KINDS = {
    "joint": {"objective": "joint"},
    "joint, grown": {"objective": "joint", "growth": 2},
    "conditional": {"objective": "conditional"},
    "files": {"objective": "joint"},
}


class Slow(Callback):
    """Take some time for every batch, so that a kill can hit all parts of a fit."""

    def on_batch(self, run, share_done):
        time.sleep(0.002)


def rows_of(kind, folder):
    """Rows and labels, in memory or in files."""
    rng = np.random.default_rng(0)
    y = np.arange(83) % 3
    x = 3 * rng.normal(size=(3, 6))[y] + 0.6 * rng.normal(size=(83, 6))
    if kind != "files":
        return x, y
    for name, values in (("x", x), ("y", y)):
        if not (folder / f"{name}.npy").exists():
            np.save(folder / f"{name}.npy", values)
    return mn.Dataset.open(folder / "x.npy", label=str(folder / "y.npy"), memory=1 << 10), None


def fit(kind, folder, *callbacks):
    """A slow fit with a checkpoint; the model goes to `folder`."""
    model = mn.DAMClassifier(**WIDE | KINDS[kind])
    model.set_params(callbacks=[Slow(), mn.Checkpoint(folder / "run"), *callbacks])
    mn.save(model.fit(*rows_of(kind, folder)), folder / "model")


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


@pytest.mark.parametrize("kind", KINDS)
def test_killed_fits_go_on(tmp_path, kind):
    straight, place = tmp_path / "straight", tmp_path / "killed"
    straight.mkdir()
    place.mkdir()
    fit(kind, straight)  # also imports everything, so that forks need not
    rows_of(kind, place)
    began = time.monotonic()
    fit(kind, straight)
    seconds = time.monotonic() - began
    for moment in np.random.default_rng(1).uniform(0, seconds, size=4):
        forked(kind, place, float(moment))
    assert not forked(kind, place, 300.0)
    one, two = (mn.load(folder / "model") for folder in (place, straight))
    assert one.n_iter_ == two.n_iter_
    for part in ("memories_", "class_weights_", "beta_"):
        assert np.array_equal(getattr(one, part), getattr(two, part))
    assert not [path for path in place.iterdir() if path.name.startswith((".", "run"))]


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


class Die(Callback):
    """Kill this process at the k-th batch."""

    def __init__(self, k):
        self.left = k

    def on_batch(self, run, share_done):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_torchrun_starts_a_killed_group_again(tmp_path):
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
             "--max-restarts", "1", __file__, str(tmp_path), json.dumps([3])]  # fmt: skip
    env = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
                        "MNEMOSPHERE_TIMEOUT": "100",
                        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}  # fmt: skip
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    done = subprocess.run(words, timeout=300, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    alone = tmp_path / "alone"
    alone.mkdir()
    fit("files", alone)
    one, two = (mn.load(folder / "model").memories_ for folder in (tmp_path, alone))
    np.testing.assert_allclose(one, two, atol=1e-6)


if __name__ == "__main__":  # one of the processes that torchrun starts
    place, kills = Path(sys.argv[1]), json.loads(sys.argv[2])
    group, again = current(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if group.first:
        rows_of("files", place)
    group.broadcast(None)  # the files are there
    kill = kills[again] if again < len(kills) else None
    fit("files", place, *([] if kill is None else [Die(kill)]))
