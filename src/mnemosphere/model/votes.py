"""Votes: what decides about the class of a row.

Every memory μ, and the uniform component 0 if there is one, votes with its share for its soft label g:

    P(y|x) = Σ_γ s_γ(x) g_γy,    s_γ ∝ weight_γ exp(h_γ),    h_μ = slope·⟨w^μ, x⟩ − offset,    h_0 = 0.

The temperature T says how many memories have a say. β suits the density of the rows, and that need not suit
their classes. With m_γ the mean share of a component in the training rows, classes scaled to their frequencies,
all that distinguishes a row from the average of them is divided by T:

    s_γ ∝ m_γ (weight_γ exp(h_γ)/m_γ)^(1/T)    with weight and h of training.

So at a high temperature every row gets the class frequencies, whatever weights the training has found. Without
a uniform component the offset cancels. A row without direction gets the class frequencies of the training rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from mnemosphere.model.parameters import Components, Parameters


@dataclass(frozen=True)
class Votes(Components):
    """Memories with weights and soft labels. Every tensor has one dtype and lies on one device."""

    w: Tensor  # (P, N) memories w^μ, unit rows
    p: Tensor  # (P+1, C+1) weight times soft label, of sum 1; row 0: the uniform component
    slope: Tensor  # () of the exponents: the trained one over the temperature
    offset: Tensor  # () of the exponents of memories, against that of the uniform component
    prior: Tensor  # (C+1,) class frequencies, of sum 1
    share: Tensor  # (P+1,) m_γ
    temperature: float = 1.0
    varsigma: float = 1.0  # ς of training: slope/ς is the slope of what a row leaves unknown

    @classmethod
    def of(
        cls, params: Parameters, p: Tensor | None = None, temperature: float = 1.0,
        prior: Tensor | None = None, share: Tensor | None = None,
    ) -> Self:  # fmt: skip
        """Votes of trained parameters at a temperature.

        p: class weights in place of theirs; prior: class frequencies, if not the sums of p; share: mean shares
        of the components, if not their weights.
        """
        p = params.p if p is None else p.to(params.p)
        prior = p.sum(-2) if prior is None else prior.to(p)
        prior = prior / prior.sum(-1, keepdim=True)
        uniform = p[..., 0, :].sum(-1) > 0
        offset = torch.where(uniform, params.offset, 0.0)
        share = p.sum(-1) if share is None else share.to(p)
        votes = cls(params.w, p, params.slope, offset, prior, share, varsigma=params.varsigma)
        return votes.at(temperature)

    @property
    def weights(self) -> Tensor:
        """Weights of the components (P+1,), of sum 1."""
        return self.p.sum(-1)

    @property
    def precise(self) -> Self:
        """The same in double precision, on a processor.

        In a product of single precision the many equal terms of a blank border are rounded alike,
        which costs probabilities their fifth digit.
        """
        return self.to(dtype=torch.float64) if self.w.device.type == "cpu" else self

    def at(self, temperature: float) -> Self:
        """The same votes at another temperature."""
        ratio = self.temperature / temperature
        p = self.p
        if not torch.equal(self.weights, self.share):
            p = p * (self.weights / self.share)[..., None].pow(ratio - 1).nan_to_num(0.0)
            p = p / p.sum((-2, -1), keepdim=True)
        return self.replace(
            p=p,
            slope=self.slope * ratio,
            offset=self.offset * ratio,
            temperature=float(temperature),
        )

    def trained(self) -> Parameters:
        """Parameters with ς = 1 whose classes are those of these votes at the temperature 1."""
        own = self.at(1.0)
        found = Parameters(own.w, own.p, own.slope, 1.0, own.weights, own.p.sum(0))
        if not bool(own.p[0].any()):
            return found
        # Their offset is log Ω_N(slope)/Ω_N(0): the rest of it goes into the weights.
        p = torch.cat([own.p[:1], own.p[1:] * (found.offset - own.offset).exp()])
        p = p / p.sum()
        return found.replace(p=p, p_h=p.sum(1), p_q=p.sum(0))


# What a forward pass reads: exponents h_μ = slope·⟨w^μ, x⟩ − offset, h_0 = 0, and class weights.
Mixture = Parameters | Votes
