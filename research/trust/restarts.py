"""Groups of which a random process is killed, again and again, and started anew: the same bits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch.distributed as dist

import mnemosphere as mn
from mnemosphere.training import distributed
from mnemosphere.training.callbacks import Callback, Run
from mnemosphere.training.distributed import current
from research.trust import Attempt
from research.trust.kills import fresh, same_bits

KILLS = 6  # in one run, at most
_LIMIT = 240.0  # seconds for a start


def cases(folder: Path) -> dict[str, tuple[Any, Any, Any]]:
    """Rows in memory and in files, exact steps and batches, growth."""
    rng = np.random.default_rng(0)
    y = np.arange(601) % 3
    x = 3 * rng.normal(size=(3, 6))[y] + 1.2 * rng.normal(size=(601, 6))
    if current().first and not (folder / "y.npy").exists():
        for name, values in (("x", x), ("y", y)):
            np.save(folder / f"new_{name}.npy", values)
            os.rename(folder / f"new_{name}.npy", folder / f"{name}.npy")
    current().same(None)
    files = mn.Dataset.open(folder / "x.npy", label=str(folder / "y.npy"), memory=4000)
    wide: dict[str, Any] = {"varsigma": 0.9, "normalize": "unit", "tol": 0.0, "random_state": 0}
    return {
        "files, exact": (mn.DAMClassifier(7, solver=mn.FixedPoint(None), max_iter=12, **wide),
                         files, None),
        "files, batches": (mn.DAMClassifier(7, solver=mn.FixedPoint(64), max_iter=6, **wide),
                           files, None),
        "sgd": (mn.DAMClassifier(7, solver=mn.SGD(0.1, 0.9, batch_size=64), max_iter=9, **wide),
                x, y),
        "growth": (mn.DAMClassifier(9, growth=2, solver=mn.FixedPoint(50), max_iter=4, **wide),
                   x, y),
        "clusters": (mn.DAMClusterer(3, n_memories=7, normalize="unit", max_iter=9, tol=0.0,
                                     random_state=0), files, None),
    }  # fmt: skip


class Slow(Callback):
    """Take some time over every batch, so that kills meet all parts of a fit."""

    def on_batch(self, run: Run, share_done: float) -> None:
        """Wait a little."""
        time.sleep(0.01)


def work(folder: Path, name: str, kill: tuple[int, float] | None) -> None:
    """One process: fit, and be killed where `kill` = (rank, seconds) says so; rank 0 writes."""
    model, x, y = cases(folder)[name]
    group = current()
    if kill is not None and kill[0] == group.rank:
        timer = threading.Timer(kill[1], _die, (folder,))
        timer.daemon = True
        timer.start()
    began = time.monotonic()
    model.set_params(callbacks=[Slow(), mn.Checkpoint(folder / "run", interval=0.0)]).fit(x, y)
    if group.first:
        model.save(folder / "model")
        (folder / "seconds").write_text(str(time.monotonic() - began), encoding="utf-8")


def _die(folder: Path) -> None:
    """Count a kill, and be killed."""
    with (folder / "kills").open("a", encoding="utf-8") as file:
        file.write("x")
    os.kill(os.getpid(), signal.SIGKILL)


def by_forks(folder: Path, name: str, ranks: int, kills: list[tuple[int, float]]) -> str:
    """What torchrun does, without the time that imports take: all again when one is gone.

    Those that are left have to end by themselves.
    """
    for kill in [*kills, None]:
        with tempfile.TemporaryDirectory() as store:
            children = [_fork(folder, name, rank, ranks, kill, store) for rank in range(ranks)]
            codes: dict[int, int] = {}
            began = time.monotonic()
            while len(codes) < ranks and time.monotonic() - began < _LIMIT:
                for child in set(children) - codes.keys():
                    found, status = os.waitpid(child, os.WNOHANG)
                    codes |= {found: os.waitstatus_to_exitcode(status)} if found else {}
                time.sleep(0.002)
        for child in set(children) - codes.keys():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        if len(codes) < ranks:
            return "hangs"
        if not any(codes.values()):
            return "ended"
    said = (folder / "said").read_text(encoding="utf-8").strip()
    raise RuntimeError(f"exit codes {sorted(codes.values())} where nothing was killed: {said}")


def _fork(folder: Path, name: str, rank: int, ranks: int, kill: Any, store: str) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        distributed._GRACE = 0.1
        dist.init_process_group("gloo", f"file://{store}/group", timedelta(seconds=60), ranks, rank)
        work(folder, name, kill)
        code = 0
    except Exception as error:
        if kill is None:  # else it is what one says when another is killed
            with (folder / "said").open("a", encoding="utf-8") as file:
                file.write(f"{type(error).__name__}: {error}\n")
    finally:
        os._exit(code)  # nothing of the parent runs here


def by_torchrun(folder: Path, name: str, ranks: int, kills: list[tuple[int, float]]) -> str:
    """Have torchrun do it; how that ended."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
             str(ranks), "--max-restarts", str(len(kills)), "-m", "research.trust.restarts",
             str(folder), name, json.dumps(kills)]  # fmt: skip
    env = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    limit = _LIMIT * (len(kills) + 1)
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit, env=env)
    except subprocess.TimeoutExpired:
        return "hangs"
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr[-800:]}")
    return "ended"


def attempts(n: int, folder: Path, seed: int, n_kills: int = KILLS) -> Iterator[Attempt]:
    """Runs of one kind, each killed so many times at random moments in random processes.

    Every eighth kind is started by torchrun, which takes many times as long.
    """
    start, by = (by_torchrun, " by torchrun") if seed % 8 == 7 else (by_forks, "")
    rng = np.random.default_rng(seed)
    names = list(cases(fresh(folder / "names")))
    name, ranks = names[seed % len(names)], 2 + int(rng.uniform() < 0.25)
    straight = fresh(folder / "straight")
    start(straight, name, ranks, [])
    seconds = float((straight / "seconds").read_text(encoding="utf-8"))
    for k in range(n):
        # Of a part of the whole each: what was done before a kill is not done again.
        kills = [
            (int(rng.integers(ranks)), float(rng.uniform(0, 2 * seconds / n_kills)))
            for _ in range(n_kills)
        ]

        def attempt(place: Path = folder / f"run{k}", kills: Any = kills) -> str:
            fresh(place)
            (place / "kills").touch()
            ended = start(place, name, ranks, kills)
            if ended != "ended":
                return ended
            one, other = mn.load(place / "model"), mn.load(straight / "model")
            died = len((place / "kills").read_text(encoding="utf-8"))
            if not same_bits(one, other):
                return "another result"
            return f"the same bits after {died} kills{by}"

        yield f"{name}, {ranks} ranks{by}, killed {kills}", attempt


if __name__ == "__main__":
    again, all_kills = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), json.loads(sys.argv[3])
    work(Path(sys.argv[1]), sys.argv[2], all_kills[again] if again < len(all_kills) else None)
