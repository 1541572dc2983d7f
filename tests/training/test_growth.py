"""Growth: the phases, the tree, the state that follows, checkpoints and interruption."""

import dataclasses

import pytest
import torch
from torch import Tensor

from mnemosphere.model import objectives
from mnemosphere.model.curvature import Curvature, Nearest
from mnemosphere.model.duplicate import duplicate, parents, split
from mnemosphere.model.kernel import accumulate, evaluate
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import sphere
from mnemosphere.training import growth
from mnemosphere.training.batches import Batch, Data
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import Splitting, grow, line_search, start
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.sgd import SGD

B, N, C = 211, 11, 3
SOLVERS = [FixedPoint(), FixedPoint(batch_size=53), SGD(batch_size=53, tolerance=None)]


def make_data(seed: int = 0, centers: int = 13) -> Data:
    generator = torch.Generator().manual_seed(seed)
    place = torch.randn(centers, N, generator=generator, dtype=torch.float64)
    which = torch.randint(centers, (B,), generator=generator)
    noise = torch.randn(B, N, generator=generator, dtype=torch.float64)
    x = sphere.project(place[which] + 0.3 * noise)
    return Data(x, objectives.soft_labels(which % C, C, 0.1, dtype=torch.float64))


def make_params(data: Data, n_memories: int, max_memories: int, beta: float = 20.0) -> Parameters:
    return start(
        data.x[:n_memories].clone(),
        data.targets.mean(0),
        max_memories=max_memories,
        beta=beta,
        varsigma=0.8,
    )


def seeded(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def assert_same(a: Parameters, b: Parameters) -> None:
    for field in dataclasses.fields(Parameters):
        one, two = getattr(a, field.name), getattr(b, field.name)
        assert torch.equal(one, two) if isinstance(one, Tensor) else one == two, field.name


@pytest.mark.parametrize("solver", SOLVERS, ids=repr)
def test_grows_to_the_width_asked_for_and_fits_better(solver):
    data = make_data()
    params = make_params(data, 2, 11)
    result = grow(
        params, data, solver, max_memories=11, max_epochs=4, final_epochs=4, generator=seeded()
    )
    assert result.status == "grown"
    assert result.params.check().n_memories == 11
    # P_0 = P/P_max: in the end the uniform component weighs as much as an average memory.
    assert float(result.params.p_h[0]) == pytest.approx(1 / 12)
    losses = [
        evaluate(model, data.x, data.targets, objectives.joint) for model in result.lineage.models
    ]
    assert losses == sorted(losses, reverse=True)
    assert [r.phase for r in result.history] == sorted(r.phase for r in result.history)
    assert result.history[-1].n_memories == 11
    assert_same(result.lineage.at_level(-1), result.params)


def test_cost_counts_training_and_curvature_at_their_width():
    data = make_data()
    result = grow(
        make_params(data, 3, 6), data, FixedPoint(), max_memories=6, max_epochs=2, final_epochs=4
    )
    (only,) = result.splits
    assert (only.n_memories, only.n_split) == (3, 3)
    assert result.cost() == pytest.approx((2 * 3 + 4 * 6 + 3 * only.passes) / 6)


def test_stops_by_itself_where_no_memory_is_a_saddle():
    """Three tight bundles of rows and a memory on each: nothing is left to split."""
    generator = seeded()
    place = torch.eye(3, N, dtype=torch.float64)
    noise = torch.randn(B, N, generator=generator, dtype=torch.float64)
    which = torch.arange(B) % 3
    x = sphere.project(place[which] + 0.02 * noise)
    data = Data(x, objectives.soft_labels(which, C, 0.1, dtype=torch.float64))
    params = start(place, data.targets.mean(0), max_memories=50, beta=20.0)
    result = grow(
        params,
        data,
        FixedPoint(learn_beta=False),
        max_memories=50,
        splitting=Splitting(curvature=Nearest(B, B)),
        max_epochs=5,
        final_epochs=3,
    )
    assert result.status == "stable"
    assert result.params.n_memories == 3
    assert result.splits[-1].n_split == 0
    assert result.splits[-1].lambda_min > 0
    assert "no memory is a saddle" in result.message
    assert result.lineage.n_levels == 2


def test_choice_by_curvature_threshold_fraction_and_room():
    values = torch.tensor([-1.0, 0.5, -3.0, -0.1, -2.0])
    assert Splitting().choose(values, 100).tolist() == [2, 4, 0, 3]
    assert Splitting(threshold=-1.5).choose(values, 100).tolist() == [2, 4]
    assert Splitting(fraction=0.45).choose(values, 100).tolist() == [2, 4]
    assert Splitting(fraction=0.01).choose(values, 100).tolist() == [2]
    assert Splitting().choose(values, 8).tolist() == [2, 4, 0]
    assert Splitting().choose(values, 5).tolist() == []


@pytest.mark.parametrize(
    "settings", [{"fraction": 0.0}, {"fraction": 1.5}, {"threshold": 0.1}, {"delta": 0.0}]
)
def test_bad_settings_are_refused(settings):
    with pytest.raises(ValueError, match="must"):
        Splitting(**settings)


def test_shrinking_is_refused():
    data = make_data()
    with pytest.raises(ValueError, match="cannot grow 5 memories to 3"):
        grow(make_params(data, 5, 5), data, FixedPoint(), max_memories=3)


# The solver's state


def test_momentum_follows_the_lineage():
    data = make_data()
    params = make_params(data, 3, 6)
    solver = SGD()
    generator = seeded()
    state = {
        name: torch.randn(t.shape, generator=generator, dtype=t.dtype)
        for name, t in solver.start(params).items()
    }
    which = torch.tensor([2, 0])
    grown = duplicate(params, which)
    followed = solver.follow(state, grown, parents(3, which))
    tangent = sphere.to_tangent(params.w, state["w"])
    torch.testing.assert_close(followed["w"], tangent[[0, 1, 2, 2, 0]])
    assert torch.equal(followed["p"], state["p"][[0, 1, 2, 3, 3, 1]])
    assert torch.equal(followed["beta"], state["beta"])


def test_sgd_of_copies_is_sgd_of_the_original():
    """One step of the duplicated network, copies left together, is still the same function."""
    data = make_data()
    solver = SGD(batch_size=B, tolerance=1e-12)
    params, state = make_params(data, 3, 6), None
    batch = Batch(data.x, data.targets, None, 1.0)
    state = solver.start(params)
    stats = accumulate(params, data.x, data.targets, objectives.joint)
    params, state = solver.step(params, state, stats, batch)
    which = torch.tensor([1])
    grown = duplicate(params, which)
    copied = solver.follow(state, grown, parents(3, which))
    stats = accumulate(grown, data.x, data.targets, objectives.joint)
    grown, copied = solver.step(grown, copied, stats, batch)
    assert torch.equal(grown.w[1], grown.w[3])
    torch.testing.assert_close(grown.p[2], grown.p[4])
    torch.testing.assert_close(copied["w"][1], copied["w"][3])


def test_running_statistics_follow_the_lineage():
    """A step from the followed state alone gives back the split network."""
    data = make_data()
    params = make_params(data, 3, 6)
    solver = FixedPoint(batch_size=53)
    stats = accumulate(params, data.x, data.targets, objectives.joint)
    batch = Batch(data.x, data.targets, None, 1.0)
    params, state = solver.step(params, solver.start(params), stats, batch)
    which = torch.tensor([2, 1])
    u = Nearest(B, B)(params, data.x, data.targets).direction
    grown = split(params, which, u, 0.2)
    followed = solver.follow(state, grown, parents(3, which))
    torch.testing.assert_close(sphere.project(followed["w_bar"]), grown.w)
    torch.testing.assert_close(
        followed["w_bar"].norm(dim=1).sum(), state["w_bar"].norm(dim=1).sum()
    )
    torch.testing.assert_close(followed["p_bar"].sum(0), state["p_bar"].sum(0))
    torch.testing.assert_close(followed["p_bar"][3], state["p_bar"][3] / 2)
    torch.testing.assert_close(followed["p_bar"][1], state["p_bar"][1])


# The line search


def test_line_search_finds_a_delta_that_lowers_the_loss():
    data = make_data()
    params = make_params(data, 3, 6)
    found = Nearest(B, B)(params, data.x, data.targets)
    which = (found.lambda_min < 0).nonzero()[:, 0]
    assert which.shape[0] > 0
    grown, delta, passes = line_search(params, data, objectives.joint, which, found, seeded())
    loss = evaluate(grown, data.x, data.targets, objectives.joint)
    assert loss < evaluate(params, data.x, data.targets, objectives.joint)
    for other in (delta * 2, delta / 2):
        rival = split(params, which, found.direction, other)
        assert other > 0.8 or loss <= evaluate(rival, data.x, data.targets, objectives.joint)
    assert passes > 0


# The tree


def curvature_of(values: list[float]) -> Curvature:
    t = torch.tensor(values)
    return Curvature(t, torch.zeros(len(values), 2), 10 * t, torch.zeros(len(values)), 0.0)


def test_lineage_by_hand():
    tree = Lineage.root(2)  # nodes 0, 1
    tree = tree.split(torch.tensor([1]), curvature_of([-1.0, -2.0]))  # 1 -> 2, 3
    tree = tree.split(torch.tensor([2, 0]), curvature_of([-3.0, -4.0, -5.0]))
    # memories of level 1 are nodes 0, 2, 3; splitting its third and first: 3 -> 4, 6; 0 -> 5, 7
    assert [m.tolist() for m in tree.members] == [[0, 1], [0, 2, 3], [5, 2, 4, 6, 7]]
    assert tree.level.tolist() == [0, 0, 1, 1, 2, 2, 2, 2]
    assert tree.parent.tolist() == [-1, -1, 1, 1, 3, 0, 3, 0]
    assert tree.children(1) == (2, 3)
    assert tree.children(3) == (4, 6)
    assert tree.children(2) == ()
    assert tree.lambda_min[[0, 1, 3]].tolist() == [-3.0, -2.0, -5.0]
    assert tree.beta_split[[0, 1, 3]].tolist() == [-30.0, -20.0, -50.0]
    assert bool(tree.lambda_min[[2, 4, 5, 6, 7]].isnan().all())


def test_lineage_survives_tensors_and_every_level_predicts():
    data = make_data()
    result = grow(
        make_params(data, 2, 7), data, FixedPoint(), max_memories=7, max_epochs=3, final_epochs=3
    )
    tensors = {name: t.clone() for name, t in result.lineage.to_tensors().items()}
    assert all(isinstance(t, Tensor) for t in tensors.values())
    back = Lineage.from_tensors(tensors)
    assert back.n_levels == result.lineage.n_levels == 3
    for level, width in enumerate([2, 4, 7]):
        assert_same(back.at_level(level).check(), result.lineage.at_level(level))
        assert back.at_level(level).n_memories == width
        assert torch.equal(back.members[level], result.lineage.members[level])
    split_nodes = torch.tensor([bool(back.children(i)) for i in range(back.n_nodes)])
    assert torch.equal(split_nodes, ~back.lambda_min.isnan())
    assert bool((back.lambda_min[split_nodes] < 0).all())
    with pytest.raises(ValueError, match="level must lie in"):
        back.at_level(3)


def test_level_of_the_wrong_width_is_refused():
    data = make_data()
    with pytest.raises(ValueError, match="cannot hold 3 memories"):
        Lineage.root(2).with_model(make_params(data, 3, 3))


# Interruption and checkpoints


class StopAt(Callback):
    """Raise at the end of the k-th pass or split."""

    def __init__(self, error: type[BaseException], passes: int = -1, splits: int = -1) -> None:
        self.error, self.passes, self.splits = error, passes, splits

    def on_epoch(self, record, params):
        self.passes -= 1
        if self.passes == 0:
            raise self.error

    def on_split(self, split, params):
        self.splits -= 1
        if self.splits == 0:
            raise self.error


@pytest.mark.parametrize("solver", [FixedPoint(batch_size=101), SOLVERS[2]], ids=repr)
@pytest.mark.parametrize("stop", [{"passes": 1}, {"splits": 1}, {"passes": 5}])
def test_a_broken_run_goes_on_with_the_same_bits(tmp_path, solver, stop):
    data = make_data()
    rows, validation = data.split_tail(0.1)
    params = make_params(data, 2, 7)
    path = tmp_path / "run.safetensors"

    def run(*callbacks: Callback, checkpoint=None):
        return grow(
            params,
            rows,
            solver,
            max_memories=7,
            splitting=Splitting(curvature=Nearest(rows_per_memory=13, strongest=17)),
            max_epochs=2,
            final_epochs=2,
            validation=validation,
            patience=2,
            generator=seeded(),
            callbacks=callbacks,
            checkpoint=checkpoint,
        )

    whole = run()
    with pytest.raises(RuntimeError):
        run(StopAt(RuntimeError, **stop), checkpoint=path)
    resumed = run(checkpoint=path)
    assert_same(resumed.params, whole.params)
    again = run(checkpoint=path)
    assert_same(again.params, whole.params)
    for a, b in zip(whole.lineage.models, resumed.lineage.models, strict=True):
        assert_same(a, b)
    assert torch.equal(whole.lineage.parent, resumed.lineage.parent)
    assert [r.loss for r in whole.history] == [r.loss for r in resumed.history]
    left = {p.name for p in tmp_path.iterdir()}
    assert left == {"run.safetensors", f"run.safetensors.phase{whole.lineage.n_levels - 1}"}


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    data = make_data()
    params = make_params(data, 2, 7)
    path = tmp_path / "run"
    settings = {"max_memories": 7, "max_epochs": 1, "final_epochs": 1, "checkpoint": path}
    grow(params, data, FixedPoint(), **settings)
    with pytest.raises(ValueError, match="of another run"):
        grow(params, data, FixedPoint(learn_beta=False), **settings)


@pytest.mark.parametrize("passes", [1, 3, 4])
def test_ctrl_c_in_training_leaves_a_usable_model(passes):
    data = make_data()
    result = grow(
        make_params(data, 2, 7),
        data,
        FixedPoint(),
        max_memories=7,
        max_epochs=2,
        callbacks=[StopAt(KeyboardInterrupt, passes=passes)],
    )
    assert result.status == "interrupted"
    result.params.check()
    assert len(result.history) == passes
    assert_same(result.lineage.at_level(-1), result.params)
    assert "usable" in result.message


def test_ctrl_c_in_the_curvature_leaves_the_trained_model(monkeypatch):
    def interrupted(*_args, **_settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(growth, "_next_phase", interrupted)
    data = make_data()
    result = grow(make_params(data, 2, 7), data, FixedPoint(), max_memories=7)
    assert result.status == "interrupted"
    assert result.params.check().n_memories == 2
    assert len(result.history) == 2


def test_callbacks_see_every_split():
    seen = []

    class Watch(Callback):
        def on_split(self, split, params):
            seen.append((split.n_memories, split.n_split, params.n_memories))

    data = make_data()
    result = grow(
        make_params(data, 2, 7),
        data,
        FixedPoint(),
        max_memories=7,
        splitting=Splitting(delta=None),
        callbacks=[Watch()],
    )
    assert seen == [(2, 2, 4), (4, 3, 7)]
    assert [s.delta for s in result.splits] == [s.delta for s in result.splits if s.delta > 0]


def test_the_same_seed_gives_the_same_bits():
    data = make_data()
    results = [
        grow(
            make_params(data, 2, 7),
            data,
            FixedPoint(batch_size=53),
            max_memories=7,
            max_epochs=1,
            final_epochs=1,
            generator=seeded(9),
        )
        for _ in range(2)
    ]
    assert_same(results[0].params, results[1].params)
