"""How parameters start: memories on training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset, Dataset
from mnemosphere.model import initialize
from mnemosphere.model.batch import Batch
from mnemosphere.model.m_step import share_out, with_labels
from mnemosphere.model.parameters import Parameters, from_memories
from mnemosphere.numerics.bessel import inverse_mean_resultant
from mnemosphere.training.fixed_point import FixedPoint

_ROWS_TO_START_FROM = 10  # per memory: enough for every class to be among them
_ROWS_OF_A_MEAN = 50
MANY_FEATURES = 1000  # of rows whose means memories may start on
_PROBED, _FEW, _HARDLY = 128, 32, 0.02  # rows, some of them, and how little overlap

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
    learned_weights: bool = False  # those of memories are learned, not held
    smoothing: float = 0.0  # of the labels
    refined: bool = False  # whether the conditional refinement goes on from there

    def from_means(self, dataset: Dataset) -> bool:
        """Whether memories are means of labeled rows: where most rows have hardly an overlap.

        So it is with texts: a memory on one row would answer for hardly any other.
        """
        if dataset.n_rows < self.n_memories:
            return False
        if isinstance(dataset, ArrayDataset) and dataset.rows.x.shape[1] < MANY_FEATURES:
            return False  # without a look at rows
        rows = dataset.sample(_PROBED, generator=torch.Generator().manual_seed(0))
        if rows.x.shape[1] < MANY_FEATURES or dataset.has_unlabeled():
            return False
        x = rows.filled().x
        return float((x @ x[:_FEW].to_dense().T).abs().median()) < _HARDLY

    def solver(self, given: FixedPoint) -> FixedPoint:
        """The same with what it needs to know of the start."""
        once = self.own_labels and not self.learned_weights
        return replace(given, learn_weights=self.learned_weights, once_per_pass=once)

    def is_solution(self, dataset: Dataset) -> bool:
        """Whether the refinement starts from here and not from the joint solution.

        That would gather such rows by their commonest features, whatever their class.
        """
        return self.refined and self.from_means(dataset)

    def __call__(self, dataset: Dataset, varsigma: float, generator: torch.Generator) -> Parameters:
        """Parameters to train from."""
        if varsigma < _NO_VARSIGMA:
            raise ValueError(f"varsigma must lie in [{_NO_VARSIGMA}, 1], got {varsigma}")
        labels = None
        if self.from_means(dataset):
            rows = dataset.sample(_ROWS_OF_A_MEAN * self.n_memories, generator=generator)
            w, labels = initialize.class_means(
                rows.x, rows.targets, self.n_memories, generator=generator
            )
        elif self.own_labels:
            rows, order = self._in_order(dataset, generator)
            w = initialize.from_data(
                rows.filled().x, self.n_memories, generator=generator, order=order
            )
            if self.n_memories > rows.n_rows:
                order = order.repeat(-(-self.n_memories // rows.n_rows))
            labels = rows.targets[order[: self.n_memories]]
        else:
            rows = dataset.sample(self.n_memories, generator=generator)
            w = initialize.from_data(rows.filled().x, self.n_memories, generator=generator)
        beta: float | Tensor
        if self.beta is None:
            probe = dataset.sample(initialize.PROBE_ROWS, generator=generator)
            beta = initialize.estimate_beta(w, probe.filled().x, varsigma)
        else:
            beta = self.beta
        return self._parameters(dataset, w, labels, beta, varsigma)

    def on_same_rows(self, several: Sequence[ArrayDataset], seed: int) -> list[Parameters]:
        """What calls with that seed and ς = 1 come to, for few rows as several geometries see them.

        Memories start on the same rows with the same labels: all but their directions and β is
        found once. Rows have as many features in each; some may be left out of one.
        """
        first, generator = several[0], torch.Generator().manual_seed(seed)
        targets, n_rows = first.rows.targets, first.n_rows
        alike = self.own_labels and self.n_memories <= n_rows <= initialize.PROBE_ROWS
        alike = alike and not any(map(self.from_means, several))
        if not (alike and all(torch.equal(one.rows.targets, targets) for one in several)):
            return [self(one, 1.0, torch.Generator().manual_seed(seed)) for one in several]
        numbers = torch.arange(n_rows, device=targets.device)[:, None]
        rows, order = self._in_order(ArrayDataset(Batch(numbers, targets)), generator)
        order = order[: self.n_memories]
        chosen, labels = rows.x[order, 0], rows.targets[order]
        seen = [one.rows.filled().x for one in several]
        memories = [x[chosen].to_dense() for x in seen]
        if self.beta is None:
            near = [initialize.mean_overlap(w, x) for w, x in zip(memories, seen, strict=True)]
            betas = inverse_mean_resultant(torch.stack(near), seen[0].shape[1]).to(memories[0])
        else:
            betas = torch.full_like(memories[0][0, :1], self.beta).expand(len(several))
        params = self._parameters(first, memories[0], labels, betas[0], 1.0)
        return [params.replace(w=w, beta=b) for w, b in zip(memories, betas, strict=True)]

    def _in_order(self, dataset: Dataset, generator: torch.Generator) -> tuple[Batch, Tensor]:
        """Rows of which memories may start on the first, and their order: classes in proportion."""
        rows = dataset.sample(_ROWS_TO_START_FROM * self.n_memories, generator=generator)
        return rows, initialize.class_by_class(rows.targets, generator=generator)

    def _parameters(
        self,
        dataset: Dataset,
        w: Tensor,
        labels: Tensor | None,
        beta: float | Tensor,
        varsigma: float,
    ) -> Parameters:
        """Memories with the labels of their rows, or with none, and the classes of the data."""
        mass = dataset.label_mass()
        # Where no row has a label, every class is as good as any.
        mass = mass + (mass.sum() == 0)
        p_q = mass / mass.sum()
        uniform = self.uniform_weight
        if uniform is None:
            uniform = usual_uniform_weight(self.n_memories)
        params = from_memories(w, p_q, beta=beta, varsigma=varsigma, uniform_weight=uniform)
        if labels is None:
            return params
        missing = (1 - labels.sum(1, keepdim=True)).clamp_min(0.0)
        soft = torch.cat([params.p_q[None], labels + missing * params.p_q])
        if self.learned_weights:
            return share_out(params, params.p_h[:, None] * soft, hold_classes=True)
        return with_labels(params, soft)
