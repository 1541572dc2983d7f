"""Classes that a model does not know yet, proposed from rows that it rejected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.fitted.model import FittedModel, as_numpy, check_whole, draw_seed
from mnemosphere.model.kmeans import spherical_kmeans
from mnemosphere.model.silhouette import REAL, Groupings


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
        How many; "auto": the number with the best silhouette, up to one per ten rows; 1 if the silhouette of a
        single cloud is about as good.
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
    start = None
    if n_classes == "auto":
        start = _centers(x, generator)
        n_classes = len(start)
    check_whole(n_classes, "n_classes", 1)
    if int(n_classes) > len(x):
        raise ValueError(f"{len(x)} rows cannot make {n_classes} classes: pass more rows")
    label, centers = spherical_kmeans(x, int(n_classes), generator=generator, start=start)
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


def _centers(x: Tensor, generator: torch.Generator) -> Tensor:
    """Of as many groups as the rows x (n, N) seem to have."""
    if len(x) < 4:
        return x[:1]
    groupings = Groupings(x[torch.randperm(len(x), generator=generator, device=x.device)])
    number = groupings.best()
    return groupings.centers(number) if groupings.excess(number) > REAL else x[:1]
