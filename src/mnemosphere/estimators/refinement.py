"""The conditional objective: a descent from the joint solution, judged by rows it never saw."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

from mnemosphere.model.kernel import log_joint
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.numerics import polytope
from mnemosphere.training.adam import Adam
from mnemosphere.training.batches import Data
from mnemosphere.training.callbacks import Callback, Record
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.loop import Result, judge, train
from mnemosphere.training.noise import SphereNoise

ALL_AGAIN = 100_000  # up to so many rows the refinement is done again with the held-out ones
_ENOUGH_HELD = 20  # rows to judge by where there are so many, a third of all otherwise
_STEPS = 50  # a pass, on data of a few thousand rows
_PASSES, _ALL_STEPS = 15, 1600  # at least so many of both
_BATCH = (32, 500)
_LONGEST = 1.0
_MARGINALS = 1e-7
_ANGLE = 0.08  # largest turn of a memory in one step, in units of `scale`


def hold_out(data: Data, fraction: float, generator: torch.Generator) -> tuple[Data, Data | None]:
    """(the rows to learn from, rows apart to judge by, or None where there would be none).

    A `fraction` of the labelled rows of each class, none of a class with less than 1/fraction;
    more where there are few rows.
    """
    fraction = max(fraction, min(1 / 3, _ENOUGH_HELD / data.n_rows))
    order = torch.randperm(data.n_rows, generator=generator).to(data.x.device)
    label = torch.where(data.targets.sum(1) > 0, data.targets.argmax(1), -1)[order]
    label, by_class = label.sort(stable=True)
    # Row r of its class, r = 1, 2, …, is held where r·fraction passes a whole number.
    first = torch.searchsorted(label, label)
    rank = (torch.arange(data.n_rows, device=label.device) - first).double()
    chosen = (((rank + 1) * fraction).floor() > (rank * fraction).floor()) & (label >= 0)
    if not bool(chosen.any()):
        return data, None
    # Rows stay in their order: what becomes of them depends on no name of a class.
    held = torch.zeros_like(chosen)
    held[order[by_class[chosen]]] = True
    return data.take(~held), data.take(held)


def scale(params: Parameters) -> float:
    """√N/β_eff, at most 1: a random turn by so much moves the exponent of a memory by about 1.

    Of a random direction across the row a part of about 1/√N lies along any one memory, and the
    exponent is β_eff⟨w, x⟩. It is the unit of noise and of a step.
    """
    return min(_LONGEST, math.sqrt(params.n_features) / float(params.beta_eff))


@dataclass(frozen=True)
class Settings:
    """How to refine."""

    passes: int | None  # None: 15, more on small data
    patience: int
    noise: float | None  # σ; None: `scale`
    learn_beta: bool
    validation_fraction: float
    generator: torch.Generator
    callbacks: Sequence[Callback] = ()
    checkpoint: Path | None = None  # of the joint run; those of later parts lie beside it

    def beside(self, suffix: str) -> Path | None:
        """A checkpoint for a later part of the run."""
        path = self.checkpoint
        return None if path is None else path.with_name(path.name + suffix)


class Outcome(NamedTuple):
    """What training came to."""

    params: Parameters
    history: tuple[Record, ...]
    status: str
    lineage: Lineage | None


def gains(old: Parameters, new: Parameters, held: Data, rule: LabelRule) -> bool:
    """Whether the loss of the held-out rows falls beyond chance and no more of them are wrong.

    Beyond chance: by two standard errors of the mean difference, row by row.
    """
    before, after = (rule(log_joint(params, held.x), held.targets)[0] for params in (old, new))
    weight = torch.ones_like(before) if held.sample_weight is None else held.sample_weight
    share = (weight / weight.sum()).double()
    fall = (before - after).double()
    mean = (share * fall).sum()
    error = (share * (fall - mean)).norm()  # √Σ share²·deviation²
    right = [judge(params, held, rule)[1] or 0.0 for params in (old, new)]
    return bool(mean > 2 * error) and right[1] >= right[0]


def descend(
    params: Parameters,
    data: Data,
    held: Data | None,
    rule: LabelRule,
    settings: Settings,
    suffix: str,
    *,
    stop: int | None = None,
) -> Result:
    """Descend `rule` from `params` by Adam with noise; best is what suits the held-out rows best.

    `stop` ends the run after so many of its passes.
    """
    size = min(max(data.n_rows // _STEPS, _BATCH[0]), _BATCH[1])
    unit, steps = scale(params), math.ceil(data.n_rows / size)
    passes = settings.passes or max(_PASSES, math.ceil(_ALL_STEPS / steps))
    solver = Adam(
        passes * steps,
        angle=_ANGLE * unit,
        batch_size=size,
        learn_beta=settings.learn_beta,
        # On a GPU a step that asks for nothing can be replayed, many times faster; the marginals
        # are put right at the end.
        tolerance=None if data.x.is_cuda else _MARGINALS,
    )
    length = unit if settings.noise is None else settings.noise
    result = train(
        params,
        data,
        solver,
        rule=rule,
        max_epochs=passes if stop is None else stop,
        validation=held,
        # Steps get smaller towards the end, which is where most is gained: no haste.
        patience=None if held is None else max(settings.patience, passes // 3),
        generator=settings.generator,
        callbacks=settings.callbacks,
        checkpoint=settings.beside(suffix),
        noise=SphereNoise(length) if length > 0 else None,
    )
    if not data.x.is_cuda:
        return result
    best = result.params
    log_p = best.p.clamp_min(torch.finfo(best.p.dtype).tiny).log()
    p = polytope.sinkhorn(log_p, best.p_h, best.p_q, tol=_MARGINALS).p
    return replace(result, params=best.replace(p=p))


def refine(
    joint: Callable[[Data, Path | None], Outcome], data: Data, rule: LabelRule, settings: Settings
) -> Outcome:
    """Find the joint solution and refine it where rows apart gain by it.

    `joint` solves for the rows it is given, with a checkpoint of its own. The rows that judge take
    no part in the joint solution that the refinement starts from. If they gain nothing, the joint
    solution of all rows is what remains. If they do, and there are few rows, the refinement is
    done again with all of them, for as many passes as were best.
    """
    rows, held = hold_out(data, settings.validation_fraction, settings.generator)
    if held is None:
        return joint(data, settings.checkpoint)
    start = joint(rows, settings.checkpoint)
    if start.status == "interrupted":
        return start

    first = descend(start.params, rows, held, rule, settings, ".refine")
    history = _joined(start.history, first.history)
    gained = gains(start.params, first.params, held, rule)
    best = Outcome(first.params if gained else start.params, history, first.status, start.lineage)
    if first.status == "interrupted" or (gained and data.n_rows > ALL_AGAIN):
        return best

    whole = joint(data, settings.beside(".all"))
    history = _joined(history, whole.history)
    if not gained:
        return whole._replace(history=history)
    if whole.status == "interrupted":
        return best._replace(history=history, status=whole.status)
    losses = [record.validation_loss or math.inf for record in first.history]
    stop = 1 + losses.index(min(losses))
    again = descend(whole.params, data, None, rule, settings, ".again", stop=stop)
    history = _joined(history, again.history)
    if again.status == "interrupted":
        return best._replace(history=history, status=again.status)
    return Outcome(again.params, history, first.status, whole.lineage)


def _joined(before: tuple[Record, ...], after: tuple[Record, ...]) -> tuple[Record, ...]:
    """One history, whose phases go on counting."""
    last = max((record.phase for record in before), default=-1)
    return (*before, *(replace(record, phase=record.phase + last + 1) for record in after))
