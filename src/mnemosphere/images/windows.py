"""Windows of images and signals, and patches as rows to learn from."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.training.dataset import ArrayDataset

_FLAT = {torch.float32: 1e-6, torch.float64: 1e-12}  # what is left of a flat patch is rounding
_CHUNK_NUMBERS = (1 << 20, 1 << 27)  # of patches held at a time, on a processor and on a GPU


@dataclass(frozen=True)
class Windows:
    """Where patches of one size are cut from images of one shape, and how they get on the sphere.

    Images are rows of pixels, row by row, the channels of a pixel together. A signal is an image
    of one row. Places are counted row by row.
    """

    shape: tuple[int, int, int]  # rows, columns and channels of an image
    size: tuple[int, int]  # rows and columns of a patch
    stride: tuple[int, int]
    center: bool = True  # whether a patch loses its mean before it is divided by its norm

    @property
    def places(self) -> tuple[int, int]:
        """How many places there are, down and across."""
        rows, columns = (
            (side - size) // step + 1
            for side, size, step in zip(self.shape[:2], self.size, self.stride, strict=True)
        )
        return rows, columns

    @property
    def n_places(self) -> int:
        """How many patches an image has."""
        return self.places[0] * self.places[1]

    @property
    def n_pixels(self) -> int:
        """Numbers per image."""
        return self.shape[0] * self.shape[1] * self.shape[2]

    @property
    def n_features(self) -> int:
        """Numbers per patch."""
        return self.size[0] * self.size[1] * self.shape[2]

    def pixels(self, device: torch.device | str = "cpu") -> Tensor:
        """Which pixels of the row each patch holds, (places, n_features)."""
        every = torch.arange(self.n_pixels, device=device)
        return self.cut(every[None])[0]

    def cut(self, images: Tensor) -> Tensor:
        """All patches of images (B, n_pixels), (B, places, n_features)."""
        stack = images.reshape(-1, *self.shape)
        for axis in (0, 1):
            stack = stack.unfold(1 + axis, self.size[axis], self.stride[axis])
        # (B, down, across, channels, rows, columns): the channels of a pixel together again.
        stack = stack.permute(0, 1, 2, 4, 5, 3)
        return stack.reshape(images.shape[0], self.n_places, self.n_features)

    def on_sphere(self, patches: Tensor) -> tuple[Tensor, Tensor]:
        """(unit patches (..., n_features), which have a direction (...)); the others are zeros."""
        length = torch.linalg.vector_norm(patches, dim=-1, keepdim=True)
        if self.center:
            patches = patches - patches.mean(-1, keepdim=True)
            left = torch.linalg.vector_norm(patches, dim=-1, keepdim=True)
        else:
            left = length
        directed = left > _FLAT[patches.dtype] * length
        return torch.where(directed, patches / left, 0.0), directed[..., 0]


def draw_patches(
    images: Tensor, windows: Windows, n_patches: int | None, *, dtype: torch.dtype,
    device: torch.device, generator: torch.Generator,
) -> ArrayDataset:  # fmt: skip
    """Unit patches without labels of images (n, pixels): all, or `n_patches` drawn at random.

    Patches of one value have no direction and are left out.
    """
    n_places = windows.n_places
    if n_patches is not None:
        # Some images are enough where there are many: four times the patches wanted, since most
        # may be empty.
        n_images = -(-4 * n_patches // n_places)
        if n_images < len(images):
            images = images[torch.randperm(len(images), generator=generator)[:n_images]]
    step = max(1, _CHUNK_NUMBERS[device.type == "cuda"] // windows.n_features)
    found = []
    at_once = max(1, step // n_places)
    for start in range(0, len(images), at_once):
        patches = windows.cut(images[start : start + at_once].to(device)).to(dtype)
        directed = windows.on_sphere(patches)[1].flatten()
        found.append(start * n_places + directed.nonzero()[:, 0].cpu())
    index = torch.cat(found)
    if n_patches is not None and len(index) > n_patches:
        index = index[torch.randperm(len(index), generator=generator)[:n_patches]]
    pixels, x = windows.pixels(), []
    for part in torch.split(index, step):
        patches = images[(part // n_places)[:, None], pixels[part % n_places]]
        x.append(windows.on_sphere(patches.to(device).to(dtype))[0])
    rows = torch.cat(x)
    return ArrayDataset(Batch(rows, rows.new_zeros(1, 1).expand(len(rows), 1)))
