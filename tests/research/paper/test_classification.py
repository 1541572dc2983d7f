"""What is measured on a trained network, against loops and hand-made cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from mnemosphere.training import FitResult, PassRecord, Run
from research import fits
from research.paper import accuracy, classification, interpretability, memories


def test_fidelity_is_that_of_the_nearest_memory(problem):
    made = problem(3, rows=101, features=5, memories=13, classes=4, labels="full", beta=9.0)
    params = made.params
    found = classification.fidelity(params, made.batch)
    agree = {"all": [], "correct": [], "wrong": []}
    for x, q in zip(made.x.tolist(), made.targets.tolist(), strict=True):
        overlaps = [sum(a * b for a, b in zip(w, x, strict=True)) for w in params.w.tolist()]
        nearest = overlaps.index(max(overlaps))
        word = params.p[nearest + 1].tolist()
        # Ω is common to all memories, and the uniform component has h = 0.
        log_omega = math.log(_omega_ratio(float(params.beta), 5))
        scores = []
        for y in range(4):
            total = float(params.p[0, y])
            for k, overlap in enumerate(overlaps):
                weight = params.varsigma * float(params.beta) * overlap - log_omega
                total += float(params.p[k + 1, y]) * math.exp(weight)
            scores.append(total)
        predicted = scores.index(max(scores))
        same = word.index(max(word)) == predicted
        agree["all"].append(same)
        agree["correct" if q[:4].index(max(q[:4])) == predicted else "wrong"].append(same)
    assert min(len(rows) for rows in agree.values()) > 5
    for rows, values in agree.items():
        assert found[rows] == pytest.approx(100 * np.mean(values), abs=0.006)
    assert 0 < found["all"] < 100


def _omega_ratio(beta, n):
    """Ω_N(β)/Ω_N(0) by integrating exp(β cos θ) over the sphere."""
    theta = np.linspace(0, np.pi, 20001)
    weight = np.sin(theta) ** (n - 2)
    return np.trapezoid(np.exp(beta * np.cos(theta)) * weight, theta) / np.trapezoid(weight, theta)


def test_noise_and_twins_are_told(problem):
    generator = np.random.default_rng(0)
    rows, columns = np.mgrid[0:11, 0:13]
    blobs = [
        np.exp(-((rows - r) ** 2 + (columns - c) ** 2) / 9) for r, c in ((3, 3), (3, 3.2), (8, 9))
    ]
    noise = [generator.normal(size=(11, 13)) for _ in range(5)]
    w = np.stack([image - image.mean() for image in blobs + noise]).reshape(8, -1)
    w /= np.linalg.norm(w, axis=1, keepdims=True)
    base = problem(features=143, memories=8).params
    found = classification.memory_quality(base.replace(w=torch.from_numpy(w)), (11, 13))
    assert found["noisy"] == 62.5
    closest = [max(w[i] @ w[j] for j in range(8) if j != i) for i in range(8)]
    assert found["twin"] == pytest.approx(sorted(closest)[3], abs=1e-4)  # torch: lower median


def record(n_iter, seconds):
    return PassRecord(n_iter, 1.0, None, None, 1.0, None, 5, seconds)


def after(params, *history):
    """A run of training after these passes."""
    return Run(params, {}, torch.Generator(), 4, history=list(history))


def test_a_curve_starts_before_training_and_survives_an_interruption(problem, tmp_path):
    made = [problem(seed, labels="full", rows=53) for seed in range(4)]
    test = made[0].batch
    params = [one.params for one in made]
    want = [fits.accuracy(p, test) for p in params]
    assert len(set(want)) > 2
    path = tmp_path / "curve"
    curve = classification.Curve(test, path)
    history = (record(1, 0.5), record(2, 1.0), record(3, 2.0))
    curve.on_start(after(params[0]))
    curve.on_pass(after(params[1], *history[:1]))
    # Killed after the checkpoint of pass 2: the next process starts from there.
    curve = classification.Curve(test, path)
    curve.on_start(after(params[2], *history[:2]))
    curve.on_pass(after(params[3], *history))
    values, seconds = curve.finish(FitResult(params[3], {}, history, "max_iter"))
    np.testing.assert_allclose(values, want)
    np.testing.assert_allclose(seconds, [0, 0.5, 1.5, 3.5])
    # Killed after the checkpoint of the last pass: nothing is left to train.
    curve = classification.Curve(test, path)
    history = (*history, record(4, 1.0))
    curve.on_start(after(params[1], *history))
    values, _ = curve.finish(FitResult(params[1], {}, history, "max_iter"))
    assert values[-1] == want[1]
    assert curve.last is params[1]


def test_full_size_settings_are_the_authors():
    (table,) = accuracy.EXPERIMENTS
    (figure3,) = interpretability.EXPERIMENTS
    figure1, figure2 = memories.EXPERIMENTS
    for experiment, size in ((figure1, 25), (figure2, 1000), (table, 1000), (figure3, 2000)):
        settings = experiment.settings(False)
        assert settings["memories"] == size
        assert (settings["max_epochs"], settings["patience"]) == (300, 1)
        assert (settings["validation"], settings["smoothing"]) == (0.1, 0.1)
        sgd = settings["sgd"]
        assert (sgd["batch_size"], sgd["momentum"], sgd["sweeps"]) == (1000, 0.99, 10)
        assert sgd["learning_rate"] == pytest.approx(0.01)
    cases = {case["name"]: case for case in table.settings(False)["cases"]}
    assert [case["beta"] for case in cases.values()] == [6, 10, 14, 18, None]
    assert [case["varsigma"] for case in cases.values()] == [1, 1, 1, 1, 0.25]
    assert cases["varsigma=0.25"]["start"] == 1.0
    assert [case["beta"] for case in figure1.settings(False)["cases"]] == [16]
