"""The table in the theory chapter holds the numbers of the benchmark's result file."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RESULT = ROOT / "research" / "results" / "benchmarks" / "theory_vs_gibbs.json"


def table():
    """Cells of the rows of docs/theory.md whose second cell holds υ, ϱ, β."""
    lines = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8").splitlines()
    cells = [[c.strip() for c in line.strip("| ").split("|")] for line in lines if "|" in line]
    return [row for row in cells if len(row) == 8 and re.fullmatch(r"[\d., ]+", row[1])]


def test_the_table_is_the_result():
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    last = [row for row in rows if row["n_features"] == 1000]
    assert len(table()) == len(last)
    for place, (cells, found) in enumerate(zip(table(), last, strict=True)):
        parameters = [float(v) for v in cells[1].split(",")]
        assert parameters == [found["upsilon"], found["rho"], found["beta"]]
        assert cells[2] == found["phase"]
        assert float(cells[3]) == pytest.approx(found["theory"], abs=6e-5)
        mean, error = (float(v) for v in cells[4].split("±"))
        assert mean == pytest.approx(found["gibbs"], abs=6e-5)
        assert error == pytest.approx(found["standard_error"], abs=6e-6)
        for cell, row in zip(cells[5:], rows[3 * place : 3 * place + 3], strict=True):
            difference = float(cell.replace("−", "-"))
            assert difference == pytest.approx(row["clamped_difference"], abs=6e-5)


def test_theory_and_simulation_agree_as_the_chapter_says():
    rows = json.loads(RESULT.read_text(encoding="utf-8"))["rows"]
    settings = [rows[i : i + 3] for i in range(0, len(rows), 3)]
    assert len(settings) >= 12
    assert {row["phase"] for row in rows} == {"broken", "symmetric"}
    for labels in (True, False):
        phases = {row["phase"] for row in rows if (row["soft_labels"] is not None) == labels}
        assert phases == {"broken", "symmetric"}
    for at_100, at_300, at_1000 in settings:
        assert [r["n_features"] for r in (at_100, at_300, at_1000)] == [100, 300, 1000]
        gaps = [abs(r["clamped_difference"]) for r in (at_100, at_300, at_1000)]
        if gaps[0] > 3 * at_100["clamped_standard_error"]:  # else there is nothing to shrink
            assert gaps[0] > gaps[1] > gaps[2]
            assert 5 < gaps[0] / gaps[2] < 15  # of order 1/N
        else:
            assert at_100["setting"] == "2x2 weak labels"
        if at_1000["phase"] == "broken":
            assert abs(at_1000["difference"]) < 0.01 + 3 * at_1000["standard_error"]
    planted = {(r["n_teacher"], r["n_student"], r["upsilon"], r["rho"], r["beta"]) for r in rows}
    assert planted >= {(2, 2, 1, 2, 10), (2, 2, 0.5, 2, 10), (2, 2, 1, 0.5, 10), (2, 2, 0.3, 1, 6)}
