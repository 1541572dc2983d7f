import numpy as np
import pytest

from mnemosphere.interpret.evaluation import calibration_error


def test_calibration_error_of_bins_counted_by_hand():
    # Bins of width 1/15: 0.95 and 0.99 lie in the last, 0.61 in the tenth from below.
    sure = np.array([0.95, 0.99, 0.61])
    right = np.array([True, False, True])
    expected = (abs(0.95 + 0.99 - 1) + abs(0.61 - 1)) / 3
    assert calibration_error(sure, right) == pytest.approx(expected)
    assert calibration_error(np.ones(5), np.ones(5, dtype=bool)) == 0.0
    assert calibration_error(np.empty(0), np.empty(0, dtype=bool)) is None
