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

On circles a memory is a function of each column rather than a row that could occur. There the average
training row takes the place of (m_a + m_b)/2: a column contributes as much as it differs from its
average, and one that is missing has no part, but scales the others. The parts of all coordinates of a column, and
of all numbers of a category, are added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.text import Shown, Table
from mnemosphere.fitted.model import FittedModel, as_numpy
from mnemosphere.model.class_reading import frequency_part
from mnemosphere.model.kernel import log_joint
from mnemosphere.model.parameters import memory_name
from mnemosphere.model.scores import Scores
from mnemosphere.model.votes import Votes
from mnemosphere.rows.encoding import written
from mnemosphere.rows.features import Line

Floats = NDArray[np.float64]
_RANK, _STANDARD = "rank among training rows", "standard units"
_SHOWN = 10
_LEAST = 0.005  # part of class frequencies that is shown
_MANY, _TEN = 1000, 9.5  # odds that are not told closely; those that are whole numbers


class Source(NamedTuple):
    """What an explanation rests on: the model that decided, and rows as they were given."""

    model: FittedModel
    values: Tensor  # (n, N), missing values filled in
    given: Tensor  # (n, N), NaN where missing


class Summand(NamedTuple):
    """One part of an overlap and of log-odds."""

    name: str
    overlap: float | None  # None: the overlap has no such part
    difference: float
    feature: int = -1  # its number; −1: no single feature


@dataclass(frozen=True)
class FeatureContributions(Shown):
    """One decision seen feature by feature: why the predicted class and not the runner-up.

    Positions are in standard deviations of the training rows with normalize="standard" and "whitened",
    ranks among the training rows with normalize="circles", else in units of the root mean square of the
    row. Memories are shown by the mean of the training rows that they stand for, else as directions at
    the length of the row. A category is one feature, without a position. `print` shows a table.

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
        The row as given, NaN for a category. For a missing value it is NaN, and the other numbers are
        about the value that the memories expect; with normalize="circles" it has no part.
    written : list of N str
        The values as text.
    typical : list of N pairs of str
        `predicted_value` and `runner_up_value` as text; empty if they are not known.
    unit : str
        Unit of the positions.
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
        Part of the coordinate that normalize="standard" and "whitened" append; else 0.
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
    typical: list[tuple[str, str]]
    unit: str
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
                "value": self._value(i),
                "position": _or_none(self.position[i]),
                "predicted_position": _or_none(self.predicted_position[i]),
                "runner_up_position": _or_none(self.runner_up_position[i]),
                "difference": float(self.difference[i]),
                **{f"overlap_{m}": float(c[i]) for m, c in
                   zip(self.memory, self.contribution, strict=True)},
            }
            for i in self.order()
        ]  # fmt: skip

    def _value(self, i: int) -> float | str | None:
        if not np.isnan(self.value[i]):
            return float(self.value[i])
        return None if self.written[i] == written(np.nan) else self.written[i]

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

    def summands(self, most: int = _SHOWN) -> list[Summand]:
        """What adds up to overlap and log-odds: the strongest features, the others, the rest."""
        order = self.order()
        shown, others = order[:most], order[most:]
        part, difference = self.contribution[0], self.difference
        found = [Summand(self.names[i], float(part[i]), float(difference[i]), i) for i in shown]
        if others:
            rest = float(part[others].sum()), float(difference[others].sum())
            found.append(Summand(f"others ({len(others)})", *rest))
        if self.constant.any():
            constant = float(self.constant[0])
            found.append(Summand("(being average)", constant, self.difference_constant))
        # On circles it is what an average row would get.
        name = "(average row)" if self.unit == _RANK else "(soft labels)"
        found.append(Summand(name, None, self.difference_rest))
        if abs(self.difference_frequencies) >= _LEAST:
            found.append(Summand("(class frequencies)", None, self.difference_frequencies))
        if self.difference_missing:
            found.append(Summand("(missing values)", None, self.difference_missing))
        return found

    def table(self, most: int = _SHOWN) -> Table:
        """The features that made the largest difference, for people."""
        heads = ["predicted", "runner-up"] if self.typical else ["input", "predicted", "runner-up"]
        overlap = self.contribution[0].sum() + self.constant[0]
        lines = []
        for name, part, difference, i in (
            *self.summands(most),
            Summand("sum", overlap, self.log_odds),
        ):
            cells = dict.fromkeys(["value", *heads], "")
            if i >= 0:
                places = self.position, self.predicted_position, self.runner_up_position
                told = self.typical[i] if self.typical else [_told(at[i]) for at in places]
                cells = dict(zip(cells, [self.written[i], *told], strict=True))
            cells[f"overlap {self.memory[0]}"] = "" if part is None else f"{part:+.3f}"
            lines.append({"feature": name, **cells, "difference": f"{difference:+.2f}"})
        return lines

    def parts(self, width: int, most: int | None = None) -> list[str | Table]:
        """What the table says, and the table."""
        return [self.title, self.table()]

    @property
    def title(self) -> str:
        """What the table says, in a line."""
        return (
            f"why {self.predicted} rather than {self.runner_up}: "
            f"odds {_odds(self.log_odds)}, log-odds {self.log_odds:+.2f}"
        )


def _alone(values: Floats, lines: list[Line]) -> Floats:
    """Values of numbers (k, N) as those of features; NaN for a category."""
    found = [
        np.nan * values[:, 0] if own.categories else values[:, own.place.start] for own in lines
    ]
    return np.stack(found, 1)


def _or_none(value: float) -> float | None:
    return None if np.isnan(value) else float(value)


def _told(position: float) -> str:
    return "" if np.isnan(position) else f"{position:+.2f}"


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
    source: Source, row: int, memory: NDArray[Any], order: tuple[int, int], proba: Floats
) -> FeatureContributions:
    """One row's decision; memory (k,), order: places of the predicted class and the runner-up.

    proba (C,) of the row as it is; features are those of the row with its missing values filled in.
    """
    model = source.model
    votes, normalizer = model.precise_votes.to(dtype=torch.float64), model.normalizer
    x = source.values[row : row + 1].to(votes.w.device).to_dense().double()
    n = x.shape[1]
    u, lost = normalizer.place(x)
    v, length = normalizer.parts(x)
    reference = normalizer.reference(x)
    back, own = normalizer.pull_back(votes.w), normalizer.preimage(votes.w)
    shown = torch.from_numpy(memory).to(u.device)
    given: Floats = source.given[row].to_dense().double().cpu().numpy()
    contribution, constant = normalizer.per_feature(v / length * back[shown])  # (k, N), (k,)
    toward, said, shares = [], [], []
    speaking = _without_frequencies(votes, order)
    for column in order:
        scores = Scores(speaking, column, 1)(u, slice(None))  # (1, P+1)
        share = scores.softmax(1)[:, 1:]
        start = (share @ own) / 2 if reference is None else reference / length
        toward.append(votes.slope * (share @ back) * (v / length - start))
        said.append(float(scores.logsumexp(1)))
        shares.append(share)
    log_joints = votes.prior.clamp_min(1e-300).log() if bool(lost) else log_joint(votes, u)[0]
    filled_odds = float(log_joints[order[0]] - log_joints[order[1]])
    top, second = np.log(np.maximum(proba[[*order]], 1e-300))
    filled = np.isnan(given).any() and not bool(x.isnan().any())
    log_odds = float(top - second) if filled else filled_odds
    parts = torch.where(lost[:, None], 0.0, toward[0] - toward[1])[0]  # (N',)
    difference, apart = normalizer.per_feature(parts)
    memories_odds = 0.0 if bool(lost) else said[0] - said[1]
    lines, known_values = model.features.lines, model.typical_values

    def summed(values: Tensor) -> Floats:
        """Parts of numbers (…, N) as those of features."""
        found = values.cpu().numpy()
        return np.stack([found[..., line.place].sum(-1) for line in lines], -1)

    places, at = n**0.5 * own[:, :n], n**0.5 * v[:, :n] / length
    values, typical = np.full((2, n), np.nan), []
    share = torch.cat(shares)
    if known_values is not None:
        known = torch.from_numpy(known_values).to(share)
        mean = share / share.sum(1, keepdim=True)
        values = as_numpy(mean @ known)
        typical = [(line.written(values[0]), line.written(values[1])) for line in lines]
        if normalizer.units is not None:
            share, places, at = mean, normalizer.positions(known), normalizer.positions(x)
    position, (near, far) = _alone(as_numpy(at), lines), _alone(as_numpy(share @ places), lines)
    return FeatureContributions(
        names=[line.name for line in lines],
        predicted=model.classes[order[0]],
        runner_up=model.classes[order[1]],
        memory=[memory_name(m) for m in memory],
        value=_alone(given[None], lines)[0],
        written=[line.written(given) for line in lines],
        typical=typical,
        unit=_RANK if normalizer.has_curves else _STANDARD,
        position=position[0],
        memories=_alone(as_numpy(places[shown]), lines),
        predicted_position=near,
        runner_up_position=far,
        predicted_value=_alone(values[:1], lines)[0],
        runner_up_value=_alone(values[1:], lines)[0],
        contribution=summed(contribution),
        constant=constant.cpu().numpy(),
        difference=summed(difference),
        difference_constant=float(apart),
        difference_rest=memories_odds - float(parts.sum()),
        difference_frequencies=filled_odds - memories_odds,
        difference_missing=log_odds - filled_odds,
        log_odds=log_odds,
    )
