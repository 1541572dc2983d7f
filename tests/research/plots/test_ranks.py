"""The critical-difference diagram: which methods a bar joins, and where names stand."""

from __future__ import annotations

import pytest

from mnemosphere.plots.style import new_axes
from research.plots.ranks import critical_difference, groups


@pytest.mark.parametrize(
    ("values", "difference", "expected"),
    [
        ([1.0, 2.0, 2.5, 4.0, 4.4], 1.0, [(0, 1), (1, 2), (3, 4)]),
        ([1.0, 2.0, 3.0], 2.0, [(0, 2)]),  # smaller runs inside it have no bar of their own
        ([1.0, 2.0, 3.0], 0.5, []),
        ([1.0, 1.5, 2.2, 2.4], 1.25, [(0, 2), (1, 3)]),
    ],
)
def test_bars_join_the_largest_runs_that_do_not_differ(values, difference, expected):
    assert groups(values, difference) == expected


def test_every_method_is_named_with_its_rank():
    ranks = {"forest": 1.25, "dam": 2.5, "dam-joint": 3.0, "centroid": 3.25}
    ax = critical_difference(new_axes(5, 2), ranks, 1.4, ours="dam")
    texts = {text.get_text(): text for text in ax.texts}
    assert {f"{name}  {rank:.2f}" for name, rank in ranks.items()} <= set(texts)
    assert "critical difference 1.40" in texts
    colors = {name: texts[f"{name}  {rank:.2f}"].get_color() for name, rank in ranks.items()}
    assert colors["dam"] == colors["dam-joint"] != colors["forest"] == colors["centroid"]
    best, worst = texts["forest  1.25"], texts["centroid  3.25"]
    assert best.get_position()[0] < 1 < 4 < worst.get_position()[0]
    bars = [line.get_xdata() for line in ax.lines if line.get_linewidth() > 3]
    assert [tuple(round(x, 2) for x in bar) for bar in bars] == [(1.19, 2.56), (2.44, 3.31)]
