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
from mnemosphere.model import retrieval
from mnemosphere.model.recall import Recall
from mnemosphere.model.recall import recall as descend


@dataclass(frozen=True)
class RecallPath:
    """The way of n rows down the energy, S steps at most; a row that has stopped stays."""

    rows: Floats  # (S+1, n, N) from the rows as given to those recalled
    energies: Floats  # (S+1, n) −log P(x|y), or −log P(x), relative to the uniform law
    steps: NDArray[np.intp]  # (n,) steps taken
    converged: NDArray[np.bool_]  # (n,)


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
    """Complete patterns: descend the energy −log P(x|y) from each row, (n, N).

    X: where to start, such as damaged patterns or noise. NaN features are found; the others stay
    as given (up to one factor per row, since length means nothing). known: (n, N) booleans, True
    for the features that are to stay, in place of all that are not NaN. y: the class of each
    row, or None for any class. method: "fixed-point" takes the longest strides; "gradient"
    follows the slope on the sphere, in steps of rate/β_eff, rate in (0, 2]. Neither ever raises
    the energy.
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
    """As `recall`, with the rows and energies after every step."""
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
    """Draw patterns and their labels from the model; y: one class to draw from, or None.

    A pattern of the class "none of them" is labeled None, in an array of objects.
    """
    check_whole(n_samples, "n_samples", 1)
    generator = torch.Generator().manual_seed(draw_seed(random_state))
    index = None if y is None else int(model.columns_of(np.asarray([y]))[0])
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


def encode(model: FittedModel, X: Any, *, fill: bool = True) -> Any:
    """The numbers that rows consist of for this model, (n, N): a frame with their names.

    An array if X has no named columns. Categories, dates and lists are spread out as in
    training; missing values are filled in as the memories expect them, unless `fill` is False.
    An ONNX graph of the model takes these numbers, and so does every method of the model.
    """
    stored = (model.completed(X) if fill else model.stored(X)).dense()
    numbers = as_numpy(stored.values).astype(np.float64)
    if not is_frame(X):
        return numbers
    import pandas as pd

    return pd.DataFrame(numbers, columns=model.features.names, index=getattr(X, "index", None))


def decode(model: FittedModel, numbers: Any) -> Any:
    """Undo `encode`: a frame of columns like those of training, without those left out.

    So `memories_`, or what `recall` and `sample` return, can be read as rows of the table.
    """
    numbers = np.asarray(numbers, dtype=np.float64)
    if model.features.encoding is not None:
        return model.features.encoding.decode(numbers)
    names = model.features.names
    if names is None:
        return numbers
    import pandas as pd

    return pd.DataFrame(numbers, columns=names)
