"""Do a few memories decide? How the vote on rows is spread over the memories of a model.

The vote of component γ on row x is its share s_γ(x) (`model.votes`): P(y|x) = Σ_γ s_γ(x) g_γy with the
soft labels g. γ = 0 is the uniform component. Class frequencies π decide about a row if its class is the
most frequent one and the odds of no class differ from those of π_y by more than a factor of 1.5. A
rare class at twice its frequency is ranked, so frequencies do not decide.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.text import Shown, Table
from mnemosphere.fitted.model import FittedModel, Placed, as_numpy
from mnemosphere.model.kernel import chunks

MOST = 0.9  # of the vote
LITTLE = 1.5  # by which memories may change the odds of a class where its frequency decides
_STRONGEST = 3  # memories that are asked alone


class Spread(NamedTuple):
    """How the vote on each row is spread."""

    needed: NDArray[np.int64]  # (n,) memories that hold 90% of it; P + 1 if all hold less
    same: NDArray[np.bool_]  # (n,) whether the three strongest alone give the class
    uniform: NDArray[np.float64]  # (n,) share of the uniform component
    undecided: NDArray[np.bool_]  # (n,) whether class frequencies decide


def spread(model: FittedModel, X: Any) -> Spread:
    """How the vote on each row of X is spread."""
    votes = model.precise_votes
    parts = [
        _spread(model, Placed(x[rows], lost[rows]))
        for x, lost in model.unit_rows(X, votes.w.dtype)
        for rows in chunks(x.shape[0], votes.n_memories, x.device)
    ]
    return Spread(*map(np.concatenate, zip(*parts, strict=True)))


def frequencies_decide(model: FittedModel, proba: Tensor) -> NDArray[np.bool_]:
    """Whether class frequencies decide about rows of these probabilities (n, C)."""
    prior = model.votes.prior[:-1].double()
    prior = prior / prior.sum()
    most_frequent = prior[proba.argmax(1)] >= prior.max() - 1e-9
    apart = (proba.logit() - prior.logit()).abs().amax(1)
    return as_numpy(most_frequent & (apart <= math.log(LITTLE)))


@dataclass(frozen=True)
class DecisionSummary(Shown):
    """How few memories decide about rows; `print` shows a list.

    Attributes
    ----------
    rows : int
        Number of rows.
    memories : int
        Number of memories.
    repeated_memories : int
        Memories that repeat another: an overlap of 0.999, the same labels.
    memories_for_90 : float
        Memories that hold 90% of the vote, median over the rows.
    memories_for_90_high : float
        The same, 90th percentile.
    same_by_three : float
        Share of rows whose class the three strongest memories alone give.
    uniform_decides : float
        Share of rows with more than half of the vote on the uniform component.
    frequencies_decide : float
        Share of rows whose class is the most frequent one, where no odds of a class are more than 1.5
        times off its frequency.

    Examples
    --------
    >>> summary = clf.decision_summary(X_test)
    >>> summary.rows, summary.memories
    (60, 6)
    """

    rows: int
    memories: int
    repeated_memories: int
    memories_for_90: float
    memories_for_90_high: float
    same_by_three: float
    uniform_decides: float
    frequencies_decide: float

    def as_dict(self) -> dict[str, Any]:
        """Return the summary as a dict of plain values.

        Returns
        -------
        dict
            One entry per attribute.

        Examples
        --------
        >>> clf.decision_summary(X_test).as_dict()["rows"]
        60
        """
        return asdict(self)

    def facts(self) -> dict[str, str]:
        """The same for people."""
        return {
            "memories that hold 90% of the vote": f"{self.memories_for_90:.3g} (median), "
            f"{self.memories_for_90_high:.3g} (90th percentile) of {self.memories}",
            "three strongest give the class": f"{self.same_by_three:.1%} of rows",
            "uniform component decides": f"{self.uniform_decides:.1%} of rows",
            "class frequencies decide": f"{self.frequencies_decide:.1%} of rows",
            "memories that repeat another": str(self.repeated_memories),
        }

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """The facts, one sentence each."""
        return [f"{name}: {value}" for name, value in self.facts().items()]


def decision_summary(model: FittedModel, X: Any) -> DecisionSummary:
    """Summarize how many memories decide about rows, and how often none does.

    The vote of a memory is its share P(memory | x), as `explain` shows it.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier.
    X : array-like of shape (n, N)
        Rows.

    Returns
    -------
    DecisionSummary
        The summary.

    Examples
    --------
    >>> print(mn.interpret.decision_summary(model, X_test))
    memories that hold 90% of the vote: 1 (median), 2 (90th percentile) of 6
    three strongest give the class: 96.7% of rows
    uniform component decides: 3.3% of rows
    class frequencies decide: 0.0% of rows
    memories that repeat another: 0
    """
    return summarize(model, [spread(model, X)])


def summarize(model: FittedModel, parts: Sequence[Spread]) -> DecisionSummary:
    """The summary of rows that were looked at in parts."""
    needed, same, uniform, undecided = map(np.concatenate, zip(*parts, strict=True))
    middle, high = np.quantile(needed, [0.5, 0.9], method="inverted_cdf").tolist()
    return DecisionSummary(
        len(needed), model.n_memories, model.n_memories - len(model.distinct), middle, high,
        float(same.mean()), float((uniform > 0.5).mean()), float(undecided.mean()),
    )  # fmt: skip


def _spread(model: FittedModel, X: Placed) -> tuple[NDArray[Any], ...]:
    share, soft = model.shares(X).double(), model.precise_votes.labels[1:].double()
    largest, order = share.sort(dim=1, descending=True)
    needed = 1 + (largest.cumsum(1) < MOST).sum(1)
    strongest = order[:, :_STRONGEST]
    three = (share.gather(1, strongest)[..., None] * soft[strongest, :-1]).sum(1)  # (B, C)
    proba = model.log_proba(X).exp()
    same = (three.argmax(1) == proba.argmax(1)) & ~X.lost
    uniform = 1 - share.sum(1)
    return *map(as_numpy, (needed, same, uniform)), frequencies_decide(model, proba)
