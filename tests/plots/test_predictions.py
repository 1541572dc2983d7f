import numpy as np
import pytest
from matplotlib.colors import to_hex
from sklearn.datasets import load_wine

from mnemosphere.plots import features, predictions
from mnemosphere.plots.decision import Decision
from quick_models import small

SHAPE, K, C = (3, 5), 3, 4
KEYS = ("shares", "soft_labels", "proba", "classes", "names")


@pytest.fixture
def case():
    rng = np.random.default_rng(0)
    soft = rng.dirichlet([0.5] * (C + 1), size=K)
    shares = np.array([0.55, 0.3, 0.1])
    drawn = shares @ soft[:, :C]
    return {
        "x": rng.normal(size=15),
        "memories": rng.normal(size=(K, 15)),
        "shares": shares,
        "soft_labels": soft,
        "proba": drawn + (1 - drawn.sum()) * np.array([0.4, 0.3, 0.2, 0.1]),
        "classes": ["cat", "dog", "cow", "hen"],
        "names": ["#3", "#5", "#8"],
        "image_shape": SHAPE,
    }


def strip(case, **more):
    case = case | more
    decision = {k: v for k, v in case.items() if k not in ("x", "memories", "image_shape")}
    return predictions.explanation_strip(
        case["x"], case["memories"], Decision(**decision), case["image_shape"]
    )


def parts(figure):
    """(pattern axes, share axes, prediction axes) in the order of the strip."""
    axes = figure.axes
    n = (len(axes) - 2) // 2
    return axes[: n + 1], axes[n + 1 : -1], axes[-1]


def test_the_strip_shows_input_memories_and_shares(case):
    figure = strip(case, truth="hen")
    patterns, shares, predicted = parts(figure)
    for ax, row in zip(patterns, [case["x"], *case["memories"]], strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array().data, row.reshape(SHAPE))
    assert [ax.patches[0].get_width() for ax in shares] == list(case["shares"])
    assert patterns[0].get_title() == "input\ntruth: hen"
    names = [*case["classes"], "none"]
    for k, (ax, name) in enumerate(zip(patterns[1:], case["names"], strict=True)):
        top = max(range(C + 1), key=lambda y: case["soft_labels"][k, y])
        expected = f"{name}\n{names[top]} ({case['soft_labels'][k, top]:.2f})"
        assert ax.get_title() == expected
    best = case["classes"][case["proba"].argmax()]
    assert best != "hen"
    expected = f"{best}\n{case['proba'].max():.0%}, truth: hen"
    assert predicted.get_title(loc="left") == expected
    figure.draw_without_rendering()


def test_the_prediction_stacks_the_memories_and_all_others(case):
    _, _, ax = parts(strip(case))
    ends = np.zeros(C)
    *drawn, rest = ax.containers
    for k, container in enumerate(drawn):
        for y, bar in enumerate(container):
            assert bar.get_x() == pytest.approx(ends[y])
            assert bar.get_width() == pytest.approx(case["shares"][k] * case["soft_labels"][k, y])
            ends[y] += bar.get_width()
    ends += [bar.get_width() for bar in rest]
    np.testing.assert_allclose(ends, case["proba"])
    colors = Decision(*(case[k] for k in KEYS)).class_colors
    for y, bar in enumerate(drawn[0]):
        if y in colors:
            assert to_hex(bar.get_facecolor()).upper() == colors[y]
    bold = [t.get_text() for t in ax.get_yticklabels() if t.get_fontweight() == "bold"]
    assert bold == [case["classes"][case["proba"].argmax()]]


def test_bars_of_columns_are_their_pulls(case):
    x, y = load_wine(return_X_y=True, as_frame=True)
    pulls = small(geometry="standard").fit(x, y).explain(x[:1], n_memories=3).pulls()
    figure = features.feature_figure(pulls, Decision(*(case[k] for k in KEYS)))
    bars = figure.axes[0]
    widths = [bar.get_width() for bar in bars.containers[0]]
    assert widths == sorted((own.pull for own in pulls[:12]), reverse=True)
    lines = [t.get_text() for t in bars.get_yticklabels()]
    assert {line.split("  ")[0] for line in lines} == {own.column for own in pulls[:12]}
    figure.draw_without_rendering()
