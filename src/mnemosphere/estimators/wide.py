"""Normalization and ς of wide models: many memories, many rows, no refinement.

There ς goes by how many memories share a row. With memories on P random rows, P^0.18 of them (3.5
of 1000) is within a few percent of the best ς on most data, in every geometry and for every P.
Classes without clumps want rows to be shared by more: ratios of that ς take part, and the largest
counts that does nearly as well. Trials have few memories at first, and all geometries; one with a
metric and one without go on to more. The last have half of the memories, and only where they have
something to decide: all together cost less than a pass over many rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.data.normalize import METRICS
from mnemosphere.estimators import pilot
from mnemosphere.estimators.pilot import HELD, LEAST_VARSIGMA, STEPS, hold_out, judge, problems
from mnemosphere.estimators.race import FIRST_STEPS, HOPELESS, NEARLY, SHRINKAGES, Trials
from mnemosphere.estimators.sample import Sample
from mnemosphere.estimators.start import Start
from mnemosphere.model.batch import Batch

__all__ = ["FINE_CLASSES", "choose_wide"]

FINE_CLASSES = 100  # that take part in the last trials

_SHARING = 0.18  # P to that power share a row
_RATIOS = 1.0, 0.71, 0.5, 0.35
_CLEARLY = 1.07  # rows are to be shared by more where that is so much better
_FAR = 1.3  # what is worse by more tells nothing
_NOISE = 0.02  # of a loss on a thousand rows
_PROBED = 500  # rows that are shared
_PILOT_ROWS, _PILOT_FITTED, _PILOT_MEMORIES, _THIRD = 2000, 800, 200, 3
_ROWS, _FITTED, _SHARE = 6000, 4000, 0.4  # of the last trials; of fewer rows, a share is fitted
_MEMORIES = 0.5  # of all, that they have


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

    @property
    def ratios(self) -> tuple[float, ...]:
        return _RATIOS if self.varsigma is None else (1.0,)

    def unit(self, fitted: Batch, judged: Batch, n_memories: int) -> float:
        """The ς that ratios are of."""
        if self.varsigma is not None:
            return self.varsigma
        n_memories = min(n_memories, fitted.n_rows)
        start = replace(self.start, n_memories=n_memories)
        some = judged.take(slice(0, _PROBED))
        return pilot.shared_varsigma(fitted, some, start, float(n_memories**_SHARING))

    def judge(
        self,
        parts: _Parts,
        ratios: Mapping[_Geometry, Sequence[float]],
        n_memories: int,
        steps: int,
        stage: str,
    ) -> dict[_Geometry, Trials]:
        """A trial of each ratio of each geometry, with so many memories."""
        by_shape: dict[tuple[int, ...], list[_Geometry]] = {}
        for geometry in ratios:
            by_shape.setdefault((*parts[geometry][0].rows.x.shape,), []).append(geometry)
        trials: dict[_Geometry, Trials] = {}
        tried = []
        for (n_rows, *_), group in by_shape.items():
            start = replace(
                self.start, n_memories=min(n_memories, n_rows), own_labels=True,
                learned_weights=True,
            )  # fmt: skip
            for geometry in group:
                fitted, judged = parts[geometry]
                unit = self.unit(fitted.rows, judged.rows, start.n_memories)
                trials[geometry] = [
                    self.trial(geometry, stage, ratio, ratio * unit) for ratio in ratios[geometry]
                ]
            values = [[trial["varsigma"] for trial in trials[geometry]] for geometry in group]
            made = problems([parts[geometry] for geometry in group], start, values, self.seed)
            tried += [problem for own in made for problem in own]
        losses = iter(judge(tried, self.start, steps))
        for trial in (trial for own in trials.values() for trial in own):
            # Of one class, rounding may take it below zero.
            trial["log_loss"] = max(float(next(losses).amin()), 0.0)
        return trials

    def trial(
        self, geometry: _Geometry, stage: str, ratio: float, varsigma: float
    ) -> dict[str, Any]:
        """The settings of a trial, without its loss."""
        kind, shrinkage = geometry
        if self.varsigma is None:
            varsigma = round(max(varsigma, LEAST_VARSIGMA), 4)
        return {
            "stage": stage, "normalize": kind, "varsigma": varsigma, "ratio": ratio,
            "width": self.start.n_memories,
            **({} if shrinkage is None else {"shrinkage": shrinkage}),
        }  # fmt: skip


def choose_wide(
    sample: Sample,
    raced: Sample,
    kinds: Sequence[str],
    start: Start,
    varsigma: float | None,
    seed: int,
    *,
    doubtful: bool,
) -> tuple[Trials, dict[str, Any]]:
    """(all trials, the best of them with the ς for all memories).

    raced: the rows of the pilot, some of the sample. doubtful: the pilot sees a small part of the
    rows, and may favor a metric: one that it finds far ahead has still to win the last trials.
    """
    sample, raced = (replace(s, dtype=torch.float32) for s in (sample, raced))  # it only compares
    setting = _Setting(start, varsigma, seed)
    trials, found = _pilot(raced.first(_PILOT_ROWS), kinds, setting)
    near = _hopeful(found, doubtful=doubtful)
    sample = sample.first(_ROWS)
    parts: _Parts = {}
    if len(near) > 1 or min(near.values()) < 1:
        found, parts = _last_trials(sample, near, setting)
        trials += [trial for own in found.values() for trial in own]
        near = {geometry: _steady(found[geometry]) for geometry in _leaders(found, of_all=True)}
    ((geometry, ratio),) = near.items()
    if geometry not in parts:
        if not geometry.is_metric:  # a few rows for the memories to share
            sample = sample.first(math.ceil(max(_PROBED / HELD, start.n_memories / (1 - HELD))))
        parts = _parts(sample, [geometry.kind], HELD, seed, geometry.shrinkage)
    fitted, judged = parts[geometry]
    unit = setting.unit(fitted.rows, judged.rows, start.n_memories)
    return trials, setting.trial(geometry, "fine", ratio, ratio * unit)


def _pilot(
    rows: Sample, kinds: Sequence[str], setting: _Setting
) -> tuple[Trials, dict[_Geometry, Trials]]:
    """(all trials, those of the best geometry with a metric and of the best without)."""
    share = max(HELD, 1 - _PILOT_FITTED / rows.rows.n_rows)
    parts = _parts(rows, kinds, share, setting.seed)
    third: _Parts = {
        geometry: (ArrayDataset(fitted.rows.take(slice(None, None, _THIRD))), judged)
        for geometry, (fitted, judged) in parts.items()
    }
    n_memories = min(setting.start.n_memories, _PILOT_MEMORIES)
    few = max(2, n_memories // _THIRD)
    first = setting.judge(third, dict.fromkeys(parts, setting.ratios), few, FIRST_STEPS, "pilot")
    left = {geometry: _not_far(first[geometry]) for geometry in _leaders(first)}
    found = setting.judge(parts, left, n_memories, STEPS, "pilot")
    trials = {
        (geometry, trial["ratio"]): trial
        for look in (first, found)
        for geometry, own in look.items()
        for trial in own
    }
    return [*trials.values()], found


def _last_trials(
    sample: Sample, near: dict[_Geometry, float], setting: _Setting
) -> tuple[dict[_Geometry, Trials], _Parts]:
    """(trials of half of the memories, the rows they had where no class was left out)."""
    some = sample
    if sample.targets.shape[1] - 1 > FINE_CLASSES:
        some = sample.of_classes(FINE_CLASSES)
    n_rows = sample.rows.n_rows
    fitted = _FITTED if n_rows >= _ROWS else _SHARE * n_rows
    parts: _Parts = {}
    for kind, shrinkage in near:
        parts |= _parts(some, [kind], 1 - fitted / n_rows, setting.seed, shrinkage)
    # Of few rows a smaller ς looks better than it is: 1 takes part, too.
    ratios = {geometry: [*dict.fromkeys([ratio, 1.0])] for geometry, ratio in near.items()}
    half = _MEMORIES * setting.start.n_memories * some.rows.n_rows / n_rows
    found = setting.judge(parts, ratios, max(1, round(half)), STEPS, "fine")
    return found, parts if some is sample else {}


def _parts(
    sample: Sample,
    kinds: Sequence[str],
    share: float,
    seed: int,
    shrinkage: float | None = None,
) -> _Parts:
    """Rows to fit and rows to judge by, as each geometry has them; shrinkage: only that one."""
    parts: _Parts = {}
    normalized = functools.cache(sample.dataset)  # a metric is of standardized rows
    for kind in kinds:
        data = normalized("standard" if kind in METRICS else kind)
        amounts = SHRINKAGES.get(kind, (None,)) if shrinkage is None else (shrinkage,)
        generator = torch.Generator().manual_seed(seed)
        held = hold_out(data, kind, amounts, generator, share=share)
        parts |= zip((_Geometry(kind, amount) for amount in amounts), held, strict=True)
    return parts


def _least(trials: Trials) -> float:
    return min(float(trial["log_loss"]) for trial in trials)


def _not_far(trials: Trials) -> list[float]:
    """The ratios whose loss is not far behind."""
    limit = _FAR * _least(trials) + _NOISE
    return [trial["ratio"] for trial in trials if trial["log_loss"] <= limit]


def _steady(trials: Trials) -> float:
    """The largest ratio that does nearly as well as the best."""
    limit = _CLEARLY * _least(trials)
    return max(float(trial["ratio"]) for trial in trials if trial["log_loss"] <= limit)


def _leaders(found: dict[_Geometry, Trials], *, of_all: bool = False) -> list[_Geometry]:
    """The best with a metric and without, or the best of all; within 1% the simplest."""
    groups: dict[bool, dict[_Geometry, float]] = {}
    for geometry, trials in found.items():
        groups.setdefault(geometry.is_metric and not of_all, {})[geometry] = _least(trials)
    leaders = []
    for group in groups.values():
        limit = NEARLY * min(group.values())
        leaders.append(next(geometry for geometry, loss in group.items() if loss <= limit))
    return leaders


def _hopeful(found: dict[_Geometry, Trials], *, doubtful: bool) -> dict[_Geometry, float]:
    """Those that may yet be the best, with their ratios."""
    limit = HOPELESS * min(map(_least, found.values())) + _NOISE
    return {
        geometry: _steady(trials)
        for geometry, trials in found.items()
        if _least(trials) <= (math.inf if doubtful and not geometry.is_metric else limit)
    }
