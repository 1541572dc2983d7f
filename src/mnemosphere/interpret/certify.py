"""Is each memory a minimum, a saddle, or not at rest? And labeled rows as training sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mnemosphere.data.normalize import Normalizer
from mnemosphere.data.prepare import unit_chunks
from mnemosphere.data.rows import StoredRows
from mnemosphere.fitted import FittedModel, check_whole
from mnemosphere.labels import Encoded, encode, row_weights, sample_weights
from mnemosphere.model.batch import Batch
from mnemosphere.model.certificates import Certificate
from mnemosphere.model.certificates import certify as certify_rows
from mnemosphere.schema import warn_user
from mnemosphere.training.conditional import class_targets

__all__ = [
    "Certificate", "certify", "encoded_labels", "labeled_rows", "rows_to_certify", "warn_set_aside",
]  # fmt: skip

_NAMED = 5  # rows that a warning names


def certify(
    model: FittedModel,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    tol: float = 1e-3,
    max_iter: int = 100,
) -> Certificate:
    """Determine if each memory is a minimum, a saddle, or not at rest.

    A copy first takes exact passes until nothing moves by more than `tol`: the certificate is about that
    copy. A conditional objective has no exact pass: the votes are certified as they were trained.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        The rows that the model was trained on.
    y : array-like of shape (n,), default None
        Their labels; a clusterer needs none.
    sample_weight : array-like of shape (n,), default None
        Weights of the rows; None: all 1.
    tol : float, default 1e-3
        The copy is at rest if nothing moves by more.
    max_iter : int, default 100
        Exact passes at most.

    Returns
    -------
    Certificate
        The kind of each memory.

    Examples
    --------
    >>> mn.interpret.certify(model, X_train, y_train, max_iter=0).n_iter
    0
    """
    check_whole(max_iter, "max_iter", 0)
    params, rows = model.trained, labeled_rows(model, X, y, sample_weight)
    weights = params.p_h[1:]
    return certify_rows(
        params, rows if model.is_joint else replace(rows, targets=class_targets(rows.targets)),
        model.rule, tol=tol, max_iter=int(max_iter), learn_beta=model.learns_beta,
        hold_weights=torch.allclose(weights, weights.mean()),  # learned ones differ
    )  # fmt: skip


def labeled_rows(model: FittedModel, X: Any, y: Any = None, sample_weight: Any = None) -> Batch:
    """Unit rows with label weights, those without direction left out; a clusterer reads no y."""
    stored = model.stored(X)
    if model.is_classifier:
        coded = encoded_labels(model, y, stored)
        class_weight = model.record.settings.get("class_weight")
        targets, weight = coded.targets, row_weights(coded, class_weight, sample_weight)
    else:  # one row of zeros stands for all of them
        targets = torch.zeros(1, len(model.classes) + 1, dtype=torch.float64)
        targets = targets.expand(stored.n_rows, -1)
        weight = sample_weights(sample_weight, stored.n_rows, stored.device)
    return rows_to_certify(model, stored, targets, weight)


def encoded_labels(model: FittedModel, y: Any, stored: StoredRows) -> Encoded:
    """Labels as those of training were encoded; rows may have none."""
    return encode(
        y, stored.n_rows, model.classes, unlabeled=model.record.settings.get("unlabeled"),
        smoothing=model.smoothing, require_label=False, device=stored.device,
    )  # fmt: skip


def rows_to_certify(
    model: FittedModel, stored: StoredRows, targets: Tensor, weight: Tensor | None
) -> Batch:
    """Unit rows with these label weights, those without direction left out."""
    x, lost = model.on_sphere(stored)
    rows = Batch(x, targets.to(x), None if weight is None else weight.to(x))
    if not bool(lost.any()):
        return rows
    warn_set_aside(model.normalizer, stored, weight)
    return rows.take(~lost)


def warn_set_aside(normalizer: Normalizer, given: StoredRows, weight: Tensor | None) -> None:
    """Count and name the rows of X that have no direction, all copies of them."""
    lost = torch.cat([without for _, without in unit_chunks(given, normalizer, torch.float64)])
    if weight is not None:
        lost &= weight > 0
    numbers = given.call(lost.nonzero()[:, 0])
    named = ", ".join(map(str, numbers[:_NAMED]))
    more = ", …" if len(numbers) > _NAMED else ""
    hint = "" if normalizer.extra else "; normalize='standard' would keep them"
    warn_user(
        f"{len(numbers)} of {given.n_rows} rows of X are {normalizer.no_direction}, so they have "
        f"no direction and were set aside: row {named}{more}{hint}",
    )
