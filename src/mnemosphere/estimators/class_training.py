"""How a classifier is trained: the joint solution, and its refinement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from mnemosphere.data.dataset import Dataset
from mnemosphere.data.rows import StoredRows
from mnemosphere.estimators.base import PASSES
from mnemosphere.estimators.calibration import (
    cross_fitted_reading,
    reading_on,
    share_apart,
)
from mnemosphere.estimators.class_model import ClassModel
from mnemosphere.estimators.selection import MANY_CLASSES, is_quick, takes_long
from mnemosphere.estimators.start import Start, usual_uniform_weight
from mnemosphere.model import objectives
from mnemosphere.model.class_reading import Reading
from mnemosphere.model.objectives import LabelRule
from mnemosphere.model.parameters import Parameters
from mnemosphere.training import few_labels
from mnemosphere.training.callbacks import Callback
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
_LEAST_HELD = 20  # rows for early stopping of SGD; fewer tell nothing


class ClassTraining(ClassModel):
    """The training that the settings of a classifier ask for."""

    objective: float | str | Refinement
    uniform_weight: float | str
    _few_numbers = 50_000  # their products are many
    _own_labels: bool  # memories start with the labels of their rows
    _learned_weights: bool  # and learn their weights

    def _start(self, *, grows: bool = True) -> Start:
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

    def _train(self, dataset: Dataset, seed: int, callbacks: Sequence[Callback]) -> Trained:
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
        solver, start = self._solver(dataset.n_rows, dataset.device), self._start()
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
        solver, start = self._solver(dataset.n_rows, dataset.device), self._start()
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

    def _find_reading(self, dataset: Dataset, trained: Trained, seed: int) -> Reading:
        """How class probabilities are read, by rows that training set apart or leaves out."""
        if trained.unseen:
            own = trained.unseen[0][0] is trained.params  # else the counts are of other memories
            counts = trained.label_counts if own else None
            return reading_on(trained.unseen, self.label_smoothing, counts)
        if few_labels.has_unlabeled(dataset):  # too few labels to judge by
            return Reading()
        return cross_fitted_reading(
            dataset, self._start(grows=False), self.varsigma_, self.label_smoothing,
            learn_beta=self.beta == "learn", max_iter=self.max_iter, tol=self.tol, seed=seed,
        )  # fmt: skip

    def _solver(self, n_rows: int, device: torch.device) -> FixedPoint | SGD:
        chosen = super()._solver(n_rows, device)
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
        solver = super()._solver(rows.n_rows, rows.device)
        if not isinstance(solver, FixedPoint) or solver.learn_weights is not None:
            return isinstance(solver, FixedPoint) and bool(solver.learn_weights)
        exact = solver.rows_per_step is None or self._takes_exact_steps(rows.n_rows)
        return exact or len(self.classes_) >= MANY_CLASSES

    def _takes_own_labels(self, rows: StoredRows) -> bool:
        """Whether memories of held weights start with labels: splits are left to find theirs."""
        return self.growth is None and isinstance(
            super()._solver(rows.n_rows, rows.device), FixedPoint
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
            and (self._is_quick(dataset.n_rows) or self._start().from_means(dataset))
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
