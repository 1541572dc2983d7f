"""The settings of the conditional refinement, and what a training comes to."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from torch import Tensor

from mnemosphere.data.dataset import Dataset
from mnemosphere.model import objectives
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.callbacks import PassRecord
from mnemosphere.training.lineage import Lineage

__all__ = ["Refinement", "Trained"]


@dataclass(frozen=True)
class Refinement:
    """Descend from the joint solution, with weight `conditional` on the conditional likelihood.

    Parameters
    ----------
    conditional : float in (0, 1]
        1 is −log P(y|x) alone.
    noise : float >= 0 or "auto"
        The length, relative to the row, of the noise that is laid anew on every row in every pass;
        a noisy row has the overlap 1/√(1+noise²) with its own. "auto": √N/(ςβ), at most 0.3
        (0.6 with more than 10,000 rows); none on sparse rows, which it would make dense.
    max_iter : int or None
        Passes; None: 15, more on small data.
    validation_fraction : float in (0, 1)
        Rows that take no part in the training and judge it.
    patience : int
        Passes without improvement on them before stopping, two thirds of the passes at least (one
        third up to 3000 rows): steps get smaller towards the end, which is where most is gained.
    metric : "learn" or "none"
        Whether a metric is learned too, where rows have at most 150 coordinates, none of them
        unknown, and there are at least five rows per coordinate.

    """

    conditional: float = 1.0
    noise: float | Literal["auto"] = "auto"
    max_iter: int | None = None
    validation_fraction: float = 0.1
    patience: int = 3
    metric: Literal["learn", "none"] = "learn"

    def __post_init__(self) -> None:
        if not 0 < self.conditional <= 1:
            raise ValueError(f"conditional must lie in (0, 1], got {self.conditional}")
        if self.noise != "auto" and not 0 <= float(self.noise) < math.inf:
            raise ValueError(f"noise must be finite and >= 0, or 'auto', got {self.noise}")
        if self.max_iter is not None and self.max_iter < 1:
            raise ValueError(f"max_iter must be >= 1 or None, got {self.max_iter}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction must lie in (0, 1), got {self.validation_fraction}"
            )
        if self.metric not in ("learn", "none"):
            raise ValueError(f"metric must be 'learn' or 'none', got {self.metric!r}")
        if self.patience < 1:
            raise ValueError(f"patience must be >= 1, got {self.patience}")

    @property
    def rule(self) -> LabelRule:
        """The objective."""
        return objectives.JointConditional(self.conditional)


class Trained(NamedTuple):
    """What a training of one or more parts came to."""

    params: Parameters
    history: tuple[PassRecord, ...]
    status: str
    lineage: Lineage | None = None
    # Parameters of the same kind and rows they have not seen, where training set some apart.
    unseen: tuple[tuple[Parameters, Dataset], ...] = ()
    # Label weights of the rows that each component answers for, (P+1, C+1), where they are known.
    label_counts: Tensor | None = None
