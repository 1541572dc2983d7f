import numpy as np
import pytest
import torch
from matplotlib.collections import QuadMesh
from matplotlib.patches import Circle

from research.plots import theory as plots

X, Y = np.linspace(1.0, 3.0, 5), np.linspace(2.0, 4.0, 3)


def mesh(ax):
    (found,) = (c for c in ax.collections if isinstance(c, QuadMesh))
    return found


def legend_names(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_an_order_parameter_over_the_plane():
    values = X[None, :] + 10 * Y[:, None]
    line = (X, 5 - X / 2)
    ax = plots.phase_diagram(
        X, Y, torch.tensor(values), lines={"edge": line}, value_label="overlap"
    )
    np.testing.assert_allclose(mesh(ax).get_array(), values)
    corners = mesh(ax).get_coordinates()
    np.testing.assert_allclose((corners[0, :-1, 0] + corners[0, 1:, 0]) / 2, X)  # cells centered
    np.testing.assert_allclose((corners[:-1, 0, 1] + corners[1:, 0, 1]) / 2, Y)
    np.testing.assert_allclose(ax.lines[-1].get_xydata(), np.column_stack(line))
    assert ax.figure.axes[1].get_ylabel() == "overlap"
    assert legend_names(ax) == ["edge"]


def test_phases_have_distinct_colors_and_names():
    values = np.array([[0, 0, 1, 1, 2], [0, 1, 1, 2, 2], [1, 1, 2, 2, 2]])
    ax = plots.phase_diagram(X, Y, values, phases=["para", "symmetric", "broken"])
    found = mesh(ax)
    ax.figure.draw_without_rendering()
    colors = found.get_facecolor().reshape(*values.shape, 4)
    patches = {p.get_label(): p.get_facecolor() for p in ax.get_legend().legend_handles}
    for k, name in enumerate(["para", "symmetric", "broken"]):
        cells = {tuple(c) for c in colors[values == k]}
        assert len(cells) == 1
        np.testing.assert_allclose(cells.pop(), patches[name])
    assert len(set(patches.values())) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": np.ones((5, 3))}, r"\(len\(y\), len\(x\)\) = \(3, 5\), got \(5, 3\)"),
        ({"x": X[::-1]}, "x must increase strictly"),
        ({"values": np.full((3, 5), 7.0), "phases": ["a"]}, r"whole numbers 0..0"),
        ({"values": np.full((3, 5), np.nan)}, "values holds nan"),
        ({"lines": {"edge": (X, Y)}}, "y must have 5 entries"),
        ({"x": [1.0], "values": np.ones((3, 1))}, "two values per axis"),
    ],
)
def test_bad_maps(arguments, message):
    with pytest.raises(ValueError, match=message):
        plots.phase_diagram(**({"x": X, "y": Y, "values": np.ones((3, 5))} | arguments))


def test_theory_and_samples_of_one_name_share_a_color():
    curve = np.array([np.nan, 0.1, 0.4, 0.6, 0.7])
    points = {"m": ([1.5, 2.5], [0.1, 0.5], [0.02, 0.03]), "only sampled": ([2.0], [0.2], [0.1])}
    ax = plots.overlap_curves(X, {"m": curve}, points)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), curve)
    container = ax.containers[0]
    np.testing.assert_array_equal(container[0].get_xydata(), [[1.5, 0.1], [2.5, 0.5]])
    segments = np.array(container[2][0].get_segments())
    np.testing.assert_allclose(segments[:, 1, 1] - segments[:, 0, 1], [0.04, 0.06])
    assert container[0].get_color() == ax.lines[0].get_color()
    assert ax.containers[1][0].get_color() != ax.lines[0].get_color()
    assert legend_names(ax) == ["m", "only sampled", "sampled"]


def test_bad_curves():
    with pytest.raises(ValueError, match="curves is empty"):
        plots.overlap_curves(X, {})
    with pytest.raises(ValueError, match="curve must have 5 entries"):
        plots.overlap_curves(X, {"m": [1.0]})
    with pytest.raises(ValueError, match="points 'm' holds nan"):
        plots.overlap_curves(X, {"m": X}, {"m": ([1.0], [np.nan], [0.1])})
    with pytest.raises(ValueError, match="error must have 1 entries"):
        plots.overlap_curves(X, {"m": X}, {"m": ([1.0], [1.0], [0.1, 0.1])})


def test_stable_and_unstable_stretches():
    branches = np.array([[0.0, 0.0, 0.0, 0.0, 0.0], [np.nan, np.nan, 0.1, 0.3, 0.4]])
    stable = np.array([[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]], dtype=bool)
    ax = plots.bifurcation_tree(X, branches, stable=stable, transitions=[1.75])
    drawn = [line for line in ax.lines if len(line.get_xdata()) == 5]
    solid = [line.get_ydata() for line in drawn if line.get_linestyle() == "-"]
    dashed = [line.get_ydata() for line in drawn if line.get_linestyle() == "--"]
    np.testing.assert_array_equal(solid[0], [0, 0, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(solid[1], branches[1])
    # The dashed stretch begins where the solid one ends: no gap.
    np.testing.assert_array_equal(dashed, [[np.nan, 0, 0, 0, 0]])
    assert [line.get_xdata()[0] for line in ax.lines if line.get_linestyle() == ":"] == [1.75]
    assert legend_names(ax) == ["stable", "unstable"]


def test_bad_branches():
    with pytest.raises(ValueError, match="branches must have 5 entries"):
        plots.bifurcation_tree(X, np.ones((2, 4)))
    with pytest.raises(ValueError, match=r"stable must have the shape \(2, 5\)"):
        plots.bifurcation_tree(X, np.ones((2, 5)), stable=np.ones((1, 5)))


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


def test_bad_free_entropies():
    with pytest.raises(ValueError, match="no branch has a value at x = 1:"):
        plots.free_entropy_branches(X, {"a": [np.nan, 1, 1, 1, 1]})
    with pytest.raises(ValueError, match="branches is empty"):
        plots.free_entropy_branches(X, {})


def test_complex_eigenvalues_lie_in_the_plane_with_the_unit_circle():
    values = np.array([0.5 + 0.5j, 0.5 - 0.5j, 0.9 + 0.9j, -1.5, 0.99])
    ax = plots.jacobian_spectrum(torch.tensor(values))
    by_name = {line.get_label(): line.get_xydata() for line in ax.lines}
    np.testing.assert_allclose(by_name["stable: 3"], [[0.5, 0.5], [0.5, -0.5], [0.99, 0.0]])
    np.testing.assert_allclose(by_name["unstable: 2"], [[0.9, 0.9], [-1.5, 0.0]])
    (circle,) = (patch for patch in ax.patches if isinstance(patch, Circle))
    assert (circle.center, circle.radius) == ((0, 0), 1.0)
    assert ax.get_aspect() == 1


@pytest.mark.parametrize(
    ("values", "lines"), [([0.5, 1.5, 1.0], [1.0]), ([0.5, -2.0], [1.0, -1.0])]
)
def test_real_eigenvalues_are_sorted_against_one(values, lines):
    ax = plots.jacobian_spectrum(values)
    heights = [line.get_ydata()[0] for line in ax.lines if line.get_color() == "black"]
    assert heights == lines
    drawn = np.concatenate([li.get_xydata() for li in ax.lines if "stable" in li.get_label()])
    np.testing.assert_array_equal(
        drawn[drawn[:, 0].argsort()],
        np.column_stack([range(1, len(values) + 1), sorted(values)[::-1]]),
    )
    unstable = sum(abs(v) > 1 for v in values)
    assert legend_names(ax) == [f"stable: {len(values) - unstable}", f"unstable: {unstable}"]


def test_nan_eigenvalues_are_refused():
    with pytest.raises(ValueError, match="eigenvalues holds nan"):
        plots.jacobian_spectrum([1.0, np.nan])


def test_predicted_eigenvalues_are_ringed_at_their_rank():
    ax = plots.jacobian_spectrum([0.2, 1.5, 0.5, 0.2, -1e-17], predicted=[0.5, 0.2, 1.5])
    ring = next(line for line in ax.lines if line.get_label() == "predicted")
    rank = {round(float(y), 6): float(x) for x, y in ring.get_xydata()}
    assert rank[1.5] == 1
    assert rank[0.5] == 2
    assert rank[0.2] in (3, 4)
    # Rounding below zero is no reason for a line at -1.
    assert -1 not in [line.get_ydata()[0] for line in ax.lines]
    with pytest.raises(ValueError, match="exceed the 2 eigenvalues"):
        plots.jacobian_spectrum([0.2, 1.5], predicted=[0.2, 1.5, 1.0])
    with pytest.raises(ValueError, match="complex"):
        plots.jacobian_spectrum([1j, 0.5], predicted=[0.5])


def test_marked_transitions_are_explained():
    beta = [1.0, 2.0, 3.0]
    ax = plots.bifurcation_tree(
        beta, [[0.1, 0.2, 0.3]], transitions=[1.5, 2.5], transition_label="split"
    )
    assert legend_names(ax) == ["split"]
    assert plots.bifurcation_tree(beta, [[0.1, 0.2, 0.3]], transitions=[1.5]).get_legend() is None


def test_long_names_leave_room_for_the_map():
    names = ["a phase whose name is rather long", "another phase of that length", "a third one"]
    ax = plots.phase_diagram(X, Y, np.arange(15).reshape(3, 5) % 3, phases=names)
    ax.figure.draw_without_rendering()
    width, height = ax.get_position().size
    assert width > 0.6
    assert height > 0.5


def test_a_branch_that_never_wins_is_named_by_a_thin_line():
    ax = plots.free_entropy_branches([1.0, 2.0], {"best": [2.0, 3.0], "worse": [1.0, 1.0]})
    assert legend_names(ax) == ["best", "worse"]
    styles = {line.get_label(): line.get_linestyle() for line in ax.lines}
    assert styles["best"] == "-"
    assert styles["worse"] == "--"


def test_samples_are_named():
    ax = plots.overlap_curves(
        [1.0, 2.0], {"m": [0.1, 0.2]}, {"m": ([1.0], [0.1], [0.01])}, sampled_label="Gibbs"
    )
    assert legend_names(ax) == ["m", "Gibbs"]
