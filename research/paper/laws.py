"""Cost against width: what was spent, averages over seeds, and the laws fitted to them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mnemosphere.training.callbacks import PassRecord, SplitRecord
from research.report import Json


def n_splits(initial: int, p_max: int) -> int:
    """⌈log₂(P_max/P_0)⌉: how often `initial` memories are doubled until there are p_max."""
    return (-(-p_max // initial) - 1).bit_length()


def fit(x: Sequence[float], y: Sequence[float]) -> Json:
    """Least squares of y = a + b·x, and the share R² of the variance of y it explains.

    R² is None where y does not vary; b is 0 where x does not.
    """
    across, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    dx, dy = across - across.mean(), up - up.mean()
    b = float(dx @ dy / (dx @ dx)) if (dx @ dx) > 0 else 0.0
    a = float(up.mean() - b * across.mean())
    total = float(dy @ dy)
    rest = float(np.square(up - a - b * across).sum())
    return {"a": a, "b": b, "r2": 1 - rest / total if total > 0 else None}


def best_fit(widths: Sequence[int], seconds: Sequence[float], initial: int) -> Json:
    """Times as a line and a power of P_max, and as a staircase in the number of splits."""
    steps = [n_splits(initial, p) for p in widths]
    found = {"line": fit(widths, seconds)}
    if min(seconds) > 0:  # y = e^a P_max^b
        found["power"] = fit([math.log(w) for w in widths], [math.log(s) for s in seconds])
    if len(set(steps)) > 1:
        found["staircase"] = fit(steps, seconds)
    return found


def work_of(
    history: Sequence[PassRecord], splits: Sequence[SplitRecord], rows: int, validation_rows: int
) -> float:
    """Products of a row with a memory, in millions; a validation row costs half a training row."""
    per_memory = rows + 0.5 * validation_rows
    products = sum(record.n_memories * per_memory for record in history)
    products += sum(s.n_memories * s.passes * rows for s in splits)
    return products / 1e6


def sweeps(rows: Sequence[Json]) -> Json:
    """Mean and deviation over seeds for each data set and method, in the order of P_max."""
    found: Json = {}
    for row in rows:
        found.setdefault(row["data"], {}).setdefault(row["method"], {}).setdefault(
            row["p_max"], []
        ).append(row)
    return {
        data: {
            method: {
                "p_max": sorted(at),
                **{
                    f"{what}{suffix}": [
                        float(statistic([r[what] for r in at[p]])) for p in sorted(at)
                    ]
                    for what in ("accuracy", "seconds", "work", "passes", "splits")
                    for suffix, statistic in (("", np.mean), ("_std", np.std))
                },
            }
            for method, at in methods.items()
        }
        for data, methods in found.items()
    }
