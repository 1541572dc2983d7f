"""Which rows get no class and why, which sets of classes a row gets, and how held-out rows settle both.

There are three reasons to reject a row: it resembles no memory (its novelty score is high), the odds are
against its most probable class (doubt), or the best class barely beats the average class (lead: the
centered largest logit is low, as in Hendrycks et al. 2022). Two questions are asked of them, and each has
an order of its own.

- Which rows are unlike the known ones? Each reason becomes −log of its upper tail among known rows: ranks
  up to the highest tenth, an exponential tail beyond. The rejection score is the root of the sum of their
  squares, so a row beyond the known ones in one way is rejected, however usual it is in the others.
- Which answers are right? Those of the most probable classes come first. Novel rows, whose novelty fewer
  than one known row in two hundred reaches, get no answer.

The known rows are training rows as they look to models that have not seen them. So the scores of held-out
rows depend on no held-out row but their own, and are exchangeable with those of new rows; they are taken at
the temperature of the fit. A row that is more like rows known to be out of scope than like any class is
always rejected, and promises are about the other rows.
A study of texts and images compares the first order with parts of it (docs/research/open-world.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta
from torch import Tensor

from mnemosphere.base.warnings import warn_user
from mnemosphere.fitted.model import (
    Calibration,
    FittedModel,
    Floats,
    HeldOut,
    Placed,
    Tails,
    as_numpy,
    like,
)
from mnemosphere.interpret.recall import draw
from mnemosphere.model.soft_labels import best_temperature
from mnemosphere.rows.labels import Encoded, row_weights, sample_weights
from mnemosphere.rows.rows import Rows, share_known

UNLIKE = 0.05  # rate of known rows that count as unlike all others
NOVEL = 0.01  # rate of rows that count as novel, unless another one is asked for
NEVER = 0.005  # rate of rows that get no answer, whatever accuracy is asked for
_ROUNDING = 2e-6  # of scores in single precision, relative to their size
_IMPOSSIBLE = -700.0  # log-probability: float64 has no smaller one
_TRAINED = 0.5  # share of rows that were trained on, above which they are not held out
_LEAST_ROWS = 20  # labeled rows that set a temperature
_DRAWN = 1000  # rows that tell how rare reasons are, of a model that holds no others
_TAIL, _BEYOND, _KNOTS = 0.1, 5, 21  # share of rows in a tail, at least so many; ranks of others
_LEAST = 1e-3  # mean of a tail, in units of what is not in it
_RATE = 0.05  # of rejected rows, if neither rate nor accuracy is asked for
_DIGITS = 6  # of unit rows that may be equal
_OUT = "like rows out of scope"
ASK = "ask"  # the answer to a row between known classes
_NO_LABELS = "the held-out rows had no labels: call calibrate(X, y) with labels"


# Held-out rows.


def calibrate(model: FittedModel, X: Any, y: Any = None, sample_weight: Any = None) -> FittedModel:
    """Keep the scores of held-out rows, by which rates, coverages and accuracies hold.

    Without labels the temperature stays as it is, and there are no prediction sets. Rows of weight 0
    are left out. Rates and coverages are about rows of the classes; rows labeled `OUT_OF_SCOPE` count
    in the accuracy of answers alone, as wrong ones.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N)
        Rows that were not trained on; if most of them were, a warning says so.
    y : array-like of shape (n,), default None
        Their labels.
    sample_weight : array-like of shape (n,), default None
        Weights of the rows in the temperature; None: all 1.

    Returns
    -------
    FittedModel
        The model with another calibration.

    Examples
    --------
    >>> calibrated = mn.interpret.calibrate(model, X_test, y_test)
    >>> calibrated.calibration.novelty.shape
    (60,)
    """
    stored = model.stored(X)
    sketch = model.record.trained_rows
    if sketch is not None and share_known(stored, sketch) > _TRAINED:
        told = "most of these rows were trained on, so promises will not hold for new rows"
        warn_user(f"{told}: calibrate with held-out rows")
    weight = sample_weights(sample_weight, stored.n_rows, stored.device)
    kept = torch.ones(stored.n_rows, dtype=torch.bool) if weight is None else (weight > 0).cpu()
    index, outside = torch.full((stored.n_rows,), -1), torch.zeros_like(kept)
    fitted = model.votes.temperature
    if y is not None and model.is_classifier:
        coded = model.encoded(y, stored)
        index = coded.index.cpu()
        outside = kept & (index < 0) & (coded.targets.sum(1) > 0).cpu()
        labeled = (kept & (index >= 0)).to(stored.device)
        if not bool(labeled.any()):
            raise ValueError("no row of y has a label: pass labeled rows to calibrate")
        model = _with_temperature(model, stored, coded, labeled, weight)
    rows, others = (which.nonzero()[:, 0] for which in (kept & ~outside, outside))
    if not len(rows):
        raise ValueError("no row is left to calibrate by: pass rows of the known classes")
    own, out = (stored.take(some.to(stored.device)) for some in (rows, others))
    return model.replace(calibration=_calibrated(model, fitted, own, as_numpy(index[rows]), out))


def renewed(model: FittedModel) -> FittedModel:
    """The model, calibrated by training rows that it holds; not at all if it holds none."""
    if model.held is not None:
        model = model.replace(held=_seen(model.held))
    held, own = model.held, known_rows(model)
    if held is None or own is None:
        return model.replace(calibration=None)
    out = held.take(held.scored & (held.column == len(model.classes)))
    found = _calibrated(model, held.temperature, own, as_numpy(own.column), out)
    return model.replace(calibration=replace(found, fresh=False))


def _seen(held: HeldOut) -> HeldOut:
    """The same, where rows that occur again count as seen.

    A new row may equal known ones, which the model has seen, while a fold left out several of them at once.
    So the first of equal rows stands for one that was never seen; the others are scored as the model
    scores them.
    """
    rows = as_numpy(held.x).round(_DIGITS) + 0.0  # −0 is 0
    first = np.unique([hash(row.tobytes()) for row in rows], return_index=True)[1]
    unseen = torch.zeros_like(held.novelty)
    unseen[torch.from_numpy(first)] = 1.0
    return replace(held, votes=held.votes * unseen[:, None], novelty=held.novelty * unseen)


def _calibrated(
    model: FittedModel, temperature: float, own: Rows | HeldOut, truth: NDArray[np.int64],
    outside: Rows | HeldOut,
) -> Calibration:  # fmt: skip
    """By rows of classes (−1: of one that is not known), and rows of none of them.

    temperature: at which scores are taken.
    """
    scored = model.at(temperature)
    tails = _tails(scored)
    read, known = _reading(scored, own, tails), truth >= 0
    log_p, doubt = as_numpy(read.log_p), read.doubt[known]
    best, others = log_p.argmax(1), np.zeros(0)
    if outside.n_rows:
        others = _reading(scored, outside, tails).doubt
    return Calibration(
        tails, np.sort(as_numpy(read.reasons[:, 0])), np.sort(read.score),
        -log_p[known, truth[known]], np.append(doubt, others),
        np.append((best == truth)[known], np.zeros(len(others), bool)).astype(np.int64),
        temperature, _record(scored, own, truth, best),
    )  # fmt: skip


def _record(
    model: FittedModel,
    rows: Rows | HeldOut,
    truth: NDArray[np.int64],
    best: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Of each memory, how many rows it has the largest share in, how many are right, and of what class
    most others are: see `Calibration`.
    """
    owner = owners(model, rows)
    known, good = truth >= 0, best == truth
    right = np.bincount(owner[known & good], minlength=model.n_memories)
    wrong = np.zeros((model.n_memories, len(model.classes)), np.int64)
    own = as_numpy(model.votes.p[1:, :-1].argmax(1))[owner]
    other = np.where(truth == own, best, truth)  # than that of the memory
    np.add.at(wrong, (owner[known & ~good], other[known & ~good]), 1)
    most = np.where(wrong.any(1), wrong.argmax(1), -1)
    return np.stack([right + wrong.sum(1), right, most], 1)


def owners(model: FittedModel, X: Any) -> NDArray[np.int64]:
    """The memory with the largest share in each row."""
    return as_numpy(model.standing[model.shares(X).argmax(1)])


def known_rows(model: FittedModel) -> HeldOut | None:
    """The rows of classes by which rates hold; None if a model has none."""
    if model.held is None:
        return None
    inside = model.held.scored & (model.held.column < len(model.classes))
    return model.held.take(inside) if bool(inside.any()) else None


def _with_temperature(
    model: FittedModel, stored: Rows, coded: Encoded, labeled: Tensor, weight: Tensor | None
) -> FittedModel:
    """The model at the temperature with the least log-loss of these rows, if they are enough."""
    if int(labeled.sum()) < _LEAST_ROWS:
        warn_user(
            f"{int(labeled.sum())} labeled rows are too few to set the temperature by: it stays "
            f"{model.votes.temperature:.3g}; pass {_LEAST_ROWS} or more"
        )
        return model
    setting = model.record.settings.get("class_weight")
    each = row_weights(coded, setting, weight)
    at = labeled.nonzero()[:, 0]
    rows = model.batch(stored.take(at), coded.targets[at], None if each is None else each[at])
    return model.at(best_temperature([(model.votes.at(1.0), rows)]))


def _tails(model: FittedModel) -> Tails:
    """Those of the reasons among known rows: held out in the fit, or drawn from the model.

    They depend on the model alone, so that scores of held-out rows are exchangeable with those of new
    rows.
    """
    known: HeldOut | Rows | None = known_rows(model)
    if known is None:
        rows, _ = draw(model, _DRAWN, None, torch.Generator().manual_seed(0))
        known = Rows.of(rows, model.device)
    reasons = as_numpy(rejection_reasons(model, known)[0])
    n = len(reasons)
    share = min(max(_TAIL * n, _BEYOND), max(1, n / 2)) / n
    knots = np.quantile(reasons, 1 - share ** np.linspace(0, 1, _KNOTS), axis=0).T
    margin = np.stack([_margin(own, at) for own, at in zip(reasons.T, knots, strict=True)])
    knots += margin  # a row that ties with a knot is below it, however it is rounded
    over = np.maximum(reasons - knots[:, -1], 0.0)
    mean = over.sum(0) / np.maximum((over > 0).sum(0), 1)
    least = _LEAST * np.ptp(knots, axis=1) + margin[:, -1]
    return Tails(knots, -float(np.log(share)), np.maximum(mean, least))


def held_out(model: FittedModel) -> Calibration:
    """The scores of held-out rows; ValueError if there are none."""
    found = model.calibration
    if found is None:
        raise ValueError("not calibrated since fit or the last edit: call calibrate(X, y)")
    return found


def rejection_threshold(scores: Floats, rate: float) -> float:
    """Compute the score above which at most a share `rate` of rows like these lies, on average.

    With the k-th largest of n held-out scores, k = ⌊rate·(n+1)⌋, a new row from the same distribution lies
    above it with probability at most k/(n+1) ≤ rate, whatever the distribution. Rows that tie with it are
    below. A margin for rounding is added: a score depends on its batch by a few units in the last place.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        Scores of held-out rows.
    rate : float in (0, 1)
        Share of rows that may lie above.

    Returns
    -------
    float
        The threshold.

    Raises
    ------
    ValueError
        If a score is NaN, or the rows are too few for this rate.

    Examples
    --------
    >>> round(mn.interpret.rejection_threshold(np.arange(99.0), rate=0.1))
    89
    """
    _check_shares(rate=rate)
    scores = _numbers(scores)
    rank = _rank(rate, scores.size)
    if rank < 1:
        least, got = (
            int(np.ceil(1 / rate)) - 1,
            f"got {scores.size}: pass more rows or a larger rate",
        )
        raise ValueError(f"a rate of {rate:g} needs at least {least} held-out rows, {got}")
    found = np.sort(scores)[-rank]
    return float(found + _margin(scores, found))


def _check_shares(**given: float) -> None:
    for name, value in given.items():
        if not 0 < value < 1:
            raise ValueError(f"{name} must lie between 0 and 1, got {value}")


def _numbers(scores: Any) -> NDArray[np.float64]:
    """Scores as an array (n,); ValueError if one is NaN."""
    found, n_gaps = np.asarray(scores, dtype=np.float64), np.isnan(scores).sum()
    if found.ndim != 1 or n_gaps:
        got = f"shape {found.shape} with {n_gaps} NaN"
        raise ValueError(f"scores must be one number per row, got {got}: drop rows without score")
    return found


def _rank(rate: float, n_scores: int) -> int:
    """⌊rate·(n+1)⌋. A rounding error must not cost a rank: 0.29 * 100 is 28.999999999999996."""
    return int(np.floor(rate * (n_scores + 1) * (1 + 1e-12)))


def accuracy_threshold(
    scores: Floats, right: NDArray[Any], accuracy: float, confidence_level: float = 0.95
) -> float:
    """Compute the highest score up to which answers are known to be as accurate as asked.

    A set of the lowest scores is answered. Given the scores above it, its rows are drawn
    independently from all rows with such scores, so their accuracy has an exact lower bound (Clopper
    and Pearson 1934). Sets are tested in a fixed sequence (Angelopoulos et al. 2021): an eighth, a
    quarter, half and all of the n rows, each at an eighth of the risk 1 − confidence_level; then from
    those that pass, one row more at a time, at half of the risk, up to the first that fails. With
    probability `confidence_level` over draws of the held-out rows, there is an error or the accuracy
    among new rows with scores up to the threshold is at least `accuracy`, whatever the
    distribution, provided that it falls below `accuracy` once as more rows are answered. If it falls
    below it D times, the risk is at most (1 + D)/2 times as large.

    Parameters
    ----------
    scores : ndarray of shape (n,)
        Scores of held-out rows; the lower, the more certain.
    right : array-like of bool of shape (n,)
        Whether the class that would be answered is right.
    accuracy : float in (0, 1)
        Share of the answers that must be right.
    confidence_level : float in (0, 1), default 0.95
        Probability, over draws of the held-out rows, that it is.

    Returns
    -------
    float
        The threshold; infinite if all rows can be answered.

    Raises
    ------
    ValueError
        If a score is NaN, or these rows do not support this accuracy.

    Examples
    --------
    >>> certain = np.arange(400.0)
    >>> mn.interpret.accuracy_threshold(certain, certain < 300, accuracy=0.95) < 310
    True
    """
    _check_shares(accuracy=accuracy, confidence_level=confidence_level)
    scores, right = _numbers(scores), np.asarray(right)
    if right.shape != scores.shape or not np.isin(right, (0, 1)).all():
        got = f"shape {right.shape} of {right.dtype}"
        raise ValueError(f"right must be {len(scores)} truth values, one per score, got {got}")
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    hits = np.append(0, np.cumsum(right.astype(np.int64)[order]))
    limits = np.append(ordered - _margin(scores, ordered), np.inf)  # of the first k = 0 to n rows
    answered = np.searchsorted(ordered, limits, side="right")

    def bound(share_of_risk: float) -> Floats:
        """Of the accuracy of the first k rows."""
        risk, sure = share_of_risk * (1 - confidence_level), hits[answered]
        found = beta.ppf(risk, np.maximum(sure, 1), answered - sure + 1)
        return np.where(sure > 0, found, 0.0)

    starts = np.unique(len(scores) >> np.arange(4))
    first, further = bound(1 / 8)[starts], bound(1 / 2) >= accuracy
    if first.max() < accuracy:
        raise ValueError(
            f"an accuracy of {accuracy:g} cannot be promised: {len(scores)} labeled held-out rows "
            f"support {np.floor(1000 * first.max()) / 1000:g} at most; calibrate with more rows, "
            "or ask for less"
        )
    last = starts[first >= accuracy].max()  # those from smaller sets end before it, or there
    return float(limits[last + np.append(further[last + 1 :], False).argmin()])


def _margin(scores: Floats, at: Any) -> Any:
    """Of rounding, at some of the scores."""
    middle = np.median(np.abs(scores)) if len(scores) else 0.0
    found = _ROUNDING * np.maximum(np.abs(at), max(1.0, float(middle)))
    return np.where(np.isfinite(found), found, 0.0)


# Answers.


def novelty_threshold(model: FittedModel, rate: float = NOVEL) -> float | None:
    """Return the novelty score above which a row counts as novel in exports.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    rate : float in (0, 1), default 0.01
        Share of held-out rows that exceeds it, or the least that so few rows support.

    Returns
    -------
    float or None
        The score; None if the model is not calibrated.

    Examples
    --------
    >>> clf.novelty_threshold_ > 0
    True
    """
    return None if model.calibration is None else _supported(model.calibration.novelty, rate)


def default_limit(model: FittedModel) -> float | None:
    """The rejection score above which exports reject: at a rate of 5%, or what few held-out rows support."""
    return None if model.calibration is None else _supported(model.calibration.inside, _RATE)


def _supported(scores: Floats, rate: float) -> float | None:
    return rejection_threshold(scores, max(rate, 1 / (scores.size + 1))) if scores.size else None


def rejection_reasons(model: FittedModel, X: Any) -> tuple[Tensor, Tensor]:
    """(Novelty score, log-odds against the best class, and how little it is ahead of an average one,
    (n, 3); log-probabilities of the classes and "none of them", (n, C+1)).
    """
    joint, novelty = model.class_log_joint(X).double(), model.novelty_score(X)
    if isinstance(X, HeldOut):
        joint, novelty = joint + X.votes.to(joint), novelty + X.novelty.to(novelty)
    log_p = joint.log_softmax(1).clamp_min(_IMPOSSIBLE)
    best, place = log_p[:, :-1].max(1)
    against = log_p.scatter(1, place[:, None], _IMPOSSIBLE).logsumexp(1)
    return torch.stack([novelty, against - best, log_p[:, :-1].mean(1) - best], 1), log_p


def upper_tails(tails: Tails, reasons: Tensor) -> Tensor:
    """−log of the upper tail of each reason among known rows, (n, 3)."""
    knots, mean = (torch.from_numpy(part).to(reasons) for part in (tails.values, tails.mean))
    width = knots.diff(dim=1).clamp_min(torch.finfo(knots.dtype).tiny)
    filled = ((reasons[:, :, None] - knots[:, :-1]) / width).clamp(0.0, 1.0)
    beyond = ((reasons - knots[:, -1]) / mean).clamp_min(0.0)
    return tails.level * filled.mean(2) + beyond


class _Reading(NamedTuple):
    """What is known of rows, at one temperature."""

    log_p: Tensor  # (n, C)
    reasons: Tensor  # (n, 3)
    tails: NDArray[np.float64]  # (n, 3)
    outside: NDArray[np.bool_]  # which rows are more like rows out of scope than like any class
    novel: NDArray[np.bool_]  # which are unlike all known ones, whatever accuracy is asked for
    score: NDArray[np.float64]  # the order of a rate
    doubt: NDArray[np.float64]  # the order of an accuracy: log-odds against the most probable class


def _reading(model: FittedModel, X: Any, tails: Tails) -> _Reading:
    reasons, log_p = rejection_reasons(model, X)
    own, outside = as_numpy(upper_tails(tails, reasons)), as_numpy(_outside(model, log_p))
    novel = own[:, 0] > -np.log(NEVER)
    score = np.where(outside, np.inf, np.linalg.norm(own, axis=1))
    doubt = np.where(outside | novel, np.inf, as_numpy(reasons[:, 1]))
    return _Reading(log_p[:, :-1].log_softmax(1), reasons, own, outside, novel, score, doubt)


def _outside(model: FittedModel, log_p: Tensor) -> Tensor:
    """Which rows have more votes for none of the classes than for any, (n,)."""
    return (log_p[:, -1] > log_p[:, :-1].amax(1)) & model.is_classifier


def rejection_score(model: FittedModel, X: Any) -> Floats:
    """Compute how far rows are from all known rows, or their class from being decided.

    Parameters
    ----------
    model : FittedModel
        A calibrated classifier.
    X : array-like of shape (n, N)
        Rows.

    Returns
    -------
    ndarray of shape (n,)
        The root of the sum of squares of −log of the upper tails of the reasons (novelty, doubt, lead)
        among known rows; infinite for rows more like those labeled `OUT_OF_SCOPE` than like any
        class.

    Examples
    --------
    >>> mn.interpret.rejection_score(model, X_test).shape
    (60,)
    """
    held = held_out(model)
    score = _read(model, X, held)[0].score
    found: Floats = like(X, torch.from_numpy(score))
    return found


@dataclass(frozen=True)
class Rejections:
    """Which rows are rejected, and why.

    Attributes
    ----------
    answers : ndarray of shape (n,)
        The most probable class of each row.
    second : ndarray of shape (n,)
        The one after it; the same if there is no other.
    score : ndarray of shape (n,)
        Rejection scores; the log-odds against the answer if an accuracy is asked for.
    limit : float
        The score above which a row is rejected.
    tails : ndarray of shape (n, 3)
        −log of the upper tails of novelty, doubt and lead among known rows.
    unlike : ndarray of bool of shape (n,)
        Rows whose novelty alone is enough, and at most 5% of the known rows are as novel.
    outside : ndarray of bool of shape (n,)
        Rows more like those out of scope than like any class.

    Examples
    --------
    >>> strange = X_test[:1] * [1, 1, 9, 1]
    >>> mn.interpret.rejections(model, strange).reasons
    ['unlike all known rows']
    """

    answers: NDArray[Any]
    second: NDArray[Any]
    score: NDArray[np.float64]
    limit: float
    tails: NDArray[np.float64]
    unlike: NDArray[np.bool_]
    outside: NDArray[np.bool_]

    @property
    def rejected(self) -> NDArray[np.bool_]:
        """Which rows are rejected."""
        return (self.score > self.limit) | np.isinf(self.score)

    @property
    def undecided(self) -> NDArray[np.bool_]:
        """Rejected rows that are like known ones, but between classes."""
        return self.rejected & ~self.unlike & ~self.outside

    def said(self, ask: bool = False) -> NDArray[Any]:
        """The class of each row, None for a rejected one.

        Parameters
        ----------
        ask : bool, default False
            Say "ask" in place of None for rows that are like known ones, but undecided between classes.

        Returns
        -------
        ndarray of objects of shape (n,)
            The answers.

        Examples
        --------
        >>> mn.interpret.rejections(model, X_test[:2]).said(ask=True)
        array([0, 2], dtype=object)
        """
        found: NDArray[Any] = self.answers.astype(object)
        found[self.rejected] = None
        if ask:
            found[self.undecided] = ASK
        return found

    @property
    def reasons(self) -> list[str | None]:
        """Why each row is rejected; None if it is not."""
        between = zip(self.answers, self.second, strict=True)
        told = np.array([f"undecided between {a} and {b}" for a, b in between], dtype=object)
        told[self.unlike] = "unlike all known rows"
        told[self.outside] = _OUT
        told[~self.rejected] = None
        return list(told)


def rejections(
    model: FittedModel,
    X: Any,
    rate: float | None = None,
    *,
    accuracy: float | None = None,
    confidence_level: float = 0.95,
) -> Rejections:
    """Decide which rows are rejected, by their rejection scores and those of held-out rows.

    Rows more like those labeled `OUT_OF_SCOPE` in training than like any class are always rejected.
    Rates and accuracies refer to the others. An accuracy is promised for the classes at the temperature
    of the fit, which does not depend on the rows of `calibrate`.

    Parameters
    ----------
    model : FittedModel
        A calibrated classifier.
    X : array-like of shape (n, N)
        Rows.
    rate : float in (0, 1), default None
        Share of rows like the held-out ones that may be rejected; None: 0.05, or as many as `accuracy` needs.
    accuracy : float in (0, 1), default None
        Share of the answers that must be right, instead of a rate: see `accuracy_threshold`.
    confidence_level : float in (0, 1), default 0.95
        Probability, over draws of the held-out rows, that the accuracy is kept.

    Returns
    -------
    Rejections
        Classes, which rows are rejected, and why.

    Raises
    ------
    ValueError
        If the model is not calibrated, or if too few held-out rows support this rate or accuracy.

    Examples
    --------
    >>> int(mn.interpret.rejections(model, X_test, rate=0.05).rejected.sum()) <= 3
    True
    """
    held = held_out(model)
    if accuracy is not None and rate is not None:
        raise ValueError("a rate and an accuracy are two promises: pass one of them")
    read, log_p = _read(model, X if isinstance(X, Placed) else model.stored(X), held)
    if accuracy is None:
        limit = rejection_threshold(held.inside, _RATE if rate is None else rate)
        return _rejections(model, read, log_p, limit)
    if not held.right.size:
        raise ValueError(_NO_LABELS)
    known = np.isfinite(held.doubt)
    limit = accuracy_threshold(held.doubt[known], held.right[known], accuracy, confidence_level)
    found = _rejections(model, read, read.log_p, limit)
    return replace(found, score=read.doubt, unlike=read.novel)


class Familiarity(NamedTuple):
    """Whether rows are answered at the default rate, and how familiar they are."""

    log_proba: Tensor  # (n, C) log P(y|x)
    rejected: list[str | None]  # why; without calibration, only rows out of scope are
    further_out: NDArray[np.float64]  # (n,) share of the held-out rows that are more novel, or NaN
    less_sure: NDArray[np.float64]  # (n,) the same of those that are rejected before it
    rate: float  # the share of them that is rejected


def familiarity(model: FittedModel, X: Placed) -> Familiarity:
    """Classes of rows, whether they are rejected, and how familiar they are, in one reading."""
    held, limit = model.calibration, default_limit(model)
    if held is None or limit is None:
        joint = model.class_log_joint(X).double()
        reasons = [_OUT if out else None for out in _outside(model, joint).tolist()]
        unknown = np.full(len(joint), np.nan)
        return Familiarity(joint[:, :-1].log_softmax(1), reasons, unknown, unknown, np.nan)
    read, log_p = _read(model, X, held)

    def beyond(known: Floats, own: Floats) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.searchsorted(known, own - _margin(known, own))
        return 1 - found / known.size

    return Familiarity(
        log_p, _rejections(model, read, log_p, limit).reasons,
        beyond(held.novelty, as_numpy(read.reasons[:, 0])), beyond(held.inside, read.score),
        max(_RATE, 1 / (held.inside.size + 1)),
    )  # fmt: skip


def _read(model: FittedModel, X: Any, held: Calibration) -> tuple[_Reading, Tensor]:
    """(What is known of rows at the temperature of the calibration, log P(y|x) at that of the model)."""
    own = model.at(held.temperature)
    read = _reading(own, X, held.tails)
    return read, read.log_p if own is model else model.log_proba(X)


def _rejections(model: FittedModel, read: _Reading, log_p: Tensor, limit: float) -> Rejections:
    best = as_numpy(log_p.topk(min(2, log_p.shape[1]), dim=1).indices)
    answers, second = model.classes[best[:, 0]], model.classes[best[:, -1]]
    unlike = read.tails[:, 0] > max(limit, -np.log(UNLIKE))
    return Rejections(answers, second, read.score, limit, read.tails, unlike, read.outside)


def predict_set(
    model: FittedModel, X: Any, coverage: float = 0.9, *, at_least_one: bool = True
) -> list[NDArray[Any]]:
    """Predict a set of classes for each row that contains the true one as often as asked.

    A set holds the classes with −log P(y|x) up to the k-th smallest of the n labeled held-out rows,
    k = ⌈coverage·(n+1)⌉. The true class of a new row from the same law is in it with probability at
    least `coverage` and at most `coverage` + 1/(n+1) without ties, on average over draws of the
    held-out rows (Sadinle, Lei and Wasserman 2019). With `at_least_one` the most probable class is in
    every set, and counts 0 among these numbers: the sets stay as small as coverage allows. If the
    class is right more often than asked, so is the set.

    Parameters
    ----------
    model : FittedModel
        A classifier, calibrated with labels.
    X : array-like of shape (n, N)
        Rows.
    coverage : float in (0, 1), default 0.9
        Probability that the true class is in the set.
    at_least_one : bool, default True
        Whether every set has the most probable class. Else a set may be empty: no class is as probable as
        the true classes of held-out rows are.

    Returns
    -------
    list of n ndarrays
        Labels, most probable first.

    Raises
    ------
    ValueError
        If the model is not calibrated, or without labels.

    Examples
    --------
    >>> mn.interpret.predict_set(model, X_test[:2], coverage=0.9)
    [array([0]), array([2])]
    """
    _check_shares(coverage=coverage)
    held = held_out(model)
    if not held.label.size:
        raise ValueError(_NO_LABELS)
    right = held.right[: held.label.size] > 0
    known = np.where(right & at_least_one, 0.0, held.label)
    rare = 1 - coverage
    limit = rejection_threshold(known, rare) if _rank(rare, known.size) else np.inf
    log_p = as_numpy(model.at(held.temperature).log_proba(X))
    order = np.argsort(-log_p, axis=1, kind="stable")
    sizes = np.maximum((-log_p <= limit).sum(1), int(at_least_one))
    return [model.classes[line[:size]] for line, size in zip(order, sizes, strict=True)]
