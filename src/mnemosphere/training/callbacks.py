"""A fit in progress, and the callbacks that watch it, stop it or store it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from mnemosphere.model.mixture import Mixture
from mnemosphere.training.lineage import Lineage
from mnemosphere.training.solver import SolverState


@dataclass(frozen=True)
class PassRecord:
    """One pass over the training data."""

    n_iter: int  # counted from 1, across resumptions
    loss: float  # mean training loss, each batch at the parameters it met
    validation_loss: float | None
    beta: float  # after the pass
    residual: float | None  # of stationarity before the pass (exact fixed-point steps only)
    n_memories: int
    seconds: float  # wall time of the pass, validation included
    phase: int = 0  # of growth, of cycles or of latent classes; 0 if there is one phase


@dataclass(frozen=True)
class SplitRecord:
    """One step of growth, between two phases."""

    phase: int  # the phase that ended, counted from 0
    n_memories: int  # before the split
    n_split: int  # memories duplicated; 0 where none is a saddle any more
    lambda_min: float  # the most negative curvature of all memories
    delta: float  # how far the copies were moved
    passes: float  # arithmetic of curvature and line search, in training passes at n_memories
    seconds: float


@dataclass
class Run:
    """A training in progress, and its result."""

    params: Mixture  # after the last pass; of a result the best by validation loss, if there is validation
    state: SolverState  # the solver's, after the last step
    generator: torch.Generator | None = None
    max_iter: int = 0
    history: list[PassRecord] = field(default_factory=list)
    # 'converged', 'stopped early', 'max_iter', 'interrupted' or a callback's reason; of growth 'grown' or 'stable'
    status: str = "running"
    best: Mixture | None = None  # by validation loss
    lineage: Lineage | None = None  # the tree of splits
    splits: tuple[SplitRecord, ...] = ()
    counts: Tensor | None = (
        None  # (P+1, C+1) label weights of the rows that each component answers for
    )
    learns_weights: bool = False  # whether the weights of memories were learned, or held

    @property
    def n_iter(self) -> int:
        """Passes done."""
        return len(self.history)

    @property
    def waited(self) -> int:
        """Passes since that with the lowest validation loss."""
        losses = [own.validation_loss for own in self.history if own.validation_loss is not None]
        return len(losses) - 1 - losses.index(min(losses)) if losses else 0

    def converged(self, tol: float) -> bool:
        """Whether the last pass changed the mean loss by less than `tol` relative.

        Or an exact fixed-point step moved the parameters by less than that.
        """
        if len(self.history) < 2:
            return False
        last, before = self.history[-1], self.history[-2]
        small_step = last.residual is not None and last.residual < tol
        return small_step or abs(before.loss - last.loss) < tol * abs(last.loss)

    def in_phase(self, phase: int) -> list[PassRecord]:
        """The history, as that of one phase of a longer training."""
        return [replace(own, phase=phase) for own in self.history]


class Callback:
    """Base class of callbacks, which watch a fit, stop it or store it.

    Override the methods of the events that you need. Only `stop_reason` changes training. A `Run` holds
    `params`, `history` (one `PassRecord` per pass), `max_iter` and `status`. All methods but
    `stop_reason` return None.

    Examples
    --------
    >>> class Losses(mn.Callback):
    ...     def on_pass(self, run):
    ...         losses.append(run.history[-1].loss)
    >>> losses = []
    >>> clf.set_params(callbacks=[Losses()]).fit(X_train, y_train).n_iter_ == len(losses)
    True
    """

    def on_start(self, run: Run) -> None:
        """Receive the run before the first pass.

        Parameters
        ----------
        run : Run
            The fit in progress; it takes at most `run.max_iter` passes.

        Examples
        --------
        >>> class Announce(mn.Callback):
        ...     def on_start(self, run):
        ...         print("passes at most:", run.max_iter)
        >>> _ = clf.set_params(callbacks=[Announce()], max_iter=5).fit(X_train, y_train)
        passes at most: 5
        """

    def on_batch(self, run: Run, share_done: float) -> None:
        """Receive the run after a batch.

        Parameters
        ----------
        run : Run
            The fit in progress.
        share_done : float in [0, 1]
            How much of this pass is done.

        Examples
        --------
        >>> class Watch(mn.Callback):
        ...     def on_batch(self, run, share_done):
        ...         shares.append(share_done)
        >>> shares = []
        >>> _ = clf.set_params(callbacks=[Watch()]).fit(X_train, y_train)
        >>> max(shares)
        1.0
        """

    def on_pass(self, run: Run) -> None:
        """Receive the run after a pass.

        Parameters
        ----------
        run : Run
            The fit in progress; `run.history[-1]` is the record of the pass.

        Examples
        --------
        >>> class Watch(mn.Callback):
        ...     def on_pass(self, run):
        ...         passes.append(run.history[-1].n_iter)
        >>> passes = []
        >>> _ = clf.set_params(callbacks=[Watch()], max_iter=3).fit(X_train, y_train)
        >>> passes[0]
        1
        """

    def stop_reason(self, run: Run) -> str | None:
        """Give a reason to stop after a pass, or before the first one.

        Parameters
        ----------
        run : Run
            The fit in progress.

        Returns
        -------
        str or None
            The reason, which becomes the status of the run; None to continue.

        Examples
        --------
        >>> class OnePass(mn.Callback):
        ...     def stop_reason(self, run):
        ...         return "one pass is enough" if run.n_iter == 1 else None
        >>> clf.set_params(callbacks=[OnePass()]).fit(X_train, y_train).status_
        'one pass is enough'
        """
        return None
