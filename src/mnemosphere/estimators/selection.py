"""What `"auto"` means: memories, normalization and ς, chosen from the data.

Models of so many labeled rows that none is refined are the subject of `wide`. Else, where every row
has a label, this is the rule in full. A pilot on at most 1000 rows judges by the log-loss of the
class on held-out rows, at the temperature that suits them. It tries every normalization that gives
nearly all rows a direction ("whitened" with two amounts of shrinkage, not where rows have gaps;
"weighted", of fewer than 150 features, with three), each with six ς and, where the number of
memories is "auto", with two widths: that of `choose_n_memories`, and two per class where the first
look has 1.7 times as many of the former. Hold-outs take turns, and what falls behind the best by
more than 10% (30 and 15% at first), or is not in the best third (sixth, quarter), is out; from 400
rows on, where a refinement is quick, the first turn fits a third of the rows with a third of the
memories, in three steps instead of five. Classes of many small clumps need more memories: unless
two per class do nearly as well, one for two rows, at most 1000, takes part after the first look at
all rows, if it is 10% ahead of the best, whose loss is not below 0.02 already, and has to stay so.
Where there are more rows than the pilot has, the best of each width, with a metric and without, are
tried on at most 5000 rows unless 15% behind (of more than 10,000 rows all of them, of texts and few
labels on 10,000), and the best of them with neighbors of its ς as long as the loss falls: the best
ς grows with the number of memories, and of rows. Where that stage follows, the pilot has at most 40
classes, and from 12 on one hold-out less; the stage itself has at most 100. Between normalizations
within 1% of each other the simpler goes first.

Where some rows have no label, ς is set by the rows themselves: to the β_eff at which a row is
shared by a few memories, the scale on which labels will spread among them. The normalization is
judged the way training will go, each fifth of the labels left out in turn, if there are 20 (else
the first of center, unit and standard). With 500 labels the second stage goes on from there; fewer
would judge too little.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.data.normalize import METRICS, NORMALIZATIONS
from mnemosphere.data.rows import StoredRows
from mnemosphere.estimators.pilot import (
    LEAST_VARSIGMA,
    ROWS_PER_MEMORY,
    HoldOut,
    held_out_loss,
    judge_partly,
)
from mnemosphere.estimators.race import (
    FEW_LOOKS,
    HOPELESS,
    LOOKS,
    MUCH_BETTER,
    NEARLY,
    PILOT_ROWS,
    QUICK_LOOKS,
    Race,
    Trials,
    scale,
)
from mnemosphere.estimators.sample import Sample, labeled_in_turn
from mnemosphere.estimators.start import MANY_FEATURES, Start
from mnemosphere.estimators.wide import choose_wide, rows_for_wide
from mnemosphere.model.sparse_rows import SparseRows

MAX_MEMORIES = 1000
MANY_CLASSES = 40  # from which on there is no refinement
_SEVERAL_CLASSES = 12  # from which on the pilot's last look takes one hold-out
QUICK_ROWS, _QUICK_WORK = 10_000, 3 * 10**8
_ROOT_OF, _MANY_PER_CLASS = 40, 20  # √(40·1000) is a fifth of 1000
FINE_ROWS, MANY_FINE_ROWS = 5000, 10_000
FINE_CLASSES = 100  # that take part in the second stage
_FEW_PER_CLASS, _WIDER = 2, 1.7  # what has so many times as many is told apart
_ROWS_OF_WIDE, _WIDE_WORK = 2.5, 10**7  # rows per memory
_SMALL = 400  # rows
_FINE_STEP = 1.19
_PILOT_LABELS, _FINE_LABELS = 20, 500  # fewer tell nothing; only where other rows have no label


@dataclass(frozen=True)
class Choice:
    """What was chosen, and the table it was chosen from."""

    normalize: str
    varsigma: float
    n_memories: int
    shrinkage: float | None  # of the metric, where the normalization has one
    trials: tuple[dict[str, Any], ...]


def takes_long(n_rows: int, n_memories: int, n_features: int, n_classes: int) -> bool:
    """Whether each pass does, beside what it gains: many classes, or few rows for each memory."""
    wide = _ROWS_OF_WIDE * n_memories > n_rows
    work = n_rows * n_memories * (n_features + n_classes)
    return n_classes >= MANY_CLASSES or (wide and work > _WIDE_WORK)


def is_quick(n_rows: int, n_memories: int, n_columns: int) -> bool:
    """Whether a refinement takes seconds; n_columns: features and classes."""
    return n_rows <= QUICK_ROWS and n_rows * n_memories * n_columns <= _QUICK_WORK


def choose_n_memories(n_rows: int, n_classes: int, n_features: int = 0) -> int:
    """A fifth of the rows, at least two per class, at most 1000 and at most one per row.

    From 1000 rows on as the root of their number, or 20 per class, where a refinement is quick
    then: it does without the others.
    """
    wanted = n_rows // ROWS_PER_MEMORY
    few = max(math.isqrt(_ROOT_OF * n_rows), _MANY_PER_CLASS * n_classes)
    if is_quick(n_rows, few, n_features + n_classes):
        wanted = min(wanted, few)
    return max(1, min(max(wanted, 2 * n_classes), MAX_MEMORIES, n_rows))


def _more_memories(n_rows: int, n_classes: int, n_features: int, n_memories: int) -> int | None:
    """One for two rows, at most 1000; None where that is not many more, or costs the refinement."""
    more, columns = min(n_rows // 2, MAX_MEMORIES), n_features + n_classes
    refined = n_classes < MANY_CLASSES and is_quick(n_rows, n_memories, columns)
    slow = refined and not is_quick(n_rows, more, columns)
    return None if slow or more < _WIDER * n_memories else more


def choose(
    rows: StoredRows,
    targets: Tensor,
    sample_weight: Tensor | None,
    start: Start,
    *,
    normalize: str,
    varsigma: float | None,
    n_memories: int | None,
    seed: int,
    dtype: torch.dtype,
) -> Choice:
    """Choose what is 'auto' (normalize) or None; what is given stays as it is."""
    labeled = targets.sum(1) > 0
    order = torch.randperm(rows.n_rows, generator=torch.Generator().manual_seed(seed))
    order = order.to(targets.device)
    n_labeled = int(labeled.sum())
    partly = n_labeled < rows.n_rows
    if partly:
        order = labeled_in_turn(order, labeled)
    is_sparse = isinstance(rows.values, SparseRows)
    if is_sparse and normalize in METRICS:
        raise ValueError(
            f"normalize={normalize!r} would fill sparse rows: pass normalize='unit' or dense rows"
        )
    n_classes = targets.shape[1] - 1
    quick = is_quick(rows.n_rows, start.n_memories, rows.n_features + n_classes)
    wider = None
    if n_memories is None and not partly:
        wider = _more_memories(rows.n_rows, n_classes, rows.n_features, start.n_memories)
    refined = quick and not takes_long(rows.n_rows, start.n_memories, rows.n_features, n_classes)
    wide = rows.n_rows > PILOT_ROWS and not (partly or refined or start.refined or wider)

    def sampled(number: int) -> Sample:
        some = order[:number]
        weight = None if sample_weight is None else sample_weight[some]
        return Sample(rows.take(some), targets[some], weight, dtype)

    # A refinement does best from the smaller ς that fewer rows call for.
    many = rows.n_rows > QUICK_ROWS and not start.refined
    most = MANY_FINE_ROWS if many else FINE_ROWS
    enough = rows_for_wide(start.n_memories) * -(-n_classes // MANY_CLASSES)
    sample = sampled(min(most, enough) if wide else most)
    kinds = [normalize]
    if normalize == "auto":
        kinds = sample.usable(metrics=not is_sparse and not partly)
    if wide and rows.n_features + 1 >= MANY_FEATURES:
        wide = not start.from_means(sample.first(PILOT_ROWS).dataset(kinds[0]))
        sample = sample if wide else sampled(most)
    raced = sample
    if n_classes > MANY_CLASSES and rows.n_rows > PILOT_ROWS and not partly:
        raced = sample.of_classes(MANY_CLASSES)
    looks = FEW_LOOKS if raced.rows.n_rows < _SMALL else QUICK_LOOKS if quick else LOOKS
    if rows.n_rows > PILOT_ROWS and n_classes >= _SEVERAL_CLASSES:  # the next stage judges again
        looks = (*looks[:-1], looks[-1]._replace(turns=looks[-1].turns[:1]))
    widths = [start.n_memories]
    if n_memories is None and not partly:
        share = min(1.0, PILOT_ROWS / rows.n_rows) / looks[0].every
        few = _FEW_PER_CLASS * n_classes
        # In its first look a large model has few memories too: then it tells nothing of small ones.
        widths = [few, start.n_memories] if _WIDER * few <= share * start.n_memories else widths
    if wide:
        widths = widths[-1:]  # where rows are shared by many of them, they do as well as few
    settled = kinds[0] not in METRICS and varsigma is not None and len(widths) == 1
    settled = settled and wider is None
    # What was asked for can leave no row a direction: then there is nothing to judge by.
    if len(kinds) == 1 and (settled or not sample.dataset(kinds[0]).n_rows):
        return Choice(kinds[0], varsigma or 1.0, start.n_memories, None, ())
    if partly and n_labeled < _PILOT_LABELS:  # too few to judge by
        kinds = kinds[:1]

    if wide:
        trials, best = choose_wide(sample, raced, rows.n_rows, kinds, start, varsigma, seed)
        return _choice(best, trials)
    if partly:
        trials = []
        for kind in kinds:
            more = sample.dataset(kind)
            data = ArrayDataset(more.rows.take(slice(0, PILOT_ROWS)))
            found = judge_partly(data, more, start, varsigma, seed)
            trials.append({"stage": "pilot", "normalize": kind, "width": start.n_memories, **found})
        contenders = trials
    else:
        race = Race(raced, kinds, widths, rows.n_rows, start, varsigma, seed)
        trials, contenders = race.run(looks, wider)
    if rows.n_rows > PILOT_ROWS and not (partly and n_labeled < _FINE_LABELS):
        fine, best = _fine_stage(sample, rows.n_rows, contenders, start, varsigma, seed)
        trials = [*trials, *fine]
    else:
        best = _preferred(contenders)
    return _choice(best, trials)


def _choice(best: dict[str, Any], trials: Trials) -> Choice:
    return Choice(
        best["normalize"], float(best["varsigma"]), int(best["width"]), best.get("shrinkage"),
        tuple(trials),
    )  # fmt: skip


def _fine_stage(
    sample: Sample,
    n_rows: int,
    contenders: list[dict[str, Any]],
    start: Start,
    varsigma: float | None,
    seed: int,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """(trials, the best) on more rows and at full width: geometries, then ς around the best.

    A pilot of few memories favors a metric that makes up for them.
    """
    every = sample.rows.n_rows
    labeled = bool((sample.targets.sum(1) > 0).all())  # else others belong to no class
    if labeled and sample.targets.shape[1] - 1 > FINE_CLASSES:
        sample = sample.of_classes(FINE_CLASSES)
    share = sample.rows.n_rows / every
    trials: list[dict[str, Any]] = []
    sample = replace(sample, dtype=torch.float32)  # it only compares

    @functools.cache
    def held_out(kind: str, shrinkage: float | None) -> HoldOut:
        data = sample.dataset("standard" if kind in METRICS else kind)
        return HoldOut.of(data, kind, shrinkage, seed)

    def trial(like: dict[str, Any], vs: float) -> dict[str, Any]:
        wide = replace(start, n_memories=round(share * like["width"]))
        data = held_out(like["normalize"], like.get("shrinkage"))
        loss = held_out_loss(data, wide, vs)
        trials.append(like | {"stage": "fine", "varsigma": vs, "log_loss": loss})
        return trials[-1]

    firsts = _firsts(contenders)
    # Of many rows, the pilot sees a small part and has a handful of memories.
    hopeless = HOPELESS if n_rows <= QUICK_ROWS else math.inf
    usual = [t for t in firsts if t["width"] <= start.n_memories]
    more = [t for t in firsts if t["width"] > start.n_memories]
    # The pilot has a part of the memories: many more may do better there, and not with all.
    best = _preferred([trial(t, t["varsigma"]) for t in _within(hopeless, usual, usual)])
    for found in _within(hopeless, more, firsts):
        wide = trial(found, found["varsigma"])
        best = wide if wide["log_loss"] < MUCH_BETTER * best["log_loss"] else best
    if varsigma is not None:
        return trials, best
    least = LEAST_VARSIGMA * scale(sample.rows.n_features)
    return trials, _climb(lambda vs: trial(best, vs), best, least)


def _firsts(contenders: Trials) -> Trials:
    """The best with a metric and without, of each width."""
    groups: dict[tuple[bool, int], Trials] = {}
    for found in contenders:
        groups.setdefault((found["normalize"] in METRICS, found["width"]), []).append(found)
    return [_preferred(group) for group in groups.values()]


def _within(factor: float, trials: Trials, rivals: Trials) -> Trials:
    """Those whose loss is at most so many times the least of the rivals."""
    # Of one class the loss is 0, of which infinitely many times are no number.
    limit = factor * max(min(t["log_loss"] for t in rivals), sys.float_info.min)
    return [t for t in trials if t["log_loss"] <= limit]


def _preferred(trials: list[dict[str, Any]]) -> dict[str, Any]:
    """The best trial; of normalizations that do nearly as well, the simpler first."""
    best = {}
    for kind in NORMALIZATIONS:
        mine = [t for t in trials if t["normalize"] == kind]
        if mine:
            # Rounded, so that where the loss is flat the smoothest wins and not the last bit.
            best[kind] = min(mine, key=lambda t: round(float(t["log_loss"]), 3))
    limit = NEARLY * min(float(t["log_loss"]) for t in best.values())
    return next(t for t in best.values() if t["log_loss"] <= limit)


def _climb(
    trial: Callable[[float], dict[str, Any]], first: dict[str, Any], least: float
) -> dict[str, Any]:
    """Follow a falling loss upwards in ς, or downwards if it rises at once, by steps of 19%."""
    best = first
    for step in (_FINE_STEP, 1 / _FINE_STEP):
        moved = False
        while least < best["varsigma"] < 1.0 or not moved:
            vs = min(1.0, max(least, round(step * best["varsigma"], 4)))
            if vs == best["varsigma"]:
                break
            other = trial(vs)
            if not other["log_loss"] < best["log_loss"]:
                break
            best, moved = other, True
        if moved:
            break
    return best
