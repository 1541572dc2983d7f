"""The refinement: who judges it, what it keeps, and that it goes on with the same bits."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
import torch

from mnemosphere.model import objectives
from mnemosphere.model.class_reading import at_temperature
from mnemosphere.model.kernel import accumulate, evaluate, log_joint
from mnemosphere.model.objectives import JointConditional, conditional
from mnemosphere.numerics import sphere
from mnemosphere.training import side_by_side
from mnemosphere.training.callbacks import PassRecord
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.fit import FitResult, fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.refine import (
    ExactSteps,
    improves,
    join_histories,
    refine,
)
from mnemosphere.training.refinement import Refinement, Trained
from runs import Break, Log, assert_same_params, seeded, timeless

# The package gives the function of the same name.
module = importlib.import_module("mnemosphere.training.refine")
STAGES = ["", "refine", "all", "again"]


@pytest.fixture
def many(monkeypatch):
    """As if there were many rows: one hold-out judges."""
    monkeypatch.setattr(module, "_FEW_ROWS", 0)
    monkeypatch.setattr(module, "_HEATED_ROWS", 0)


@pytest.fixture
def case(problem):
    """Two memories for three classes: the joint solution leaves something to gain."""
    case = problem(60, rows=157, memories=2, features=5, labels="full", beta=6.0)
    drawn = torch.multinomial(case.targets, 1, generator=seeded(3))[:, 0]
    x = sphere.project(case.x + 0.7 * torch.eye(4, 5, dtype=torch.float64)[drawn])
    targets = objectives.soft_labels(drawn.clamp_max(2), 3, 0.1, dtype=torch.float64)
    p_q = targets.mean(0)
    p = case.params.p_h[:, None] * p_q
    return case._replace(x=x, targets=targets, params=case.params.replace(p=p, p_q=p_q))


def meaningless(case):
    """The same rows with labels that mean nothing."""
    order = torch.randperm(len(case.x), generator=seeded(7))
    return case._replace(targets=case.targets[order])


class Joint:
    """Solve for the joint likelihood in a few passes; remember what was asked for."""

    def __init__(self, params, callbacks=()):
        self.params, self.callbacks, self.calls = params, callbacks, []
        self.brief, self.begun = [], []

    def __call__(self, dataset, stage, brief, begun):
        self.brief.append(brief)
        self.begun.append(begun)
        result = fit(
            self.params,
            dataset,
            FixedPoint(None),
            max_iter=2,
            callbacks=self.callbacks,
            stage=stage,
        )
        trained = Trained(result.params, result.history, result.status)
        self.calls.append((stage, dataset, trained))
        return trained


def go(case, *callbacks, refinement=None, learn_beta=True):
    """(what came of it, how the joint solutions were asked for)."""
    joint = Joint(case.params, callbacks)
    refinement = (
        Refinement(max_iter=4, validation_fraction=0.3, metric="none")
        if refinement is None
        else refinement
    )
    trained = refine(
        joint,
        case.dataset,
        refinement,
        learn_beta=learn_beta,
        learn_weights=False,
        generator=seeded(2),
        callbacks=callbacks,
    )
    return trained, joint.calls


@pytest.fixture
def descents(monkeypatch):
    """What every descent was given: its start, its settings, its result."""
    seen = []
    plain = module.fit

    def spied(params, dataset, solver, **settings):
        result = plain(params, dataset, solver, **settings)
        seen.append((params, dataset, solver, settings, result))
        return result

    monkeypatch.setattr(module, "fit", spied)
    return seen


def rows_of(dataset):
    return {tuple(row) for row in dataset.rows.x.tolist()}


# Who judges


def test_rows_that_judge_take_no_part_in_the_joint_start(many, case, descents):
    _, calls = go(case)
    stage, fitted, solution = calls[0]
    start, rows, _, settings, _ = descents[0]
    held = settings["validation"]
    assert stage == ""
    assert start is solution.params
    assert rows_of(fitted) == rows_of(rows)
    assert not rows_of(rows) & rows_of(held)
    assert rows_of(rows) | rows_of(held) == rows_of(case.dataset)


@pytest.mark.parametrize("gains", [True, False])
@pytest.mark.parametrize(("least", "turns"), [(157, 2), (158, 3)])
def test_with_more_rows_two_turns_do_and_mere_starts_are_brief(
    case, monkeypatch, least, turns, gains
):
    monkeypatch.setattr(module, "TWO_TURNS", least)
    case = case if gains else meaningless(case)
    joint = Joint(case.params)
    refine(
        joint, case.dataset, Refinement(max_iter=6, metric="none"), learn_beta=True,
        learn_weights=False, generator=seeded(2),
    )  # fmt: skip
    stages = [stage for stage, *_ in joint.calls]
    assert stages == [*(f"fold{k}." for k in range(turns)), "all"]
    assert joint.brief == [turns == 2] * turns + [gains]  # else it is what remains
    assert joint.begun == [None] * (turns + 1)  # a third of the rows was missing


@pytest.mark.parametrize("gains", [True, False])
@pytest.mark.parametrize("least", [157, 158])
def test_what_remains_goes_on_from_a_brief_solution_of_most_rows(
    many, case, monkeypatch, least, gains
):
    monkeypatch.setattr(module, "TWO_TURNS", least)
    monkeypatch.setattr(module, "_HEATED_ROWS", 1000)
    case = case if gains else meaningless(case)
    joint = Joint(case.params)
    refine(
        joint, case.dataset, Refinement(max_iter=4, validation_fraction=0.3, metric="none"),
        learn_beta=False, learn_weights=False, generator=seeded(2),
    )  # fmt: skip
    (_, _, brief), *_ = joint.calls
    assert joint.brief == [least == 157, gains]
    assert joint.begun == [None, brief.params if least == 157 and not gains else None]


def test_few_rows_judge_by_turns(case, descents, monkeypatch):
    """A third of each class in turn, then all rows, for the passes best on average."""
    seen = []
    plain = module._Descent.by_turns

    def by_turns(self, starts, splits, exact):
        seen.append((starts, splits, plain(self, starts, splits, exact)))
        return seen[-1][2]

    monkeypatch.setattr(module._Descent, "by_turns", by_turns)
    trained, calls = go(case, refinement=Refinement(max_iter=6, metric="none"))
    ((starts, splits, turns),) = seen
    ((start, everything, _, again, last),) = descents
    assert [stage for stage, *_ in calls] == ["fold0.", "fold1.", "fold2.", "all"]
    assert starts == [solution.params for _, _, solution in calls[:3]]
    counts = torch.bincount(case.targets.argmax(1), minlength=4)
    held = [part for _, part in splits]
    for part in held:
        got = torch.bincount(part.rows.targets.argmax(1), minlength=4)
        assert got.tolist() == (counts // 3).tolist()
    assert len(set.union(*map(rows_of, held))) == sum(part.n_rows for part in held)
    assert again["max_iter"] == len(last.history) == turns.stop
    assert_same_params(start, at_temperature(calls[3][2].params, turns.heat))
    assert everything.n_rows == 157
    assert_same_params(trained.params, last.params)
    assert [rows for _, rows in trained.unseen] == held
    for (params, _), refined in zip(trained.unseen, turns.after, strict=True):
        assert_same_params(params, refined)


def test_turns_end_at_the_pass_that_is_best_on_average(case, monkeypatch):
    """Of the passes on the way, none has a lower mean loss of the rows held out.

    They start at twice the temperature at which the joint solutions have the lowest.
    """
    monkeypatch.setattr(side_by_side, "_SINGLE_ROWS", case.dataset.n_rows)
    descent = module._Descent(Refinement(max_iter=9, noise=0.0, metric="none"), True, False,
                              seeded(5), (), 0)  # fmt: skip
    splits = [case.dataset.split(1 / 3, generator=seeded(k)) for k in range(3)]
    starts = [Joint(case.params)(rows, "", False, None).params for rows, _ in splits]
    turns = descent.by_turns(starts, splits, None)
    found, stop = turns.after, turns.stop

    def joint_loss(t):
        pairs = zip(starts, splits, strict=True)
        return sum(evaluate(at_temperature(p, t), held.rows, conditional) for p, (_, held) in pairs)

    suited = min(module._TEMPERATURES, key=joint_loss)
    assert turns.heat == 2 * suited
    assert_same_params(turns.before[1], at_temperature(starts[1], suited))
    starts = [at_temperature(start, 2 * suited) for start in starts]
    solver = descent._plan(starts[0], splits[0][0]).solver
    means = np.zeros(10)
    for k, (start, (rows, held)) in enumerate(zip(starts, splits, strict=True)):
        params, state = start, solver.start(start)
        means[0] += evaluate(params, held.rows, conditional)
        for n in range(1, 10):
            stats = accumulate(params, rows.rows, conditional)
            params, state = solver.step(params, state, stats, rows.rows, 1.0)
            means[n] += evaluate(params, held.rows, conditional)
            if n == stop:
                torch.testing.assert_close(found[k].w, params.w, rtol=1e-9, atol=1e-9)
    assert stop == means.argmin() > 0


def test_joint_solutions_side_by_side_are_those_of_one_at_a_time(case, monkeypatch):
    """By the solver's own loop, on each two thirds of the rows."""
    monkeypatch.setattr(side_by_side, "_SINGLE_ROWS", case.dataset.n_rows)
    descent = module._Descent(Refinement(metric="none"), True, True, seeded(5), (), 0)
    splits = [case.dataset.split(1 / 3, generator=seeded(2), turn=k) for k in range(3)]
    exact = ExactSteps(lambda _: case.params, 7, 1e-300)
    solved = descent.by_turns([case.params] * 3, splits, exact)
    for found, (rows, _) in zip(solved.joint, splits, strict=True):
        alone = fit(case.params, rows, FixedPoint(None, learn_weights=True), max_iter=7).params
        torch.testing.assert_close(found.w, alone.w, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(found.p, alone.p, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(found.beta, alone.beta, rtol=1e-9, atol=0)


def test_with_nobody_to_judge_it_is_the_joint_solution(case, descents):
    few = case._replace(x=case.x[:4], targets=torch.eye(4, dtype=torch.float64))
    trained, calls = go(few)
    assert [stage for stage, *_ in calls] == [""]
    assert trained is calls[0][2]
    assert calls[0][1].n_rows == 4
    assert descents == []


@pytest.mark.parametrize("beyond", [0.5, 2.0])
def test_a_gain_is_so_many_standard_errors_of_the_weighted_mean(beyond):
    """Against a bootstrap of the weighted mean."""
    generator = np.random.default_rng(5)
    weight = generator.uniform(0.2, 2.0, 211)
    noise = generator.normal(size=211)
    draws = generator.integers(211, size=(4000, 211))
    means = (weight[draws] * noise[draws]).sum(1) / weight[draws].sum(1)
    error = means.std()
    center = np.average(noise, weights=weight)
    for factor, expected in ((0.8, False), (1.25, True)):
        fall = torch.from_numpy(noise - center + factor * beyond * error)
        assert improves(fall, torch.from_numpy(weight), beyond=beyond) is expected


# What is kept


def test_where_rows_gain_all_are_used_in_the_end(many, case, descents):
    """The refinement is done again on all rows, for as many passes as were best."""
    settings = {"max_iter": 6, "validation_fraction": 0.3, "metric": "none"}
    trained, calls = go(case, refinement=Refinement(**settings))
    (_, rows, _, first, result), (start, everything, _, again, last) = descents
    held = first["validation"].rows
    before, after = (evaluate(p, held, conditional) for p in (calls[0][2].params, result.params))
    assert after < before
    assert rows.n_rows < everything.n_rows == 157
    assert again["validation"] is None
    assert start is calls[1][2].params
    judged = [record.validation_loss for record in result.history]
    assert again["max_iter"] == len(last.history) == 1 + int(np.argmin(judged))
    assert_same_params(trained.params, last.params)
    assert [stage for stage, *_ in calls] == ["", "all"]
    assert [settings["stage"] for *_, settings, _ in descents] == ["refine", "again"]
    assert [r.phase for r in trained.history] == [0] * 2 + [1] * len(judged) + [2] * 2 + [3] * len(
        last.history
    )
    assert trained.status == "refined"


def test_many_rows_are_refined_once(many, case, descents, monkeypatch):
    monkeypatch.setattr(module, "ALL_AGAIN", 156)
    trained, calls = go(case)
    assert len(calls) == len(descents) == 1
    assert_same_params(trained.params, descents[0][-1].params)


def test_where_nothing_is_gained_the_model_is_the_joint_one_of_all_rows(many, case, descents):
    trained, calls = go(meaningless(case))
    assert len(descents) == 1
    assert [stage for stage, *_ in calls] == ["", "all"]
    assert calls[1][1].n_rows == 157
    assert_same_params(trained.params, calls[1][2].params)
    assert [r.phase for r in trained.history][-2:] == [2, 2]


def test_a_loss_of_zero_is_the_best_there_is(many, case, monkeypatch):
    """Rows told apart beyond rounding: the pass that first does so is the one to stop after."""
    stops = []

    def descend(self, params, rows, held, stage, part=None):
        stops.append(part)
        losses = [0.3, 0.0, 0.0] if held is not None else [None]
        history = tuple(
            PassRecord(n + 1, 0.1, loss, None, 1.0, None, 2, 0.0) for n, loss in enumerate(losses)
        )
        return FitResult(params, {}, history, "max_iter")

    monkeypatch.setattr(module._Descent, "__call__", descend)
    monkeypatch.setattr(module, "_gained", lambda *_, **__: True)
    go(case)
    assert stops == [None, (0.0, 2 / 4)]


def test_some_thousand_rows_go_on_from_what_the_hold_out_came_to(case, descents, monkeypatch):
    """All rows, for the last third of the passes that were best, where the schedule was then."""
    monkeypatch.setattr(module, "_FEW_ROWS", 0)
    settings = {"max_iter": 12, "validation_fraction": 0.3, "noise": 0.0}
    trained, calls = go(case, refinement=Refinement(**settings))
    (_, rows, _, first, result), (start, everything, _, again, last) = descents
    assert [stage for stage, *_ in calls] == [""]  # no joint solution of all rows
    assert_same_params(start, result.params)
    assert start.metric is not None  # learned so far, and kept
    assert (rows.n_rows, everything.n_rows) == (111, 157)
    best = 1 + int(np.argmin([record.validation_loss for record in result.history]))
    begin = round(best * 2 / 3)
    assert 0 < begin < best
    assert float(first["state"]["step"]) == 0
    assert float(again["state"]["step"]) == begin
    assert len(last.history) == best - begin
    assert_same_params(trained.params, last.params)


def test_a_full_metric_knows_no_axes(case, monkeypatch):
    """Rows turned beforehand: every class of every row is as probable as before."""
    monkeypatch.setattr(side_by_side, "_SINGLE_ROWS", case.dataset.n_rows)
    q = torch.linalg.qr(torch.randn(5, 5, generator=seeded(8), dtype=torch.float64))[0]
    turned = case._replace(x=case.x @ q.T, params=case.params.replace(w=case.params.w @ q.T))
    found = []
    for one in (case, turned):
        params = go(one, refinement=Refinement(max_iter=12, noise=0.0))[0].params
        assert (params.metric - torch.eye(5)).norm() > 0.05
        found.append(log_joint(params, one.x))
    torch.testing.assert_close(*found, rtol=0, atol=1e-8)


def test_a_metric_held_at_its_start_is_none_at_all(many, case, monkeypatch):
    monkeypatch.setattr(
        module.Adam, "_metric_step", lambda self, params, state, stats, rate: (params.metric, {})
    )
    monkeypatch.setattr(module, "_gained", lambda *_, **__: True)
    held, none = (
        go(case, refinement=Refinement(max_iter=6, metric=metric))[0].params
        for metric in ("learn", "none")
    )
    assert held.metric is not None
    assert none.metric is None
    torch.testing.assert_close(held.w, none.w, rtol=0, atol=1e-12)
    torch.testing.assert_close(held.p, none.p, rtol=0, atol=1e-12)
    torch.testing.assert_close(held.beta, none.beta, rtol=1e-12, atol=0)


@pytest.mark.parametrize("per_coordinate", [31, 32])
def test_few_rows_per_coordinate_learn_no_metric(per_coordinate, many, case, descents, monkeypatch):
    """157 rows of 5 coordinates."""
    monkeypatch.setattr(module, "_PER_COORDINATE", per_coordinate)
    go(case, refinement=Refinement(max_iter=2))
    assert (descents[0][0].metric is not None) == (per_coordinate == 31)


def test_a_schedule_of_fewer_passes_is_left_at_the_same_place(case, descents, monkeypatch):
    """Rows left out judge 60 passes of one step; all rows take two steps in each of 30."""
    monkeypatch.setattr(module, "_BATCH", 110)
    go(case, refinement=Refinement(metric="none"))
    ((_, everything, solver, _, last),) = descents
    assert everything.n_rows == 157
    assert solver.batch_size == 79  # two batches alike
    assert solver.steps == 60
    assert len(last.history) <= 30


def test_histories_count_phases_on():
    def records(*phases):
        return tuple(PassRecord(1, 0.0, None, None, 1.0, None, 1, 0.0, phase=k) for k in phases)

    assert join_histories((), records(0, 1)) == records(0, 1)
    assert join_histories(records(0, 0), records(0, 1)) == records(0, 0, 1, 2)
    # Memories that settled first are phase −1.
    assert join_histories(records(-1, 0), records(-1, 0)) == records(-1, 0, 0, 1)


# Settings


@pytest.mark.parametrize("rows", [156, 157])
def test_noise_of_many_rows_may_be_twice_as_long(case, descents, monkeypatch, rows):
    monkeypatch.setattr(module, "_FEW_ROWS", 0)
    monkeypatch.setattr(module, "_HEATED_ROWS", rows)
    calm = case._replace(params=case.params.replace(beta=torch.tensor(1.0, dtype=torch.float64)))
    go(calm, refinement=Refinement(max_iter=1, metric="none"))
    assert math.sqrt(5) / float(descents[0][0].beta_eff) > 0.6
    assert descents[0][3]["noise"].length == (0.6 if rows < 157 else 0.3)


@pytest.mark.parametrize("noise", [0, 0.25, "auto"])
def test_noise_is_an_option(case, descents, noise):
    go(case, refinement=Refinement(noise=noise, max_iter=1, metric="none"))
    start, _, _, settings, _ = descents[0]
    if noise == 0:
        assert settings["noise"] is None
    elif noise == "auto":
        expected = min(0.3, math.sqrt(5) / float(start.beta_eff))
        assert settings["noise"].length == pytest.approx(expected)
    else:
        assert settings["noise"].length == 0.25


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_the_objective_is_the_one_asked_for(case, descents, weight):
    refinement = Refinement(conditional=weight, max_iter=1)
    assert refinement.rule == JointConditional(weight)
    go(case, refinement=refinement)
    assert descents[0][3]["rule"] == JointConditional(weight)


def test_passes_patience_and_schedule(many, case, descents):
    """Steps fade out over all passes; the patience is two thirds of them at least."""
    go(case, refinement=Refinement(max_iter=12, patience=2, metric="none"), learn_beta=False)
    start, rows, solver, settings, result = descents[0]
    batches = math.ceil(rows.n_rows / solver.batch_size)
    assert settings["max_iter"] == 12
    assert settings["patience"] == 8
    assert solver.steps == 12 * batches
    assert not solver.learn_beta
    assert result.params.beta == start.beta


# Interruption


def test_broken_in_any_part_it_goes_on_with_the_same_bits(many, case, tmp_path):
    whole, calls = go(case, log := Log())
    assert len(calls) == 2
    assert len(log.of("start")) == 4  # the joint start, the refinement, and both again
    phases = [record.phase for record in whole.history]
    places = [("pass", 1 + phases.index(k)) for k in range(4)]  # the first pass of each part
    places += [("batch", k) for k in (4, len(log.of("batch")))]
    for where, k in places:
        path = tmp_path / f"{where}{k}"
        error = ZeroDivisionError if where == "pass" and k > 1 else KeyboardInterrupt
        if error is KeyboardInterrupt:
            broken, _ = go(case, Break(where, k, error), Checkpoint(path))
            assert broken.status == "interrupted"
            broken.params.check()
        else:
            with pytest.raises(error):
                go(case, Break(where, k, error), Checkpoint(path))
        resumed, _ = go(case, Checkpoint(path))
        assert_same_params(resumed.params, whole.params)
        assert timeless(resumed.history) == timeless(whole.history)
        assert resumed.status == whole.status
    names = {p.name for p in tmp_path.iterdir() if p.name.startswith(path.name)}
    assert names == {path.name + ("." + stage if stage else "") for stage in STAGES}


@pytest.mark.parametrize("part", range(4))
def test_interrupted_it_returns_the_best_there_is(many, case, descents, part):
    """In the joint start that; in the refinement its best; later on, the refined model."""
    whole, _ = go(case)
    phases = [record.phase for record in whole.history]
    refined = descents[0][-1].params
    descents.clear()
    broken, calls = go(case, Break("pass", 1 + phases.index(part)))
    assert broken.status == "interrupted"
    assert len(broken.history) == 1 + phases.index(part)
    if part == 0:
        assert_same_params(broken.params, calls[0][2].params)
        assert descents == []
    elif part == 1:
        assert len(calls) == len(descents) == 1
        choices = (calls[0][2].params, descents[0][-1].params)
        assert any(broken.params is choice for choice in choices)
    else:
        assert_same_params(broken.params, refined)
