"""Rows out of a fitted model: patterns completed, patterns drawn, numbers read as a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from torch import Tensor

from mnemosphere.data.encoding import is_frame
from mnemosphere.data.prepare import on_sphere
from mnemosphere.fitted import FittedModel, Floats, as_numpy, check_whole, like
from mnemosphere.machine import need
from mnemosphere.model import retrieval
from mnemosphere.model.recall import Recall
from mnemosphere.model.recall import recall as descend


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
    >>> path = mn.interpret.recall_path(model, X_test[:2])
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
    method: str = "fixed-point",
    rate: float = 1.0,
) -> Floats:
    """Complete patterns: descend the energy −log P(x|y) from each row.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Where to start, such as damaged patterns or noise. NaN features are imputed; the others stay as
        given, up to one factor per row.
    y : array-like of shape (n,), default None
        The class of each row; None: any class.
    known : array-like of bool of shape (n, N), default None
        True for features that must stay; None: all that are not NaN.
    steps : int, default 50
        Steps at most.
    method : {"fixed-point", "gradient"}, default "fixed-point"
        "fixed-point" takes the longest strides; "gradient" follows the slope on the sphere. Neither
        raises the energy.
    rate : float in (0, 2], default 1
        Steps of "gradient" are rate/β_eff.

    Returns
    -------
    ndarray of shape (n, N)
        The completed rows, in the units of X.

    Examples
    --------
    >>> incomplete = X_test[:2].assign(alcohol=np.nan)
    >>> mn.interpret.recall(model, incomplete, y_test[:2]).shape
    (2, 4)
    """
    found = _recall(model, X, y, known, steps, method, rate, "nothing")
    rows: Floats = like(X, model.normalizer.restore(found.x))
    return rows


def recall_path(
    model: FittedModel,
    X: ArrayLike,
    y: ArrayLike | None = None,
    *,
    known: ArrayLike | None = None,
    steps: int = 50,
    method: str = "fixed-point",
    rate: float = 1.0,
) -> RecallPath:
    """Complete patterns as `recall` does, and keep the rows and energies after every step.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Where to start, as in `recall`.
    y : array-like of shape (n,), default None
        The class of each row; None: any class.
    known : array-like of bool of shape (n, N), default None
        True for features that must stay; None: all that are not NaN.
    steps : int, default 50
        Steps at most.
    method : {"fixed-point", "gradient"}, default "fixed-point"
        As in `recall`.
    rate : float in (0, 2], default 1
        Steps of "gradient" are rate/β_eff.

    Returns
    -------
    RecallPath
        Rows and energies of every step.

    Examples
    --------
    >>> path = mn.interpret.recall_path(model, X_test[:2], steps=5)
    >>> path.rows.shape[1:], path.energies.shape == path.rows.shape[:2]
    ((2, 4), True)
    """
    found = _recall(model, X, y, known, steps, method, rate, "rows")
    assert found.path is not None and found.energies is not None  # noqa: PT018
    return RecallPath(
        rows=as_numpy(model.normalizer.restore(found.path)),
        energies=as_numpy(found.energies),
        steps=as_numpy(found.steps),
        converged=as_numpy(found.converged),
    )


def _recall(
    model: FittedModel, X: Any, y: Any, known: Any, steps: int, method: str, rate: float,
    record: str,
) -> Recall:  # fmt: skip
    x, held = _with_gaps(model, X, known)
    index = None if y is None else model.columns_of(y)
    if index is not None and index.shape[0] != x.shape[0]:
        raise ValueError(f"y has {index.shape[0]} labels for {x.shape[0]} rows: one per row")
    metric = model.normalizer.metric
    return descend(
        model.params, x, class_index=index, known=held, steps=steps, method=method, rate=rate,
        record=record, metric=None if metric is None else metric.to(x.device),
    )  # fmt: skip


def _with_gaps(model: FittedModel, X: Any, known: Any) -> tuple[Tensor, Tensor | None]:
    """Unit rows, NaN filled in neutrally, and the mask of the coordinates that are known."""
    stored = model.stored(X).dense()
    values = stored.values.to(stored.device).double()
    gaps = torch.isnan(values)
    mask: Tensor | None = None
    if known is not None:
        mask = known if isinstance(known, Tensor) else torch.from_numpy(np.array(known))
        if mask.dtype != torch.bool:
            raise ValueError(f"known must be booleans, True to keep, got {mask.dtype}")
        if mask.shape != values.shape:
            raise ValueError(f"known must be {tuple(values.shape)} like X, got {tuple(mask.shape)}")
        mask = mask.to(values.device)
        gaps &= ~mask
    elif bool(gaps.any()):
        mask = ~gaps
    empty = gaps.all(1)
    if bool(empty.any()):
        raise ValueError(f"row {int(empty.nonzero()[0])} of X has no known feature: drop it")
    normalizer = model.normalizer.to(values.device)
    filled = type(stored)(normalizer.fill(values, gaps), stored.device)
    filled.check_finite(model.features.names)
    x, lost = on_sphere(filled, normalizer, model.params.w.dtype)
    if bool(lost.any()):
        raise ValueError(
            f"row {int(lost.nonzero()[0])} of X is {normalizer.no_direction} where it is known, so "
            "it has no direction to start from: drop it"
        )
    if mask is not None and normalizer.extra:
        mask = torch.cat([mask, mask.new_ones(mask.shape[0], 1)], dim=1)
    return x, mask


def sample(
    model: FittedModel, n_samples: int = 1, y: object = None, *, random_state: Any = None
) -> tuple[Floats, NDArray[Any]]:
    """Draw rows and their labels from the model.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    n_samples : int, default 1
        How many.
    y : object, default None
        One class to draw from; None: any class.
    random_state : int, RandomState or None, default None
        Seed.

    Returns
    -------
    rows : ndarray of shape (n_samples, N)
        Rows, in the units of X where rows are standardized, else unit vectors.
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
    x, drawn = retrieval.sample(
        model.row_density.to(device="cpu"), int(n_samples), class_index=index, generator=generator
    )
    names = np.array([*model.classes.tolist(), None], dtype=object)[drawn.numpy()]
    labels = names if None in names.tolist() else names.astype(model.classes.dtype)
    rows: Floats = model.normalizer.to("cpu").restore(x).numpy()
    return rows, labels


def draw_seed(random_state: Any) -> int:
    """One whole number out of whatever scikit-learn calls a random state."""
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


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
        A frame with names of the numbers if X is a frame.

    Examples
    --------
    >>> mn.interpret.encode(model, X_test).shape
    (60, 4)
    """
    numbers = as_numpy(model.stored(X).dense().values).astype(np.float64)
    if not is_frame(X):
        return numbers
    pd = need("pandas")
    return pd.DataFrame(numbers, columns=model.features.names, index=getattr(X, "index", None))


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
    if numbers.ndim != 2 or numbers.shape[1] != model.features.n_numbers:
        raise ValueError(
            f"numbers must be (rows, {model.features.n_numbers}), got shape {numbers.shape}"
        )
    if model.features.encoding is not None:
        return model.features.encoding.decode(numbers)
    names = model.features.names
    if names is None:
        return numbers
    pd = need("pandas")
    return pd.DataFrame(numbers, columns=names)
