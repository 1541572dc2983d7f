"""Frames of several kinds of columns."""

import numpy as np
import pandas as pd


def clients():
    """Counts, a category, truth values, an income and gaps; with a label for each row."""
    rng = np.random.default_rng(4)
    y = rng.integers(0, 2, 157)
    frame = pd.DataFrame(
        {
            "calls": rng.poisson(np.where(y, 0.6, 3.0)).astype(float),
            "plan": np.where(rng.random(157) < 0.7, np.where(y, "basic", "pro"), "plus"),
            "paid": rng.random(157) < 0.3 + 0.4 * y,
            "income": rng.lognormal(3 + y, 0.5).round(2),
        }
    )
    return frame.mask(rng.random(frame.shape) < 0.15), np.where(y, "left", "stayed")
