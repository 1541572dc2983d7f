"""Many processes: the same model as one, and one message when one of them fails."""

from __future__ import annotations

import itertools
import math
import os
import signal
import time
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch

from mnemosphere.data import ArrayDataset
from mnemosphere.model import from_memories, initialize, objectives
from mnemosphere.model.curvature import Descent, Krylov, Nearest
from mnemosphere.numerics import sphere
from mnemosphere.training import FixedPoint, distributed, fit, grow
from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.growth import Splitting
from mnemosphere.training.noise import SphereNoise
from mnemosphere.training.sgd import SGD
from processes import run_group

B, N, P, C = 211, 7, 5, 3
CONDITIONAL = objectives.JointConditional(1.0)


def problem() -> tuple[Any, ArrayDataset]:
    generator = torch.Generator().manual_seed(0)
    x = sphere.sample_uniform(B, N, generator=generator, dtype=torch.float64, device="cpu")
    targets = objectives.soft_labels(x[:, :C].argmax(1), C, 0.1, dtype=torch.float64)
    weight = torch.rand(B, generator=generator, dtype=torch.float64)
    dataset = ArrayDataset.of(x, targets, weight)
    w = initialize.from_data(x, P, generator=generator)
    mass = dataset.label_mass()
    params = from_memories(w, mass / mass.sum(), beta=5.0, varsigma=0.9)
    # Where classes differ: the conditional gradient at the start is rounding, which Adam follows.
    return fit(params, dataset, FixedPoint(None), max_iter=1).params, dataset


PARAMS, DATASET = problem()
CASES: dict[str, Any] = {
    "full": (FixedPoint(None), {}),
    "batches": (FixedPoint(50), {}),
    "sgd": (SGD(batch_size=B), {}),
    "sgd batches": (SGD(batch_size=50), {}),
    "adam": (Adam(steps=20, batch_size=B), {"rule": CONDITIONAL, "noise": SphereNoise(0.2)}),
    "adam batches": (
        Adam(steps=60, batch_size=50),
        {"rule": CONDITIONAL, "noise": SphereNoise(0.2)},
    ),
    "more processes than rows": (FixedPoint(None), {"rows": 3}),
}
GROWTH = {
    "nearest": Nearest(classes=True, rows_per_memory=20, strongest=17, steps=4),
    "krylov": Krylov(max_cycles=1),
    "descent": Descent(batch_size=97),
}


def train(name: str) -> dict[str, Any]:
    """Everything that one training comes to."""
    generator = torch.Generator().manual_seed(1)
    if name in GROWTH:
        grown = grow(
            PARAMS, DATASET, FixedPoint(None), max_memories=7, phase_iter=1, max_iter=1,
            generator=generator, splitting=Splitting(curvature=GROWTH[name]),
        )  # fmt: skip
        losses = torch.tensor([record.loss for record in grown.history], dtype=torch.float64)
        return {**grown.params.to_tensors(), **grown.state, "losses": losses}
    solver, more = CASES[name]
    more = dict(more)
    dataset = DATASET
    if "rows" in more:
        dataset = ArrayDataset(DATASET.rows.take(slice(0, more.pop("rows"))))
    rows, held = dataset.split(0.2, generator=generator)
    result = fit(PARAMS, rows, solver, max_iter=3, validation=held, generator=generator, **more)
    told = [(r.loss, r.validation_loss or 0.0, r.beta) for r in result.history]
    state = {f"state {k}": t for k, t in result.state.items()}
    drawn = torch.randint(2**60, (1,), generator=generator)  # all generators stay in step
    told = torch.tensor(told, dtype=torch.float64)
    return {**result.params.to_tensors(), **state, "told": told, "drawn": drawn}


def everything(rank: int) -> dict[str, Any]:
    found = {name: train(name) for name in (*CASES, *GROWTH)}
    return found | {"again": train("full")}


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return everything(0)


@pytest.fixture(scope="module", params=[1, 2, 4])
def together(request) -> list[dict[str, Any]]:
    found = run_group(request.param, everything)
    failed = [error for error in found if isinstance(error, BaseException)]
    assert failed == []
    return found


@pytest.mark.parametrize("name", [*CASES, *GROWTH])
def test_many_processes_find_the_model_of_one(alone, together, name):
    for key, value in alone[name].items():
        torch.testing.assert_close(together[0][name][key], value, rtol=0, atol=1e-10)


def test_every_process_has_the_same_bits(together):
    for other in together[1:]:
        for name, found in together[0].items():
            assert all(torch.equal(found[key], other[name][key]) for key in found)


def test_the_same_number_of_processes_has_the_same_bits(together):
    first, again = together[0]["full"], together[0]["again"]
    assert all(torch.equal(first[key], again[key]) for key in first)


def test_what_processes_exchange():
    def work(rank: int) -> Any:
        group = distributed.current()
        fine = [rank + 1 / 3, 2.0**40 + rank, -math.pi * 1e-20]  # more digits than singles have
        mine = torch.tensor([rank, 10.0]), torch.tensor(fine, dtype=torch.float64)
        return (
            [t.tolist() for t in group.sum(*mine)],
            [t.tolist() for t in group.from_first(*mine)],
            group.largest(mine[0]).tolist(),
            group.gather({"rank": rank}),
            group.same(("a", rank)),
            group.once(lambda: (distributed.current().many, rank)),
            group.first,
        )

    found = run_group(3, work)
    for rank, got in enumerate(found):
        assert got[0][0] == [3.0, 30.0]
        assert got[0][1] == pytest.approx([4.0, 3 * 2.0**40 + 3, -3e-20 * math.pi], rel=1e-15)
        assert got[1] == [[0.0, 10.0], [1 / 3, 2.0**40, -math.pi * 1e-20]]
        assert got[2] == [2.0, 10.0]
        assert got[3] == [{"rank": 0}, {"rank": 1}, {"rank": 2}]
        assert got[4:] == (("a", 0), (False, 0), rank == 0)


def test_one_process_watches_and_decides():
    class Watch(Callback):
        seen = 0

        def on_pass(self, run):
            self.seen += 1

        def stop_reason(self, run):
            return "enough" if self.seen == 2 else None

    def work(rank: int) -> Any:
        watch = Watch()
        result = fit(PARAMS, DATASET, FixedPoint(None), max_iter=9, callbacks=[watch])
        return watch.seen, result.status, len(result.history)

    assert run_group(2, work) == [(2, "enough", 2), (0, "enough", 2)]


# Faults.


class Bad(ArrayDataset):
    """Rows that one process cannot read."""

    def shard(self, rank, size):
        if rank == 1:
            raise ValueError("rows.csv: row 17 is no number")
        return super().shard(rank, size)


def test_a_process_that_fails_ends_all_with_its_message():
    def work(rank: int) -> Any:
        try:
            fit(PARAMS, Bad(DATASET.rows), FixedPoint(None), max_iter=2)
        except distributed.DistributedError as error:
            return str(error), error.tells, type(error.__cause__).__name__

    found = run_group(3, work)
    host = os.uname().nodename
    assert {text for text, *_ in found} == {
        f"rank 1 of 3 on {host} failed: rows.csv: row 17 is no number"
    }
    assert [tells for _, tells, _ in found] == [False, True, False]
    assert found[1][2] == "ValueError"


class Clock:
    """Time that passes once these processes have said that they live."""

    def __init__(self, ranks: list[int]) -> None:
        self._keys = [f"alive{rank}" for rank in ranks]
        self._now = 0.0

    def monotonic(self) -> float:
        joined = distributed._joined
        if joined and joined._store.check(self._keys):
            self._now += 1e9  # later than what a call before this one was told, too
        return self._now

    def sleep(self, seconds: float) -> None:
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_a_process_that_is_gone_is_named(monkeypatch, how):
    monkeypatch.setattr(distributed, "time", Clock([0, 1]))

    def work(rank: int) -> Any:
        class Leave(ArrayDataset):
            def shard(self, at, size):
                torch.distributed.barrier()  # all are there; from now on nobody waits for long
                if rank == 2:
                    os.kill(os.getpid(), signal.SIGKILL if how == "killed" else signal.SIGSTOP)
                torch.distributed.distributed_c10d._set_pg_timeout(timedelta(seconds=0.5))
                return super().shard(at, size)

        fit(PARAMS, Leave(DATASET.rows), FixedPoint(None), max_iter=2)

    found = run_group(3, work, wait_for=2)
    assert len({str(error) for error in found}) == 1
    message = str(found[0])
    assert message.startswith(f"rank 2 of 3 on {os.uname().nodename} did not answer")
    assert sum(error.tells for error in found) == 1


def test_kills_at_random_moments_and_restarts_end_with_the_same_bits(monkeypatch, tmp_path):
    """What torchrun does: when a process is gone all are started again."""
    monkeypatch.setattr(distributed, "_GRACE", 0.0)
    rng = np.random.default_rng(0)

    def run(name: str, victim: int = -1, moment: int = 0) -> list[Any]:
        def work(rank: int) -> Any:
            exchanges, plain = itertools.count(), distributed.Processes._try

            def counted(self, exchange):
                if next(exchanges) == moment and rank == victim:
                    os.kill(os.getpid(), signal.SIGKILL)
                plain(self, exchange)

            distributed.Processes._try = counted
            stored = Checkpoint(tmp_path / name, interval=0.0)
            result = fit(PARAMS, DATASET, FixedPoint(70), max_iter=3, callbacks=[stored])
            return result.params.w, result.params.p, next(exchanges)

        return run_group(2, work)

    straight = run("straight")[0]
    # The first before the last batch of a pass, one row of which rank 0 has no part.
    for k, first in enumerate((11, rng.integers(straight[2]))):
        for moment in (first, rng.integers(straight[2] // 3)):
            found = run(f"run{k}", int(rng.integers(2)), int(moment))
            assert all(isinstance(one, BaseException) for one in found)
        for ended in run(f"run{k}"):
            assert all(torch.equal(a, b) for a, b in zip(ended[:2], straight[:2], strict=True))
