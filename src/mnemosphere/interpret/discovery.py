"""Classes that a model does not know yet, proposed from rows that it rejected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import silhouette_score
from torch import Tensor

from mnemosphere.fitted.model import FittedModel, as_numpy, check_whole, draw_seed
from mnemosphere.model.kmeans import Partition, spherical_kmeans

_ROWS_EACH = 20  # of a proposed class, on average, if their number is to be found
_COMPARED = 2000  # rows by which numbers of classes are compared


@dataclass(frozen=True)
class ProposedClass:
    """Rows that resemble each other: perhaps a new class.

    Attributes
    ----------
    rows : ndarray of int
        Their numbers, most typical first.
    overlap : float
        Mean cosine between the rows and their center.
    nearest : object
        The known class that most of them would get.

    Examples
    --------
    >>> found = clf.discover(X_test[:10] * 3, n_classes=1)
    >>> found[0].rows.shape
    (10,)
    """

    rows: NDArray[np.int64]
    overlap: float
    nearest: Any


def discover(
    model: FittedModel, X: Any, n_classes: int | str = "auto", *, random_state: Any = 0
) -> list[ProposedClass]:
    """Group rows by spherical k-means in the geometry of the model, to propose new classes.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    X : array-like of shape (n, N)
        Rows, such as those that were rejected.
    n_classes : int or "auto", default "auto"
        How many; "auto": the number with the best silhouette, up to one per twenty rows.
    random_state : int, RandomState or None, default 0
        Seed of the starts.

    Returns
    -------
    list of ProposedClass
        Largest first.

    Examples
    --------
    >>> len(mn.interpret.discover(model, X_test, n_classes=2))
    2
    """
    stored = model.completed(X)
    x, lost = model.on_sphere(stored, torch.float64)
    kept = (~lost).nonzero()[:, 0]
    x = x[kept]
    generator = torch.Generator(x.device).manual_seed(draw_seed(random_state))
    if n_classes == "auto":
        n_classes = _best_number(x, generator)
    check_whole(n_classes, "n_classes", 1)
    if int(n_classes) > len(x):
        raise ValueError(f"{len(x)} rows cannot make {n_classes} classes: pass more rows")
    label, centers = spherical_kmeans(x, int(n_classes), generator=generator)
    overlap = (x * centers[label]).sum(1)
    best = model.log_proba(stored).argmax(1)[kept]
    found = []
    for k in range(len(centers)):
        own = (label == k).nonzero()[:, 0]
        ordered = own[overlap[own].argsort(descending=True, stable=True)]
        nearest = model.classes[int(best[own].mode().values)].item()
        rows = as_numpy(kept[ordered])
        found.append(ProposedClass(rows, float(overlap[own].mean()), nearest))
    return sorted(found, key=lambda own: -len(own.rows))


def _best_number(x: Tensor, generator: torch.Generator) -> int:
    """Of groups: powers of √2 are compared."""
    order = torch.randperm(len(x), generator=generator, device=x.device)
    some = x[order[:_COMPARED]]
    most = max(2.0, len(some) / _ROWS_EACH)
    numbers = sorted({round(2 ** (k / 2)) for k in range(2, 2 + int(2 * np.log2(most / 2)) + 1)})
    if len(some) < 2 * numbers[0]:
        return 1

    def score(k: int) -> float:
        parts: Partition = spherical_kmeans(some, k, generator=generator, restarts=3)
        return float(silhouette_score(as_numpy(some), as_numpy(parts.label), metric="cosine"))

    return max(numbers, key=score)
