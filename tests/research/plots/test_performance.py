import numpy as np
import pytest

from research.plots.performance import Sweep, accuracy_and_time

WIDTHS = np.array([100, 200, 400])


def bars(container):
    """(x, mean, low, high) of error bars."""
    line, _, (collection,) = container
    segments = np.array(collection.get_segments())
    return line.get_xdata(), line.get_ydata(), segments[:, 0, 1], segments[:, 1, 1]


@pytest.fixture
def results():
    return {
        "without": Sweep(WIDTHS, [0.9, 0.92, 0.93], [4.0, 8.0, 16.0], [0.01] * 3, [1.0, 1.0, 2.0]),
        "with": Sweep(WIDTHS, [0.91, 0.92, 0.94], [2.0, 3.0, 4.0], [0.02] * 3, [0.5] * 3),
    }


def test_means_and_deviations(results):
    left, right = accuracy_and_time(results).axes
    x, mean, low, high = bars(left.containers[1])
    np.testing.assert_array_equal(x, WIDTHS)
    np.testing.assert_allclose(mean, [0.91, 0.92, 0.94])
    np.testing.assert_allclose(high - mean, 0.02)
    np.testing.assert_allclose(mean - low, 0.02)
    _, time, low, _ = bars(right.containers[0])
    np.testing.assert_allclose(time, [4, 8, 16])
    np.testing.assert_allclose(time - low, [1, 1, 2])
    assert right.get_ylabel() == "training time in seconds"
    names = [text.get_text() for text in left.get_legend().get_texts()]
    assert names == ["without", "with"]


def test_relative_times_put_the_arrow_at_one(results):
    _, right = accuracy_and_time(results, relative=True).axes
    _, time, low, _ = bars(right.containers[1])
    np.testing.assert_allclose(time, [0.5, 0.75, 1.0])
    np.testing.assert_allclose(time - low, 0.125)
    assert right.texts[0].xy == (100, 1.0)
    assert right.get_ylabel() == "training time, relative"


def test_single_runs_have_no_error_bars_and_log_axes_name_the_widths():
    single = {"a": Sweep(WIDTHS, [0.9, 0.92, 0.93], [4.0, 8.0, 16.0])}
    left, right = accuracy_and_time(single, log=True).axes
    assert left.containers[0].has_yerr is False
    assert right.get_yscale() == left.get_xscale() == "log"
    assert [label.get_text() for label in left.get_xticklabels()] == ["100", "200", "400"]


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        (Sweep([2, 1], [0.5, 0.5], [1, 1]), "n_memories of 'a' must increase strictly"),
        (Sweep([1, 2], [0.5], [1, 1]), "accuracy must have 2 entries"),
        (Sweep([1, 2], [50, 60], [1, 1]), r"must lie in \[0, 1\].*divide percentages by 100"),
        (Sweep([1, 2], [0.5, 0.5], [0, 1]), "time of 'a' must be positive"),
        (Sweep([1, 2], [0.5, np.nan], [1, 1]), "accuracy of 'a' holds nan"),
    ],
)
def test_bad_sweeps(sweep, message):
    with pytest.raises(ValueError, match=message):
        accuracy_and_time({"a": sweep})


def test_no_sweep():
    with pytest.raises(ValueError, match="results is empty"):
        accuracy_and_time({})
