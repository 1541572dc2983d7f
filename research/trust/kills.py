"""Fits that are killed at a random moment and started again: the same bits, and no litter."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist
from numpy.typing import NDArray

import mnemosphere as mn
from mnemosphere.files import read_tensors
from mnemosphere.training.callbacks import Callback, Run
from mnemosphere.training.checkpoint import VERSION
from mnemosphere.training.distributed import current
from research.trust import Attempt

_LIMIT = 900.0  # seconds for a fit of a fraction of one: processors may be busy


def cases(folder: Path, seed: int) -> dict[str, tuple[Any, Any, Any]]:
    """(estimator, rows, labels): every solver and objective, growth, few labels, files."""
    settings = {
        "objective": "joint", "varsigma": 0.9, "normalize": "unit", "max_iter": 3, "tol": 0.0
    }  # fmt: skip
    wide = {"random_state": seed, **settings}
    conditional = wide | {"objective": "conditional"}
    x, y = data(seed)
    some = np.where(np.arange(len(y)) % 4, -1, y)
    np.save(folder / "rows.npy", np.tile(x, (3, 1)))
    np.save(folder / "labels.npy", np.tile(y, 3))
    files = mn.Dataset.open(folder / "rows.npy", label=str(folder / "labels.npy"), memory=1 << 12)
    return {
        "fixed point": (mn.DAMClassifier(7, solver=mn.FixedPoint(None), **wide), x, y),
        "batches": (mn.DAMClassifier(7, solver=mn.FixedPoint(16), **wide), x, y),
        "drawn seed": (mn.DAMClassifier(7, solver=mn.FixedPoint(16), **settings), x, y),
        "sgd": (mn.DAMClassifier(7, solver=mn.SGD(0.1, 0.9, batch_size=16), **wide), x, y),
        "growth": (mn.DAMClassifier(9, growth=2, solver=mn.FixedPoint(None), **wide), x, y),
        "conditional": (mn.DAMClassifier(7, **conditional), x, y),
        "few labels": (mn.DAMClassifier(7, unlabeled=-1, **wide), x, some),
        "clusters": (mn.DAMClusterer(3, n_memories=7, normalize="unit", max_iter=3,
                                     random_state=seed), x, y),
        "clusters sgd": (mn.DAMClusterer(3, n_memories=7, solver=mn.SGD(batch_size=16), max_iter=2,
                                         random_state=seed), x, y),
        "files": (mn.DAMClassifier(7, **wide), files, None),
        "files sgd": (mn.DAMClassifier(7, solver=mn.SGD(0.1, 0.9, batch_size=16), **wide), files,
                      None),
        "files growth": (mn.DAMClassifier(9, growth=2, **wide), files, None),
        "files conditional": (mn.DAMClassifier(7, **conditional), files, None),
        "two ranks": (mn.DAMClassifier(7, solver=mn.FixedPoint(None), **wide), x, y),
        "two ranks sgd": (mn.DAMClassifier(7, solver=mn.SGD(0.1, 0.9, batch_size=16), **wide), x,
                          y),
        "two ranks files": (mn.DAMClassifier(7, **wide), files, None),
        "files clusters": (mn.DAMClusterer(3, n_memories=7, normalize="unit", max_iter=3,
                                           random_state=seed), files, None),
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


def fit(case: tuple[Any, Any, Any], folder: Path, out: Path) -> None:
    """Fit with a checkpoint in `folder`; the model goes to `out`, whole or not at all."""
    model, x, y = case
    model.set_params(callbacks=[Slow(), mn.Checkpoint(folder / "run", interval=0.01)])
    model.fit(x, y)
    if current().first:
        model.save(out)


def killed(action: Callable[[], None], after: float, ranks: int = 1, victims: int = 1) -> bool:
    """Run `action` in processes of their own, and kill some after so many seconds.

    Returns whether one was alive. Those that are left must see that they are alone, and end.
    """
    with tempfile.TemporaryDirectory() as store:
        children = [_start(action, rank, ranks, f"file://{store}/group") for rank in range(ranks)]
        ended: set[int] = set()
        _wait(children, ended, after)
        alive = [child for child in children if child not in ended]
        for child in alive[:victims]:
            os.kill(child, signal.SIGKILL)
        _wait(children, ended, _LIMIT)
        for child in set(children) - ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise RuntimeError("a process waits for ever for one that was killed")
        return bool(alive)


def _start(action: Callable[[], None], rank: int, ranks: int, store: str) -> int:
    """A process that does it."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        if ranks > 1:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what one says when the other is killed
            dist.init_process_group("gloo", store, timedelta(seconds=20), ranks, rank)
        action()
        code = 0
    finally:
        os._exit(code)  # nothing of the parent runs here


def _wait(children: list[int], ended: set[int], seconds: float) -> None:
    """Until all have ended, or for so long."""
    began = time.monotonic()
    while len(ended) < len(children) and time.monotonic() - began < seconds:
        for child in children:
            if child not in ended and os.waitpid(child, os.WNOHANG)[0]:
                ended.add(child)
        time.sleep(0.001)


def attempts(n: int, folder: Path, seed: int) -> Iterator[Attempt]:
    """Kills at random moments, each followed by a start that is left alone."""
    rng = np.random.default_rng(seed)
    known = cases(folder, seed)
    straight: dict[str, Any] = {}
    seconds: dict[str, float] = {}
    for k in range(seed, seed + n):
        name = list(known)[k % len(known)]
        ranks = 2 if name.startswith("two ranks") else 1
        if name not in straight:
            place = fresh(folder / "straight")
            # Here first, so that what a fit imports need not be imported after every kill.
            fit(known[name], place, place / "model")
            began, place = time.monotonic(), fresh(place)
            killed(lambda: fit(known[name], place, place / "model"), _LIMIT, ranks)  # noqa: B023
            seconds[name] = time.monotonic() - began
            straight[name] = mn.load(place / "model")
        moments = rng.uniform(0, seconds[name], size=int(rng.integers(1, 4)))
        victims = int(rng.integers(1, ranks + 1))

        def attempt(
            name: str = name, moments: Any = moments, ranks: int = ranks, victims: int = victims
        ) -> str:
            place, out = fresh(folder / "killed"), folder / "killed" / "model"
            for moment in moments:
                killed(lambda: fit(known[name], place, out), float(moment), ranks, victims)
            if killed(lambda: fit(known[name], place, out), _LIMIT, ranks):
                return "hangs"
            return compare(place, out, straight[name], known[name])

        yield f"{name} killed after {np.round(moments, 3).tolist()} s", attempt


def compare(place: Path, out: Path, straight: Any, case: tuple[Any, Any, Any]) -> str:
    """Whether a model that was killed on the way is the one that was not."""
    if any(path.name.startswith(".") for path in place.iterdir()):
        return "litter"
    model, x, y = case
    if model.random_state is None:  # the seed it drew, in a fit of its own
        header, _ = read_tensors(place / "run.run", "mnemosphere-run", VERSION)
        straight = type(model)(**model.get_params() | {"random_state": header["seed"]})
        straight.set_params(callbacks=()).fit(x, y)
    return "the same bits" if same_bits(mn.load(out), straight) else "another result"


def same_bits(one: Any, two: Any) -> bool:
    """Whether two fitted models are the same in all that training finds."""
    return one.n_iter_ == two.n_iter_ and all(
        np.array_equal(getattr(one, part), getattr(two, part))
        for part in ("memories_", "class_weights_", "beta_")
    )


def fresh(folder: Path) -> Path:
    """An empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder
