"""Theory and simulation agree as the theory chapter says."""

import json
from pathlib import Path

ROOT = Path(__file__).parents[3]
RESULT = ROOT / "research" / "results" / "benchmarks" / "theory_vs_gibbs.json"
CHAPTER = ROOT / "docs" / "theory.md"


def test_theory_and_simulation_agree_as_the_chapter_says():
    stored = json.loads(RESULT.read_text(encoding="utf-8"))
    rows, summary = stored["rows"], stored["summary"]
    last = [row for row in rows if row["n_features"] == 1000]
    assert len(last) >= 30
    assert 2 * summary["unlike_the_teacher"] >= len(last)
    assert {row["phase"] for row in last} == {"broken", "symmetric"}
    for row in last:
        assert abs(row["difference"]) <= 0.01 + 3 * row["standard_error"]
    text = CHAPTER.read_text(encoding="utf-8")
    assert f"For {len(last)} settings" in text
    assert f"{summary['unlike_the_teacher']} of them" in text
    assert f"All {summary['within_tolerance']} agree" in text
    assert f"Of these {summary['random_chains']}, {summary['trapped_chains']} were" in text


def test_what_is_left_shrinks_as_one_over_n():
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    for at_100, _, at_1000 in (rows[i : i + 3] for i in range(0, len(rows), 3)):
        gaps = [abs(r["clamped_difference"]) for r in (at_100, at_1000)]
        if gaps[0] > 5 * at_100["clamped_standard_error"]:
            error = 3 * at_1000["clamped_standard_error"]
            assert gaps[0] / 20 - error < gaps[1] < gaps[0] / 5 + error
