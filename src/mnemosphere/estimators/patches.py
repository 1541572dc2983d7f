"""`PatchEncoder`: images as soft counts of patch memories, on the sphere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mnemosphere.data.rows import StoredRows
from mnemosphere.data.windows import PatchDataset, Windows
from mnemosphere.estimators.base import Floats, SphereEstimator, check_whole, draw_seed, like
from mnemosphere.estimators.image_shape import as_plane, image_shape, two_sides
from mnemosphere.estimators.memory_model import MemoryModel
from mnemosphere.estimators.patch_layer import PatchLayer, draw, unit_rows
from mnemosphere.estimators.persistence import register
from mnemosphere.estimators.progress import ProgressBar
from mnemosphere.estimators.start import start_joint
from mnemosphere.files import NORMS, join_prefixes
from mnemosphere.machine import pick_device
from mnemosphere.model import initialize, objectives
from mnemosphere.model.parameters import Parameters
from mnemosphere.schema import Check, items, whole
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.fit import FitResult, fit
from mnemosphere.training.fixed_point import FixedPoint

_POSITIVE = Interval(Real, 0, None, closed="neither")
_COUNT = Interval(Integral, 1, None, closed="left")
_PASSES = 10
Size = int | Sequence[int]


@register
class PatchEncoder(SphereEstimator, BaseEstimator):  # type: ignore[misc]
    """Images as soft counts of patch memories: points on the sphere for a classifier to learn from.

    Memories of small patches are learned without labels, by the marginal likelihood of the model.
    The shares P(memory | patch) are summed over the patches of each cell of a coarse grid, those
    between the middles of two cells in part for both, and square roots make the counts a unit
    vector: a classifier on top is best told `normalize="unit"`. Patches of one value have no
    direction on the sphere and do not count.

    Parameters
    ----------
    image_shape : None, (rows, columns), (rows, columns, channels) or (length,)
        How a row of X is an image, or a signal. None: that of X where it has more than two axes;
        a square for a square number of features from 64 on; a signal for fewer than 64.
    patch : int or sequence of sizes
        Size of a patch, or several, each with memories of its own; a size is a number or
        (rows, columns), and cut down to the image where that is smaller.
    stride : int
        Pixels from one patch to the next.
    grid : int or (rows, columns)
        Cells in which shares are summed.
    n_memories : int
        Patch memories, for each size.
    beta : "learn" or float
        Inverse temperature of the patch memories; a number is held fixed.
    normalize : {"center", "unit"}
        How patches are put on the sphere: with or without subtracting their mean first.
    power : float
        Soft counts are raised to this power, at most 4; 0.5 gives square roots.
    n_patches : int or None
        Patches to learn from, drawn at random; None: all of them.
    max_iter : int or None
        Passes over these patches; None: 10.
    tol : float
        Stop when a pass changes the loss by less than this, relative; 0 to switch off.
    precision : {"auto", "float32", "float64"}
        "auto": float64 up to a million numbers, where it costs little, else float32.
    device : str
        "auto" (where a tensor X lies, else a GPU where there is one), "cpu", "cuda", …
    random_state : int, RandomState or None
    verbose : int
        1 shows a progress bar.

    Attributes
    ----------
    image_shape_ : what a row is
    layers_ : one `PatchLayer` for each size of patches
    patch_memories_ : one array (P, numbers per patch) of unit vectors for each size
    history_ : one dict per pass, the sizes one after the other
    n_iter_, converged_, status_ : how training ended

    """

    image_shape_: tuple[int, ...]
    layers_: tuple[PatchLayer, ...]

    _HEADER: ClassVar[dict[str, Check]] = {"image_shape": items(whole(1), 1)}

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 (scikit-learn's protocol)
        "image_shape": [None, tuple, list],
        "patch": [_COUNT, tuple, list],
        "stride": [_COUNT],
        "grid": [_COUNT, tuple, list],
        "n_memories": [_COUNT],
        "beta": [_POSITIVE, StrOptions({"learn"})],
        "normalize": [StrOptions({"center", "unit"})],
        "power": [Interval(Real, 0, 4, closed="right")],
        "n_patches": [_COUNT, None],
        "max_iter": [_COUNT, None],
        "tol": [Interval(Real, 0, None, closed="left")],
        "precision": [StrOptions({"auto", "float32", "float64"})],
        "device": [str],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    def __init__(
        self,
        image_shape: tuple[int, ...] | None = None,
        *,
        patch: Size | Sequence[Size] = 5,
        stride: int = 1,
        grid: int | tuple[int, int] = 5,
        n_memories: int = 160,
        beta: float | str = 30.0,
        normalize: str = "center",
        power: float = 0.5,
        n_patches: int | None = 500_000,
        max_iter: int | None = None,
        tol: float = 1e-4,
        precision: str = "auto",
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.image_shape = image_shape
        self.patch = patch
        self.stride = stride
        self.grid = grid
        self.n_memories = n_memories
        self.beta = beta
        self.normalize = normalize
        self.power = power
        self.n_patches = n_patches
        self.max_iter = max_iter
        self.tol = tol
        self.precision = precision
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # Training.

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn the patch memories of images X, (n, pixels) or (n, *image_shape); y is not read."""
        self._validate_params()
        images = self._images(X, reset=True)
        dtype = self._precision(images.values.numel())
        generator = torch.Generator().manual_seed(draw_seed(self.random_state))
        layers, results = [], []
        for windows in self._windows():
            patches = PatchDataset.draw(
                images, windows, self.n_patches, dtype=dtype, generator=generator
            )
            if patches.n_rows == 0:
                raise ValueError(
                    f"every patch of {self.n_features_in_} feature(s) in X is blank, so none has a "
                    "direction: pass images with some contrast, or larger patches"
                )
            result = self._learn(patches, generator)
            layers.append(self._layer(windows, result.params))
            results.append(result)
        self._set_layers(layers)
        self.history_ = [record.as_dict() for result in results for record in result.history]
        self.n_iter_ = len(self.history_)
        ended = [result.status for result in results]
        self.status_ = next((status for status in ended if status != "converged"), "converged")
        self.converged_ = self.status_ == "converged"
        return self

    def _learn(self, patches: PatchDataset, generator: torch.Generator) -> FitResult:
        """Patch memories of highest likelihood."""
        learned = self.beta == "learn"
        width = min(self.n_memories, patches.n_rows)
        rows = patches.sample(max(width, initialize.PROBE_ROWS), generator=generator)
        w = initialize.from_data(rows.x, width, generator=generator)
        params = start_joint(
            w, None, rows, varsigma=1.0, beta=None if learned else float(self.beta),
            uniform_weight=1.0,
        )  # fmt: skip
        solver = FixedPoint().resolve(patches.n_rows, learn_beta=learned, device=patches.device)
        watchers: Sequence[Callback] = [ProgressBar()] if self.verbose else []
        return fit(
            params, patches, solver, rule=objectives.marginal, max_iter=self.max_iter or _PASSES,
            tol=self.tol, generator=generator, callbacks=watchers,
        )  # fmt: skip

    def _layer(self, windows: Windows, params: Parameters) -> PatchLayer:
        return PatchLayer(windows, self._cells(windows), params)

    def _set_layers(self, layers: Sequence[PatchLayer]) -> None:
        self.layers_ = tuple(layers)
        self.patch_memories_ = [layer.params.w.cpu().numpy() for layer in layers]

    # Model files.

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What was learned, for a model file."""
        tensors = join_prefixes(
            {f"layers.{i}": layer.params.to_tensors() for i, layer in enumerate(self.layers_)}
        )
        return {"image_shape": list(self.image_shape_)}, tensors

    def _set_state(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        """Undo `_state`."""
        self.image_shape_ = tuple(header["image_shape"])
        if math.prod(self.image_shape_) != self.n_features_in_:
            raise ValueError(f"its images are of shape {self.image_shape_}")
        layers = []
        for i, windows in enumerate(self._windows()):
            params = Parameters.from_file(arrays, f"layers.{i}")
            if params.n_features != windows.n_features:
                raise ValueError(f"its patches are of {params.n_features} numbers")
            layers.append(self._layer(windows, params))
        known = sum(len(layer.params.to_tensors()) for layer in layers)
        if known != sum(not name.endswith(NORMS) for name in arrays):
            raise ValueError("it has a tensor that is unknown")
        self._set_layers(layers)

    # Shapes.

    def _windows(self) -> list[Windows]:
        """Where patches are cut, for each size."""
        rows, columns, channels = as_plane(self.image_shape_)
        patch: Any = self.patch
        given = (patch,) if isinstance(patch, Integral) else tuple(patch)
        if not given:
            raise ValueError("patch is empty: give at least one size")
        step, made = min(int(self.stride), rows + columns), []
        for each in given:
            size = two_sides(each, "patch", one_row=rows == 1)
            size = min(size[0], rows), min(size[1], columns)
            made.append(
                Windows((rows, columns, channels), size, (step, step), self.normalize == "center")
            )
        return list(dict.fromkeys(made))  # sizes cut down to the same one are one size

    def _cells(self, windows: Windows) -> tuple[int, int]:
        """The grid, with no more cells than there are places."""
        down, across = two_sides(self.grid, "grid", one_row=windows.shape[0] == 1)
        return min(down, windows.places[0]), min(across, windows.places[1])

    # Rows in.

    def _images(self, X: Any, *, reset: bool) -> StoredRows:
        """X as it is stored, (n, pixels), checked; sets image_shape_ where `reset`."""
        if hasattr(X, "toarray"):  # patches of sparse rows are cut from dense ones
            X = X.toarray()
        shape = tuple(int(side) for side in getattr(X, "shape", ())[1:])
        if len(shape) > 1:
            given = self.image_shape if reset else self.image_shape_
            if given is not None and tuple(given) != shape:
                raise ValueError(f"X holds images of shape {shape}, expected {tuple(given)}")
            X = X.reshape(X.shape[0], -1)
        tensor = isinstance(X, Tensor)
        rows = self._check_tensor(X, reset) if tensor else self._check_table(X, reset)
        if reset:
            self.image_shape_ = image_shape(self.image_shape, shape, self.n_features_in_)
            on_gpu = tensor and X.is_cuda and self.device == "auto"
            device = X.device if on_gpu else pick_device(self.device)
        else:
            device = self.layers_[0].params.w.device
        return StoredRows.of(rows, device).check_finite(self._feature_names())

    # Reading.

    @property
    def _n_features_out(self) -> int:
        return sum(layer.n_features for layer in self.layers_)

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Names like "patch6x6_cell2,0_memory17", in the order of the columns of `transform`."""
        check_is_fitted(self, "layers_")
        names = []
        for layer in self.layers_:
            size = "x".join(map(str, layer.windows.size))
            down, across = layer.grid
            names += [
                f"patch{size}_cell{i},{j}_memory{m}"
                for i in range(down)
                for j in range(across)
                for m in range(layer.params.n_memories)
            ]
        return np.array(names, dtype=object)

    def transform(self, X: ArrayLike) -> Floats:
        """Unit rows (n, cells · memories), sizes one after the other; zeros for a blank image."""
        check_is_fitted(self, "layers_")
        images = self._images(X, reset=False)
        dtype = self.layers_[0].params.w.dtype
        kind = getattr(X, "dtype", None)
        wide = kind in (np.float64, torch.float64)
        place = X.device if isinstance(X, Tensor) else "cpu"
        out = torch.empty(
            images.n_rows, self._n_features_out, device=place,
            dtype=torch.float64 if wide else torch.float32,
        )  # fmt: skip
        step = min(layer.images_per_chunk for layer in self.layers_)
        for start in range(0, images.n_rows, step):
            part = slice(start, start + step)
            out[part] = self._encode(images.values[part].to(images.device).to(dtype)).to(out)
        rows: Floats = like(X, out)
        return rows

    def inverse_transform(self, X: ArrayLike, *, n_iter: int = 20) -> Floats:
        """Pictures (n, pixels) of points among the soft counts, such as a classifier's memories.

        At each place the expected patch, as strong as its cell is full, blended where patches
        overlap; then `n_iter` times the patch expected from the picture so far as well, such that
        patches still add up to the counts, which sharpens it. A patch on the sphere has lost its
        length and its mean, so pictures are of contrasts around 0, of unit length. Counts are
        never negative, and most are next to nothing: in a row with negative numbers, as of a
        classifier that centers rows, the median counts as 0.
        """
        check_is_fitted(self, "layers_")
        check_whole(n_iter, "n_iter", 0)
        device, dtype = self.layers_[0].params.w.device, self.layers_[0].params.w.dtype
        given = X if isinstance(X, Tensor) else torch.from_numpy(np.array(X, dtype=np.float64))
        if given.ndim != 2 or given.shape[1] != self._n_features_out:
            raise ValueError(
                f"X must be (n, {self._n_features_out}) soft counts, got {tuple(given.shape)}"
            )
        step = min(layer.images_per_chunk for layer in self.layers_)
        parts = [
            self._draw(given[start : start + step].to(device, dtype), n_iter)
            for start in range(0, given.shape[0], step)
        ]
        pictures: Floats = like(X, torch.cat(parts))
        return pictures

    def _draw(self, x: Tensor, n_iter: int) -> Tensor:
        """Pictures (B, n_pixels) of rows (B, d)."""
        signed = (x < 0).any(1, keepdim=True)
        nothing = torch.where(signed, x.median(1, keepdim=True).values, 0.0)
        x = (x - nothing).clamp_min(0).pow(1 / self.power)
        counts = [
            part.reshape(-1, layer.n_cells, layer.params.n_memories)
            for layer, part in zip(self.layers_, self._by_layer(x), strict=True)
        ]
        return draw(self.layers_, counts, n_iter)

    def _by_layer(self, x: Tensor) -> list[Tensor]:
        """The columns (..., d) of each size of patches."""
        ends = np.cumsum([layer.n_features for layer in self.layers_]).tolist()
        return list(x.tensor_split(ends[:-1], dim=-1))

    def sum_cells(self, values: Tensor) -> list[Tensor]:
        """A number for each soft count (..., d), summed over memories: (..., cells) per size."""
        return [
            part.reshape(*part.shape[:-1], layer.n_cells, -1).sum(-1)
            for layer, part in zip(self.layers_, self._by_layer(values), strict=True)
        ]

    def spread_cells(self, sums: Sequence[Tensor]) -> Tensor:
        """Such sums on the pixels, (..., rows · columns): each on what the patches of it cover."""
        parts = [layer.spread(part) for layer, part in zip(self.layers_, sums, strict=True)]
        return torch.stack(parts).sum(0)

    def _encode(self, images: Tensor) -> Tensor:
        """Images (B, n_pixels) on the sphere of soft counts."""
        parts = [
            unit_rows(layer.count(images).flatten(1).pow(self.power)) for layer in self.layers_
        ]
        return parts[0] if len(parts) == 1 else unit_rows(torch.cat(parts, dim=1))


def two_layers(pipeline: Any) -> tuple[PatchEncoder, Any]:
    """The encoder of a pipeline, and the classifier or clusterer."""
    steps = [step for _, step in getattr(pipeline, "steps", [])]
    if len(steps) == 2 and isinstance(steps[0], PatchEncoder) and isinstance(steps[1], MemoryModel):
        return steps[0], steps[1]
    names = [type(step).__name__ for step in steps] or [type(pipeline).__name__]
    raise TypeError(
        f"a pipeline of PatchEncoder and DAMClassifier is wanted, got {' and '.join(names)}"
    )
