"""`PatchEncoder`: images as soft counts of patch memories, on the sphere."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from mnemosphere.estimators import saving
from mnemosphere.estimators.base import CONSTRAINTS, COUNT, NOT_FITTED, Fitted, MemoryEstimator
from mnemosphere.estimators.progress import Progress
from mnemosphere.estimators.saving import register
from mnemosphere.estimators.setup import (
    begin,
    kept_settings,
    learn_features,
    precision_of,
)
from mnemosphere.fitted.model import Floats, Record, as_numpy, like
from mnemosphere.images.encoder import (
    FittedEncoder,
    PatchLayer,
    flat_images,
    image_shape,
    patch_layer,
    wide,
    windows_of,
)
from mnemosphere.images.windows import draw_patches
from mnemosphere.model import initialize, objectives
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.fit import FitResult, fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.joint import start_joint

_PASSES = 10  # over the patches, as many as the fixed point takes on the digits of the paper
Size = int | Sequence[int]


@register
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
    max_iter : int or None, default None
        Passes over these patches; None: 10.
    solver : "fixed-point" or FixedPoint, default "fixed-point"
        The object holds batch size and tolerance.
    precision : {"auto", "float32", "float64"}, default "auto"
        "auto": float64 up to a million numbers, where it costs little, else float32.
    device : str, default "auto"
        "cpu", "cuda", … "auto": the device of a tensor X, else a GPU if there is one and X has a million
        numbers.
    random_state : int or RandomState or None, default None
        Random seed; None: another one each time.
    callbacks : sequence of Callback, default ()
        Called on every pass: `Checkpoint(path)` stores the run and resumes it.
    verbose : int, default 0
        0: silent. 1: progress on standard error if a fit takes more than a second: passes with the
        loss.

    Attributes
    ----------
    model_ : FittedEncoder
        The fitted encoder, which the other attributes are read from.
    image_shape_ : tuple of int
        Shape of an image.
    layers_ : tuple of PatchLayer
        One for each size of patches.
    patch_memories_ : list of ndarrays of shape (P, numbers per patch)
        Unit vectors, one array for each size of patches.
    history_ : list of dicts
        One for each pass, the sizes one after the other.
    n_iter_ : int
        Number of passes.
    converged_ : bool
        Whether training converged.
    status_ : str
        How training ended.
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

    _parameter_constraints: dict[str, Any] = CONSTRAINTS | {
        "image_shape": [None, tuple, list],
        "patch": [COUNT, tuple, list],
        "stride": [COUNT],
        "grid": [COUNT, tuple, list],
        "n_memories": [COUNT],
        "geometry": [StrOptions({"center", "unit"})],
        "power": [Interval(Real, 0, 4, closed="right")],
        "n_patches": [COUNT, None],
        "solver": [StrOptions({"fixed-point"}), FixedPoint],
        "precision": [StrOptions({"auto", "float32", "float64"})],
    }

    def __init__(
        self,
        image_shape: tuple[int, ...] | None = None,
        *,
        patch: Size | Sequence[Size] = (4, 7),
        stride: int = 1,
        grid: int | tuple[int, int] = 5,
        n_memories: int = 160,
        beta: float | str = 30.0,
        geometry: str = "center",
        power: float = 0.5,
        n_patches: int | None = 500_000,
        max_iter: int | None = None,
        solver: str | FixedPoint = "fixed-point",
        precision: str = "auto",
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        callbacks: Sequence[Callback] = (),
        verbose: int = 0,
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
        self.solver = solver
        self.precision = precision
        self.device = device
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    model_: FittedEncoder = NOT_FITTED
    n_features_in_ = MemoryEstimator.n_features_in_
    feature_names_in_ = MemoryEstimator.feature_names_in_
    history_ = MemoryEstimator.history_
    n_iter_ = MemoryEstimator.n_iter_
    status_ = MemoryEstimator.status_
    converged_ = MemoryEstimator.converged_
    image_shape_ = Fitted[tuple[int, ...]](lambda m: m.image_shape)
    layers_ = Fitted[Sequence[PatchLayer]](lambda m: m.layers)
    patch_memories_ = Fitted[list[Floats]](lambda m: [as_numpy(own.params.w) for own in m.layers])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

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
            The estimator itself, with `model_`.

        Examples
        --------
        >>> fresh = mn.PatchEncoder((8, 8), patch=4, grid=2, n_memories=8, n_patches=1000, random_state=0)
        >>> fresh.fit(digits).patch_memories_[0].shape
        (8, 16)
        """
        self._validate_params()
        with Progress(self.verbose) as progress:
            self.model_ = self._fit(X, progress)
        return self

    def _fit(self, X: ArrayLike, progress: Progress) -> FittedEncoder:
        settings, owner = self.get_params(deep=False), type(self).__name__
        flat, shape = flat_images(X, self.image_shape)
        features, images = learn_features(flat, settings, owner, encoded=False)
        shape = image_shape(self.image_shape, shape, features.n_columns)
        dtype = precision_of(self.precision, images.values.numel())
        seed, callbacks = begin(settings, owner, images, progress)
        generator = torch.Generator().manual_seed(seed)
        layers, results = [], []
        for k, windows in enumerate(windows_of(settings, shape)):
            patches = draw_patches(
                images, windows, self.n_patches, dtype=dtype, generator=generator
            )
            if patches.n_rows == 0:
                raise ValueError(
                    f"every patch of {features.n_columns} feature(s) in X is blank, so none has a "
                    "direction: pass images with some contrast, or larger patches"
                )
            result = self._learn(patches, generator, callbacks, f"size{k}")
            layers.append(patch_layer(settings, windows, result.params))
            results.append(result)
        history = [record.as_dict() for result in results for record in result.history]
        ended = [result.status for result in results]
        status = next((status for status in ended if status != "converged"), "converged")
        record = Record(kept_settings(settings), history, status, status == "converged")
        return FittedEncoder(features, shape, tuple(layers), float(self.power), record)

    def _learn(
        self, patches: ArrayDataset, generator: torch.Generator, callbacks: Sequence[Callback],
        stage: str,
    ) -> FitResult:  # fmt: skip
        """Patch memories of highest likelihood."""
        held = None if self.beta == "learn" else float(self.beta)
        width = min(self.n_memories, patches.n_rows)
        rows = patches.sample(max(width, initialize.PROBE_ROWS), generator=generator)
        start = initialize.Start(initialize.from_data(rows.x, width, generator=generator))
        params = start_joint(start, rows, varsigma=1.0, beta=held, uniform_weight=1.0)
        given = FixedPoint() if isinstance(self.solver, str) else self.solver
        solver = given.resolve(patches.n_rows, learn_beta=held is None, device=patches.device)
        return fit(
            params, patches, solver, rule=objectives.marginal, max_iter=self.max_iter or _PASSES,
            tol=solver.tol, generator=generator, callbacks=callbacks, stage=stage,
        )  # fmt: skip

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
        names = []
        for layer in self.model_.layers:
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
        """Turn images into soft counts of patch memories.

        Parameters
        ----------
        X : array-like of shape (n, pixels) or (n, *image_shape)
            Images.

        Returns
        -------
        ndarray of shape (n, cells · memories)
            Unit rows, the sizes of patches one after the other; zeros for an image without contrast.

        Examples
        --------
        >>> pipeline[0].transform(digits).shape
        (200, 32)
        """
        model = self.model_
        images = model.stored(X)
        place = X.device if isinstance(X, Tensor) else "cpu"
        out = torch.empty(images.n_rows, model.n_out, device=place, dtype=wide(X))
        rows: Floats = like(X, model.encode(images, out))
        return rows

    def inverse_transform(self, X: ArrayLike, *, n_iter: int = 20) -> Floats:
        """Draw pictures of points among the soft counts, such as a classifier's memories.

        A patch on the sphere has lost its length and its mean, so pictures are of contrasts around 0 and of
        unit length. Counts are never negative: in a row with negative numbers, such as a memory of
        centered rows, the median counts as 0.

        Parameters
        ----------
        X : array-like of shape (m, cells · memories)
            Points, like the rows of `transform`.
        n_iter : int, default 20
            Rounds of sharpening. Each takes the patches expected from the picture so far, such that they
            still add up to the counts.

        Returns
        -------
        ndarray of shape (m, pixels)
            Pictures.

        Examples
        --------
        >>> pipeline[0].inverse_transform(pipeline[1].memories_).shape
        (20, 64)
        """
        pictures: Floats = like(X, self.model_.pictures(X, n_iter))
        return pictures

    def save(self, path: str | PathLike[str]) -> None:
        """Write the fitted encoder to a safetensors file, atomically.

        Parameters
        ----------
        path : str or path
            The file; `mnemosphere.load` reads it.

        Examples
        --------
        >>> pipeline[0].save("encoder.safetensors")
        >>> mn.load("encoder.safetensors").image_shape_
        (8, 8)
        """
        saving.save(self, Path(path))
