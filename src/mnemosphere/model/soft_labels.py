"""Class weights and temperature of votes: soft labels net of smoothing, shares tempered.

Trained on labels (1−ε)·onehot + ε/(C+1), soft labels hold a part ε/(C+1) of every class that no
row asked for: net of it, g' = (g − ε/(C+1))/(1−ε). The temperature is the one with the least log-loss
of rows that were not trained on. Both keep the probabilities a sum over memories (`model.votes`), so
that shares times soft labels explain them exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.model.gaps import split
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import scores, shares
from mnemosphere.numerics import polytope

_FLOOR = 3e-3  # of the class prior in every soft label: no class is ever impossible
_PSEUDO_ROWS = 0.02
LOG_T = tuple(0.5 * k for k in range(-7, 8))  # of the temperatures at which losses are taken
MEAN_OF, _LEAST_SHARE = 2000, 1e-9  # rows that mean shares are taken of; the least of one
_FINE = np.linspace(LOG_T[0], LOG_T[-1], 241)  # between them, by a cubic spline
_TO_FINE = CubicSpline(LOG_T, np.eye(len(LOG_T)))(_FINE)  # (fine, T)


def net_class_weights(
    params: Mixture, smoothing: float, frequencies: Tensor, counts: Tensor | None = None
) -> Tensor:
    """P (P+1, C+1) with the part taken off that label smoothing put there; row sums stay p_h.

    frequencies (C+1,): those of the labels, which no soft label is without.
    counts (P+1, C+1): the label weights of the rows that each component answers for, in rows.
    Where they are known, soft labels are theirs: with its row sums held, p may have to give a
    memory classes that none of its rows has. A fiftieth of a row of the prior is added to each.
    The uniform component resembles nothing, so it has no opinion: its soft label is the frequencies.
    """
    p = params.p.double()
    p_h = p.sum(-1, keepdim=True)
    prior = _without_outside(frequencies.to(p))[..., None, :]
    soft = p / torch.where(p_h > 0, p_h, 1.0) if counts is None else counts.double()
    total = soft.sum(-1, keepdim=True)
    net = (soft - smoothing / p.shape[-1] * total).clamp_min(0.0) / (1 - smoothing)
    if counts is not None:
        net = net + _PSEUDO_ROWS * prior
    # A soft label with nothing but smoothing in it says as much as the prior.
    left = net.sum(-1, keepdim=True)
    net = torch.where(left > 0, net / torch.where(left > 0, left, 1.0), prior)
    net[..., 0, :] = prior[..., 0, :]
    return (p_h * with_floor(net, prior)).to(params.p)


def with_floor(soft: Tensor, prior: Tensor) -> Tensor:
    """Soft labels (..., C+1) with a small part of the class frequencies (C+1,): none is impossible."""
    return (1 - _FLOOR) * soft + _FLOOR * _without_outside(prior).to(soft)


def without_floor(p: Tensor, prior: Tensor) -> Tensor:
    """Class weights (P+1, C+1) without what `with_floor` added to their soft labels."""
    floor = _FLOOR * p.sum(1, keepdim=True) * _without_outside(prior)
    return ((p - floor) / (1 - _FLOOR)).clamp_min(0.0)


def label_frequencies(mass: Tensor, smoothing: float) -> Tensor:
    """Class frequencies (..., C+1), of sum 1, of summed label weights, net of smoothing."""
    mass = mass.double()
    net = (mass - smoothing / mass.shape[-1] * mass.sum(-1, keepdim=True)).clamp_min(0.0)
    return net / net.sum(-1, keepdim=True)


def _without_outside(prior: Tensor) -> Tensor:
    """Frequencies (..., C+1) among the C classes alone."""
    prior = torch.cat([prior[..., :-1], torch.zeros_like(prior[..., -1:])], -1)
    return prior / prior.sum(-1, keepdim=True)


def reweighted(p: Tensor, p_q: Tensor, *, hold: bool = False) -> Tensor:
    """Class weights p (P+1, C+1) under another class prior p_q (C+1,), of sum 1, in float64.

    A trained p holds both how memories divide among classes and how frequent classes were in training.
    Where the frequencies change and the classes themselves do not, P(x|y) stays and P(y) is replaced:

    follow   p'[γ,y] = p[γ,y] π'_y/π_y. Bayes' rule exactly: every posterior P(y|x) is reweighted by
             π'_y/π_y. The weight of a memory follows its classes, p_h' = Σ_y p'[γ,y].
    hold     the p' nearest to p in relative entropy (its I-projection, by Sinkhorn–Knopp) with
             column sums π' and the row sums p_h as they were: p'[γ,y] = a_γ p[γ,y] b_y. Odds
             ratios between memories and classes stay; within a memory the odds of two classes
             change by b_y/b_y', in general not π'_y/π_y. Memories keep their weights, so a class
             that is to become more frequent than its memories are must take over memories of
             other classes, the ambiguous ones first.

    Both are the same where p_h need not change, as for classes spread alike over all memories.
    """
    if p_q.shape != p.shape[1:] or not bool(((p_q >= 0) & torch.isfinite(p_q)).all()):
        raise ValueError(f"p_q must be {p.shape[1]} finite weights >= 0, got {p_q.tolist()}")
    p, new = p.double(), p_q.double() / p_q.double().sum()
    old = p.sum(0)
    lost = (old == 0) & (new > 0)
    if bool(lost.any()):
        raise ValueError(
            f"class {int(lost.nonzero()[0])} has no weight in the model, so nothing is known of "
            "it: keep its prior at 0"
        )
    if hold:
        p = polytope.project(p, p.sum(1), new)
    else:
        p = p * torch.where(old > 0, new / old, 0.0)
    return p / p.sum()


def prior_share(votes: Mixture) -> tuple[Tensor, Tensor]:
    """(how much of each soft label repeats the mix of all of them (P+1,), the rest (P+1, C)).

    g = a π + rest with the mix π = Σ_γ weight_γ g_γ and the largest a = min_y g_y/π_y: the floor that no
    class falls below, and what a memory of mixed labels does not distinguish. The uniform component
    resembles nothing, so all of its soft label counts as such.
    """
    soft, prior = votes.labels[:, :-1].double(), votes.p[:, :-1].double().sum(0)
    prior = prior / prior.sum()
    part = (soft / prior.clamp_min(1e-300)).amin(1)
    rest = soft - part[:, None] * prior
    part[0], rest[0] = 1.0, 0.0
    return part, torch.where(rest > _FLOOR, rest, 0.0)


def label_shares(targets: Tensor) -> Tensor:
    """The labels (..., C) that label weights (..., C+1) stand for, smoothing taken off.

    Smoothing puts as much into the class "none of them" as into each of the others.
    """
    plain = (targets[..., :-1] - targets[..., -1:]).clamp_min(0.0)
    total = plain.sum(-1, keepdim=True)
    return plain / torch.where(total > 0, total, 1.0)


def best_temperature(held_out: Sequence[tuple[Mixture, Batch]]) -> float:
    """The temperature of rows that were not trained on.

    held_out: (votes at the temperature 1, or parameters with the class weights of `net_class_weights`; labeled
    rows that they have not seen), one pair or several.
    """
    losses = [tempered_losses(params, rows)[0] for params, rows in held_out]
    weights = torch.cat([rows.weights for _, rows in held_out]).double().cpu().numpy()
    return posterior_temperature(np.concatenate(losses), weights)


def training_temperature(params: Mixture, rows: Batch) -> float:
    """The temperature of lowest loss on rows that were trained on, which can only be too low for others."""
    rows = rows.take(rows.targets.sum(1) > 0)
    loss = rows.weights.double().cpu().numpy() @ tempered_losses(params, rows)[0]
    return float(np.exp(_FINE[np.argmin(_TO_FINE @ loss)]))


def tempered_losses(
    params: Mixture, rows: Batch
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Log-losses −Σ_y q_y log P(y|x) (..., B, T) of labeled rows at the temperatures of `LOG_T`.

    q: first the label shares of each row, then their mean, as if labels had nothing to do with rows. params: with
    the class weights of `net_class_weights`. A leading axis of parameters and rows holds several problems.
    """
    q = label_shares(rows.targets).mT.contiguous()
    mean_q = q.mean(-1)[..., None, :]
    x, gaps = split(rows.x)
    tiny = torch.finfo(x.dtype).tiny
    mean = params.p_h.clamp_min(tiny).log()[..., None]
    # Memories first: their sums over columns are quicker than over neighboring numbers.
    h = scores(params, x @ params.w.mT.contiguous()).mT - mean  # (P+1, B), −inf without weight
    labels = params.labels[..., :-1].mT.contiguous()  # (C, P+1)
    h, losses, odd = h.contiguous(), [], []
    for slope in (math.exp(-log_t) for log_t in LOG_T):
        score = torch.add(mean, h, alpha=slope)
        if gaps is not None:
            lift, _ = gaps.exponent_lift(params, slope)
            score[..., 1:, :].index_add_(-1, gaps.rows, lift.mT)
        classes = labels @ score.softmax(-2)  # (C, B)
        total = classes.sum(-2, keepdim=True).clamp_min_(tiny)
        log_p = classes.div_(total).clamp_min_(tiny).log_()
        losses.append(-(q * log_p).sum(-2).double())
        odd.append(-(mean_q @ log_p)[..., 0, :].double())
    return torch.stack(losses, -1).cpu().numpy(), torch.stack(odd, -1).cpu().numpy()


def mean_shares(params: Mixture, p: Tensor, rows: Batch, frequencies: Tensor) -> Tensor:
    """Mean shares (..., P+1) of the components in some of the rows, with class weights p.

    Training that has not converged leaves classes with other means than their frequencies (..., C+1):
    a step of EM takes the shares there, exactly if each component has one class.
    """
    n_rows = rows.x.shape[-2]
    some = rows.take(torch.arange(0, n_rows, -(-n_rows // MEAN_OF), device=rows.x.device))
    params = params.with_classes(p)
    share, _ = shares(params, some.x)
    mean = (
        some.weights[..., None, :] @ share / some.weights.sum(-1)[..., None, None]
    )  # (..., 1, P+1)
    soft = params.labels
    said, wanted = mean @ soft, frequencies.to(mean)[..., None, :]
    ratio = torch.where(said > 0, wanted / said, 0.0)
    return (mean * (ratio @ soft.mT))[..., 0, :].clamp_min(_LEAST_SHARE)


def posterior_temperature(losses: NDArray[np.float64], weight: NDArray[np.float64]) -> float:
    """Exp of the posterior mean of log T, given losses (B, T) at the temperatures of `LOG_T`.

    Before any row, log T ~ N(0, 1): the trained slope is about right. Rows count half, since the same rows
    have chosen the candidate. So rows that are all predicted correctly do not ask for T = 0.
    """
    share = weight / weight.sum()
    loss = _TO_FINE @ (share @ losses) / (share @ share)  # of so many equal rows
    score = -0.5 * (loss - loss.min() + _FINE**2)
    posterior = np.exp(score - score.max())
    return float(np.exp(posterior @ _FINE / posterior.sum()))
