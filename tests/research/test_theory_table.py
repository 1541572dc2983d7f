"""Theory and simulation agree as the theory chapter says."""

import json
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "research" / "results" / "theory"


def rows():
    return json.loads((STUDIES / "finite-size.json").read_text(encoding="utf-8"))["data"]["rows"]


def test_theory_and_simulation_agree_as_the_chapter_says():
    assert {row["phase"] for row in rows()} == {"broken", "symmetric"}
    for row in rows():
        last = row["sampled"][-1]
        assert abs(last["mean"] - row["theory"]) <= 0.01 + 3 * last["error"]


def test_what_finite_size_adds_is_what_is_computed():
    known = [
        (row["computed"], s)
        for row in rows()
        if row["computed"] is not None
        for s in row["sampled"]
    ]
    away = [(s["gap"] - computed) / s["gap_error"] for computed, s in known]
    assert len(away) >= 15
    assert np.median(np.abs(away)) < 2
    assert np.corrcoef([c for c, _ in known], [s["gap"] for _, s in known])[0, 1] > 0.8


def test_no_line_begins_with_the_mark_of_a_number():
    # A comment at the beginning of a line would end its paragraph.
    for page in (ROOT / "docs").rglob("*.md"):
        assert "\n<!--=" not in page.read_text(encoding="utf-8"), page.name
