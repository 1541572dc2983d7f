"""Normalization and ς of wide models: many memories, many rows, no refinement.

There ς goes by how many memories share a row. With memories on P random rows, P^0.18 of them (3.5
of 1000) is within a few percent of the best ς on most data, in every geometry and for every P.
Classes without clumps want rows to be shared by more: ratios of that ς take part.

There are two looks. In the first, memories are judged as they start, on rows and with their
labels: of the geometries, the best with a metric and the best without go on, unless one is far
behind. In the second they take one pass, as training begins; exact steps would leave memories on
the rows they start on. The best geometry is chosen, and the largest ratio that does nearly as well
as its best. As many memories take part as a small part of a pass over all rows allows, so that
both looks together cost less than one.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.data.normalize import METRICS
from mnemosphere.estimators import pilot
from mnemosphere.estimators.pilot import HELD, LEAST_VARSIGMA, hold_out, judge, problems
from mnemosphere.estimators.race import HOPELESS, NEARLY, SHRINKAGES, Trials
from mnemosphere.estimators.sample import Sample
from mnemosphere.estimators.start import Start
from mnemosphere.model.batch import Batch
from mnemosphere.model.parameters import Parameters
from mnemosphere.training.side_by_side import joint_pass

__all__ = ["choose_wide", "rows_for_wide"]

_SHARING = 0.18  # P to that power share a row
_RATIOS = 1.0, 0.71, 0.5, 0.35
_CLEARLY = 1.15  # rows are to be shared by more where that is so much better
_BOUNDED = 0.9  # the ς up to which β is bounded, whatever the rows
_NOISE = 0.02  # of a loss on a few hundred rows
_PROBED = 200  # rows that are shared
_LEAST, _MOST, _ROWS_EACH = 100, 500, 4  # memories that take part, and rows for each of them
_JUDGED = 400  # rows, or as many as are fitted where these are more
_PART = 0.02  # of a pass, that one trial costs


class _Geometry(NamedTuple):
    kind: str
    shrinkage: float | None

    @property
    def is_metric(self) -> bool:
        return self.kind in METRICS


_Parts = dict[_Geometry, tuple[ArrayDataset, ArrayDataset]]  # rows to fit, rows to judge by


@dataclass(frozen=True)
class _Setting:
    """What all trials have in common."""

    start: Start
    varsigma: float | None
    seed: int

    def judge(
        self,
        parts: _Parts,
        units: Mapping[_Geometry, float],
        n_memories: int,
        ratios: Sequence[float],
        *,
        trained: bool,
    ) -> dict[_Geometry, Trials]:
        """A trial of each ratio of each geometry: memories as they start, or after one pass."""
        by_shape: dict[torch.Size, list[_Geometry]] = {}
        for geometry, (fitted, _) in parts.items():
            by_shape.setdefault(fitted.rows.x.shape, []).append(geometry)
        trials: dict[_Geometry, Trials] = {}
        tried = []
        for (n_rows, *_), group in by_shape.items():
            start = replace(self.start, n_memories=min(n_memories, n_rows), own_labels=True)
            for geometry in group:
                trials[geometry] = [
                    self.trial(geometry, ratio, ratio * units[geometry]) for ratio in ratios
                ]
            values = [[trial["varsigma"] for trial in trials[geometry]] for geometry in group]
            made = problems([parts[geometry] for geometry in group], start, values, self.seed)
            tried += [problem for own in made for problem in own]
        one_pass = functools.partial(joint_pass, learn_beta=self.start.beta is None)
        losses = iter(judge(tried, self.start, one_pass if trained else _as_they_start))
        for trial in itertools.chain.from_iterable(trials.values()):
            # Of one class, rounding may take it below zero.
            trial["log_loss"] = max(float(next(losses).amin()), 0.0)
        return trials

    def unit(self, fitted: Batch, judged: Batch, n_memories: int) -> float:
        """The ς that ratios are of."""
        if self.varsigma is not None:
            return self.varsigma
        n_memories = min(n_memories, fitted.n_rows)
        start = replace(self.start, n_memories=n_memories)
        some = judged.take(slice(0, _PROBED))
        return pilot.shared_varsigma(fitted, some, start, float(n_memories**_SHARING))

    def trial(self, geometry: _Geometry, ratio: float, varsigma: float) -> dict[str, Any]:
        """The settings of a trial, without its loss."""
        kind, shrinkage = geometry
        if self.varsigma is None:
            varsigma = round(max(varsigma, LEAST_VARSIGMA), 4)
        return {
            "stage": "pilot", "normalize": kind, "varsigma": varsigma, "ratio": ratio,
            "width": self.start.n_memories,
            **({} if shrinkage is None else {"shrinkage": shrinkage}),
        }  # fmt: skip


def rows_for_wide(n_memories: int) -> int:
    """So many rows, of classes that are raced, are enough for a model of so many memories."""
    return max(2 * _ROWS_EACH * _MOST, _rows_to_share(n_memories))


def choose_wide(
    sample: Sample,
    raced: Sample,
    n_rows: int,
    kinds: Sequence[str],
    start: Start,
    varsigma: float | None,
    seed: int,
) -> tuple[Trials, dict[str, Any]]:
    """(all trials, the best of them with the ς for all memories).

    sample: of n_rows rows. raced: those of it that are tried, of some of its classes.
    """
    all_classes = raced is sample
    sample, raced = (replace(s, dtype=torch.float32) for s in (sample, raced))  # it only compares
    setting = _Setting(start, varsigma, seed)
    affordable = math.isqrt(int(_PART * n_rows * start.n_memories / _ROWS_EACH))
    # As many as the raced classes have of all.
    most = max(1, round(start.n_memories * raced.rows.n_rows / sample.rows.n_rows))
    n_memories = min(most, max(_LEAST, min(affordable, _MOST)))
    n_fitted = _ROWS_EACH * max(n_memories, _LEAST)
    some = raced.first(n_fitted + max(_JUDGED, n_fitted))
    share = max(HELD, 1 - n_fitted / some.rows.n_rows)
    parts = _parts(some, _geometries(kinds), share, seed)
    ratios = _RATIOS if varsigma is None else _RATIOS[:1]
    units = {
        g: setting.unit(fitted.rows, judged.rows, n_memories)
        for g, (fitted, judged) in parts.items()
    }
    first = setting.judge(parts, units, n_memories, ratios[:1], trained=False)
    near = {geometry: parts[geometry] for geometry in _leaders(first)}
    found = setting.judge(near, units, n_memories, ratios, trained=True)
    geometry = _preferred({g: _least(own) for g, own in found.items()})
    ratio = _steady(found[geometry])
    fitted, judged = parts[geometry]
    if not all_classes or fitted.n_rows < start.n_memories:
        some = sample.first(_rows_to_share(start.n_memories))
        fitted, judged = _parts(some, [geometry], HELD, seed)[geometry]
    unit = setting.unit(fitted.rows, judged.rows, start.n_memories)
    trials = [trial for own in (first | found).values() for trial in own]
    return trials, setting.trial(geometry, ratio, ratio * unit)


def _rows_to_share(n_memories: int) -> int:
    """A row for each memory, and some for them to share."""
    return math.ceil(max(_PROBED / HELD, n_memories / (1 - HELD)))


def _as_they_start(params: Parameters, _: Batch) -> Parameters:
    return params


def _geometries(kinds: Sequence[str]) -> list[_Geometry]:
    return [_Geometry(kind, amount) for kind in kinds for amount in SHRINKAGES.get(kind, (None,))]


def _parts(sample: Sample, geometries: Iterable[_Geometry], share: float, seed: int) -> _Parts:
    """Rows to fit and rows to judge by, as each geometry has them."""
    parts: _Parts = {}
    normalized = functools.cache(sample.dataset)  # a metric is of standardized rows
    for kind, group in itertools.groupby(geometries, lambda geometry: geometry.kind):
        own = [*group]
        data = normalized("standard" if kind in METRICS else kind)
        generator = torch.Generator().manual_seed(seed)
        amounts = [geometry.shrinkage for geometry in own]
        held = hold_out(data, kind, amounts, generator, share=share, dtype=sample.dtype)
        parts |= zip(own, held, strict=True)
    return parts


def _least(trials: Trials) -> float:
    return min(float(trial["log_loss"]) for trial in trials)


def _steady(trials: Trials) -> float:
    """The largest ratio that does nearly as well as the best; near ς = 1 it has to be the best.

    There nothing bounds β: of memories with few rows it comes out far too large.
    """
    least = _least(trials)
    return max(
        float(trial["ratio"])
        for trial in trials
        if trial["log_loss"] <= (least if trial["varsigma"] > _BOUNDED else _CLEARLY * least)
    )


def _preferred(losses: dict[_Geometry, float]) -> _Geometry:
    """The best, within 1% the simplest."""
    limit = NEARLY * min(losses.values())
    return next(geometry for geometry, loss in losses.items() if loss <= limit)


def _leaders(found: dict[_Geometry, Trials]) -> list[_Geometry]:
    """The best without a metric and the best with one, unless far behind."""
    losses = {geometry: _least(trials) for geometry, trials in found.items()}
    limit = HOPELESS * min(losses.values()) + _NOISE
    groups = ({g: v for g, v in losses.items() if g.is_metric == kind} for kind in (False, True))
    return [_preferred(own) for own in groups if own and min(own.values()) <= limit]
