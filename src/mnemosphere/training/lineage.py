"""The tree of splits: where each memory comes from, and the smaller models on the way."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from mnemosphere.model.curvature import Curvature
from mnemosphere.model.mixture import Mixture


@dataclass(frozen=True)
class Lineage:
    """A forest of memories. A split ends a node and begins two, one level further down.

    Nodes are numbered in the order they appear, so a parent's number is below its children's. A
    memory that is not split keeps its node from one level to the next.
    """

    # The level at which each node appears; 0 for the first memories.
    level: Tensor
    parent: Tensor  # −1 at level 0
    # Curvature when it was split; NaN where it never was.
    lambda_min: Tensor
    beta_split: Tensor
    members: tuple[Tensor, ...]  # for each level, the node of each memory: (P_level,) int64
    models: tuple[Mixture, ...] = ()  # for each level, the parameters at its end

    @classmethod
    def root(cls, n_memories: int) -> Self:
        """The first memories, none of them split."""
        unknown = torch.full((n_memories,), torch.nan, dtype=torch.float64)
        return cls(
            level=torch.zeros(n_memories, dtype=torch.long),
            parent=torch.full((n_memories,), -1),
            lambda_min=unknown,
            beta_split=unknown,
            members=(torch.arange(n_memories),),
        )

    @property
    def n_nodes(self) -> int:
        """Memories that ever were."""
        return self.level.numel()

    @property
    def n_levels(self) -> int:
        """Levels, the first memories' included."""
        return len(self.members)

    def split(self, which: Tensor, curvature: Curvature) -> Self:
        """The tree after the memories `which` (R,) were split; their copies come last."""
        which = which.cpu()
        nodes = self.members[-1][which]
        first, n_split = self.n_nodes, nodes.shape[0]
        lambda_min, beta_split = self.lambda_min.clone(), self.beta_split.clone()
        lambda_min[nodes] = curvature.lambda_min.detach().cpu().double()[which]
        beta_split[nodes] = curvature.beta_split.detach().cpu().double()[which]
        unknown = torch.full((2 * n_split,), torch.nan, dtype=torch.float64)
        moved = self.members[-1].clone()
        moved[which] = torch.arange(first, first + n_split)
        copies = torch.arange(first + n_split, first + 2 * n_split)
        return dataclasses.replace(
            self,
            level=torch.cat([self.level, torch.full((2 * n_split,), self.n_levels)]),
            parent=torch.cat([self.parent, nodes, nodes]),
            lambda_min=torch.cat([lambda_min, unknown]),
            beta_split=torch.cat([beta_split, unknown]),
            members=(*self.members, torch.cat([moved, copies])),
        )

    def with_model(self, params: Mixture) -> Self:
        """The tree with the parameters at the end of the last level."""
        return dataclasses.replace(self, models=(*self.models, params))

    def sum_up(self, level: int, p: Tensor) -> Tensor:
        """Class weights (P+1, C+1) of the last level as those of the memories of another one.

        A memory has the sum of those of its descendants; row 0, the uniform component, stays.
        """
        place = {node: k for k, node in enumerate(self.members[level].tolist(), 1)}
        found = torch.cat([p[:1], p.new_zeros(len(place), p.shape[1])])
        for node, weights in zip(self.members[-1].tolist(), p[1:], strict=True):
            while node not in place:
                node = int(self.parent[node])
            found[place[node]] += weights
        return found
