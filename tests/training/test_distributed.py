"""Several processes: the model of one, bitwise identical on all; an error of one ends all."""

from functools import partial
from typing import Any

import pytest
import torch

from mnemosphere.model import initialize, objectives
from mnemosphere.model.curvature import krylov, nearest
from mnemosphere.model.mixture import from_memories
from mnemosphere.numerics import sphere
from mnemosphere.training import FixedPoint, distributed, fit, grow
from mnemosphere.training.adam import Adam
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.growth import Splitting
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
    return fit(params, dataset, FixedPoint(None, tol=0), max_iter=1).params, dataset


PARAMS, DATASET = problem()
CASES: dict[str, Any] = {
    "full": (FixedPoint(None, tol=0), {}),
    "batches": (FixedPoint(50, tol=0), {}),
    "sgd": (SGD(batch_size=B, tol=0), {}),
    "adam batches": (
        Adam(steps=60, batch_size=50),
        {"rule": CONDITIONAL},
    ),
    "more processes than rows": (FixedPoint(None, tol=0), {"rows": 3}),
}
GROWTH = {
    "nearest": Splitting(curvature=partial(nearest, strongest=17, steps=4), rows_per_memory=20),
    "krylov": Splitting(curvature=partial(krylov, max_cycles=1), rows_per_memory=None),
}


def train(name: str) -> dict[str, Any]:
    """Everything that one training comes to."""
    generator = torch.Generator().manual_seed(1)
    if name in GROWTH:
        grown = grow(
            PARAMS, DATASET, FixedPoint(None, tol=0), max_memories=7, phase_iter=1, max_iter=1,
            generator=generator, splitting=GROWTH[name],
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


@pytest.fixture(scope="module")
def together() -> list[dict[str, Any]]:
    found = run_group(3, everything)
    assert not [error for error in found if isinstance(error, BaseException)]
    return found


@pytest.mark.parametrize("name", [*CASES, *GROWTH])
def test_several_processes_find_the_model_of_one(alone, together, name):
    for key, value in alone[name].items():
        torch.testing.assert_close(together[0][name][key], value, rtol=0, atol=1e-10)


def test_results_are_bitwise_identical_on_every_process_and_in_every_run(together):
    for other in together[1:]:
        for name, found in together[0].items():
            assert all(torch.equal(found[key], other[name][key]) for key in found)
    first, again = together[0]["full"], together[0]["again"]
    assert all(torch.equal(first[key], again[key]) for key in first)


def test_one_process_watches_and_decides():
    class Watch(Callback):
        seen = 0

        def on_pass(self, run):
            self.seen += 1

        def stop_reason(self, run):
            return "enough" if self.seen == 2 else None

    def work(rank: int) -> Any:
        watch = Watch()
        result = fit(PARAMS, DATASET, FixedPoint(None, tol=0), max_iter=9, callbacks=[watch])
        return watch.seen, result.status, len(result.history)

    assert run_group(2, work) == [(2, "enough", 2), (0, "enough", 2)]


class Bad(ArrayDataset):
    """Rows that one process cannot read."""

    def batches(self, size, *, group=None, **how):
        if group is not None and group.rank == 1:
            raise ValueError("rows.csv: row 17 is no number")
        return super().batches(size, **({} if group is None else {"group": group}), **how)


def test_a_process_that_fails_ends_all():
    found = run_group(
        3, lambda _: fit(PARAMS, Bad(DATASET.rows), FixedPoint(None, tol=0), max_iter=2)
    )
    assert repr(found[1]) == "ValueError('rows.csv: row 17 is no number')"
    for other in (found[0], found[2]):
        assert isinstance(other, distributed.DistributedError)
        assert "see the error of the one that failed" in str(other)
