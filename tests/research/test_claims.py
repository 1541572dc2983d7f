"""What the sentences of "The paper, reproduced" say without a number holds in the result files."""

import functools

import numpy as np
import pytest

from research.paper.experiment import read_result
from research.paper.page import latest
from research.paper.prior import SHARES
from research.report import STORED


@functools.cache
def rows(name):
    return read_result(latest(STORED / "paper", name))["measured"]["rows"]


def mean(name, path, **where):
    chosen = [row for row in rows(name) if all(row[key] == value for key, value in where.items())]
    assert chosen
    for key in path.split("."):
        chosen = [row[key] for row in chosen]
    return float(np.mean(chosen))


def test_small_and_warm_networks_have_clean_memories():
    for solver in ("sgd", "fixed-point"):
        assert mean("fig1", "memory.noisy", solver=solver) == 0
    for beta in (18, 14, 10, 6):
        assert mean("fig2", "memory.noisy", case=f"beta={beta}", solver="fixed-point") == 0


def test_most_of_what_varsigma_gains_is_in_the_memories():
    plain = mean("regularizer", "accuracy", case="varsigma=1", solver="sgd")
    read, true = (
        mean("regularizer", key, case="varsigma=0.25", solver="sgd")
        for key in ("accuracy", "accuracy_true")
    )
    assert plain < (plain + read) / 2 < true < read


def test_unequal_weights_are_no_help_from_scratch():
    found = {
        (solver, kind): mean("prior", "accuracy", case=f"varsigma=0.25, {words}", solver=solver)
        for solver in ("sgd", "fixed-point")
        for kind, words in SHARES.items()
    }
    assert found["sgd", "falling"] < found["sgd", "halved"] < found["sgd", "equal"]
    assert found["fixed-point", "halved"] == pytest.approx(found["fixed-point", "equal"], abs=0.2)
    lost = {s: found[s, "equal"] - found[s, "falling"] for s in ("sgd", "fixed-point")}
    assert 0 < lost["fixed-point"] < lost["sgd"]


@pytest.mark.parametrize("group", ["all", "correct", "wrong"])
def test_the_fixed_points_memories_are_nearer_to_what_decides(group):
    sgd, fixed = (
        mean("fig3", f"fidelity.{group}", solver=solver) for solver in ("sgd", "fixed-point")
    )
    assert fixed > sgd


def test_latent_classes_are_of_like_memories_from_groups_and_not_at_small_smoothing():
    cases = {row["case"]: row for row in rows("fig4") if row["seed"] == 0}
    small = next(row for row in cases.values() if row["smoothing"] == 0.01)
    assert abs(small["within"] - small["shuffled"]) < 0.05
    assert cases["grouped"]["within"] > cases["symmetric"]["within"] + 0.1
    assert cases["grouped"]["loss"] < cases["symmetric"]["loss"]


def test_splitting_is_ahead_on_fashion_mnist_and_passes_grow_with_the_width():
    sweeps = read_result(latest(STORED / "paper", "fig6"))["measured"]["sweeps"]
    plain, split = (sweeps["fashion-mnist"][method] for method in ("sgd", "sgd-split"))
    assert len(plain["p_max"]) == 11
    assert min(np.subtract(split["accuracy"], plain["accuracy"])) > 0.5
    for methods in sweeps.values():
        assert methods["sgd"]["passes"][-1] > 1.3 * methods["sgd"]["passes"][0]
        # Each step of the staircase is of the split that comes there.
        assert np.diff(methods["sgd-split"]["splits"]).tolist().count(1) == 1
