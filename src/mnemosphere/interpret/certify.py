"""Is each memory a minimum, a saddle, or not at rest?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from mnemosphere.fitted.model import FittedModel, check_whole
from mnemosphere.model.certificates import Certificate
from mnemosphere.model.certificates import certify as certify_rows
from mnemosphere.training.conditional import class_targets

__all__ = ["Certificate", "certify"]


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
    rows = model.labeled(X, y, sample_weight)
    return certify_rows(
        model.trained, rows if model.is_joint else replace(rows, targets=class_targets(rows.targets)),
        model.rule, tol=tol, max_iter=int(max_iter), learn_beta=model.learns_beta,
        hold_weights=not model.learns_weights,
    )  # fmt: skip
