"""Growth: the phases, the state that is expanded, checkpoints and interruption."""

import dataclasses
import math
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from draws import generator as seeded
from mnemosphere.export.files import to_plain
from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.copies import duplicate, parents, split
from mnemosphere.model.curvature import nearest
from mnemosphere.model.mixture import Mixture, from_memories
from mnemosphere.model.one_pass import accumulate, evaluate
from mnemosphere.numerics import sphere
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import Splitting, grow
from mnemosphere.training.sgd import SGD
from runs import Break, Log, assert_same_params, assert_same_state, timeless

B, N, C = 211, 11, 3
SOLVERS = [
    FixedPoint(None, tol=0), FixedPoint(53, tol=0), SGD(batch_size=53, tol=0, patience=2)
]  # fmt: skip
HELD_BETA = FixedPoint(None, learn_beta=False, tol=0)


def make_data(seed: int = 0, centers: int = 13) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    place = torch.randn(centers, N, generator=generator, dtype=torch.float64)
    which = torch.randint(centers, (B,), generator=generator)
    noise = torch.randn(B, N, generator=generator, dtype=torch.float64)
    x = sphere.project(place[which] + 0.3 * noise)
    return Batch(x, objectives.soft_labels(which % C, C, 0.1, dtype=torch.float64))


def make_params(rows: Batch, n_memories: int, max_memories: int, beta: float = 20.0) -> Mixture:
    """The first rows; the uniform component as heavy as it will be in the end."""
    return from_memories(
        rows.x[:n_memories].clone(),
        rows.targets.mean(0),
        beta=beta,
        varsigma=0.8,
        uniform_weight=n_memories / max_memories,
    )


def growth(params, rows, solver=None, **options):
    return grow(params, ArrayDataset(rows), solver or FixedPoint(None, tol=0), **options)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: f"{type(s).__name__}({s.batch_size})")
def test_grows_to_the_width_asked_for_and_fits_better(solver):
    rows = make_data()
    options = {"phase_iter": 4, "max_iter": 4, "generator": seeded()}
    result = growth(make_params(rows, 2, 11), rows, solver, max_memories=11, **options)
    assert result.status == "grown"
    assert result.params.check().n_memories == 11
    # P_0 = P/P_max: in the end the uniform component weighs as much as an average memory.
    assert float(result.params.p_h[0]) == pytest.approx(1 / 12)
    losses = [evaluate(model, rows, objectives.joint) for model in result.lineage.models]
    assert losses == sorted(losses, reverse=True)
    assert [r.phase for r in result.history] == sorted(r.phase for r in result.history)
    assert result.history[-1].n_memories == 11
    assert_same_params(result.lineage.models[-1], result.params)


def test_stops_by_itself_where_no_memory_is_a_saddle():
    """Three tight bundles of rows and a memory on each: nothing is left to split."""
    generator = seeded()
    place = torch.eye(3, N, dtype=torch.float64)
    noise = torch.randn(B, N, generator=generator, dtype=torch.float64)
    which = torch.arange(B) % 3
    x = sphere.project(place[which] + 0.02 * noise)
    rows = Batch(x, objectives.soft_labels(which, C, 0.1, dtype=torch.float64))
    params = from_memories(place, rows.targets.mean(0), beta=20.0, uniform_weight=3 / 50)
    splitting = Splitting(rows_per_memory=B)
    options = {"max_memories": 50, "splitting": splitting, "phase_iter": 5, "max_iter": 3}
    result = growth(params, rows, HELD_BETA, **options)
    assert result.status == "stable"
    assert result.params.n_memories == 3
    assert result.splits[-1].n_split == 0
    assert result.splits[-1].lambda_min > 0
    assert result.lineage.n_levels == 2


def test_choice_by_curvature_threshold_fraction_and_room():
    values = torch.tensor([-1.0, 0.5, -3.0, -0.1, -2.0])
    assert Splitting().choose(values, 100).tolist() == [2, 4, 0, 3]
    assert Splitting(threshold=-1.5).choose(values, 100).tolist() == [2, 4]
    assert Splitting(threshold=float("inf")).choose(values, 100).tolist() == [2, 4, 0, 3, 1]
    assert Splitting(fraction=0.45).choose(values, 100).tolist() == [2, 4]
    assert Splitting(fraction=0.01).choose(values, 100).tolist() == [2]
    assert Splitting().choose(values, 8).tolist() == [2, 4, 0]
    assert Splitting().choose(values, 5).tolist() == []


# The solver's state


def test_sgd_of_copies_is_sgd_of_the_original():
    """One step of the duplicated network, copies left together, is still the same function."""
    rows = make_data()
    solver = SGD(batch_size=B)
    params, state = make_params(rows, 3, 6), None
    state = solver.start(params)
    stats = accumulate(params, rows, objectives.joint)
    params, state = solver.step(params, state, stats, rows, 1.0)
    which = torch.tensor([1])
    grown = duplicate(params, which)
    copied = solver.expand_state(state, grown, parents(3, which))
    stats = accumulate(grown, rows, objectives.joint)
    grown, copied = solver.step(grown, copied, stats, rows, 1.0)
    assert torch.equal(grown.w[1], grown.w[3])
    assert_close(grown.p[2], grown.p[4])
    assert_close(copied["w"][1], copied["w"][3])


def test_running_statistics_are_expanded_along_the_lineage():
    """A step from the expanded state alone gives back the split network."""
    rows = make_data()
    params = make_params(rows, 3, 6)
    solver = FixedPoint(batch_size=53)
    stats = accumulate(params, rows, objectives.joint)
    params, state = solver.step(params, solver.start(params), stats, rows, 1.0)
    which = torch.tensor([2, 1])
    u = nearest(params, rows).direction
    grown = split(params, which, u, 0.2)
    expanded = solver.expand_state(state, grown, parents(3, which))
    assert_close(sphere.project(expanded["w_bar"]), grown.w)
    assert_close(expanded["w_bar"].norm(dim=1).sum(), state["w_bar"].norm(dim=1).sum())
    assert_close(expanded["p_bar"].sum(0), state["p_bar"].sum(0))
    assert_close(expanded["p_bar"][3], state["p_bar"][3] / 2)
    assert_close(expanded["p_bar"][1], state["p_bar"][1])


# The line search


def test_no_split_by_default_raises_the_loss():
    # Hot and cold, few and many memories: δ = 0.25 itself raises the loss of some.
    class Losses(Callback):
        def on_start(self, run):
            if before:
                gains.append(before[-1] - evaluate(run.params, rows, objectives.joint))

        def on_pass(self, run):
            before.append(evaluate(run.params, rows, objectives.joint))

    gains, deltas = [], []
    for seed, beta in enumerate((3.0, 9.0, 30.0, 90.0, 300.0)):
        rows = make_data(seed)
        before = []
        options = {"phase_iter": 2, "max_iter": 1, "callbacks": [Losses()], "generator": seeded()}
        params = make_params(rows, 2, 47, beta=beta)
        grown = growth(params, rows, HELD_BETA, max_memories=47, **options)
        deltas += [split.delta for split in grown.splits]
    assert min(gains) >= 0
    assert len(gains) > 12
    assert 0 < min(d for d in deltas if d > 0) < 0.25


def test_where_no_delta_lowers_the_loss_there_is_no_split():
    # Directions of negative curvature on some rows, none on the held-out ones: growth is stable.
    rows = make_data()

    def wrong(params, batch, rule, **options):
        found = nearest(params, batch, rule, **options)
        # Where rows vary least a split of hot memories costs.
        least = torch.linalg.eigh(batch.x.T @ batch.x).eigenvectors[:, :1].T
        least = sphere.project(sphere.to_tangent(params.w, least.expand_as(params.w)))
        below = torch.full_like(found.lambda_min, -1.0)
        return dataclasses.replace(found, lambda_min=below, direction=least)

    start = make_params(rows, 2, 2, beta=1.0)
    start = growth(start, rows, HELD_BETA, max_memories=2, max_iter=60).params

    def run(threshold):
        splitting = Splitting(curvature=wrong, rows_per_memory=B, threshold=threshold)
        options = {"splitting": splitting, "phase_iter": 1, "max_iter": 1}
        return growth(start, rows, HELD_BETA, max_memories=4, **options)

    held = run(0.0)
    assert (held.status, held.params.n_memories) == ("stable", 2)
    assert held.splits[-1].delta == 0.0
    forced = run(math.inf)
    assert (forced.status, forced.params.n_memories) == ("grown", 4)
    assert forced.splits[0].delta == 0.25 / 2**11


# Interruption and checkpoints


def broken_growth(solver, *callbacks, **settings):
    """Growth in three phases as a new process would start it."""
    rows = make_data()
    learn, held = ArrayDataset(rows).split(0.1, generator=seeded(1))
    return grow(
        make_params(rows, 2, 7),
        learn,
        solver,
        max_memories=7,
        splitting=Splitting(curvature=partial(nearest, strongest=17), rows_per_memory=13),
        phase_iter=2,
        max_iter=2,
        validation=held,
        generator=seeded(5),
        callbacks=callbacks,
        **settings,
    )


def assert_same_growth(a, b):
    assert_same_params(a.params, b.params)
    assert_same_state(a.state, b.state)
    assert a.status == b.status
    assert timeless(a.history) == timeless(b.history)
    for one, two in zip(a.splits, b.splits, strict=True):
        assert dataclasses.replace(one, seconds=0) == dataclasses.replace(two, seconds=0)
    one, two = {}, {}
    assert to_plain(a.lineage, one) == to_plain(b.lineage, two)
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert_close(two[name], tensor, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: f"{type(s).__name__}({s.batch_size})")
def test_broken_in_any_phase_it_goes_on_with_the_same_bits(tmp_path, solver):
    whole = broken_growth(solver, log := Log())
    assert len(whole.splits) >= 2
    if solver.rows_per_step is None:
        places = [("pass", k) for k in range(1, len(whole.history) + 1, 2)]  # once in every phase
    else:
        places = [("batch", 2), ("batch", len(log.of("batch")) // 2), ("pass", 3)]
    for where, k in places:
        path = tmp_path / f"{where}{k}"
        error = ZeroDivisionError if (where, k) == ("pass", 3) else KeyboardInterrupt
        breaking = Break(where, k, error)
        if error is KeyboardInterrupt:
            broken = broken_growth(solver, breaking, Checkpoint(path))
            assert broken.status == "interrupted"
            # What it returns fits together and can be trained further.
            size = broken.params.check().n_memories
            assert broken.lineage.models[-1].n_memories == size
            fresh = solver.start(broken.params)
            assert {n: t.shape for n, t in broken.state.items()} == {
                n: t.shape for n, t in fresh.items()
            }
        else:
            with pytest.raises(error):
                broken_growth(solver, breaking, Checkpoint(path))
        assert_same_growth(broken_growth(solver, Checkpoint(path)), whole)
    # Once more, with nothing left to do.
    assert_same_growth(broken_growth(solver, Checkpoint(path)), whole)
