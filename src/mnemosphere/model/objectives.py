"""Objectives as label rules.

A rule turns log_joint (C+1, B) and targets (C+1, B) into the loss of each row and the *effective
label weights* (C+1, B) that the backward half of the pass spreads over the components: minus the
derivative of the loss with respect to log_joint. That is all an objective is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.gpu import on_gpu


class LabelRule(ABC):
    """What a pass asks of an objective. Classes are the first axis, rows the second."""

    @property
    def supports_fixed_point(self) -> bool:
        """Whether the weights are never negative and the loss has an exact lower bound."""
        return False

    @abstractmethod
    def __call__(self, log_joint: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return (loss (B,), label weights (C+1, B))."""

    def of_shares(
        self, share: Tensor, scale: Callable[[], Tensor], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(loss (B,), label weights over the shares of classes (C+1, B)).

        share: P(x, y) (C+1, B) up to a factor for each row, the log of which is `scale()` (1, B).
        """
        loss, weights = self(share.log() + scale(), targets)
        return loss, weights / share


@dataclass(frozen=True)
class JointConditional(LabelRule):
    """Joint likelihood, with weight `conditional` in [0, 1] on its conditional part.

    A row with label weights q of total s = Σ q_y ≤ 1 costs

        −Σ_y q_y log P(x, y) + λ s log P(x) − (1 − λ)(1 − s) log P(x)

    so λ = 0 is Eq. (effective_loss) and λ = 1 is −log P(y|x). A row without label (q = 0), or the
    missing part of a partial label, counts by its marginal likelihood in the joint part alone.
    """

    conditional: float = 0.0

    @property
    def supports_fixed_point(self) -> bool:
        """Only the joint likelihood has non-negative weights."""
        return self.conditional == 0.0

    def __call__(self, log_joint: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return (loss (B,), label weights (C+1, B))."""
        given = targets.sum(-2)
        # Rounding leaves a full label a hair away from 1; that is no missing mass, let alone
        # negative mass.
        missing = torch.nn.functional.threshold(1 - given, 1e-6, 0.0)
        if self.conditional == 0.0 and not (on_gpu(missing) or bool(missing.any())):
            return -(targets * log_joint).sum(-2), targets  # what follows comes to that
        log_predictions = log_joint.log_softmax(-2)  # one kernel, where logsumexp is eight
        # Weight of log P(x); minus its coefficient in the loss.
        on_marginal = torch.lerp(missing, -given, self.conditional)
        log_marginal = log_joint[..., 0, :] - log_predictions[..., 0, :]
        loss = -torch.addcmul((targets * log_joint).sum(-2), on_marginal, log_marginal)
        return loss, torch.addcmul(targets, on_marginal[..., None, :], log_predictions.exp())

    def of_shares(
        self, share: Tensor, scale: Callable[[], Tensor], targets: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As of every rule; densities cancel in P(y|x), which takes fewer steps."""
        if self.conditional != 1.0:
            return super().of_shares(share, scale, targets)
        total, given = share.sum(-2, keepdim=True), targets.sum(-2, keepdim=True)
        loss = (targets * share.log()).sum(-2) - given[..., 0, :] * total[..., 0, :].log()
        return -loss, (targets / share).sub_(given / total)


@dataclass(frozen=True)
class Marginal(LabelRule):
    """−log P(x): labels, if any, are not looked at."""

    supports_fixed_point = True  # the weights are the predictions

    def __call__(self, log_joint: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return (loss (B,), label weights (C+1, B))."""
        log_marginal = log_joint.logsumexp(-2)
        return -log_marginal, (log_joint - log_marginal[None]).exp()


@dataclass(frozen=True)
class Unsupervised(LabelRule):
    """Eq. (unsupervised_loss): the softened predictions stand in for labels.

    With predictions P_y and q̃ = (1−ε)P + ε/(C+1) the loss is −Σ q̃_y log P(x, y); its gradient is
    taken through the predictions too.
    """

    smoothing: float = 0.1

    def __call__(self, log_joint: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return (loss (B,), label weights (C+1, B))."""
        predictions = log_joint.softmax(-2)
        labels = (1 - self.smoothing) * predictions + self.smoothing / log_joint.shape[-2]
        loss = -(labels * log_joint).sum(-2)
        mean = (predictions * log_joint).sum(-2, keepdim=True)
        return loss, labels + (1 - self.smoothing) * predictions * (log_joint - mean)


joint = JointConditional(0.0)
conditional = JointConditional(1.0)
marginal = Marginal()
BY_NAME: dict[str, LabelRule] = {"joint": joint, "conditional": conditional, "marginal": marginal}


def soft_labels(
    classes: Tensor, n_classes: int, smoothing: float, *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Rows (1−ε)·onehot + ε/(C+1) over C+1 entries; a negative class is an unlabeled row (zeros).

    The last entry is the class "none of the C".
    """
    columns = n_classes + 1
    q = torch.full((len(classes), columns), smoothing / columns, dtype=dtype, device=classes.device)
    labeled = classes >= 0
    q[~labeled] = 0.0
    rows = labeled.nonzero()[:, 0]
    q[rows, classes[rows]] += 1 - smoothing
    return q
