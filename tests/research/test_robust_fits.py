"""Problems and summary of the benchmark of robust fits."""

from __future__ import annotations

import json

import numpy as np
import pytest

from research.benchmarks import robust_fits

PROBLEMS = robust_fits.problems()


def test_there_are_many_small_problems_with_names_of_their_own():
    assert len(PROBLEMS) >= 150
    assert len({problem.name for problem in PROBLEMS}) == len(PROBLEMS)
    assert all(40 <= problem.rows <= 400 for problem in PROBLEMS)


@pytest.mark.parametrize("problem", PROBLEMS[::7], ids=lambda problem: problem.name)
def test_problems_are_deterministic_and_know_all_classes(problem):
    x, y, fresh, truth = problem.draw()
    for one, two in zip((x, y, fresh, truth), problem.draw(), strict=True):
        assert np.array_equal(one, two)
    assert x.shape == (problem.rows, fresh.shape[1])
    assert len(fresh) == len(truth) == robust_fits.FRESH
    assert set(truth) == set(y)
    assert len(set(y)) >= 2
    assert np.isfinite(x).all()


def test_two_problems_of_a_kind_differ():
    one, two = (p.draw()[2] for p in PROBLEMS if p.kind == "xor" and p.settings["features"] == 2
                and p.rows in (60, 120))  # fmt: skip
    assert not np.array_equal(one, two)


def test_classes_follow_from_the_rows_as_said():
    def of(kind):
        return next(p for p in PROBLEMS if p.kind == kind)

    x, y, fresh, truth = of("repeated rows").draw()
    assert len(np.unique(x, axis=0)) == 6
    own = {row.tobytes(): label for row, label in zip(x, y, strict=True)}
    assert [own[row.tobytes()] for row in fresh] == truth.tolist()
    problem = of("parity")
    chosen = np.random.default_rng(robust_fits.zlib.crc32(problem.name.encode())).permutation(10)
    assert np.array_equal((problem.draw()[0][:, chosen[:2]] > 0).sum(1) % 2, problem.draw()[1])
    x, y, *_ = of("circles").draw()
    assert np.array_equal(np.linalg.norm(x, axis=1) < 0.75, y == 1)
    assert of("imbalance").draw()[1].sum() == 5


def measured(kind, accuracies, best, log_loss=0.5):
    fits = [{"seed": k, "accuracy": a, "log_loss": log_loss} for k, a in enumerate(accuracies)]
    baselines = {name: {"accuracy": best - 0.1 * k, "log_loss": 1.0} for k, name in enumerate("ab")}
    return {"problem": kind, "kind": kind, "fits": fits, "baselines": baselines, "chance": 0.4}


def test_the_summary_names_fits_that_fail():
    found = robust_fits.summary([
        measured("xor", [0.90, 0.88, 0.85], 0.902),  # 4 standard errors are 2.9 points
        measured("moons", [1.0, 1.0, 0.989], 1.0),  # one point is more
        measured(robust_fits.NOISE, [0.5, 0.5, 0.5], 0.56, log_loss=0.42),
    ])  # fmt: skip
    assert (found["problems"], found["fits"], found["failed"]) == (3, 9, 0)
    assert [(f["problem"], f["seed"]) for f in found["behind"]] == [
        ("xor", 2), *((robust_fits.NOISE, k) for k in range(3))
    ]  # fmt: skip
    assert found["share_behind"] == pytest.approx(4 / 9)
    assert [(f["problem"], f["seed"]) for f in found["below_median"]] == [("xor", 2), ("moons", 2)]
    assert found["noise_log_loss_over_chance"] == pytest.approx({"mean": 1.05, "highest": 1.05})
    gains = [-0.002, -0.022, -0.052, 0, 0, -0.011, -0.06, -0.06, -0.06]
    assert found["mean_gain"] == pytest.approx(np.mean(gains))
    assert robust_fits.summary([measured("xor", [0.9], 0.9)])["noise_log_loss_over_chance"] is None


def test_a_fit_that_raises_is_counted(monkeypatch):
    def broken(**settings):
        raise ValueError("no fit")

    monkeypatch.setattr(robust_fits, "DAMClassifier", broken)
    found = robust_fits.measure(PROBLEMS[0], 1)
    assert found["fits"][0]["error"] == "ValueError('no fit')"
    assert robust_fits.summary([found])["failed"] == 1


@pytest.mark.slow
def test_the_benchmark_stores_fits_and_summary(tmp_path, capsys):
    out = tmp_path / "report.json"
    robust_fits.main(["--kinds", "moons", "--each", "1", "--seeds", "1", "--out", str(out)])
    stored = json.loads(out.read_text(encoding="utf-8"))
    assert {"command", "seeds", "versions", "device"} <= set(stored)
    (own,) = stored["problems"]
    assert set(own["baselines"]) == {"logistic regression", "5-NN"}
    assert own["fits"][0]["accuracy"] > 0.7
    assert stored["summary"]["fits"] == 1
    assert "best baseline" in capsys.readouterr().out
