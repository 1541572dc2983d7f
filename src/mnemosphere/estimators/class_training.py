"""How a classifier is trained: the choice of what is "auto", then the joint or the conditional likelihood.

inputs -> prepare  what is "auto"; unit rows
       -> train    votes and density, as a model
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from mnemosphere.base.machine import check_memory
from mnemosphere.estimators import choice
from mnemosphere.estimators.choice import Choice
from mnemosphere.estimators.inputs import FitInputs
from mnemosphere.estimators.settings import Sample, has_few_kinds
from mnemosphere.estimators.setup import (
    as_model,
    place,
    precision_of,
)
from mnemosphere.fitted.model import FittedModel, HeldOut
from mnemosphere.geometry import Geometry
from mnemosphere.model.batch import Batch
from mnemosphere.model.copies import merge_duplicates
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import log_joint
from mnemosphere.model.retrieval import novelty_score
from mnemosphere.model.soft_labels import (
    MEAN_OF,
    best_temperature,
    label_frequencies,
    label_shares,
    mean_shares,
    net_class_weights,
    training_temperature,
)
from mnemosphere.rows.rows import sort_and_merge_duplicates
from mnemosphere.training import stacked
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.distributed import current
from mnemosphere.training.sgd import SGD
from mnemosphere.training.train import train as train_spec

HELD_OUT_FROM = 20_000  # of so many rows, some are kept from training for the temperature
_MOST_KEPT, _MOST_NUMBERS = 2000, 1 << 20  # held-out rows that a model keeps
_COPIES = 5  # of memories and class weights that training holds at once: gradients, state, best
_GOLDEN_RATIO = 0.6180339887498949  # its multiples fill [0, 1) evenly
_FEW_MEMORIES = 200  # as many are counted for that: few models of small data have more


class Prepared(NamedTuple):
    """Everything that is "auto" settled."""

    dataset: ArrayDataset  # the rows on the sphere
    geometry: Geometry  # how they were put there
    choice: Choice


def prepare(inputs: FitInputs) -> Prepared:
    """Settle what is "auto", and put the rows on the sphere."""
    settings, given = inputs.settings, inputs.leveled[1]
    every, distinct = sort_and_merge_duplicates(given, inputs.targets, inputs.weight)
    stored, targets, _ = distinct
    most = settings.n_memories or min(stored.n_rows, choice.MOST_ROWS // choice.ROWS_PER_MEMORY)
    # A pass has two products with the features and three with the classes.
    numbers = stored.n_numbers + 3 * targets.numel() // 2
    numbers = max(numbers, stored.n_rows * min(most, _FEW_MEMORIES))
    dtype = precision_of(settings.precision, numbers)
    # Before memories are made: can so many be held?
    each = _COPIES * (stored.n_features + 1 + targets.shape[1]) * dtype.itemsize
    check_memory(each * int(most), stored.device, f"n_memories={most}", "use fewer memories")
    few_kinds = has_few_kinds(every[0].n_rows, stored.n_rows)
    sample = Sample(*(every if few_kinds else distinct), torch.float32)
    with torch.inference_mode():
        chosen: Choice = current().on_rank0(
            partial(choice.choose, sample, settings, inputs.progress)
        )
    spec = chosen.spec
    if settings.n_memories is None and spec.n_memories > stored.n_rows:
        spec = replace(spec, n_memories=stored.n_rows)  # of distinct rows
        chosen = replace(chosen, spec=spec)
    sample = Sample(*distinct, torch.float32) if few_kinds else sample
    if stored.levels:
        sample, given = sample.cross_fitted(), sample.odds.of_others(given)
    sample = replace(sample, dtype=dtype)
    if not spec.unlabeled and not bool(sample.labeled.all()):
        sample = sample.take(sample.labeled.nonzero()[:, 0])
    dataset, geometry = place(inputs, spec.geometry, sample, given, unlabeled=spec.unlabeled)
    if few_kinds:  # held-out rows are copies of its rows, not these
        dataset = replace(dataset, number=None)
    return Prepared(dataset, geometry, chosen)


def train(inputs: FitInputs) -> FittedModel:
    """Choose, then train what was chosen."""
    settings, (dataset, geometry, chosen) = inputs.settings, prepare(inputs)
    spec, temperature, whole = chosen.spec, chosen.temperature, dataset
    generator = torch.Generator().manual_seed(inputs.seed)
    held: ArrayDataset | None = None
    if dataset.n_rows > HELD_OUT_FROM and not dataset.has_unlabeled():
        dataset, held = dataset.split(choice.HELD / dataset.n_rows, generator=generator)
    mass = dataset.label_mass()
    known = label_frequencies(mass, settings.smoothing)
    frequencies = label_frequencies(mass + dataset.mass_set_aside, settings.smoothing)
    joint = spec.objective == "joint"
    run = train_spec(
        dataset, spec, solver=settings.solver, growth=settings.growth, varsigma=settings.varsigma,
        beta=settings.beta, uniform_weight=settings.uniform_weight, max_iter=settings.max_iter,
        generator=generator, callbacks=inputs.callbacks,
    )  # fmt: skip
    targets_of_their_own = not joint and not isinstance(settings.solver, SGD)
    smoothing = 0.0 if targets_of_their_own else settings.smoothing
    p = net_class_weights(run.params, smoothing, frequencies, run.counts)
    params, share, seen = run.params, None, dataset.sample(MEAN_OF, generator=generator)
    if run.lineage is None:
        params, p = merge_duplicates(params, p)
    if not joint:
        share = mean_shares(params, p, seen, known)
    votes, interrupted = params.with_classes(p, frequencies, share), run.status == "interrupted"
    if held is None:
        temperature = max(temperature, training_temperature(votes, seen))
    elif not interrupted:
        parts = (part.take(part.targets.sum(1) > 0) for part in held.batches(None))
        temperature = best_temperature([(votes, part) for part in parts])
    sample, said, folds = chosen.held or (None, None, ())
    votes, density = votes.at(temperature), params
    others: Sequence[Mixture] = [fold.votes for fold in folds]
    if not joint:
        some = [dataset, *(ArrayDataset(fold.fitted) for fold in folds)]
        several = [own.sample(stacked.ROWS_OF_DENSITY, generator=generator) for own in some]
        density, *others = current().on_rank0(
            partial(stacked.densities, several, generator=generator)
        )
    kept = None
    if held is not None and not interrupted:
        (found,) = held.batches(HELD_OUT_FROM)
        number = held.number
        if number is not None and held.index is not None:
            number = number[held.index.cpu()]
        kept = _held_out(votes, found, number)
    elif sample is not None and said is not None and not interrupted:
        number = torch.tensor(sample.rows.row_ids(torch.arange(sample.rows.n_rows)))
        if whole.number is not None:
            found, placed = whole.called(number.tolist())
        else:
            found, lost = replace(sample, dtype=density.w.dtype).on_sphere(geometry)
            found, placed = found.take(~lost), ~lost
        own = votes.at(1.0) if joint else density
        strange = torch.cat([
            _novelty(other, fold.placed) for other, fold in zip(others, folds, strict=True)
        ])  # fmt: skip
        number = number[placed.cpu()]
        kept = _held_out(votes, found, number, own, said[placed], strange[placed])
    return as_model(
        "classifier", inputs, geometry, votes, density, run, n_rows=whole.n_rows,
        trials=chosen.trials, is_cut_short=chosen.interrupted, objective=spec.objective,
        label_mass=whole.label_mass().cpu(), held=kept,
    )  # fmt: skip


def _held_out(
    votes: Mixture, rows: Batch, number: Tensor | None, density: Mixture | None = None,
    said: Tensor | None = None, strange: Tensor | None = None,
) -> HeldOut:  # fmt: skip
    """Rows, and what votes and density would say of them, had they not seen them.

    said (n, C+1): the log of votes that have not seen them; strange (n,): novelty scores by densities that have
    not. None: nor have these votes and this density. number (n,): what the rows are called.
    """
    most = min(rows.n_rows, _MOST_KEPT, max(1, _MOST_NUMBERS // rows.x.shape[1]))
    some = torch.linspace(0, rows.n_rows - 1, most, device=rows.x.device).long()
    rows = rows.take(some)
    shift = torch.zeros_like(rows.targets)
    novelty = shift[:, 0]
    if density is not None and said is not None and strange is not None:
        own = log_joint(votes.precise, rows.x.to(votes.precise.w.dtype))
        shift = HeldOut.difference(said[some], own)
        novelty = strange[some] - _novelty(density, rows)
    x, shift, novelty = (part.float().cpu() for part in (rows.x, shift, novelty))
    row = torch.full((most,), -1) if number is None else number.cpu()[some.cpu()]
    scored = torch.ones(most, dtype=torch.bool)
    column = _drawn_labels(rows.targets).cpu()
    return HeldOut(x, column, shift, novelty, votes.temperature, row, row.numpy(), scored)


def _drawn_labels(targets: Tensor) -> Tensor:
    """A class of each row (n,), as often as it is in the label shares of all of them."""
    turn = torch.arange(1, len(targets) + 1, device=targets.device)
    drawn = (turn.double() * _GOLDEN_RATIO).remainder(1.0)
    return (label_shares(targets.double()).cumsum(1) < drawn[:, None]).sum(1)


def _novelty(density: Mixture, rows: Batch) -> Tensor:
    """Novelty scores of rows by a density, (n,)."""
    return novelty_score(density.to(dtype=rows.x.dtype), rows.x)
