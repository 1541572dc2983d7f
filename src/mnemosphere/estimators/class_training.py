"""How a classifier is trained: the choice of settings, the joint solution, its refinement.

`ClassTraining` is all that `DAMClassifier.fit` knows of training. `resolve` takes rows and label
weights and puts them on the sphere, `run` takes such rows and returns a `TrainedClassifier`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.data.dataset import ArrayDataset, Dataset, is_dense_array
from mnemosphere.data.normalize import Normalizer
from mnemosphere.data.rows import StoredRows, merge_copies
from mnemosphere.estimators import selection
from mnemosphere.estimators.calibration import (
    cross_fitted_reading,
    reading_on,
    share_apart,
)
from mnemosphere.estimators.selection import MANY_CLASSES, is_quick, takes_long
from mnemosphere.estimators.setup import (
    PASSES,
    check_room,
    check_trained,
    precision_of,
    put_on_sphere,
    solver_of,
)
from mnemosphere.estimators.start import Start, usual_uniform_weight
from mnemosphere.interpret.certify import warn_set_aside
from mnemosphere.model import metric, objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.class_reading import Reading
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.sparse_rows import inference
from mnemosphere.training import few_labels
from mnemosphere.training.callbacks import Callback
from mnemosphere.training.distributed import current
from mnemosphere.training.fit import fit
from mnemosphere.training.fixed_point import FixedPoint
from mnemosphere.training.growth import grow
from mnemosphere.training.refine import TWO_TURNS, ExactSteps, refine
from mnemosphere.training.refinement import Refinement, Trained
from mnemosphere.training.sgd import SGD

_SGD_PASSES = 300
# Exact passes of more rows, or beside a refinement: further ones would learn rows by heart.
_FEW_ROWS, _PASSES = 2000, 15
_LONG_PASSES = 10
_JUDGED_PASSES = 6  # of the joint solutions that rows left out judge
_FEW_NUMBERS = 50_000  # of rows, memories and classes, up to which precision is double
_LEAST_HELD = 20  # rows for early stopping of SGD; fewer tell nothing


class TrainedClassifier(NamedTuple):
    """What the training of a classifier results in."""

    trained: Trained  # parameters without a metric, history, status, lineage, label counts
    normalizer: Normalizer  # with the metric that was learned
    reading: Reading  # temperature and power of the soft labels, by held-out rows
    trials: list[dict[str, Any]]  # of the search


class ClassTraining:
    """The training that the settings of a classifier ask for, on one set of rows."""

    # Settings.
    n_memories: int | str
    objective: float | str | Refinement
    growth: int | None
    varsigma: float | str
    beta: float | str
    normalize: str
    solver: str | FixedPoint | SGD
    max_iter: int | None
    tol: float
    label_smoothing: float
    uniform_weight: float | str
    unlabeled: object
    class_weight: dict[Any, float] | str | None
    precision: str
    device: str
    # What `resolve` settles.
    n_memories_: int
    varsigma_: float
    trials: list[dict[str, Any]]
    normalizer: Normalizer
    _own_labels: bool  # memories start with the labels of their rows
    _learned_weights: bool  # and learn their weights

    def __init__(self, settings: Mapping[str, Any], n_features: int, classes: NDArray[Any]) -> None:
        vars(self).update(settings)
        self.n_features_in_, self.classes_ = n_features, classes

    def precision_for(self, n_numbers: int) -> torch.dtype:
        """The precision of training, by how many numbers it works on."""
        return precision_of(self.precision, n_numbers, _FEW_NUMBERS)

    def resolve(
        self, stored: StoredRows, targets: Tensor, weight: Tensor | None, seed: int
    ) -> ArrayDataset:
        """Settle everything that is "auto"; return the rows on the sphere."""
        given = stored, weight
        stored, targets, weight = merge_copies(stored, targets, weight)
        n_memories = self.n_memories
        if n_memories == "auto":
            n_memories = selection.choose_n_memories(
                stored.n_rows, self.classes_.shape[0], stored.n_features
            )
        self.n_memories_ = int(n_memories)
        # A pass has two products with the features and three with the classes.
        numbers = stored.n_numbers + 3 * targets.numel() // 2
        dtype = self.precision_for(max(numbers, stored.n_rows * self.n_memories_))
        check_room(stored, self.n_memories_, targets.shape[1], dtype)
        labeled = bool((targets.sum(1) > 0).all())
        self._learned_weights = labeled and self._learns_weights(stored)
        # Rows that weigh more have no more memories: held to weights, their classes would not fit.
        own = self._takes_own_labels(stored) and given[1] is None
        self._own_labels = self._learned_weights or (labeled and own)
        choose = partial(
            selection.choose,
            stored,
            targets,
            weight,
            self.start(grows=False),
            normalize=self.normalize,
            varsigma=None if self.varsigma == "auto" else float(self.varsigma),
            n_memories=None if self.n_memories == "auto" else self.n_memories_,
            seed=seed,
            dtype=dtype,
        )
        with inference(type(stored.values)):
            choice = current().once(choose)
        self.varsigma_, self.n_memories_ = choice.varsigma, choice.n_memories
        self.trials = list(choice.trials)
        self.normalizer, x, lost = put_on_sphere(stored, choice.normalize, weight, dtype)
        rows = Batch(x, targets.to(dtype), None if weight is None else weight.to(dtype))
        if bool(lost.any()):
            warn_set_aside(self.normalizer, *given)
            rows = rows.take(~lost)
        if choice.shrinkage is not None:
            a = metric.start(rows, choice.shrinkage, weighted=choice.normalize == "weighted")
            self.normalizer, rows = self.normalizer.with_metric(a), metric.apply(a, rows)
        return ArrayDataset.of(rows.x, rows.targets, rows.sample_weight)

    def start(self, *, grows: bool = True) -> Start:
        """How parameters start: at the full width, or at that of growth."""
        width = self.n_memories_
        n_memories = min(self.growth, width) if grows and self.growth is not None else width
        beta = None if self.beta == "learn" else float(self.beta)
        given = self.uniform_weight
        uniform = None
        if n_memories < width or not isinstance(given, str):
            uniform = usual_uniform_weight(width) if isinstance(given, str) else given
            # Splitting leaves p_h(0) alone: P_0 is scaled so that it is right at the final width.
            uniform *= n_memories / width
        return Start(
            n_memories, beta, uniform,
            own_labels=self._own_labels, learned_weights=self._learned_weights,
            smoothing=self.label_smoothing,
            refined=self._refinement() is not None and self.growth is None,
        )  # fmt: skip

    def run(self, dataset: Dataset, seed: int, callbacks: Sequence[Callback]) -> TrainedClassifier:
        """Train on all rows, then find how class probabilities are read."""
        trained, normalizer = self.train(dataset, seed, callbacks), self.normalizer
        metric = trained.params.metric
        if metric is not None:
            normalizer = normalizer.with_metric(metric)
            trained = trained._replace(params=trained.params.replace(metric=None))
        check_trained(trained)
        reading = Reading()
        if trained.status != "interrupted":
            with torch.inference_mode(is_dense_array(dataset)):
                reading = current().same(self.reading(dataset, trained, seed))
        return TrainedClassifier(trained, normalizer, reading, self.trials)

    def train(self, dataset: Dataset, seed: int, callbacks: Sequence[Callback]) -> Trained:
        """The solution by the chosen solver, or the conditional refinement of the joint one."""
        refinement = self._refinement(dataset)
        if refinement is None or self.solver == "sgd" or isinstance(self.solver, SGD):
            generator = torch.Generator().manual_seed(seed)
            apart = None
            share = share_apart(dataset.n_rows)
            if share > 0 and not few_labels.has_unlabeled(dataset):
                dataset, apart = dataset.split(share, generator=generator)
            trained = self._solve(dataset, "", generator, callbacks)
            return trained if apart is None else trained._replace(unseen=((trained.params, apart),))
        return refine(
            # Each joint solution from the same seed, as if it were the only one.
            lambda rows, stage, brief, begun: self._solve(
                rows,
                stage,
                torch.Generator().manual_seed(seed),
                callbacks,
                refined=True,
                most=_JUDGED_PASSES if brief else None,
                begun=begun,
            ),
            dataset,
            refinement,
            learn_beta=self.beta == "learn",
            learn_weights=self._learned_weights,
            generator=torch.Generator().manual_seed(seed),
            callbacks=callbacks,
            exact=self._exact_steps(dataset, seed),
        )

    def _exact_steps(self, dataset: Dataset, seed: int) -> ExactSteps | None:
        """What `_solve` does, where that is exact steps with learned weights."""
        solver, start = self._solver(dataset.n_rows, dataset.device), self.start()
        exact = isinstance(solver, FixedPoint) and solver.rows_per_step is None
        exact = exact and self._learned_weights and self.growth is None
        if not exact or start.from_means(dataset):
            return None
        few = min(start.n_memories, 2 * len(self.classes_))

        def start_of(rows: Dataset) -> Parameters:
            width = start.n_memories
            if dataset.n_rows >= TWO_TURNS:
                width = max(few, width * rows.n_rows // dataset.n_rows)
            generator = torch.Generator().manual_seed(seed)
            return replace(start, n_memories=width)(rows, self.varsigma_, generator)

        return ExactSteps(
            start_of,
            min(self.max_iter or _JUDGED_PASSES, _JUDGED_PASSES),  # nobody watches them
            self.tol,
        )

    def _solve(
        self,
        dataset: Dataset,
        stage: str,
        generator: torch.Generator,
        callbacks: Sequence[Callback],
        *,
        refined: bool = False,
        most: int | None = None,
        begun: Parameters | None = None,
    ) -> Trained:
        """The joint solution by the fixed point, or that of the objective by SGD.

        refined: a refinement goes on from there; most: exact passes then; begun: what so many of
        them came to on most of the rows, from which exact passes go on.
        """
        rule: LabelRule = objectives.joint
        validation, patience = None, None
        solver, start = self._solver(dataset.n_rows, dataset.device), self.start()
        if isinstance(solver, FixedPoint):
            solver = start.solver(solver)
            if self.solver == "fixed-point" and start.from_means(dataset):
                # Part of such rows would not tell what the others have.
                solver = replace(solver, learn_weights=True, batch_size=None)
        passes = PASSES["exact" if solver.rows_per_step is None else "incremental"]
        if solver.rows_per_step is None and self._takes_long(dataset.n_rows):
            passes = min(passes, _LONG_PASSES)
        elif (refined or dataset.n_rows >= _FEW_ROWS) and self._takes_exact_steps(dataset.n_rows):
            passes = min(passes, _PASSES)
        phase_iter = 2
        if isinstance(solver, SGD):
            rule, passes, phase_iter = self._rule, _SGD_PASSES, 100
            if solver.validation_fraction * dataset.n_rows >= _LEAST_HELD:
                dataset, validation = dataset.split(solver.validation_fraction, generator=generator)
            patience = None if validation is None else solver.patience
        passes = self.max_iter or passes
        exact = solver.rows_per_step is None
        if most is not None and exact:
            passes = min(passes, most)
        if begun is not None and exact and self.growth is None:
            params, passes = begun, max(1, passes - _JUDGED_PASSES)
        else:
            params = start(dataset, self.varsigma_, generator)
        if refined and self.growth is None and start.from_means(dataset):
            return Trained(params, (), "converged")
        early: Trained | None = None
        if few_labels.has_unlabeled(dataset):
            settled = few_labels.settle(
                params, dataset, learn_beta=solver.learn_beta, generator=generator,
                callbacks=callbacks, stage=stage,
            )  # fmt: skip
            params = settled.params
            early = Trained(params, settled.history, settled.status)
            if early.status == "interrupted":
                return early
        history = () if early is None else early.history
        if self.growth is not None:
            grown = grow(
                params, dataset, solver, max_memories=self.n_memories_, rule=rule,
                phase_iter=phase_iter, max_iter=passes, tol=self.tol, validation=validation,
                patience=patience, generator=generator, callbacks=callbacks, stage=stage,
            )  # fmt: skip
            return Trained(
                grown.params, (*history, *grown.history), grown.status, grown.lineage,
                label_counts=solver.label_counts(grown.state, dataset.n_rows),
            )  # fmt: skip
        result = fit(
            params, dataset, solver, rule=rule, max_iter=passes, tol=self.tol,
            validation=validation, patience=patience, generator=generator, callbacks=callbacks,
            stage=stage,
        )  # fmt: skip
        unseen = () if validation is None else ((result.params, validation),)
        return Trained(
            result.params, (*history, *result.history), result.status, unseen=unseen,
            label_counts=solver.label_counts(result.state, dataset.n_rows),
        )  # fmt: skip

    def reading(self, dataset: Dataset, trained: Trained, seed: int) -> Reading:
        """How class probabilities are read, by rows that training set apart or leaves out."""
        if trained.unseen:
            own = trained.unseen[0][0] is trained.params  # else the counts are of other memories
            counts = trained.label_counts if own else None
            return reading_on(trained.unseen, self.label_smoothing, counts)
        if few_labels.has_unlabeled(dataset):  # too few labels to judge by
            return Reading()
        return cross_fitted_reading(
            dataset, self.start(grows=False), self.varsigma_, self.label_smoothing,
            learn_beta=self.beta == "learn", max_iter=self.max_iter, tol=self.tol, seed=seed,
        )  # fmt: skip

    def _solver(self, n_rows: int, device: torch.device) -> FixedPoint | SGD:
        chosen = solver_of(self.solver, n_rows, self.beta, device)
        if self._learned_weights and self._takes_exact_steps(n_rows):
            return FixedPoint(None, chosen.learn_beta)
        return chosen

    def _takes_exact_steps(self, n_rows: int) -> bool:
        return self.solver == "fixed-point" and self.growth is None and self._is_quick(n_rows)

    def _learns_weights(self, rows: StoredRows) -> bool:
        """Whether the solver learns the weights of memories: where its steps are exact.

        A step from part of the rows would take all weight from a memory that has none there. With
        many classes that is the lesser evil: to hold all weights would take far longer.
        """
        solver = solver_of(self.solver, rows.n_rows, self.beta, rows.device)
        if not isinstance(solver, FixedPoint) or solver.learn_weights is not None:
            return isinstance(solver, FixedPoint) and bool(solver.learn_weights)
        exact = solver.rows_per_step is None or self._takes_exact_steps(rows.n_rows)
        return exact or len(self.classes_) >= MANY_CLASSES

    def _takes_own_labels(self, rows: StoredRows) -> bool:
        """Whether memories of held weights start with labels: splits are left to find theirs."""
        return self.growth is None and isinstance(
            solver_of(self.solver, rows.n_rows, self.beta, rows.device), FixedPoint
        )

    def _takes_long(self, n_rows: int) -> bool:
        return takes_long(n_rows, self.n_memories_, self.n_features_in_, len(self.classes_))

    def _is_quick(self, n_rows: int) -> bool:
        return is_quick(n_rows, self.n_memories_, self.n_features_in_ + len(self.classes_))

    def _refinement(self, dataset: Dataset | None = None) -> Refinement | None:
        """The refinement that the objective asks for; None for the joint likelihood."""
        if isinstance(self.objective, Refinement):
            return self.objective
        # A tree of splits, and rows without labels, belong to the joint likelihood.
        refined = (
            dataset is not None
            and (self._is_quick(dataset.n_rows) or self.start().from_means(dataset))
            and not self._takes_long(dataset.n_rows)
            and self.growth is None
            and not few_labels.has_unlabeled(dataset)
        )
        names = {"joint": 0.0, "conditional": 1.0, "auto": float(refined)}
        weight = names[self.objective] if isinstance(self.objective, str) else self.objective
        return None if weight == 0 else Refinement(float(weight))

    @property
    def _rule(self) -> LabelRule:
        refinement = self._refinement()
        return objectives.joint if refinement is None else refinement.rule
