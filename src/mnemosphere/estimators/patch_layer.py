"""One size of patches: from images to soft counts of patch memories, and back to pictures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from mnemosphere.data.windows import Windows
from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import chunk_rows, memory_shares
from mnemosphere.model.parameters import Parameters

__all__ = ["PatchLayer"]

_SHARPENING = 20  # steps that undo the blur of cells that share places


@dataclass(frozen=True)
class PatchLayer:
    """Memories of patches, and the cells of the image in which their shares are summed."""

    windows: Windows
    grid: tuple[int, int]  # cells down and across
    params: Parameters
    soft: bool = False  # whether a place between the middles of two cells counts for both
    contrast: float = 0.0  # a patch counts by its length before it was put on the sphere, to this

    @property
    def n_cells(self) -> int:
        """How many cells an image has."""
        return self.grid[0] * self.grid[1]

    @property
    def n_features(self) -> int:
        """How many soft counts an image has."""
        return self.n_cells * self.params.n_memories

    @property
    def images_per_chunk(self) -> int:
        """How many images to encode at once."""
        device = self.params.w.device
        return max(1, chunk_rows(self.params.n_memories, device) // self.windows.n_places)

    def to(self, device: torch.device | str) -> Self:
        """A copy on another device."""
        return replace(self, params=self.params.to(device=device))

    def membership(self) -> Tensor:
        """How much of each place belongs to each cell, (cells, places); 1 per place."""
        down, across = self._sides()
        return torch.kron(down, across)

    def _sides(self) -> tuple[Tensor, Tensor]:
        """The same down (cells, places) and across, of which it is the product."""
        down, across = (
            _membership(n_places, n_cells, self.soft).to(self.params.w)
            for n_places, n_cells in zip(self.windows.places, self.grid, strict=True)
        )
        return down, across

    def count(self, images: Tensor) -> Tensor:
        """Σ P(memory | patch) over the places of each cell, (B, cells, P); blank patches are none.

        Images (B, n_pixels) in the precision and on the device of the memories.
        """
        patches = self.windows.cut(images)  # (B, places, n)
        x, directed = self.windows.on_sphere(patches)
        rows = Batch(
            x.flatten(0, 1),
            x.new_zeros(1, 1).expand(directed.numel(), 1),
            directed.flatten().to(x.dtype),
        )
        if self.contrast:
            weight = patches.std(-1, correction=0).pow(self.contrast).flatten()
            rows = replace(rows, sample_weight=weight)
        parts = [r for _, r in memory_shares(self.params, rows, objectives.marginal)]
        shares = parts[0] if len(parts) == 1 else torch.cat(parts)  # (B · places, P)
        # Sums by products, first down and then across: the same bits in every run on a GPU too.
        (n_down, n_across), (down, across) = self.windows.places, self._sides()
        summed = down @ shares.view(x.shape[0], n_down, -1)  # (B, cells down, across · P)
        return (across @ summed.view(x.shape[0], down.shape[0], n_across, -1)).flatten(1, 2)

    def draw(self, counts: Tensor, n_iter: int) -> Tensor:
        """The picture (B, n_pixels) that soft counts (B, cells, P) stand for.

        The counts tell how often a patch is in a cell, not where. So at first each place shows the
        patch expected there, and the picture, blended where patches overlap, is blurred. Then each
        place asks in turn which patches agree with the picture its neighbors make, by
        P(memory | patch of the picture); its prior is tilted so that the shares still add up to
        the counts.
        """
        w, cells = self.params.w, self.membership()  # (cells, places)
        some = 1e-6 * counts.sum((1, 2), keepdim=True).clamp_min(torch.finfo(w.dtype).tiny)

        def missing(shares: Tensor) -> Tensor:
            """The factor by which shares (B, places, P) fall short of the counts of their cells."""
            return cells.T @ ((counts + some) / (cells @ shares + some))

        prior = (counts.sum(1, keepdim=True) / cells.shape[1]).expand(-1, cells.shape[1], -1)
        for _ in range(_SHARPENING if self.soft else 1):  # Richardson–Lucy
            prior = prior * missing(prior)
        fill = prior.sum(2, keepdim=True)  # a cell that is full shows strong patches
        log_prior = (prior + some * 1e-6).log()
        picture = self.windows.blend(prior @ w)
        for _ in range(n_iter):
            x, _ = self.windows.on_sphere(self.windows.cut(picture))
            shares = fill * (self.params.beta_eff * (x @ w.T) + log_prior).softmax(2)
            factor = missing(shares)
            log_prior = log_prior + 0.5 * factor.log()
            picture = self.windows.blend((shares * factor) @ w)
        return picture

    def spread(self, values: Tensor) -> Tensor:
        """A value of each cell (..., cells) laid evenly on the pixels its patches cover.

        (..., rows · columns); what falls on the pixels adds up to the sum of the values.
        """
        plane = replace(self.windows, shape=(*self.windows.shape[:2], 1))
        covers = values.new_zeros(plane.n_places, plane.n_pixels)
        covers.scatter_(1, plane.pixels(values.device), 1.0)
        share = self.membership().to(values) @ covers  # (cells, pixels)
        return values @ (share / share.sum(1, keepdim=True))


def _membership(n_places: int, n_cells: int, soft: bool) -> Tensor:
    """How much of each place along one side belongs to each cell, (cells, places); 1 in all."""
    if soft:
        middle = (torch.arange(n_places, dtype=torch.float64) + 0.5) * n_cells / n_places - 0.5
        middle = middle.clamp(0, n_cells - 1)
        return (1 - (middle - torch.arange(n_cells)[:, None]).abs()).clamp_min(0)
    cell = torch.arange(n_places) * n_cells // n_places
    return (cell == torch.arange(n_cells)[:, None]).double()
