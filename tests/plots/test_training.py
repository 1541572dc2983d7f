from numpy.testing import assert_allclose, assert_array_equal

from mnemosphere.plots.curves import learning_curves
from mnemosphere.training.callbacks import PassRecord


def record(k, **changes):
    fields = {
        "n_iter": k + 1, "loss": 3.0 - 0.1 * k, "validation_loss": 3.1 - 0.09 * k,
        "validation_accuracy": 0.5 + 0.03 * k - 0.002 * k * k, "beta": 10.0 + k, "residual": None,
        "n_memories": 7, "seconds": 0.1, "phase": 0,
    }  # fmt: skip
    return PassRecord(**(fields | changes)).as_dict()


def test_curves_hold_the_history():
    history = [record(k) for k in range(11)]
    figure = learning_curves(history)
    loss, accuracy, beta = figure.axes
    assert_array_equal(loss.lines[0].get_xdata(), range(1, 12))
    assert_allclose(loss.lines[0].get_ydata(), [r["loss"] for r in history])
    assert_allclose(loss.lines[1].get_ydata(), [r["validation_loss"] for r in history])
    assert_allclose(accuracy.lines[0].get_ydata(), [r["validation_accuracy"] for r in history])
    assert_allclose(beta.lines[0].get_ydata(), [r["beta"] for r in history])


def test_phases_are_counted_on_and_marked():
    widths = [10] * 4 + [20] * 6 + [40] * 7
    phase = [0] * 4 + [1] * 6 + [2] * 7
    history = [
        record(k % 4, n_memories=n, phase=i)
        for k, (n, i) in enumerate(zip(widths, phase, strict=True))
    ]
    figure = learning_curves(history)
    loss = figure.axes[0]
    assert_array_equal(loss.lines[0].get_xdata(), range(1, 18))
    for ax in figure.axes:
        marks = [line.get_xdata()[0] for line in ax.lines if len(line.get_xdata()) == 2]
        assert marks == [4.5, 10.5]
    assert loss.get_title(loc="left").startswith("17 passes, 10 to 40 memories")
