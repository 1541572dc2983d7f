"""What each feature did in one decision: parts of overlaps, and of the odds of two classes.

A row u on the sphere is linear in the features but for its length, u = v/‖v‖, so an overlap ⟨w, u⟩
is a sum over features. A part of every soft label repeats the class frequencies: no class is
impossible, however far its memories are. Let g' be soft labels without that part
(`class_reading.frequency_part`), F_y = log Σ_μ p_μ g'_μy exp(h_μ) what the memories of class y say,
and m_y = Σ_μ r_μ w_μ these memories by their shares r in it. For the odds of two classes a and b

    log P(a|x)/P(b|x) = β_eff Σ_i (m_a − m_b)_i (u_i − (m_a + m_b)_i/2) + weights + frequencies,

so feature i speaks for the class whose memories are nearer to the row along i, by half the
difference of the squared distances; β_eff (m_a − m_b) is the gradient of F_a − F_b. The weights are
the rest of F_a − F_b: how heavy the memories are, how far apart, and their soft labels. The
frequencies are what is left: they limit the odds. The sum is exact. If no memory has a class of its
own, m_y is that of all memories with any of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.data.encoding import written
from mnemosphere.data.normalize import Normalizer
from mnemosphere.model.class_reading import frequency_part
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.metric import relevances, strongest_pairs
from mnemosphere.model.parameters import memory_name
from mnemosphere.model.scores import Scores
from mnemosphere.model.votes import Votes
from mnemosphere.text import format_table, html_table

Floats = NDArray[np.float64]
_SHOWN = 10
_PAIRS = 3
_MANY, _TEN = 1000, 9.5  # odds that are not told closely; those that are whole numbers


class Source(NamedTuple):
    """What an explanation rests on: the model that decided, and rows as they were given."""

    votes: Votes
    normalizer: Normalizer
    values: Tensor  # (n, N), missing values filled in
    given: Tensor  # (n, N), NaN where missing
    feature_names: list[str]
    kinds: list[str]  # what they are: numbers, dates, …
    typical: NDArray[Any] | None  # (P, N) values of the features that memories stand for


@dataclass(frozen=True)
class FeatureContributions:
    """One decision seen feature by feature: why the predicted class and not the runner-up.

    Positions are in standard deviations of the training rows with normalize="standard", else in units
    of the root mean square of the row. Memories are shown by the mean of the training rows that they stand
    for, else as directions at the length of the row. `print` shows a table.

    Attributes
    ----------
    names : list of N str
        Features.
    predicted : object
        The predicted class.
    runner_up : object
        The second most probable class.
    memory : list of k str
        Names of the memories.
    value : ndarray of shape (N,)
        The row as given. For a missing value it is NaN, and the other numbers are about the value that
        the memories expect.
    written : list of N str
        The values as text.
    position : ndarray of shape (N,)
        Position of the row.
    memories : ndarray of shape (k, N)
        Positions of the memories.
    predicted_position : ndarray of shape (N,)
        Mean position of the memories of the predicted class, by their shares.
    runner_up_position : ndarray of shape (N,)
        The same for the runner-up.
    predicted_value : ndarray of shape (N,)
        Mean value of the rows that the memories of the predicted class stand for, in the units of the
        features; NaN if it is not known.
    runner_up_value : ndarray of shape (N,)
        The same for the runner-up.
    contribution : ndarray of shape (k, N)
        Parts of the overlaps.
    constant : ndarray of shape (k,)
        Part of the coordinate that normalize="standard" appends; else 0.
    difference : ndarray of shape (N,)
        Parts of the log-odds of the predicted class against the runner-up.
    difference_constant : float
        Part of that coordinate.
    difference_rest : float
        Part of the memories themselves: weights, spread, soft labels.
    difference_frequencies : float
        Part of the class frequencies in soft labels, which limit the odds.
    difference_missing : float
        Part of not knowing the missing values: the probabilities average over them.
    log_odds : float
        The sum of the last five.
    relevance : ndarray of shape (N,)
        How much each feature counts in the metric, 1 on average.
    pairs : list of (str, str, float)
        The features that count together most in the metric, if there is one.
    kinds : list of N str
        What the features are: numbers, dates, ….

    Examples
    --------
    >>> parts = clf.explain(X_test[:1]).features()
    >>> total = parts.difference.sum() + parts.difference_constant
    >>> total += parts.difference_rest + parts.difference_frequencies + parts.difference_missing
    >>> bool(np.isclose(total, parts.log_odds))
    True
    """

    names: list[str]
    predicted: object
    runner_up: object
    memory: list[str]
    value: Floats
    written: list[str]
    position: Floats
    memories: Floats
    predicted_position: Floats
    runner_up_position: Floats
    predicted_value: Floats
    runner_up_value: Floats
    contribution: Floats
    constant: Floats
    difference: Floats
    difference_constant: float
    difference_rest: float
    difference_frequencies: float
    difference_missing: float
    log_odds: float
    relevance: Floats
    pairs: list[tuple[str, str, float]]
    kinds: list[str] = field(default_factory=list, repr=False)

    def as_dicts(self) -> list[dict[str, Any]]:
        """List the features as dicts, the largest difference first.

        Returns
        -------
        list of N dicts
            Name, value, positions, difference and parts of the overlaps.

        Examples
        --------
        >>> parts = clf.explain(X_test[:1]).features()
        >>> sorted(parts.as_dicts()[0])[:3]
        ['difference', 'feature', 'overlap_#0']
        """
        return [
            {
                "feature": self.names[i],
                "value": None if np.isnan(self.value[i]) else float(self.value[i]),
                "position": float(self.position[i]),
                "predicted_position": float(self.predicted_position[i]),
                "runner_up_position": float(self.runner_up_position[i]),
                "difference": float(self.difference[i]),
                "relevance": float(self.relevance[i]),
                **{f"overlap_{m}": float(c[i]) for m, c in
                   zip(self.memory, self.contribution, strict=True)},
            }
            for i in self.order()
        ]  # fmt: skip

    @property
    def relevance_rank(self) -> NDArray[np.int64]:
        """Rank of each feature in the metric, 1 for the most relevant, ndarray of int of shape (N,)."""
        found: NDArray[np.int64] = 1 + np.argsort(np.argsort(-self.relevance, kind="stable"))
        return found

    def order(self) -> list[int]:
        """Order the features by the difference that they made, the largest first.

        Returns
        -------
        list of N int
            Numbers of the features.

        Examples
        --------
        >>> parts = clf.explain(X_test[:1]).features()
        >>> parts.order()[0] == int(abs(parts.difference).argmax())
        True
        """
        return [int(i) for i in np.argsort(-np.abs(self.difference), kind="stable")]

    def table(self, most: int = _SHOWN) -> list[dict[str, str]]:
        """The features that made the largest difference, for people."""
        order = self.order()
        shown, others = order[:most], order[most:]
        overlap = f"overlap {self.memory[0]}"

        typical = not np.isnan(self.predicted_value).all()  # in the features' own units
        heads = [*(["relevance rank"] if self.pairs else []), *([] if typical else ["input"])]
        heads += ["predicted", "runner-up"]

        def line(name: str, part: float | None, difference: float, *cells: str) -> dict[str, str]:
            value, relevance, *positions = cells or ("",) * (4 if typical else 5)
            shown = [*([relevance] if self.pairs else []), *positions]
            return {
                "feature": name, "value": value, **dict(zip(heads, shown, strict=True)),
                overlap: "" if part is None else f"{part:+.3f}", "difference": f"{difference:+.2f}",
            }  # fmt: skip

        lines = [
            line(
                self.names[i], self.contribution[0, i], self.difference[i], self.written[i],
                str(self.relevance_rank[i]),
                *(
                    (written(self.predicted_value[i], self.kinds[i]),
                     written(self.runner_up_value[i], self.kinds[i]))
                    if typical
                    else (f"{self.position[i]:+.2f}", f"{self.predicted_position[i]:+.2f}",
                          f"{self.runner_up_position[i]:+.2f}")
                ),
            )
            for i in shown
        ]  # fmt: skip
        if others:
            parts = self.contribution[0, others].sum(), self.difference[others].sum()
            lines.append(line(f"others ({len(others)})", *parts))
        if self.constant.any():
            lines.append(line("(being average)", self.constant[0], self.difference_constant))
        lines.append(line("(soft labels)", None, self.difference_rest))
        if abs(self.difference_frequencies) >= 0.005:
            lines.append(line("(class frequencies)", None, self.difference_frequencies))
        if self.difference_missing:
            lines.append(line("(missing values)", None, self.difference_missing))
        overlaps = self.contribution[0].sum() + self.constant[0]
        return [*lines, line("sum", overlaps, self.log_odds)]

    def __str__(self) -> str:
        together = f"\n{self.together}" if self.pairs else ""
        return f"{self.title}\n{format_table(self.table(), 100)}{together}"

    def _repr_html_(self) -> str:
        """The table for a notebook."""
        together = f"<p>{escape(self.together)}</p>" if self.pairs else ""
        return f"<p><b>{escape(self.title)}</b></p>{html_table(self.table())}{together}"

    @property
    def together(self) -> str:
        """The pairs of features that count together most, in a line; empty without a metric."""
        said = (f"{a} {'+' if value > 0 else '−'} {b} ({value:+.2f})" for a, b, value in self.pairs)
        return f"counting together: {', '.join(said)}" if self.pairs else ""

    @property
    def title(self) -> str:
        """What the table says, in a line."""
        return (
            f"why {self.predicted} rather than {self.runner_up}: "
            f"odds {_odds(self.log_odds)}, log-odds {self.log_odds:+.2f}"
        )


def _odds(log_odds: float) -> str:
    odds = float(np.exp(min(log_odds, _MANY)))
    if odds >= _MANY:
        return f"over {_MANY} to 1"
    return f"{odds:.0f} to 1" if odds >= _TEN else f"{odds:.2g} to 1"


def _without_frequencies(votes: Votes, order: tuple[int, int]) -> Votes:
    """Votes whose soft labels are net of class frequencies, if both classes have memories."""
    rest = frequency_part(votes)[1]
    if not bool((rest.sum(0)[list(order)] > 0).all()):
        return votes
    p = torch.cat([rest, torch.zeros_like(rest[:, :1])], 1) * votes.weights[:, None]
    return votes.replace(p=p)


def feature_contributions(
    source: Source, row: int, memory: NDArray[Any], classes: NDArray[Any], order: tuple[int, int],
    proba: Floats,
) -> FeatureContributions:  # fmt: skip
    """One row's decision; memory (k,), order: places of the predicted class and the runner-up.

    proba (C,) of the row as it is; features are those of the row with its missing values filled in.
    """
    votes, normalizer = source.votes.to(dtype=torch.float64), source.normalizer
    x = source.values[row : row + 1].to(votes.w.device).to_dense()
    n = x.shape[1]
    u, lost = normalizer(x)
    v = torch.where(lost[:, None], 0.0, normalizer.coordinates(x))  # (1, N')
    length = (normalizer.pull_back(u) * v).sum()
    unit = length if normalizer.extra and length > 0 else torch.full_like(length, n**0.5)
    v = v / torch.where(length > 0, length, 1.0)
    back, own = normalizer.pull_back(votes.w), normalizer.preimage(votes.w)
    shown = torch.from_numpy(memory).to(u.device)
    value: Floats = source.given[row].to_dense().double().cpu().numpy()
    contribution = v * back[shown]  # (k, N')
    toward, mean, said, values = [], [], [], []
    typical = None if source.typical is None else torch.from_numpy(source.typical).to(u.device)
    centre, scale, shown_at = normalizer.mean, normalizer.scale, unit * own[:, :n]
    by_rows = typical is not None and centre is not None and scale is not None
    if typical is not None and centre is not None and scale is not None:
        shown_at = (typical - centre.to(u.device)) / scale.to(u.device)
    speaking = _without_frequencies(votes, order)
    for column in order:
        scores = Scores(speaking, column, 1)(u, slice(None))  # (1, P+1)
        share = scores.softmax(1)[:, 1:]
        mean.append(share @ own)
        toward.append(votes.slope * (share @ back) * (v - mean[-1] / 2))
        said.append(float(scores.logsumexp(1)))
        values.append(share / share.sum() if by_rows else share)
    log_joints = votes.prior.clamp_min(1e-300).log() if bool(lost) else log_joint(votes, u)[0]
    filled_odds = float(log_joints[order[0]] - log_joints[order[1]])
    top, second = np.log(np.maximum(proba[[*order]], 1e-300))
    log_odds = float(top - second) if np.isnan(value).any() else filled_odds
    difference = torch.where(lost[:, None], 0.0, toward[0] - toward[1])[0]  # (N',)
    memories_odds = 0.0 if bool(lost) else said[0] - said[1]

    def value_of(share: Tensor) -> Floats:
        if typical is None:
            return np.full(n, np.nan)
        found: Floats = (share @ typical / share.sum())[0].cpu().numpy()
        return found

    metric = None if normalizer.metric is None else normalizer.metric[:, :n]
    called, pairs = source.feature_names, [] if metric is None else strongest_pairs(metric, _PAIRS)
    return FeatureContributions(
        names=source.feature_names,
        predicted=classes[order[0]],
        runner_up=classes[order[1]],
        memory=[memory_name(m) for m in memory],
        value=value,
        written=list(map(written, value.tolist(), source.kinds)),
        position=(unit * v[0, :n]).cpu().numpy(),
        memories=shown_at[shown].cpu().numpy(),
        predicted_position=(values[0] @ shown_at)[0].cpu().numpy(),
        runner_up_position=(values[1] @ shown_at)[0].cpu().numpy(),
        predicted_value=value_of(values[0]),
        runner_up_value=value_of(values[1]),
        kinds=source.kinds,
        contribution=contribution[:, :n].cpu().numpy(),
        constant=contribution[:, n:].sum(1).cpu().numpy(),
        difference=difference[:n].cpu().numpy(),
        difference_constant=float(difference[n:].sum()),
        difference_rest=memories_odds - float(difference.sum()),
        difference_frequencies=filled_odds - memories_odds,
        difference_missing=log_odds - filled_odds,
        log_odds=log_odds,
        relevance=np.ones(n) if metric is None else relevances(metric).cpu().numpy(),
        pairs=[(called[i], called[j], value) for i, j, value in pairs],
    )
