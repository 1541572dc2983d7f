"""How parameters start: memories on training rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.data.dataset import Dataset
from mnemosphere.model import initialize
from mnemosphere.model.m_step import share_out
from mnemosphere.model.parameters import Parameters, from_memories

__all__ = ["Start", "usual_uniform_weight"]

_ROWS_TO_START_FROM = 10  # per memory: enough for every class to be among them

_NO_VARSIGMA = 1e-9  # below, no β makes up for it


def usual_uniform_weight(n_memories: int) -> float:
    """That of a memory, as in the paper, but at most a hundredth of all."""
    return min(1.0, n_memories / 99)


@dataclass(frozen=True)
class Start:
    """How parameters start: on training rows, classes in proportion."""

    n_memories: int
    beta: float | None = None  # None: the one that fits the memories
    uniform_weight: float | None = 1.0  # None: `usual_uniform_weight`
    own_labels: bool = False  # memories start with the labels of their rows; else with none
    smoothing: float = 0.0  # of the labels

    def __call__(self, dataset: Dataset, varsigma: float, generator: torch.Generator) -> Parameters:
        """Parameters to train from."""
        if varsigma < _NO_VARSIGMA:
            raise ValueError(f"varsigma must lie in [{_NO_VARSIGMA}, 1], got {varsigma}")
        labels = None
        if self.own_labels:
            rows = dataset.sample(_ROWS_TO_START_FROM * self.n_memories, generator=generator)
            order = initialize.class_by_class(rows.targets, generator=generator)
            w = initialize.from_data(
                rows.filled().x, self.n_memories, generator=generator, order=order
            )
            repeats = -(-self.n_memories // rows.n_rows)
            labels = rows.targets[order.repeat(repeats)[: self.n_memories]]
        else:
            rows = dataset.sample(self.n_memories, generator=generator)
            w = initialize.from_data(rows.filled().x, self.n_memories, generator=generator)
        beta: float | Tensor
        if self.beta is None:
            probe = dataset.sample(initialize.PROBE_ROWS, generator=generator)
            beta = initialize.estimate_beta(w, probe.filled().x, varsigma)
        else:
            beta = self.beta
        mass = dataset.label_mass()
        # Where no row has a label, every class is as good as any.
        p_q = mass / mass.sum() if bool(mass.sum() > 0) else torch.ones_like(mass) / len(mass)
        uniform = self.uniform_weight
        if uniform is None:
            uniform = usual_uniform_weight(self.n_memories)
        params = from_memories(w, p_q, beta=beta, varsigma=varsigma, uniform_weight=uniform)
        if labels is None:
            return params
        missing = (1 - labels.sum(1, keepdim=True)).clamp_min(0.0)
        soft = torch.cat([params.p_q[None], labels + missing * params.p_q])
        return share_out(params, params.p_h[:, None] * soft, hold_classes=True)
