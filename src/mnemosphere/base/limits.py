"""Limits of plain values: ranges of numbers, depth of lists. Loads nothing heavy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SHOWN = 40  # letters of a value in a message
_DEEPEST = 32  # lists in lists, more than in any model file
_NESTED = frozenset([list, dict])


def refuse(value: Any, name: str, expected: str) -> None:
    """Raise ValueError: a field of a file is not as expected."""
    got = repr(value)
    got = got if len(got) <= _SHOWN else got[:_SHOWN] + "…"
    raise ValueError(f"{name or 'header'} is {got}, expected {expected}")


@dataclass(frozen=True)
class Range:
    """A number in [low, high]."""

    low: float = -math.inf
    high: float = math.inf

    def check(self, value: float, name: str, sizes: Mapping[str, int]) -> None:
        """Raise ValueError unless the number is so."""
        if not self.low <= value <= self.high:
            refuse(value, name, f"a number from {self.low} to {self.high}")


def check_depth(value: Any) -> None:
    """Raise ValueError where lists and mappings are nested deeper than any of ours."""
    level = [value] if type(value) in _NESTED else []
    for _ in range(_DEEPEST):
        if not level:
            return
        inner = (item if type(item) is list else item.values() for item in level)
        level = [x for values in inner for x in values if type(x) in _NESTED]
    raise ValueError(f"it is nested deeper than {_DEEPEST} levels")
