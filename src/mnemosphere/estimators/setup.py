"""What comes before and after training, whatever is trained: rows, labels, seed, callbacks; the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Literal

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from mnemosphere.base.warnings import warn_user
from mnemosphere.estimators.from_files import over_files
from mnemosphere.estimators.inputs import FitInputs
from mnemosphere.estimators.progress import SearchTable
from mnemosphere.estimators.settings import Sample
from mnemosphere.fitted.exemplars import called_rows, find_exemplars
from mnemosphere.fitted.model import FittedModel, Record
from mnemosphere.geometry import Geometry
from mnemosphere.geometry.base import check_some_left, learn, warn_set_aside
from mnemosphere.model import one_pass
from mnemosphere.model.mixture import Mixture
from mnemosphere.rows.rows import Rows, row_sketch
from mnemosphere.training.callbacks import Run
from mnemosphere.training.checkpoint import Checkpoint
from mnemosphere.training.dataset import ArrayDataset
from mnemosphere.training.distributed import current

_ENDED = ("converged", "stopped early", "grown", "stable")
FEW_NUMBERS = 50_000  # up to which precision is double
_STILL_FALLING = 0.03  # relative fall of the loss in the last pass that still matters
_FEW_CLAIMED = 0.5  # share of the rows: with less, class frequencies decide most answers
_PROBED = 8  # memories whose probabilities must be finite


def precision_of(setting: str, n_numbers: int) -> torch.dtype:
    """The precision of training; "auto" is double for few numbers."""
    if setting == "auto":
        return torch.float64 if n_numbers <= FEW_NUMBERS else torch.float32
    return torch.float64 if setting == "float64" else torch.float32


def place(
    inputs: FitInputs, kind: str, sample: Sample, given: Rows, *, unlabeled: bool = True
) -> tuple[ArrayDataset, Geometry]:
    """(the rows on the sphere, how they were put there).

    sample: distinct rows to learn from; given: all rows, which a warning names; unlabeled: whether those without
    label take part.
    """
    geometry = learn(kind, sample.rows, sample.targets, sample.weight)
    rows, lost = sample.on_sphere(geometry)
    aside: float | Tensor = 0.0
    check_some_left(geometry, lost)
    if bool(lost.any()):
        warn_set_aside(geometry, given, inputs.weight)
        aside, rows = rows.take(lost).label_mass().double(), rows.take(~lost)
    if inputs.survey is not None:
        return over_files(inputs, geometry, sample.dtype, unlabeled=unlabeled), geometry
    dataset = ArrayDataset.of(rows.x, rows.targets, rows.sample_weight)
    number = torch.tensor(sample.rows.row_ids((~lost).nonzero()[:, 0]))
    return replace(dataset, mass_set_aside=aside, number=number), geometry


def as_model(
    kind: Literal["classifier", "clusterer"], inputs: FitInputs, geometry: Geometry,
    votes: Mixture, density: Mixture, run: Run, *, n_rows: int, trials: SearchTable,
    is_cut_short: bool, **more: Any,
) -> FittedModel:  # fmt: skip
    """The result of a training as a model, checked, with the training rows that its memories stand for.

    n_rows: that were trained on. is_cut_short: whether Ctrl-C ended the search, though not the training. A warning
    says if training ended too early.
    """
    settings, stored, columns = inputs.settings, inputs.stored, inputs.columns
    for own in inputs.callbacks if current().first else ():
        if isinstance(own, Checkpoint) and run.status != "interrupted":
            own.finish()
    status = "interrupted" if is_cut_short else run.status
    record = Record(
        kept_settings(settings.given), [asdict(own) for own in run.history], status,
        status in _ENDED, list(trials), trained_rows=row_sketch(stored),
    )  # fmt: skip
    model = sound(FittedModel(
        kind, votes, density, geometry, columns, smoothing=settings.smoothing,
        learns_beta=settings.beta is None, learns_weights=run.learns_weights, record=record,
        lineage=run.lineage, **{"classes": inputs.classes} | more,
    ))  # fmt: skip
    exemplars = find_exemplars(
        votes, geometry, stored, inputs.weight, n_rows,
        None if columns.is_texts else columns,
    )  # fmt: skip
    _warn_of_training(inputs, run, float(exemplars.support.sum()), n_rows)
    held, texts = model.held, columns.texts(inputs.source)
    exemplars = replace(exemplars, names=called_rows(exemplars.typical, texts, inputs.source))
    if held is not None:
        held = replace(held, names=called_rows(held.names, texts, inputs.source))
    return model.replace(exemplars=exemplars, held=held)


def _warn_of_training(inputs: FitInputs, run: Run, claimed: float, n_rows: int) -> None:
    """Warn if training ended early, or if memories answer for few of the rows: `claimed` of them."""
    last = [own.loss for own in run.history if own.phase == run.history[-1].phase][-2:]
    if inputs.settings.max_iter is None and run.status == "max_iter" and len(last) == 2:
        fall = (last[0] - last[1]) / max(abs(last[1]), 1e-300)
        if fall > _STILL_FALLING:
            warn_user(
                f"not converged in {run.n_iter} passes, the last lowered the loss by {fall:.1%}: "
                "raise max_iter",
                ConvergenceWarning,
            )
    stored, weight, beta = inputs.stored, inputs.weight, inputs.settings.beta
    total = stored.n_rows if weight is None else float(weight.sum())
    share = claimed / (total * max(1.0, n_rows / stored.n_rows))
    if beta is not None and share < _FEW_CLAIMED:
        warn_user(
            f"beta={beta:g} is too large for these rows: memories answer for {share:.0%} of them, and class "
            "frequencies for the others: lower beta, or leave it out"
        )


def sound(model: FittedModel) -> FittedModel:
    """The model; ValueError if its probabilities are not finite numbers."""
    for mixture in (model.precise_votes, model.votes, model.density):
        if not bool(torch.isfinite(one_pass.log_joint(mixture, mixture.w[:_PROBED])).all()):
            raise ValueError(
                "training came to no model: probabilities of its own memories are not finite; scale X, or "
                "use other settings"
            )
    return model


def kept_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings that a model remembers: all but those that only watch its training."""
    return {k: v for k, v in settings.items() if k not in ("callbacks", "verbose")}
