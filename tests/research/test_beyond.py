"""The studies behind "Beyond the paper": their parts against oracles, and the reading of results."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from mnemosphere import theory
from mnemosphere.numerics import sphere
from mnemosphere.training.noise import SphereNoise
from research.benchmarks import noise_bound, splitting, training_time
from research.pages import beyond
from research.theory import weak


def test_the_contrast_of_the_best_student_is_that_of_the_equations():
    two = weak.Contrast(2)
    for b, rho in ((1.5, 2.0), (2.0, 0.5)):
        problem = weak.problem_of(2, 2, b=b, beta_eff=b * b, rho=rho, n_features=10**8)
        m = theory.solve_with_noise(problem, weak.aligned(problem)).m
        assert two.solve(b, rho) == pytest.approx(float(m[0, 0] - m[0, 1]), abs=3e-3)
    assert two.thresholds(2.0) == pytest.approx((2 / 16,) * 3)  # two memories part continuously


def test_ten_memories_are_hard_where_lesieur_and_others_say():
    ten = weak.Contrast(10, n_draws=2**12)
    for b in (1.5, 2.6):
        exists, better, easy = ten.thresholds(b)
        assert easy == pytest.approx(10 / b**4)
        hard = 4 + 2 * math.sqrt(10 * easy) < 10
        assert (exists < better < easy) == hard


def small_model(seed=0):
    g = torch.Generator().manual_seed(seed)
    w = sphere.sample_uniform(5, 7, generator=g, dtype=torch.float64)
    x = sphere.sample_uniform(11, 7, generator=g, dtype=torch.float64)
    log_p = torch.randn(5, 3, generator=g, dtype=torch.float64).flatten().log_softmax(0).view(5, 3)
    q = torch.softmax(torch.randn(11, 3, generator=g, dtype=torch.float64), 1)
    return w, log_p, torch.tensor(6.0, dtype=torch.float64), x, q


def test_the_bound_lies_above_the_mean_loss_under_noise_and_is_exact_without():
    w, log_p, beta, x, q = small_model()

    def loss(rows):
        return float(
            -(q * noise_bound.class_scores(w, log_p, beta, rows).log_softmax(1)).sum(1).mean()
        )

    g = torch.Generator().manual_seed(1)
    mean = np.mean([loss(SphereNoise(0.5)(x, g)) for _ in range(400)])
    bound = float(noise_bound.bound(w, log_p, beta, x, q, 0.5))
    assert mean < bound < mean + 1.0
    assert float(noise_bound.bound(w, log_p, beta, x, q, 1e-6)) == pytest.approx(loss(x), abs=1e-5)


@pytest.mark.parametrize("way", splitting.WAYS)
def test_every_way_ends_near_the_planted_vectors(way):
    g = torch.Generator().manual_seed(0)
    teacher = theory.sample_teacher(4, 30, upsilon=1.0, generator=g)
    x = theory.sample_data(teacher, 3.0, generator=g).x
    found = splitting.run(way, x, 4, None, g)
    assert found.params.n_memories == 4
    assert np.diff(found.work).min() > 0
    assert found.loss[-1] <= found.loss[0]
    one = splitting.run("rows", x, 1, None, g)
    assert found.loss[-1] < one.loss[-1] - 1.0


def test_training_time_tells_passes_from_the_cost_of_a_pass(tmp_path, capsys):
    out = tmp_path / "t.json"
    words = [
        "--memories",
        "4",
        "8",
        "16",
        "--rows",
        "150",
        "--first",
        "2",
        "--seeds",
        "1",
        "--methods",
        "fixed-point",
        "fixed-point-split",
    ]
    training_time.main([*words, "--out", str(out)])
    assert "fixed-point-split" in capsys.readouterr().out
    found = json.loads(out.read_text(encoding="utf-8"))
    assert {r["width"] for r in found["runs"]} == {4, 8, 16}
    assert all(r["memories"] == r["width"] for r in found["runs"])
    assert [law["method"] for law in found["laws"]] == ["fixed-point", "fixed-point-split"]


def test_an_exponent_is_that_of_a_power():
    widths = [2.0, 4.0, 8.0, 16.0, 32.0]
    found = training_time.exponent(widths, [3 * w**1.5 for w in widths], draws=50)
    assert (found["slope"], found["low"], found["high"]) == pytest.approx((1.5, 1.5, 1.5))


def test_level_ways_are_those_within_two_standard_errors_of_the_best():
    gaps = {"a": [0.0, 0.1, 0.0, 0.1], "b": [0.1, 0.0, 0.15, 0.0], "c": [1.0, 1.1, 1.0, 0.9]}
    assert beyond.level(gaps) == ("a", ["a", "b"])


@pytest.mark.parametrize("name", beyond.TABLES)
def test_every_table_has_a_source_or_says_what_is_missing(name):
    text = beyond.TABLES[name]()
    assert "`python -m research" in text
