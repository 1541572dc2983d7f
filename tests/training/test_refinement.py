"""The settings of the refinement."""

from __future__ import annotations

import math

import pytest

from mnemosphere.training.refinement import Refinement


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"conditional": 0.0}, r"conditional must lie in \(0, 1\], got 0"),
        ({"conditional": 1.5}, r"conditional must lie in \(0, 1\], got 1.5"),
        ({"noise": -0.1}, "noise must be finite and >= 0, or 'auto', got -0.1"),
        ({"noise": math.inf}, "noise must be finite"),
        ({"max_iter": 0}, "max_iter must be >= 1 or None, got 0"),
        ({"validation_fraction": 0.0}, r"validation_fraction must lie in \(0, 1\), got 0"),
        ({"validation_fraction": 1.0}, r"validation_fraction must lie in \(0, 1\), got 1"),
        ({"patience": 0}, "patience must be >= 1, got 0"),
        ({"metric": "yes"}, "metric must be 'learn' or 'none', got 'yes'"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Refinement(**settings)
