"""Records of training, and callbacks that look at them. A callback must not change anything."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from mnemosphere.model.parameters import Parameters


@dataclass(frozen=True)
class Record:
    """One pass over the training data."""

    epoch: int  # counted from 1, across resumptions
    loss: float  # mean training loss, each batch at the parameters it met
    validation_loss: float | None
    validation_accuracy: float | None
    beta: float  # after the pass
    residual: float | None  # of stationarity before the pass (exact fixed-point steps only)
    n_memories: int
    seconds: float  # wall time of the pass, validation included
    phase: int = 0  # of growth; 0 where the network does not grow

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Split:
    """One step of growth, between two phases."""

    phase: int  # the phase that ended, counted from 0
    n_memories: int  # before the split
    n_split: int  # memories duplicated; 0 where none is a saddle any more
    lambda_min: float  # the most negative curvature of all memories
    delta: float  # how far the copies were moved
    passes: float  # arithmetic of curvature and line search, in training passes at n_memories
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


class Callback:
    """Override what you want to see."""

    def on_start(self, params: Parameters, max_epochs: int) -> None:
        """Training starts; it takes at most max_epochs passes."""

    def on_batch(self, epoch: int, share_done: float) -> None:
        """A batch is done; share_done of this pass in [0, 1]."""

    def on_epoch(self, record: Record, params: Parameters) -> None:
        """A pass is done."""

    def on_split(self, split: Split, params: Parameters) -> None:
        """The network has grown to `params`; the next phase of training comes."""

    def on_end(self, status: str) -> None:
        """Training ended: 'converged', 'stopped early', 'max_epochs' or 'interrupted'."""
