"""Fits that are killed at a random moment and started again: the same bits, and no litter."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mnemosphere as mn
from mnemosphere.files import read_tensors
from mnemosphere.training.callbacks import Callback, Run
from mnemosphere.training.checkpoint import VERSION
from research.trust import Attempt, Tally, run

_LIMIT = 120.0  # seconds for a fit of a fraction of one


def cases(seed: int) -> dict[str, Any]:
    """Estimators of every solver, growth, refinement, few labels and clusters."""
    settings = {"varsigma": 0.9, "normalize": "unit", "max_iter": 3, "tol": 0.0}
    wide = {"random_state": seed, **settings}
    return {
        "fixed point": mn.DAMClassifier(7, solver=mn.FixedPoint(None), **wide),
        "batches": mn.DAMClassifier(7, solver=mn.FixedPoint(16), **wide),
        "drawn seed": mn.DAMClassifier(7, solver=mn.FixedPoint(16), **settings),
        "sgd": mn.DAMClassifier(7, solver=mn.SGD(0.1, 0.9, batch_size=16), **wide),
        "growth": mn.DAMClassifier(9, growth=2, solver=mn.FixedPoint(None), **wide),
        "refinement": mn.DAMClassifier(7, objective=mn.Refinement(max_iter=2), **wide),
        "few labels": mn.DAMClassifier(7, unlabeled=-1, **wide),
        "clusters": mn.DAMClusterer(3, n_memories=7, normalize="unit", max_iter=3,
                                    random_state=seed),
        "clusters sgd": mn.DAMClusterer(3, n_memories=7, solver=mn.SGD(batch_size=16), max_iter=2,
                                        random_state=seed),
    }  # fmt: skip


def data(seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Rows in clusters, and their classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(83) % 3
    return 3 * rng.normal(size=(3, 6))[y] + 0.6 * rng.normal(size=(83, 6)), y


class Slow(Callback):
    """Take some time over every batch, so that a kill meets all parts of a fit."""

    def on_batch(self, run: Run, share_done: float) -> None:
        """Wait a little."""
        time.sleep(0.002)


def fit(model: Any, x: Any, y: Any, folder: Path, out: Path) -> None:
    """Fit with a checkpoint in `folder`; the model goes to `out`, whole or not at all."""
    model.set_params(callbacks=[Slow(), mn.Checkpoint(folder / "run")])
    labels = np.where(np.arange(len(y)) % 4, -1, y) if model.get_params().get("unlabeled") else y
    model.fit(x, labels).save(out)


def killed(action: Any, after: float) -> bool:
    """Run `action` in a process of its own, and kill it after so many seconds; was it alive?"""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)  # nothing of the parent runs here
    began = time.monotonic()
    while time.monotonic() - began < after:
        if os.waitpid(child, os.WNOHANG)[0]:
            return False
        time.sleep(0.001)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True


def attempts(n: int, folder: Path, seed: int) -> Iterator[Attempt]:
    """Kills at random moments, each followed by a start that is left alone."""
    rng = np.random.default_rng(seed)
    x, y = data(seed)
    straight: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for name, model in cases(seed).items():
        began = time.monotonic()
        fit(model, x, y, _fresh(folder / "straight"), folder / "straight" / "model")
        seconds[name] = time.monotonic() - began
        straight[name] = mn.load(folder / "straight" / "model")
    for k in range(n):
        name = list(straight)[k % len(straight)]
        moments = rng.uniform(0, seconds[name], size=int(rng.integers(1, 4)))

        def attempt(name: str = name, moments: NDArray[np.float64] = moments) -> str:
            place, out = _fresh(folder / "killed"), folder / "killed" / "model"
            model = cases(seed)[name]
            for moment in moments:
                killed(lambda: fit(model, x, y, place, out), float(moment))
            if killed(lambda: fit(model, x, y, place, out), _LIMIT):
                return "hangs"
            return compare(place, out, straight[name], x, y, model)

        yield f"{name} killed after {np.round(moments, 3).tolist()} s", attempt


def compare(place: Path, out: Path, straight: Any, x: Any, y: Any, model: Any) -> str:
    """Whether a model that was killed on the way is the one that was not."""
    if any(path.name.startswith(".") for path in place.iterdir()):
        return "litter"
    resumed = mn.load(out)
    if model.random_state is None:  # the seed it drew, in a fit of its own
        header, _ = read_tensors(place / "run.run", "mnemosphere-run", VERSION)
        straight = type(model)(**model.get_params() | {"random_state": header["seed"]})
        straight.set_params(callbacks=()).fit(x, y)
    same = all(
        np.array_equal(getattr(resumed, part), getattr(straight, part))
        for part in ("memories_", "class_weights_", "beta_")
    )
    return "the same bits" if same else "another result"


def _fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def campaign(n: int, folder: Path, seed: int = 0) -> Tally:
    """N fits, killed one to three times each."""
    return run(attempts(n, folder, seed))
