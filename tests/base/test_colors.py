"""One color per class, wherever it is drawn."""

import numpy as np
import pytest

from mnemosphere.base.colors import category_colors


@pytest.mark.parametrize("n", [1, 11, 150])
def test_no_two_classes_share_a_color(n):
    assert len(set(category_colors(n))) == n


def test_a_class_keeps_its_color_however_many_there_are():
    assert category_colors(77)[:5] == category_colors(5)


def test_a_figure_of_one_decision_has_the_colors_of_all_classes():
    decision = pytest.importorskip("mnemosphere.plots.decision")
    shown = decision.Decision(
        np.array([0.9, 0.1]), np.array([[0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 0.0]]),
        np.array([0.0, 0.1, 0.9]), ["a", "b", "c"], ["#0", "#1"],
    )  # fmt: skip
    assert shown.class_colors == dict(
        zip((2, 1), np.array(category_colors(3))[[2, 1]], strict=True)
    )
