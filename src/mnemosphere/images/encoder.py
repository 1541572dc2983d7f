"""A fitted encoder: from images to soft counts of patch memories, and back to pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from sklearn.pipeline import Pipeline
from torch import Tensor

from mnemosphere.fitted.model import FittedModel, Record, check_whole
from mnemosphere.geometry import Geometry
from mnemosphere.images.windows import Windows
from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.kernel import chunk_rows, memory_shares
from mnemosphere.model.parameters import Parameters
from mnemosphere.rows.features import Features
from mnemosphere.rows.stored import StoredRows

_LEAST_IMAGE = 64  # numbers per row; fewer are a signal unless they are said to be an image


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
        return torch.kron(*self._sides())

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


@dataclass(frozen=True)
class FittedEncoder:
    """What `PatchEncoder.fit` makes: patch memories of one or more sizes."""

    features: Features
    image_shape: tuple[int, ...]
    layers: tuple[PatchLayer, ...]
    power: float  # that soft counts are raised to
    record: Record = field(default_factory=Record)

    @property
    def n_out(self) -> int:
        """How many soft counts an image has."""
        return sum(layer.n_features for layer in self.layers)

    @property
    def device(self) -> torch.device:
        """Where it lies."""
        return self.layers[0].params.w.device

    @property
    def dtype(self) -> torch.dtype:
        """Its precision."""
        return self.layers[0].params.w.dtype

    @property
    def images_per_chunk(self) -> int:
        """How many images to encode at once."""
        return min(layer.images_per_chunk for layer in self.layers)

    def stored(self, X: Any) -> StoredRows:
        """Images as they are stored, (n, pixels), checked."""
        rows = StoredRows.of(
            self.features.numbers_of(flat_images(X, self.image_shape)[0]), self.device
        )
        return rows.check_finite(self.features.names)

    def encode(self, images: StoredRows, out: Tensor) -> Tensor:
        """Images on the sphere of soft counts, (n, n_out), written to `out`."""
        step = self.images_per_chunk
        for start in range(0, images.n_rows, step):
            part = images.values[start : start + step].to(self.device).to(self.dtype)
            counts = [layer.count(part).flatten(1).pow(self.power) for layer in self.layers]
            found = [unit_rows(count) for count in counts]
            encoded = found[0] if len(found) == 1 else unit_rows(torch.cat(found, dim=1))
            out[start : start + step] = encoded.to(out)
        return out

    def pictures(self, X: Any, n_iter: int) -> Tensor:
        """Pictures (n, pixels) of points among the soft counts."""
        check_whole(n_iter, "n_iter", 0)
        given = X if isinstance(X, Tensor) else torch.from_numpy(np.array(X, dtype=np.float64))
        if given.ndim != 2 or given.shape[1] != self.n_out:
            raise ValueError(f"X must be (n, {self.n_out}) soft counts, got {tuple(given.shape)}")
        step = self.images_per_chunk
        parts = [
            self._draw(given[start : start + step].to(self.device, self.dtype), n_iter)
            for start in range(0, given.shape[0], step)
        ]
        return torch.cat(parts)

    def _draw(self, x: Tensor, n_iter: int) -> Tensor:
        """Pictures (B, n_pixels) of rows (B, d)."""
        signed = (x < 0).any(1, keepdim=True)
        nothing = torch.where(signed, x.median(1, keepdim=True).values, 0.0)
        x = (x - nothing).clamp_min(0).pow(1 / self.power)
        counts = [
            part.reshape(-1, layer.n_cells, layer.params.n_memories)
            for layer, part in zip(self.layers, self._by_layer(x), strict=True)
        ]
        return draw(self.layers, counts, n_iter)

    def _by_layer(self, x: Tensor) -> list[Tensor]:
        """The columns (..., d) of each size of patches."""
        ends = np.cumsum([layer.n_features for layer in self.layers]).tolist()
        return list(x.tensor_split(ends[:-1], dim=-1))

    def sum_cells(self, values: Tensor) -> list[Tensor]:
        """A number for each soft count (..., d), summed over memories: (..., cells) per size."""
        return [
            part.reshape(*part.shape[:-1], layer.n_cells, -1).sum(-1)
            for layer, part in zip(self.layers, self._by_layer(values), strict=True)
        ]

    def spread_cells(self, sums: Sequence[Tensor]) -> Tensor:
        """Such sums on the pixels, (..., rows · columns): each on what the patches of it cover."""
        parts = [layer.spread(part) for layer, part in zip(self.layers, sums, strict=True)]
        return torch.stack(parts).sum(0)


def fitted_parts(given: object) -> tuple[FittedEncoder | None, FittedModel]:
    """(the encoder, the model) of a fitted estimator, or of a pipeline of both."""
    if isinstance(given, Pipeline):
        return two_layers(given)
    model = getattr(given, "model_", given)
    if not isinstance(model, FittedModel):
        got = type(given).__name__
        raise TypeError(f"a fitted DAMClassifier or DAMClusterer is wanted, got {got}")
    return None, model


def two_layers(pipeline: object) -> tuple[FittedEncoder, FittedModel]:
    """The encoder and the model of a pipeline."""
    steps = [step for _, step in getattr(pipeline, "steps", [])]
    match [getattr(step, "model_", None) for step in steps]:
        case [FittedEncoder() as encoder, FittedModel() as model]:
            return encoder, model
    names = [type(step).__name__ for step in steps or [pipeline]]
    raise TypeError(
        f"a pipeline of PatchEncoder and DAMClassifier is wanted, got {' and '.join(names)}"
    )


def flat_images(X: Any, shape: Sequence[int] | None) -> tuple[Any, tuple[int, ...]]:
    """(X (n, pixels), the shape of an image where X has more than two axes)."""
    if hasattr(X, "toarray"):  # patches of sparse rows are cut from dense ones
        X = X.toarray()
    own = tuple(int(side) for side in getattr(X, "shape", ())[1:])
    if len(own) <= 1:
        return X, ()
    if shape is not None and tuple(shape) != own:
        raise ValueError(f"X holds images of shape {own}, expected {tuple(shape)}")
    return X.reshape(X.shape[0], -1), own


def wide(X: Any) -> torch.dtype:
    """The precision of soft counts of X: double only if X has it."""
    double = getattr(X, "dtype", None) in (np.float64, torch.float64)
    return torch.float64 if double else torch.float32


def windows_of(settings: Mapping[str, Any], shape: tuple[int, ...]) -> list[Windows]:
    """Where patches are cut, for each size that the settings of a `PatchEncoder` name."""
    rows, columns, channels = as_plane(shape)
    patch = settings["patch"]
    given = (patch,) if isinstance(patch, Integral) else tuple(patch)
    if not given:
        raise ValueError("patch is empty: give at least one size")
    step, made = min(int(settings["stride"]), rows + columns), []
    for each in given:
        size = two_sides(each, "patch", one_row=rows == 1)
        size = min(size[0], rows), min(size[1], columns)
        center = Geometry.kinds[settings["geometry"]].fixed > 0
        made.append(Windows((rows, columns, channels), size, (step, step), center))
    return list(dict.fromkeys(made))  # sizes cut down to the same one are one size


def patch_layer(settings: Mapping[str, Any], windows: Windows, params: Parameters) -> PatchLayer:
    """One size of patches, with no more cells than there are places."""
    down, across = two_sides(settings["grid"], "grid", one_row=windows.shape[0] == 1)
    grid = min(down, windows.places[0]), min(across, windows.places[1])
    return PatchLayer(windows, grid, params)


def image_shape(
    given: Sequence[int] | None, of_array: tuple[int, ...], n_features: int
) -> tuple[int, ...]:
    """What a row of n_features is: as given, as the array has it, or guessed."""
    if given is not None:
        for side in given:
            check_whole(side, "image_shape", 1)
        shape = tuple(int(side) for side in given)
        if len(shape) not in (1, 2, 3) or math.prod(shape) != n_features:
            raise ValueError(
                f"image_shape {shape} does not fit rows of {n_features} features: pass "
                "(rows, columns), (rows, columns, channels) or (length,)"
            )
        return shape
    if len(of_array) in (2, 3):
        return of_array
    if n_features < _LEAST_IMAGE:
        return (n_features,)
    side = math.isqrt(n_features)
    if side * side != n_features:
        raise ValueError(
            f"{n_features} features are no square image: pass image_shape=(rows, columns), "
            f"(rows, columns, channels), or ({n_features},) for a signal"
        )
    return (side, side)


def as_plane(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(rows, columns, channels); a signal has one row and one channel."""
    if len(shape) == 1:
        return 1, shape[0], 1
    rows, columns, *channels = shape
    return rows, columns, channels[0] if channels else 1


def two_sides(given: Any, name: str, *, one_row: bool) -> tuple[int, int]:
    """(rows, columns) of a setting that may be one number; a signal has one row."""
    if isinstance(given, Integral):
        given = (1 if one_row else given, given)
    elif isinstance(given, Sequence) and one_row and len(given) == 1:
        given = (1, *given)
    if not isinstance(given, Sequence) or len(given) != 2:
        raise ValueError(f"{name} must be a whole number or (rows, columns), got {given!r}")
    for side in given:
        check_whole(side, name, 1)
    return int(given[0]), int(given[1])
