"""Where each geometry puts a row, written down once more, in NumPy and double precision."""

import numpy as np


def mid_ranks(column, weight=None):
    """(values, ranks) by counting: half of the equal rows, and all that are less."""
    weight = np.ones(len(column)) if weight is None else weight
    known = ~np.isnan(column) & (weight > 0)
    values = np.unique(column[known])
    less = np.array([weight[known][column[known] < v].sum() for v in values])
    same = np.array([weight[known][column[known] == v].sum() for v in values])
    return values, (less + same / 2) / weight[known].sum()


def ranks_of(own, values, ranks):
    """Linear between values; t ranges beyond them, t/(1+t) half a rank further."""
    t = np.maximum(own - values[-1], values[0] - own) / max(np.ptp(values), 1e-9)
    further = np.sign(own - values[0]) * t / (1 + t) / 2
    return np.interp(own, values, ranks) + np.where(t > 0, further, 0.0)


def on_circles(x, training, most=4):
    """Column by column; missing values stay missing."""
    columns, lengths = [], []
    for own, seen in zip(x.T, training.T, strict=True):
        values, ranks = mid_ranks(seen)
        k = np.arange(1, min(most, len(values) - 1) + 1)
        angle = np.pi * k * ranks_of(own, values, ranks)[:, None]
        part = np.stack([np.cos(angle) / k, np.sin(angle) / k], 2).reshape(len(x), -1)
        lengths.append(np.sqrt((1 / k**2).sum()))
        columns.append(np.where(np.isnan(own)[:, None], np.nan, part))
    longest = max(lengths)
    scaled = [part * longest / max(own, 1e-9) for part, own in zip(columns, lengths, strict=True)]
    return np.concatenate(scaled, 1) / longest / np.count_nonzero(lengths) ** 0.5


def on_sphere(kind, x, training, weight=None):
    """Unit rows; `training` has the rows that a geometry learns from."""
    if kind == "circles":
        return on_circles(x, training)
    x = np.asarray(x, np.float64)
    if kind == "standard":
        training = np.asarray(training, np.float64)
        mean = np.average(training, axis=0, weights=weight)
        deviation = np.sqrt(np.average((training - mean) ** 2, axis=0, weights=weight))
        x = (x - mean) / np.where(deviation > 0, deviation, 1.0)
        x = np.hstack([x, np.full((len(x), 1), np.sqrt(x.shape[1]))])
    elif kind == "center":
        x = x - x.mean(axis=1, keepdims=True)
    return x / np.linalg.norm(x, axis=1, keepdims=True)
