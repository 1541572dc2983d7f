"""Logarithmic axes."""

from __future__ import annotations

from matplotlib.axis import Axis
from matplotlib.ticker import LogFormatter


def plain_log(axis: Axis) -> None:
    """Write 60 and not 6×10¹ on a logarithmic axis, between the decades too where there is room."""
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(_PlainLog(minor_thresholds=(1.5, 0.5)))


class _PlainLog(LogFormatter):
    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""
