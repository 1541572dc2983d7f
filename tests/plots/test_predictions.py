import numpy as np
import pytest

from mnemosphere import plots

SHAPE, K, C = (3, 5), 3, 4


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    return {
        "x": rng.normal(size=15),
        "memories": rng.normal(size=(K, 15)),
        "shares": np.array([0.55, 0.3, 0.1]),
        "soft_labels": rng.dirichlet([0.5] * (C + 1), size=K),
        "verdict": "cat",
        "classes": ["cat", "dog", "cow", "hen"],
        "image_shape": SHAPE,
    }


def test_counts_are_printed_in_their_cells():
    counts = np.array([[8, 2, 0], [0, 5, 0], [1, 0, 12345]])
    ax = plots.confusion_matrix(counts, ["a", "b", "c"])
    printed = {tuple(map(int, text.get_position()[::-1])): text.get_text() for text in ax.texts}
    assert printed == {(0, 0): "8", (0, 1): "2", (1, 1): "5", (2, 0): "1", (2, 2): "12345"}
    np.testing.assert_allclose(ax.images[0].get_array()[0], [0.8, 0.2, 0.0])
    assert ax.get_title(loc="left") == f"accuracy {12358 / 12361:.2%} of 12361"


def test_a_class_without_rows_stays_blank():
    ax = plots.confusion_matrix([[3, 0], [0, 0]], [True, False])
    np.testing.assert_array_equal(ax.images[0].get_array(), [[1, 0], [0, 0]])
    assert [label.get_text() for label in ax.get_yticklabels()] == ["True", "False"]


def test_text_contrasts_with_its_cell():
    ax = plots.confusion_matrix([[99, 1], [1, 99]], "ab")
    color = {text.get_text(): text.get_color() for text in ax.texts}
    assert color == {"99": "white", "1": "black"}


@pytest.mark.parametrize(
    ("counts", "classes", "message"),
    [
        ([[1, 2, 3], [1, 2, 3]], "ab", r"square, got shape \(2, 3\)"),
        ([[1, -2], [1, 2]], "ab", "must not be negative, got -2"),
        ([[1, 2], [1, 2]], "abc", "classes must have 2 entries"),
        ([[1, np.nan], [1, 2]], "ab", r"counts holds nan at \[0, 1\]"),
    ],
)
def test_bad_counts(counts, classes, message):
    with pytest.raises(ValueError, match=message):
        plots.confusion_matrix(counts, classes)


def parts(figure):
    """(pattern axes, share axes, verdict axes) in the order of the strip."""
    axes = figure.axes
    return [axes[0], *axes[1:-1:2]], axes[2:-1:2], axes[-1]


def test_the_strip_shows_input_memories_and_shares(case):
    figure = plots.explanation_strip(**case, truth="dog", names=["#3", "#5", "#8"])
    patterns, shares, verdict = parts(figure)
    for ax, row in zip(patterns, [case["x"], *case["memories"]], strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array().data, row.reshape(SHAPE))
    assert [ax.patches[0].get_width() for ax in shares] == list(case["shares"])
    assert [ax.get_xlabel() for ax in shares] == ["share 55%", "share 30%", "share 10%"]
    assert patterns[0].get_title() == "input\ntruth: dog"
    names = [*case["classes"], "none"]
    for k, (ax, name) in enumerate(zip(patterns[1:], ["#3", "#5", "#8"], strict=True)):
        top = max(range(C + 1), key=lambda y: case["soft_labels"][k, y])
        expected = f"{name}\n{names[top]} ({case['soft_labels'][k, top]:.2f})"
        assert ax.get_title() == expected
    assert verdict.get_title(loc="left") == "verdict: cat, wrong"
    figure.draw_without_rendering()


def test_the_verdict_stacks_the_memories(case):
    _, _, ax = parts(plots.explanation_strip(**case))
    ends = np.zeros(C + 1)
    for k, container in enumerate(ax.containers):
        for y, bar in enumerate(container):
            assert bar.get_x() == pytest.approx(ends[y])
            assert bar.get_width() == pytest.approx(case["shares"][k] * case["soft_labels"][k, y])
            ends[y] += bar.get_width()
    assert ends.sum() == pytest.approx(0.95)
    bold = [t.get_text() for t in ax.get_yticklabels() if t.get_fontweight() == "bold"]
    assert bold == ["cat"]
    assert ax.get_xlabel() == "weight (memories shown: 95%)"


def test_share_bars_and_stacks_have_the_color_of_the_memory(case):
    patterns, shares, verdict = parts(plots.explanation_strip(**case))
    for k in range(K):
        color = shares[k].patches[0].get_facecolor()
        assert patterns[k + 1].patches[-1].get_edgecolor() == color
        assert verdict.containers[k][0].get_facecolor() == color


def test_memories_are_lettered_by_default_and_truth_may_be_right(case):
    patterns, _, verdict = parts(plots.explanation_strip(**case, truth="cat"))
    assert [ax.get_title().split("\n")[0] for ax in patterns] == ["input", "AA", "AB", "AC"]
    assert verdict.get_title(loc="left") == "verdict: cat, right"


def test_long_names_with_one_beginning_stay_apart(case):
    names = [f"the same long beginning of a name {k}" for k in range(C)]
    _, _, ax = parts(plots.explanation_strip(**(case | {"classes": names, "verdict": names[2]})))
    bold = [k for k, t in enumerate(ax.get_yticklabels()) if t.get_fontweight() == "bold"]
    assert bold == [2]
    assert len({t.get_text() for t in ax.get_yticklabels()}) == C + 1


def test_rows_that_are_no_images_are_drawn_as_bars(case):
    patterns, _, _ = parts(plots.explanation_strip(**(case | {"image_shape": None})))
    heights = np.array([bar.get_height() for bar in patterns[0].containers[0]])
    np.testing.assert_allclose(heights / np.abs(heights).max(), case["x"] / np.abs(case["x"]).max())


def test_only_the_strongest_of_many_classes_are_shown(case):
    soft = np.full((K, 40), 0.1 / 39)
    soft[:, 23] = 0.9
    many = case | {"soft_labels": soft, "classes": list(range(40)), "verdict": 23}
    _, _, ax = parts(plots.explanation_strip(**many))
    names = [int(label.get_text()) for label in ax.get_yticklabels()]
    assert len(names) == 12
    assert names == sorted(names)
    assert 23 in names


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.ones(14)}, "x must have 15 entries, one per feature of a memory, got 14"),
        ({"x": np.full(15, np.nan)}, "x holds nan"),
        ({"image_shape": (3, 4)}, "12 pixels but memories has 15 features"),
        ({"shares": [0.5, 0.5]}, "shares must have 3 entries"),
        ({"shares": [0.9, 0.5, 0.1]}, "sum to at most 1, got min 0.1 and sum 1.5"),
        ({"shares": [-0.1, 0.5, 0.1]}, "must not be negative"),
        ({"soft_labels": np.ones((2, 5))}, "soft_labels must have 3 entries"),
        ({"classes": ["cat"]}, "5 label columns but 1 classes"),
        ({"verdict": "fox"}, "verdict 'fox' is not one of the classes cat, dog"),
        ({"names": ["one"]}, "names must have 3 entries"),
    ],
)
def test_bad_explanations(case, change, message):
    with pytest.raises(ValueError, match=message):
        plots.explanation_strip(**(case | change))
