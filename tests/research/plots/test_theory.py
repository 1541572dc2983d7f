import numpy as np

from research.plots import theory as plots

X, Y = np.linspace(1.0, 3.0, 5), np.linspace(2.0, 4.0, 3)


def test_stable_and_unstable_stretches():
    branches = np.array([[0.0, 0.0, 0.0, 0.0, 0.0], [np.nan, np.nan, 0.1, 0.3, 0.4]])
    stable = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=bool)
    ax = plots.bifurcation_tree(X, branches, stable, [1.75])
    drawn = [line for line in ax.lines if len(line.get_xdata()) == 5]
    solid = [line.get_ydata() for line in drawn if line.get_linestyle() == "-"]
    dashed = [line.get_ydata() for line in drawn if line.get_linestyle() == "--"]
    np.testing.assert_array_equal(solid[0], [0, 0, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(solid[1], branches[1])
    # The dashed stretch begins where the solid one ends: no gap.
    np.testing.assert_array_equal(dashed, [[np.nan, 0, 0, 0, 0]])
    assert [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == ":"] == [1.75]


def test_the_largest_free_entropy_wins_and_crossings_are_exact_for_lines():
    x = np.linspace(0.0, 4.0, 14)
    # 1, x and 3x - 4: they cross at 1 and 2.
    branches = {"flat": np.ones(14), "slow": x, "steep": 3 * x - 4}
    ax = plots.free_entropy_branches(x, branches)
    marks = [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == ":"]
    np.testing.assert_allclose(marks, [1.0, 2.0])
    strong = {line.get_label(): line.get_ydata() for line in ax.lines if line.get_linewidth() > 2}
    best = np.nanmax([strong[name] for name in branches], axis=0)
    np.testing.assert_allclose(best, np.max(list(branches.values()), axis=0))
    assert sum(np.isfinite(values).sum() for values in strong.values()) == 14
    assert [text.get_text() for text in ax.texts] == ["1", "2"]


def test_a_branch_that_appears_on_top_is_marked_where_it_begins():
    late = np.where(X > 1.9, 9.0, np.nan)
    ax = plots.free_entropy_branches(X, {"old": X, "new": late})
    assert [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == ":"] == [2.0]
