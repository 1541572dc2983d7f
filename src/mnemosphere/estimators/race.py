"""The race of settings: few steps on some rows, judged by others; what falls behind is out."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset
from mnemosphere.data.normalize import METRICS
from mnemosphere.estimators.pilot import STEPS, Problem, exact_steps, hold_out, judge, problems
from mnemosphere.estimators.sample import Sample
from mnemosphere.estimators.start import Start

__all__ = [
    "FEW_LOOKS",
    "HOPELESS",
    "LOOKS",
    "MUCH_BETTER",
    "NEARLY",
    "PILOT_ROWS",
    "QUICK_LOOKS",
    "SHRINKAGES",
    "Look",
    "Race",
    "Trials",
    "scale",
]

PILOT_ROWS = 1000
_VARSIGMAS = (0.08, 0.2, 0.45, 0.7, 0.9, 1.0)
_MANY_FEATURES = 20_000  # from which on smaller ones are tried
SHRINKAGES = {"whitened": (0.5, 0.1), "weighted": (1.0, 0.5, 0.1)}
_FIRST_STEPS = 3  # of a look at part of the rows: what falls far behind does so at once
NEARLY = 1.01  # log-losses on a few hundred rows are not told apart more finely
HOPELESS = 1.15  # what the pilot finds worse by more has no place in the trials that follow
# Of the loss: what more memories have to reach for many more to be tried, and those to take part.
_BETTER, MUCH_BETTER = 0.95, 0.9
_LITTLE = 0.02  # of the loss: there is nothing to gain


class Look(NamedTuple):
    """One round of the race."""

    every: int  # which part of the rows is fitted: each of so many
    turns: tuple[int, ...]  # the hold-outs that judge
    ahead: float  # what is worse than the best by more is out
    stay: float  # share that stays at most: where all do alike, few are enough


FEW_LOOKS = (  # of few rows
    Look(1, (0,), 1.3, 1 / 3),
    Look(1, (1,), 1.15, 1 / 3),
    Look(1, (2, 3), 1.1, 1.0),
)
LOOKS = Look(1, (0,), 1.1, 1 / 3), Look(1, (1, 2), 1.1, 1.0)
QUICK_LOOKS = Look(3, (0,), 1.15, 1 / 6), Look(1, (0,), 1.1, 1 / 4), Look(1, (1, 2), 1.1, 1.0)


class _Geometry(NamedTuple):
    """What takes part with each of its ς."""

    kind: str
    shrinkage: float | None
    width: int


Trials = list[dict[str, Any]]


class Race:
    """Settings that are still in it, and all that was tried; every row has a label."""

    def __init__(
        self,
        sample: Sample,
        kinds: Sequence[str],
        widths: Sequence[int],
        n_rows: int,
        start: Start,
        varsigma: float | None,
        seed: int,
    ) -> None:
        self._n_rows, self._start, self._seed = n_rows, start, seed
        self._data: dict[str, ArrayDataset] = {}
        self._left: dict[_Geometry, dict[float, Tensor]] = {}  # ς: losses (turns, temperatures)
        self._aside: dict[_Geometry, dict[float, Tensor]] = {}  # for the fine stage to judge
        self._trials: dict[tuple[_Geometry, float], dict[str, Any]] = {}
        self._held: dict[tuple[str, int], dict[float | None, Any]] = {}
        sample = replace(sample, dtype=torch.float32)  # it only compares
        self._varsigmas = [scale(sample.rows.n_features) * vs for vs in _VARSIGMAS]
        if varsigma is not None:
            self._varsigmas = [varsigma]
        for kind in kinds:
            rows = sample.dataset("standard" if kind in METRICS else kind).rows
            self._data[kind] = ArrayDataset(rows.take(slice(0, PILOT_ROWS)))
            for shrinkage, width in itertools.product(SHRINKAGES.get(kind, (None,)), widths):
                geometry = _Geometry(kind, shrinkage, width)
                self._left[geometry] = dict.fromkeys(self._varsigmas, torch.empty(0))
        self._n_classes = sample.targets.shape[1] - 1

    def run(self, looks: Sequence[Look], wider: int | None) -> tuple[Trials, Trials]:
        """(all trials, those of settings that stayed in the race to the end).

        wider: a number of memories that may join the best after the first look at all rows.
        """
        for number, look in enumerate(looks):
            self._judge(look)
            if number == 0 and not self._more_is_better():
                wider = None
            self._drop(look)
            if wider is not None and look.every == 1:
                self._join(look.turns, wider)
                wider = None
        stayed = itertools.chain(self._left.items(), self._aside.items())
        left = [self._trials[key, vs] for key, losses in stayed for vs in losses]
        return [*self._trials.values()], left

    def _judge(self, look: Look) -> None:
        now = self._problems(
            [(key, [*own], turn) for key, own in self._left.items() for turn in look.turns],
            look.every,
        )
        found = iter(self._losses(now, STEPS if look.every == 1 else _FIRST_STEPS))
        for geometry, losses in self._left.items():
            for _, vs in itertools.product(look.turns, [*losses]):
                new = next(found)[None]
                losses[vs] = torch.cat([losses[vs].to(new), new])
            for vs, by_turn in losses.items():
                self._note(geometry, vs, by_turn)

    def _problems(
        self, asked: Sequence[tuple[_Geometry, Sequence[float], int]], every: int = 1
    ) -> list[Problem]:
        """Those of each geometry, for each of its ς, in that turn."""
        parts: list[tuple[ArrayDataset, ArrayDataset]] = []
        groups: dict[tuple[int, int, torch.Size], list[int]] = {}
        for place, ((kind, shrinkage, width), _, turn) in enumerate(asked):
            data = self._data[kind]
            if width >= self._start.n_memories:
                least = self._n_classes if self._start.from_means(data) else 2
                width = max(least, round(width * data.n_rows / max(every * self._n_rows, 1)))
            fitted, judged = self._rows_of(kind, turn)[shrinkage]
            parts.append((ArrayDataset(fitted.rows.take(slice(None, None, every))), judged))
            groups.setdefault((width, turn, parts[-1][0].rows.x.shape), []).append(place)
        found: dict[int, list[Problem]] = {}
        for (width, turn, _), places in groups.items():
            start = replace(self._start, n_memories=width, own_labels=True, learned_weights=True)
            varsigmas = [asked[place][1] for place in places]
            seed = self._seed + turn
            made = problems([parts[place] for place in places], start, varsigmas, seed)
            found |= zip(places, made, strict=True)
        return [problem for place in range(len(asked)) for problem in found[place]]

    def _losses(self, trials: list[Problem], steps: int) -> list[Tensor]:
        return judge(trials, self._start, exact_steps(self._start, steps))

    def _rows_of(
        self, kind: str, turn: int
    ) -> dict[float | None, tuple[ArrayDataset, ArrayDataset]]:
        if (kind, turn) not in self._held:
            left = [*dict.fromkeys(g.shrinkage for g in self._left if g.kind == kind)]
            generator = torch.Generator().manual_seed(self._seed)
            parts = hold_out(self._data[kind], kind, left, generator, turn=turn)
            self._held[kind, turn] = dict(zip(left, parts, strict=True))
        return self._held[kind, turn]

    def _note(self, geometry: _Geometry, vs: float, losses: Tensor) -> None:
        kind, shrinkage, width = geometry
        # Of one class, rounding may take it below zero.
        loss = max(float(losses.mean(0).amin()), 0.0)
        self._trials[geometry, vs] = {
            "stage": "pilot", "normalize": kind, "varsigma": vs, "log_loss": loss, "width": width,
            **({} if shrinkage is None else {"shrinkage": shrinkage}),
        }  # fmt: skip

    def _drop(self, look: Look) -> None:
        """Leave out what has fallen behind."""
        ranked: dict[object, list[float]] = {}
        for geometry, losses in self._left.items():
            reached = [self._trials[geometry, vs]["log_loss"] for vs in losses]
            ranked.setdefault(self._rivals(geometry), []).extend(reached)
        limits = {
            name: min(
                look.ahead * min(reached), sorted(reached)[int(look.stay * (len(reached) - 1))]
            )
            for name, reached in ranked.items()
        }
        for geometry, losses in [*self._left.items()]:
            limit = limits[self._rivals(geometry)]
            stays = {
                # Those of part of the rows are told no more.
                vs: value if look.every == 1 else torch.empty(0)
                for vs, value in losses.items()
                if not self._trials[geometry, vs]["log_loss"] > limit
            }
            self._left[geometry] = stays
        self._left = {geometry: losses for geometry, losses in self._left.items() if losses}

    def _rivals(self, geometry: _Geometry) -> object:
        """Those among which the race is: all, or where a fine stage follows those alike there."""
        if self._n_rows <= PILOT_ROWS:
            return None
        return geometry.kind in METRICS, geometry.width

    def _more_is_better(self) -> bool:
        """Whether the larger of two widths does better; so it may be where there is but one."""
        least: dict[int, float] = {}
        for (geometry, _), trial in self._trials.items():
            least[geometry.width] = min(trial["log_loss"], least.get(geometry.width, math.inf))
        few, *more = (least[width] for width in sorted(least))
        return not more or more[0] < _BETTER * few

    def _join(self, turns: tuple[int, ...], width: int) -> None:
        """Let many more memories take part, as the best has its rows, where they do far better.

        They find many small clumps of a class, and cost several times as much.
        """
        pairs = [(geometry, vs) for geometry, losses in self._left.items() for vs in losses]
        best, vs = min(pairs, key=lambda pair: self._trials[pair]["log_loss"])
        reached = self._trials[best, vs]["log_loss"]
        if reached < _LITTLE:
            return
        place = self._varsigmas.index(vs)
        near = self._varsigmas[max(0, place - 1) : place + 2]
        many = best._replace(width=width)
        now = self._problems([(many, near, turn) for turn in turns])
        found = torch.stack(self._losses(now, STEPS)).view(len(turns), len(near), -1)
        losses = dict(zip(near, found.unbind(1), strict=True))
        limit = MUCH_BETTER * reached
        losses = {vs: new for vs, new in losses.items() if float(new.mean(0).amin()) < limit}
        if losses:
            (self._aside if self._n_rows > PILOT_ROWS else self._left)[many] = losses
        for vs, new in losses.items():
            self._note(many, vs, new)


def scale(n_features: int) -> float:
    """What ς goes by where there are very many features: β_eff grows with ς²N."""
    return min(1.0, math.sqrt(_MANY_FEATURES / n_features))
