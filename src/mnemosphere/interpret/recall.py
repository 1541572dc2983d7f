"""Rows and the density: patterns completed, patterns drawn, how likely rows are, numbers as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from mnemosphere.base.machine import import_extra
from mnemosphere.fitted.model import FittedModel, Floats, as_numpy, check_whole, draw_seed, like
from mnemosphere.geometry.base import on_sphere
from mnemosphere.model import retrieval
from mnemosphere.model.gaps import fill_neutrally
from mnemosphere.model.recall import recall as descend
from mnemosphere.model.soft_labels import net_class_weights
from mnemosphere.rows.containers import is_frame
from mnemosphere.rows.rows import Rows


@dataclass(frozen=True)
class RecallPath:
    """The path of n rows down the energy, in at most S steps; a row that has stopped stays.

    Attributes
    ----------
    rows : ndarray of shape (S+1, n, N)
        From the rows as given to the recalled ones.
    energies : ndarray of shape (S+1, n)
        −log P(x|y), or −log P(x), relative to the uniform distribution.
    steps : ndarray of int of shape (n,)
        Steps taken.
    converged : ndarray of bool of shape (n,)
        Whether the row came to rest.

    Examples
    --------
    >>> path = mn.interpret.recall(model, X_test[:2], path=True)
    >>> bool((np.diff(path.energies, axis=0) <= 1e-9).all())
    True
    """

    rows: Floats
    energies: Floats
    steps: NDArray[np.intp]
    converged: NDArray[np.bool_]


def recall(
    model: FittedModel,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    known: ArrayLike | None = None,
    steps: int = 50,
    path: bool = False,
) -> Any:
    """Complete patterns: descend the energy −log P(x|y) of the density from each row.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Rows to start from, such as damaged patterns or noise. NaN features are imputed; the others stay
        as given.
    y : array-like of shape (n,), default None
        The class of each row; None: any class.
    known : array-like of bool of shape (n, N), default None
        True for features that must stay; None: all that are not NaN.
    steps : int, default 50
        Maximum number of steps.
    path : bool, default False
        Keep the rows and energies after every step.

    Returns
    -------
    ndarray or pandas.DataFrame of shape (n, N), or RecallPath
        The completed rows, in the units of X; with geometry="unit" they have norm 1, with "center" also
        mean 0. For a frame, a frame of the same columns: known values stay, and whole numbers are whole.
        With `path`, the way to them, as numbers.

    Examples
    --------
    >>> incomplete = X_test[:2].assign(alcohol=np.nan)
    >>> completed = mn.interpret.recall(model, incomplete, y_test[:2])
    >>> list(completed) == list(X_test), bool(completed.isna().any(axis=None))
    (True, False)
    >>> mn.interpret.recall(model, incomplete, steps=5, path=True).rows.shape[1:]
    (2, 4)
    """
    x, values, mask = _start(model, X, known)
    mixing = model.geometry.mixing
    found = descend(
        model.density, x, steps=steps, record=path,
        class_index=None if y is None else model.columns_of(y, x.shape[0]),
        known=None if mask is None else model.geometry.per_coordinate(mask),
        metric=None if mixing is None else mixing.to(x.device),
    )  # fmt: skip

    def restore(points: Tensor) -> Tensor:
        rows = model.restore(points)
        if mask is None or not model.geometry.has_curves:
            return rows
        return torch.where(mask, values.to(rows), rows)  # ranks lie between knots

    if path:
        assert found.path is not None and found.energies is not None  # noqa: PT018
        return RecallPath(
            as_numpy(restore(found.path)), as_numpy(found.energies), as_numpy(found.steps),
            as_numpy(found.converged),
        )  # fmt: skip
    rows = restore(found.x)
    framed = is_frame(X) and not model.columns.is_texts
    return _completed(model, X, known, as_numpy(rows)) if framed else like(X, rows)


def _completed(model: FittedModel, X: Any, known: Any, found: Floats) -> Any:
    """The frame X with recalled numbers (n, N) in the cells that are missing or not to be kept."""
    numbers = as_numpy(model.stored(X).values).astype(np.float64)
    free = np.isnan(numbers) if known is None else ~np.asarray(known)
    free = free if free.any() else np.ones_like(free)  # nothing was held
    filled = model.geometry.complete(np.where(free, np.nan, numbers), found)
    return model.columns.rewrite(X, _whole(model, filled), free)


def _whole(model: FittedModel, numbers: Floats) -> Floats:
    """Numbers (n, N), whole ones in columns where training had no others."""
    seen = model.columns.observed
    return numbers if seen is None else np.where(seen[2] > 0, np.round(numbers), numbers)


def _start(model: FittedModel, X: Any, known: Any) -> tuple[Tensor, Tensor, Tensor | None]:
    """(unit rows, the others filled in neutrally; rows as numbers (n, N); which are known, None: all)."""
    stored = model.stored(X)
    values, geometry = stored.values.to(stored.device).double(), model.geometry
    gaps = values.isnan()
    mask = ~gaps if bool(gaps.any()) else None
    if known is not None:
        mask = known if isinstance(known, Tensor) else torch.from_numpy(np.array(known))
        if mask.dtype != torch.bool:
            raise ValueError(f"known must be booleans, True to keep, got {mask.dtype}")
        if mask.shape != values.shape:
            raise ValueError(f"known must be {tuple(values.shape)} like X, got {tuple(mask.shape)}")
        mask = mask.to(values.device)
        gaps &= ~mask
    empty = gaps.all(1)
    if bool(empty.any()):
        raise ValueError(f"row {int(empty.nonzero()[0])} of X has no known feature: drop it")
    Rows(values.masked_fill(gaps, 0.0), stored.device).check_finite(model.columns.number_names)
    x, lost = on_sphere(Rows(values, stored.device), geometry, model.density.w.dtype)
    if bool(lost.any()):
        raise ValueError(
            f"row {int(lost.nonzero()[0])} of X is {geometry.no_direction} where it is known, so "
            "it has no direction to start from: drop it"
        )
    return fill_neutrally(x), values, mask


def sample(
    model: FittedModel, n_samples: int = 1, y: object = None, *, random_state: Any = None
) -> tuple[Any, NDArray[Any]]:
    """Draw rows and their labels from the density of the model.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    n_samples : int, default 1
        Number of rows.
    y : object, default None
        One class to draw from; None: any class.
    random_state : int, RandomState or None, default None
        Seed.

    Returns
    -------
    rows : ndarray or pandas.DataFrame of shape (n_samples, N)
        Rows, in the units of X where rows are standardized or on circles, else unit vectors. A frame if
        the model was trained on one.
    labels : ndarray of shape (n_samples,)
        Their labels; None for "none of them".

    Examples
    --------
    >>> rows, labels = mn.interpret.sample(model, 4, y=0, random_state=0)
    >>> rows.shape, labels.tolist()
    ((4, 4), [0, 0, 0, 0])
    """
    check_whole(n_samples, "n_samples", 1)
    generator = torch.Generator().manual_seed(draw_seed(random_state))
    index = None if y is None else int(model.columns_of([y])[0])
    rows, drawn = draw(model, int(n_samples), index, generator)
    names = np.array([*model.classes.tolist(), None], dtype=object)[drawn.numpy()]
    labels = names if None in names.tolist() else names.astype(model.classes.dtype)
    framed = model.columns.names is not None and not model.columns.is_texts
    return decode(model, _whole(model, rows)) if framed else rows, labels


def draw(
    model: FittedModel, n_samples: int, column: int | None, generator: torch.Generator
) -> tuple[Floats, Tensor]:
    """Rows (n, N) as numbers, and the columns of their classes (n,); column None: of any class."""
    density = model.density.to(device="cpu")
    if model.is_classifier:  # labels as rows have them, not smoothed
        prior = model.votes.p_q.to(density.p)
        density = density.replace(p=net_class_weights(density, model.smoothing, prior))
    x, drawn = retrieval.sample(density, n_samples, class_index=column, generator=generator)
    rows: Floats = model.restore(x).numpy()
    return rows, drawn


def encode(model: FittedModel, X: Any) -> Any:
    """Turn rows into the numbers that this model reads, as an ONNX graph of it needs them.

    Categories, dates and lists are encoded as in training; missing values stay NaN. Every method of the
    model takes these numbers too.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like or frame of n rows
        Rows.

    Returns
    -------
    pandas.DataFrame or ndarray of shape (n, N)
        A frame with names of the numbers if X is a frame; vectors of texts have none.

    Examples
    --------
    >>> mn.interpret.encode(model, X_test).shape
    (60, 4)
    """
    numbers = as_numpy(model.stored(X).values).astype(np.float64)
    if not is_frame(X) or model.columns.is_texts:
        return numbers
    pd = import_extra("pandas")
    return pd.DataFrame(
        numbers, columns=model.columns.number_names, index=getattr(X, "index", None)
    )


def decode(model: FittedModel, numbers: Any) -> Any:
    """Undo `encode`, so that memories and recalled rows can be read as rows of the table.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    numbers : array-like of shape (n, N)
        Such as `memories_`, or results of `recall` and `sample`.

    Returns
    -------
    pandas.DataFrame or ndarray of n rows
        Columns like those of training; an array if features have no names.

    Examples
    --------
    >>> mn.interpret.decode(model, clf.memories_)["alcohol"].shape
    (6,)
    """
    numbers = as_numpy(numbers).astype(np.float64)
    if numbers.ndim != 2 or numbers.shape[1] != model.columns.n_numbers:
        raise ValueError(
            f"numbers must be (rows, {model.columns.n_numbers}), got shape {numbers.shape}"
        )
    return model.columns.decode(numbers)


def score_samples(model: FittedModel, X: Any) -> Floats:
    """Compute the log of the effective density of each row on the sphere, labels summed out.

    For ς = 1 that is the model's log-density. For ς < 1 it is the log of 𝒫_{β,ς}(x) of
    Eq. (effective_loss), which ranks rows, but its exponential does not integrate to 1. With geometry="circles" it is a score too:
    tables fill a small part of the sphere, and it is no density of their rows.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Rows.

    Returns
    -------
    ndarray of shape (n,)
        Log-densities; a tensor if X is one.

    Examples
    --------
    >>> mn.interpret.score_samples(model, X_test).shape
    (60,)
    """
    scores: Floats = like(X, model.log_density(X))
    return scores
