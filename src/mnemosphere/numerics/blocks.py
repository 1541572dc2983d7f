"""Sizes of the blocks that GPU kernels work on."""

from __future__ import annotations


def power_of_two(n: int, least: int = 1) -> int:
    """The first power of two from n on, at least `least`, one itself: blocks have such sizes."""
    return max(least, 1 << (n - 1).bit_length())
