"""The frame of every measurement: head, files, comparisons."""

from __future__ import annotations

import json

import numpy as np
import pytest

from research import report
from research.report import Comparison


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["growth", "--seeds", "3"], "growth --seeds 3"),
        (["growth", "--data", "here/there", "--seeds", "3"], "growth --data DIR --seeds 3"),
        (["growth", "--data=here", "--out", "x.json"], "growth --data DIR"),
        (["maximize", "--output=x.json", "--seed", "1"], "maximize --seed 1"),
        (["theory", "overlaps", "-o", "a.png"], "theory overlaps"),
        (["accuracy_table", "--settings", "beta=6"], "accuracy_table --settings beta=6"),
        (["theory", "solve", "--soft-labels", "1;0"], "theory solve --soft-labels '1;0'"),
    ],
)
def test_commands_name_no_place_on_one_machine(words, shown):
    assert report.command_line(words) == f"python -m research {shown}"


def test_reports_are_strict_json(tmp_path):
    path = tmp_path / "new" / "report.json"
    report.write(path, {"a": np.array([1.5, np.nan]), "b": float("inf"), "c": (1, "β")})
    assert json.loads(path.read_text(encoding="utf-8")) == {"a": [1.5, None], "b": None,
                                                           "c": [1, "β"]}  # fmt: skip
    assert [p.name for p in path.parent.iterdir()] == ["report.json"]


@pytest.mark.parametrize(
    ("measured", "within"), [(78.4, False), (78.5, True), (80.5, True), (80.6, False)]
)
def test_agreement_has_bounds(measured, within):
    compared = Comparison("accuracy", measured, "79%", 78.5, 80.5)
    assert compared.as_dict(quick=False)["within"] is within
    assert compared.as_dict(quick=True)["within"] is None
    assert Comparison("accuracy", measured).as_dict(quick=False)["within"] is None
