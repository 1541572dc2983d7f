"""One size of patches: from images to soft counts of patch memories, and back to pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from mnemosphere.data.windows import Windows
from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import chunk_rows, memory_shares
from mnemosphere.model.parameters import Parameters


@dataclass(frozen=True)
class PatchLayer:
    """Memories of patches, and the cells of the image in which their shares are summed."""

    windows: Windows
    grid: tuple[int, int]  # cells down and across
    params: Parameters

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
        """How far places belong to each cell, (cells, places)."""
        down, across = self._sides()
        return torch.kron(down, across)

    def _sides(self) -> tuple[Tensor, Tensor]:
        """The same down (cells, places) and across, of which it is the product."""
        down, across = (
            _membership(n_places, n_cells).to(self.params.w)
            for n_places, n_cells in zip(self.windows.places, self.grid, strict=True)
        )
        return down, across

    def count(self, images: Tensor) -> Tensor:
        """Σ P(memory | patch) over the places of each cell, (B, cells, P); blank patches are none.

        A place between the middles of two cells counts for both in part. Images (B, n_pixels) in
        the precision and on the device of the memories.
        """
        x, directed = self.windows.on_sphere(self.windows.cut(images))  # (B, places, n)
        rows = Batch(
            x.flatten(0, 1),
            x.new_zeros(1, 1).expand(directed.numel(), 1),
            directed.flatten().to(x.dtype),
        )
        parts = [r for _, r in memory_shares(self.params, rows, objectives.marginal)]
        shares = parts[0] if len(parts) == 1 else torch.cat(parts)  # (B · places, P)
        # Sums by products, first down and then across: the same bits in every run on a GPU too.
        (n_down, n_across), (down, across) = self.windows.places, self._sides()
        summed = down @ shares.view(x.shape[0], n_down, -1)  # (B, cells down, across · P)
        return (across @ summed.view(x.shape[0], down.shape[0], n_across, -1)).flatten(1, 2)

    def spread(self, values: Tensor) -> Tensor:
        """A value of each cell (..., cells) laid evenly on the pixels its patches cover.

        (..., rows · columns); what falls on the pixels adds up to the sum of the values.
        """
        plane = replace(self.windows, shape=(*self.windows.shape[:2], 1))
        covers = values.new_zeros(plane.n_places, plane.n_pixels)
        covers.scatter_(1, plane.pixels(values.device), 1.0)
        share = self.membership().to(values) @ covers  # (cells, pixels)
        return values @ (share / share.sum(1, keepdim=True))


@dataclass(frozen=True)
class _Sketch:
    """What one layer believes is at each place, while a picture is drawn."""

    layer: PatchLayer
    counts: Tensor  # (B, cells, P)
    fill: Tensor  # (B, places, 1) a cell that is full shows strong patches
    log_prior: Tensor  # (B, places, P)
    shares: Tensor  # (B, places, P)

    @classmethod
    def start(cls, layer: PatchLayer, counts: Tensor) -> Self:
        """Every place of a cell alike."""
        cells = layer.membership()  # (cells, places)
        prior = cells.T @ (counts / cells.sum(1, keepdim=True))
        log_prior = (prior + 1e-6 * _little(counts)).log()
        return cls(layer, counts, prior.sum(2, keepdim=True), log_prior, prior)

    def agree_with(self, picture: Tensor) -> Self:
        """P(memory | patch of the picture), the prior tilted so that shares add up to counts."""
        layer, cells, little = self.layer, self.layer.membership(), _little(self.counts)
        x, _ = layer.windows.on_sphere(layer.windows.cut(picture))
        overlap = x @ layer.params.w.T
        shares = self.fill * (layer.params.beta_eff * overlap + self.log_prior).softmax(2)
        short = cells.T @ ((self.counts + little) / (cells @ shares + little))  # 1: they add up
        return replace(self, log_prior=self.log_prior + short.log(), shares=shares * short)

    def picture(self) -> Tensor:
        """The expected patch at each place, blended where patches overlap, (B, n_pixels)."""
        return self.layer.windows.blend(self.shares @ self.layer.params.w)


def draw(layers: Sequence[PatchLayer], counts: Sequence[Tensor], n_iter: int) -> Tensor:
    """The pictures (B, n_pixels), of unit length, that soft counts (B, cells, P) stand for.

    The counts tell how often a patch is in a cell, not where. So at first each place shows the
    patch expected there, and the picture is blurred. Then each place asks in turn which patches
    agree with the picture its neighbors make, `n_iter` times.
    """
    sketches = [_Sketch.start(layer, part) for layer, part in zip(layers, counts, strict=True)]
    for n_left in range(n_iter, -1, -1):
        parts = [unit_rows(sketch.picture()) for sketch in sketches]
        picture = unit_rows(torch.stack(parts).sum(0))
        if n_left:
            sketches = [sketch.agree_with(picture) for sketch in sketches]
    return picture


def unit_rows(x: Tensor) -> Tensor:
    """Rows divided by their lengths; rows of zeros stay."""
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / torch.where(norm > 0, norm, 1.0)


def _little(counts: Tensor) -> Tensor:
    """Next to nothing beside these counts, (B, 1, 1)."""
    return 1e-6 * counts.sum((1, 2), keepdim=True).clamp_min(torch.finfo(counts.dtype).tiny)


def _membership(n_places: int, n_cells: int) -> Tensor:
    """How far places along one side belong to each cell, (cells, places); a place adds up to 1.

    All of it at the middle of a cell and less from there to the middle of the next, in proportion:
    a shift by a pixel changes every count a little and none at once.
    """
    places = (torch.arange(n_places, dtype=torch.float64) + 0.5) * n_cells / n_places
    middles = torch.arange(n_cells, dtype=torch.float64) + 0.5
    return (1 - (places.clamp(0.5, n_cells - 0.5) - middles[:, None]).abs()).clamp_min(0.0)
