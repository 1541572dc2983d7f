"""`PatchEncoder`: images as soft counts of patch memories, on the sphere."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor
from torch.nn.functional import pad

from mnemosphere.base.machine import pick_device
from mnemosphere.fitted.model import Floats, as_numpy, check_whole, draw_seed
from mnemosphere.images.windows import Windows, draw_patches
from mnemosphere.model import initialize, objectives
from mnemosphere.model.mixture import from_memories
from mnemosphere.numerics.bessel import log_omega_ratio
from mnemosphere.training import FixedPoint
from mnemosphere.training.callbacks import Run
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import fit

_LEAST_IMAGE = 64  # numbers per row; fewer are a signal unless they are said to be an image
_PASSES = 10  # over the patches, as many as the fixed point takes on the digits of the paper
_FEW_NUMBERS = 1_000_000  # up to which double precision costs little, and a GPU gains nothing
_CHUNK_NUMBERS = (1 << 20, 1 << 27)  # shares held at a time, on a processor and on a GPU
_COUNT = Interval(Integral, 1, None, closed="left")
Size = int | Sequence[int]


class PatchEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Images as soft counts of patch memories: points on the sphere for a classifier to learn from.

    Memories of small patches are learned without labels, by the marginal likelihood of the model.
    The shares P(memory | patch) are summed over the patches of each cell of a coarse grid, those
    between the middles of two cells in part for both, and square roots make the counts a unit
    vector: use `geometry="unit"` in a classifier on top. Patches of one value have no
    direction on the sphere and do not count.

    Parameters
    ----------
    image_shape : tuple of int or None, default None
        (rows, columns) or (rows, columns, channels) of an image, or (length,) of a signal. None: that
        of X if it has more than two axes; a square for a square number of features from 64 on; a
        signal for fewer than 64.
    patch : int or sequence of sizes, default (4, 7)
        Size of a patch, or several sizes, each with memories of its own; a size is a number or
        (rows, columns), cut down to the image if that is smaller.
    stride : int, default 1
        Pixels from one patch to the next.
    grid : int or (rows, columns), default 5
        Cells in which shares are summed.
    n_memories : int, default 160
        Patch memories, for each size.
    beta : "learn" or float, default 30.0
        Inverse temperature of the patch memories; a number is held fixed.
    geometry : {"center", "unit"}, default "center"
        How patches are put on the sphere: with or without subtracting their mean first.
    power : float, default 0.5
        Soft counts are raised to this power, at most 4; 0.5 gives square roots.
    n_patches : int or None, default 500000
        Patches to learn from, drawn at random and held in memory; None: all of them.
    max_iter : int, default 10
        Passes over these patches, at most.
    device : str, default "auto"
        "cpu", "cuda", … "auto": a GPU if there is one and X has a million numbers.
    random_state : int or RandomState or None, default None
        Random seed; None: another one each time.

    Attributes
    ----------
    image_shape_ : tuple of int
        Shape of an image.
    patch_memories_ : list of ndarrays of shape (P, numbers per patch)
        Unit vectors, one array for each size of patches.
    betas_ : list of float
        Inverse temperature of the memories of each size.
    n_iter_ : int
        Number of passes, of all sizes together.
    n_features_in_ : int
        Number of columns of X.

    Examples
    --------
    >>> import mnemosphere as mn
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> encoder = mn.PatchEncoder(image_shape=(8, 8), patch=4, n_memories=16, random_state=0)
    >>> encoder.fit_transform(X[:200]).shape  # then DAMClassifier(geometry="unit") learns from it
    (200, 400)
    """

    _parameter_constraints: ClassVar[dict[str, Any]] = {
        "image_shape": [None, tuple, list],
        "patch": [_COUNT, tuple, list],
        "stride": [_COUNT],
        "grid": [_COUNT, tuple, list],
        "n_memories": [_COUNT],
        "beta": [StrOptions({"learn"}), Interval(Real, 0, None, closed="neither")],
        "geometry": [StrOptions({"center", "unit"})],
        "power": [Interval(Real, 0, 4, closed="right")],
        "n_patches": [_COUNT, None],
        "max_iter": [_COUNT],
        "device": [str],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        image_shape: tuple[int, ...] | None = None,
        *,
        patch: Size | Sequence[Size] = (4, 7),
        stride: int = 1,
        grid: int | tuple[int, int] = 5,
        n_memories: int = 160,
        beta: Any = 30.0,
        geometry: str = "center",
        power: float = 0.5,
        n_patches: int | None = 500_000,
        max_iter: int = _PASSES,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.image_shape = image_shape
        self.patch = patch
        self.stride = stride
        self.grid = grid
        self.n_memories = n_memories
        self.beta = beta
        self.geometry = geometry
        self.power = power
        self.n_patches = n_patches
        self.max_iter = max_iter
        self.device = device
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> Self:
        """Learn the patch memories of images.

        Parameters
        ----------
        X : array-like of shape (n, pixels) or (n, *image_shape)
            Images.
        y : object, default None
            Not read; scikit-learn passes it.

        Returns
        -------
        PatchEncoder
            The estimator itself.

        Examples
        --------
        >>> fresh = mn.PatchEncoder((8, 8), patch=4, grid=2, n_memories=8, n_patches=1000, random_state=0)
        >>> fresh.fit(digits).patch_memories_[0].shape
        (8, 16)
        """
        self._validate_params()
        own = tuple(getattr(X, "shape", ())[1:])
        images = self._images(X, self.image_shape, reset=True)
        self.image_shape_ = _image_shape(self.image_shape, own, images.shape[1])
        device = self._device(images)
        dtype = torch.float64 if images.numel() <= _FEW_NUMBERS else torch.float32
        generator = torch.Generator().manual_seed(draw_seed(self.random_state))
        results = []
        for windows, _ in self._sizes():
            patches = draw_patches(
                images, windows, self.n_patches, dtype=dtype, device=device, generator=generator
            )
            if patches.n_rows == 0:
                raise ValueError(
                    f"every patch of {images.shape[1]} feature(s) in X is blank, so none has a "
                    "direction: pass images with some contrast, or larger patches"
                )
            results.append(self._learn(patches, generator))
        self.patch_memories_ = [as_numpy(result.params.w) for result in results]
        self.betas_ = [float(result.params.beta) for result in results]
        self.n_iter_ = sum(len(result.history) for result in results)
        return self

    def _learn(self, patches: ArrayDataset, generator: torch.Generator) -> Run:
        """Patch memories of highest likelihood; none weighs more than another."""
        width = min(self.n_memories, patches.n_rows)
        x = patches.sample(max(width, initialize.PROBE_ROWS), generator=generator).x
        w, learn = initialize.from_data(x, width, generator=generator), self.beta == "learn"
        beta = initialize.estimate_beta(w, x[: initialize.PROBE_ROWS], 1.0) if learn else self.beta
        solver = FixedPoint().resolve(patches.n_rows, learn_beta=learn, device=patches.device)
        return fit(
            from_memories(w, w.new_ones(1), beta=beta), patches, solver,
            rule=objectives.marginal, max_iter=self.max_iter, generator=generator,
        )  # fmt: skip

    def transform(self, X: ArrayLike) -> Floats:
        """Turn images into soft counts of patch memories.

        Parameters
        ----------
        X : array-like of shape (n, pixels) or (n, *image_shape)
            Images.

        Returns
        -------
        ndarray of shape (n, cells · memories)
            Unit rows, the sizes of patches one after the other; zeros for an image without contrast. In
            double precision only if X is.

        Examples
        --------
        >>> pipeline[0].transform(digits).shape
        (200, 32)
        """
        check_is_fitted(self)
        images = self._images(X, self.image_shape_, reset=False)
        layers = self._layers(self._device(images))
        double = images.dtype == torch.float64
        out = np.empty((len(images), self._n_features_out), np.float64 if double else np.float32)
        widest = max(layer.windows.n_places * len(layer.w) for layer in layers)
        step = max(1, _CHUNK_NUMBERS[layers[0].w.is_cuda] // widest)
        for start in range(0, len(images), step):
            part = images[start : start + step].to(layers[0].w)
            counts = [layer.soft_counts(part).flatten(1).pow(self.power) for layer in layers]
            rows = _unit_rows(torch.cat([_unit_rows(count) for count in counts], dim=1))
            out[start : start + step] = rows.cpu().numpy()
        return out

    def get_feature_names_out(self, input_features: object = None) -> NDArray[np.object_]:
        """Name the columns of `transform`.

        Parameters
        ----------
        input_features : object, default None
            Not read; scikit-learn passes it.

        Returns
        -------
        ndarray of objects of shape (n_out,)
            Size of the patch, cell of the grid and number of the memory.

        Examples
        --------
        >>> pipeline[0].get_feature_names_out()[0]
        'patch4x4_cell0,0_memory0'
        """
        check_is_fitted(self)
        names = [
            f"patch{windows.size[0]}x{windows.size[1]}_cell{i},{j}_memory{m}"
            for (windows, grid), w in zip(self._sizes(), self.patch_memories_, strict=True)
            for i, j in np.ndindex(*grid)
            for m in range(len(w))
        ]
        return np.array(names, dtype=object)

    @property
    def _n_features_out(self) -> int:
        """How many soft counts an image has."""
        widths = [len(w) for w in self.patch_memories_]
        return sum(math.prod(grid) * n for (_, grid), n in zip(self._sizes(), widths, strict=True))

    def _images(self, X: Any, shape: Sequence[int] | None, *, reset: bool) -> Tensor:
        """Images (n, pixels) as they are stored, checked; stacks of them are of this shape."""
        own = tuple(getattr(X, "shape", ())[1:])
        if len(own) > 1:
            if shape is not None and own != tuple(shape):
                raise ValueError(f"X holds images of shape {own}, expected {tuple(shape)}")
            X = np.asarray(X).reshape(len(X), -1)
        x = validate_data(self, X, dtype=[np.float64, np.float32, np.uint8], reset=reset)
        return torch.from_numpy(np.require(x, requirements=("C", "W")))

    def _device(self, images: Tensor) -> torch.device:
        """Where to work on them."""
        few = self.device == "auto" and images.numel() < _FEW_NUMBERS
        return pick_device("cpu" if few else self.device)

    def _sizes(self) -> list[tuple[Windows, tuple[int, int]]]:
        """Where patches of each size are cut; no more cells down and across than places."""
        rows, columns, channels = _as_plane(self.image_shape_)
        given = [self.patch] if isinstance(self.patch, int | np.integer) else [*self.patch]
        if not given:
            raise ValueError("patch is empty: give at least one size")
        step, center = min(self.stride, rows + columns), self.geometry == "center"
        cells = _two_sides(self.grid, "grid", one_row=rows == 1)
        found = {}  # sizes cut down to the same one are one size
        for each in given:
            size = _two_sides(each, "patch", one_row=rows == 1)
            size = min(size[0], rows), min(size[1], columns)
            windows = Windows((rows, columns, channels), size, (step, step), center)
            down, across = windows.places
            found[windows] = min(cells[0], down), min(cells[1], across)
        return list(found.items())

    def _layers(self, device: torch.device) -> list[_Layer]:
        """Memories of each size on a device."""
        return [
            _Layer(windows, grid, torch.from_numpy(w).to(device), beta)
            for (windows, grid), w, beta in zip(
                self._sizes(), self.patch_memories_, self.betas_, strict=True
            )
        ]


class _Layer(NamedTuple):
    """Memories of patches, and the cells of the image in which their shares are summed."""

    windows: Windows
    grid: tuple[int, int]  # cells down and across
    w: Tensor  # (P, n)
    beta: float

    def soft_counts(self, images: Tensor) -> Tensor:
        """Σ P(memory | patch) over the places of each cell, (B, cells, P); blank patches are none.

        A place between the middles of two cells counts for both in part.
        """
        x, directed = self.windows.on_sphere(self.windows.cut(images))  # (B, places, n)
        offset = log_omega_ratio(torch.tensor(self.beta, dtype=torch.float64), self.w.shape[1])
        h = self.beta * (x @ self.w.T) - float(offset)
        shares = pad(h, (1, 0)).softmax(2)[..., 1:] * directed[..., None]  # column 0 is uniform
        # Sums by products, first down and then across: bitwise identical in every run on a GPU too.
        n_down, n_across = self.windows.places
        down = _membership(n_down, self.grid[0]).to(x)  # (cells, places)
        across = _membership(n_across, self.grid[1]).to(x)
        summed = down @ shares.reshape(len(x), n_down, -1)  # (B, cells down, across · P)
        return (across @ summed.view(len(x), len(down), n_across, -1)).flatten(1, 2)


def _unit_rows(x: Tensor) -> Tensor:
    """Rows divided by their lengths; rows of zeros stay."""
    norm = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / torch.where(norm > 0, norm, 1.0)


def _membership(n_places: int, n_cells: int) -> Tensor:
    """How far places along one side belong to each cell, (cells, places); a place adds up to 1.

    All of it at the middle of a cell and less from there to the middle of the next, in proportion:
    a shift by a pixel changes every count a little and none at once.
    """
    places = (torch.arange(n_places, dtype=torch.float64) + 0.5) * n_cells / n_places
    middles = torch.arange(n_cells, dtype=torch.float64) + 0.5
    return (1 - (places.clamp(0.5, n_cells - 0.5) - middles[:, None]).abs()).clamp_min(0.0)


def _image_shape(
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


def _as_plane(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """(rows, columns, channels); a signal has one row and one channel."""
    if len(shape) == 1:
        return 1, shape[0], 1
    rows, columns, *channels = shape
    return rows, columns, channels[0] if channels else 1


def _two_sides(given: Any, name: str, *, one_row: bool) -> tuple[int, int]:
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
