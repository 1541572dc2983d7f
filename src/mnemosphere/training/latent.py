"""Latent classes for memories learned without labels: where they start, how they are trained.

Eq. (unsupervised_loss) is flat at its symmetric start p = p_h p_q^T: no class differs from another
but by its prior, and what breaks the symmetry is how much data each memory happens to hold, not
which memories are alike. So the classes start from groups of memories that share rows, the parts
of `model.memory_graph`: where that graph is thin, a boundary between classes leaves few rows
undecided, which is what the loss asks for.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.model.memory_graph import Groups
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import Statistics
from mnemosphere.numerics import polytope
from mnemosphere.training.sgd import SGD
from mnemosphere.training.solver import SolverState

_CONTRAST = 100.0  # log-odds of a group over its opposite, before p_q has its say
_LEAST_SOFTNESS = 1e-3


def latent_prior(class_prior: Tensor, smoothing: float) -> Tensor:
    """p_q (C+1,) for C proportions: softened like the labels, the last entry "none of them".

    p_q = (1−ε)·proportions + ε/(C+1), what the softened predictions of Eq. (unsupervised_loss)
    average to where the classes are used in these proportions.
    """
    columns = class_prior.shape[0] + 1
    p_q = class_prior.new_full((columns,), smoothing / columns)
    p_q[:-1] += (1 - smoothing) * class_prior / class_prior.sum()
    return p_q


def start_classes(
    params: Mixture, groups: Groups, class_prior: Tensor | None, smoothing: float
) -> Mixture:
    """Give memories class weights that follow their groups, in the polytope of p_h and p_q.

    class_prior (C,): proportions of the classes, the largest for the largest group; None takes
    the groups' own. Memories move between groups as little as those proportions need.
    """
    n_classes = groups.closeness.shape[1]
    size = torch.bincount(groups.label, minlength=n_classes).to(params.p)
    closeness = groups.closeness.to(params.p)
    if class_prior is None:  # nothing has to move
        class_prior, closeness = size, 2 * torch.eye(n_classes).to(closeness)[groups.label] - 1
    else:
        class_prior = class_prior.to(params.p)
        rank = class_prior.argsort(descending=True, stable=True).argsort()
        closeness = closeness[:, rank]  # class y takes the group whose size has its rank
    p_q = latent_prior(class_prior, smoothing)
    # Memories go to the groups they are closest to, as far as the columns have room; the uniform
    # component belongs to no class in particular, and to "none" first of all.
    log_k = torch.nn.functional.pad(_CONTRAST * closeness, (0, 1, 1, 0), value=-_CONTRAST)
    log_k[0] = 0.0
    log_k[0, -1] = _CONTRAST
    sharp = polytope.sinkhorn(log_k, params.p_h, p_q, tol=1e-9)
    # Floor class weights at ε, so that no smoothed label is impossible.
    floor = max(smoothing, _LEAST_SOFTNESS)
    p = (1 - floor) * sharp + floor * params.p_h[:, None] * p_q
    return params.replace(p=p, p_q=p_q)


def votes_of_memories(params: Mixture) -> Mixture:
    """The same with a uniform component of no cluster: a row far from all memories goes with the nearest."""
    p = params.p.clone()
    p[0, -1], p[0, :-1] = p[0].sum(), 0.0
    return params.replace(p=p)


def latent_class(params: Mixture) -> Tensor:
    """The class of each memory, argmax_y p^μ_y, (P,); C is "none of them"."""
    return params.p[1:].argmax(1)


@dataclass(frozen=True)
class ClassWeightSGD(SGD):
    """SGD of the class weights alone: memories and β stay.

    The row sums of p are fixed, so that the density Σ_y P(x, y) of the data stays too.
    """

    def step(
        self, params: Mixture, state: SolverState, stats: Statistics, batch: Batch, share: float
    ) -> tuple[Mixture, SolverState]:
        """One step from the statistics of one batch."""
        new, after = super().step(params, state, stats, batch, share)
        return params.replace(p=new.p), {**state, "p": after["p"]}
