"""Memories on their way through training: a recorder, and what its records say of a tree."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from mnemosphere.model.mixture import Mixture
from mnemosphere.training import Callback, Run
from mnemosphere.training.lineage import Lineage

Floats = NDArray[np.float32]


def clusters(w: Floats, overlap: float) -> int:
    """Groups of memories (P, N) that hang together by pairs with at least this overlap."""
    return int(connected_components(w @ w.T > overlap, directed=False)[0])


def reunions(snapshots: list[Floats], overlap: float) -> float:
    """Of the pairs of memories ever seen apart, the share that is together at the end.

    Apart and together by `clusters`' overlap of the two. Near 0 for a tree, whose branches never
    join again.
    """
    parted: Any = None
    together: Any = None
    for w in snapshots:
        together = w @ w.T > overlap
        parted = ~together if parted is None else parted | ~together
    n_parted = int(np.triu(parted, 1).sum())
    return float(np.triu(parted & together, 1).sum() / n_parted) if n_parted else 0.0


@dataclass
class Recorder(Callback):
    """What a run leaves: numbers after every pass, memories whenever they have moved by `step`.

    Memories are also kept at the start and at the end of each phase.
    """

    mean: torch.Tensor  # (N,) the mean direction of the data
    trunk: float
    step: float
    times: list[int] = field(default_factory=list)  # passes since the start, of what is kept
    phases: list[int] = field(default_factory=list)
    w: list[Floats] = field(default_factory=list)
    label: list[NDArray[np.uint8]] = field(default_factory=list)
    passes: list[tuple[float, ...]] = field(default_factory=list)

    def on_start(self, run: Run) -> None:
        """Before the first pass of a phase."""
        self._phase = self.phases[-1] + 1 if self.phases else 0
        self._keep(run.params)

    def on_pass(self, run: Run) -> None:
        """After a pass."""
        params = run.params
        overlap = params.w @ self.mean  # (P,)
        near = float((overlap > self.trunk).sum())
        self.passes.append((near, float(overlap.mean()), float(params.n_memories)))
        moved = float((params.w - self._last).norm(dim=1).mean())
        if moved > self.step or run.n_iter == run.max_iter:
            self._keep(params)

    def _keep(self, params: Mixture) -> None:
        self._last = params.w
        self.times.append(len(self.passes))
        self.phases.append(self._phase)
        self.w.append(params.w.cpu().numpy().astype(np.float32))
        label = params.p[1:, :-1].argmax(1)
        self.label.append(label.cpu().numpy().astype(np.uint8))

    def arrays(self, sources: list[list[int]]) -> dict[str, NDArray[Any]]:
        """All memories kept, one after the other; `before`: the same memory's last, or −1.

        sources[k][μ] is the memory of phase k that memory μ of phase k+1 goes on from.
        """
        before, first, previous = [], 0, -1
        for k, w in enumerate(self.w):
            n = len(w)
            if k == 0:
                before.append(np.full(n, -1))
            elif self.phases[k] == self.phases[k - 1]:
                before.append(previous + np.arange(n))
            else:
                before.append(previous + np.array(sources[self.phases[k] - 1]))
            previous, first = first, first + n
        sizes = [len(w) for w in self.w]
        return {
            "w": np.concatenate(self.w).astype(np.float16),
            "label": np.concatenate(self.label),
            "time": np.repeat(self.times, sizes).astype(np.int16),
            "before": np.concatenate(before).astype(np.int32),
            "passes": np.array(self.passes, dtype=np.float32),
        }


def sources(lineage: Lineage) -> list[list[int]]:
    """For each level but the first, the memory of the level above that a memory comes from."""
    found = []
    parent = lineage.parent.tolist()
    for above, below in zip(lineage.members[:-1], lineage.members[1:], strict=True):
        place = {node: k for k, node in enumerate(above.tolist())}
        found.append([place[n] if n in place else place[parent[n]] for n in below.tolist()])
    return found
