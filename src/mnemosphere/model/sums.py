"""Sums over rows that several processes share."""

from __future__ import annotations

from torch import Tensor

__all__ = ["ALONE", "Sums"]


class Sums:
    """What the processes have together; here there is one."""

    rank, size = 0, 1

    def sum(self, *tensors: Tensor) -> list[Tensor]:
        """Sums over all processes, in float64, as one buffer."""
        return list(tensors)

    def largest(self, tensor: Tensor) -> Tensor:
        """The largest of each number over all processes."""
        return tensor


ALONE = Sums()
