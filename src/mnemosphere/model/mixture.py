"""The mixture: memories, class weights, slope and temperature."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from mnemosphere.numerics import polytope, sphere
from mnemosphere.numerics.bessel import log_omega_ratio


@dataclass(frozen=True)
class Mixture:
    """P von Mises–Fisher components and a uniform one, labeled by C+1 classes.

    Every memory μ, and the uniform component 0, votes with its share for its soft label:

        P(y|x) = Σ_γ s_γ(x) label_γy,   s_γ ∝ weight_γ exp(h_γ),   h_μ = slope·⟨w^μ, x⟩ − offset,   h_0 = 0,

    with p_γy = weight_γ label_γy, slope ςβ and offset log Ω_N(β)/Ω_N(0). Row 0 of `p` and `p_h` is the uniform
    component; the last column of `p` and `p_q` is the class "none of the C". Every tensor has one dtype and
    lies on one device; a leading axis of all of them, and of ς, holds several mixtures of one shape.

    β suits the density of the rows, and that need not suit their classes. So all that distinguishes a row from
    the average of them can be divided by a temperature T: with m_γ the mean share of a component,

        s_γ ∝ m_γ (weight_γ exp(h_γ)/m_γ)^(1/T)    with weight and h of training.

    At a high temperature every row gets the class frequencies, whatever weights the training has found.
    """

    w: Tensor  # (P, N) memories w^μ, unit rows
    p: Tensor  # (P+1, C+1) class weights p^γ_y at the temperature, of sum 1
    beta: Tensor  # () inverse temperature β > 0 of training
    varsigma: float  # ς in (0, 1]; 1 is the plain likelihood
    p_h: Tensor  # (P+1,) prior of the components, which training may hold: their mean shares m
    p_q: Tensor  # (C+1,) prior of the classes, which a row without direction gets
    temperature: float = 1.0

    @property
    def n_memories(self) -> int:
        """P."""
        return self.w.shape[-2]

    @property
    def n_features(self) -> int:
        """N."""
        return self.w.shape[-1]

    @property
    def n_columns(self) -> int:
        """C+1: the classes and "none of them"."""
        return self.p.shape[-1]

    @property
    def slope(self) -> Tensor:
        """What overlaps count: ςβ, Eq. (effective_loss), over the temperature."""
        return self.varsigma * self.beta / self.temperature

    @property
    def offset(self) -> Tensor:
        """The log of Ω_N(β)/Ω_N(0), which normalizes the density of a memory, over the temperature."""
        return log_omega_ratio(self.beta, self.n_features) / self.temperature

    @property
    def weights(self) -> Tensor:
        """Weights of the components (P+1,), of sum 1."""
        return self.p.sum(-1)

    @property
    def labels(self) -> Tensor:
        """Soft labels (P+1, C+1), row sums 1; zeros for a component without weight."""
        return self.p / self.p.sum(-1, keepdim=True).clamp_min(torch.finfo(self.p.dtype).tiny)

    @property
    def precise(self) -> Self:
        """The same in double precision, on a processor.

        In a product of single precision the many equal terms of a blank border are rounded alike,
        which costs probabilities their fifth digit.
        """
        return self.to(dtype=torch.float64) if self.w.device.type == "cpu" else self

    def at(self, temperature: float) -> Self:
        """The same at another temperature."""
        ratio, p = self.temperature / temperature, self.p
        if not torch.equal(self.weights, self.p_h):
            p = p * (self.weights / self.p_h)[..., None].pow(ratio - 1).nan_to_num(0.0)
            p = p / p.sum((-2, -1), keepdim=True)
        return self.replace(p=p, temperature=float(temperature))

    def with_classes(
        self, p: Tensor, frequencies: Tensor | None = None, share: Tensor | None = None
    ) -> Self:
        """Other class weights p; class frequencies and mean shares, if not the sums of p."""
        p = p.to(self.p)
        frequencies = p.sum(-2) if frequencies is None else frequencies.to(p)
        frequencies = frequencies / frequencies.sum(-1, keepdim=True)
        return self.replace(p=p, p_q=frequencies, p_h=p.sum(-1) if share is None else share.to(p))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields replaced."""
        return dataclasses.replace(self, **changes)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors by their names."""
        parts = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return {name: t for name, t in parts.items() if isinstance(t, Tensor)}

    def to(
        self, *, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Self:
        """Return a copy on another device or in another precision."""
        moved = {name: t.to(device=device, dtype=dtype) for name, t in self.tensors().items()}
        return self.replace(**moved)

    def unstacked(self) -> list[Self]:
        """Each of several along a leading axis; one as it is."""
        if self.w.ndim == 2:
            return [self]
        parts = zip(*self.tensors().values(), strict=True)
        each = [self.replace(**dict(zip(self.tensors(), own, strict=True))) for own in parts]
        return [one.replace(varsigma=float(one.varsigma)) for one in each]

    def check(self) -> Self:
        """Raise ValueError unless the parameters are usable; return self."""
        if self.w.ndim != 2 or self.w.shape[1] < 2 or self.w.shape[0] < 1:
            raise ValueError(f"memories must form a (P, N >= 2) matrix, got {tuple(self.w.shape)}")
        if self.p.ndim != 2 or len(self.p) != self.n_memories + 1:
            shape, got = f"({self.n_memories + 1}, C+1)", tuple(self.p.shape)
            raise ValueError(f"class weights must be (P+1, C+1) = {shape}, got {got}")
        kinds = {(t.dtype, t.device) for t in self.tensors().values()}
        if len(kinds) > 1 or self.w.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"tensors must share one dtype and device, float32 or float64, got {kinds}: use .to(...)"
            )
        if not 0.0 < self.varsigma <= 1.0:
            raise ValueError(f"varsigma must lie in (0, 1], got {self.varsigma}")
        if self.beta.ndim != 0 or not 0 < float(self.beta) < math.inf:
            raise ValueError(f"beta must be one finite positive number, got {self.beta}")
        sphere.check(self.w, "memories")
        # Loose enough for what ten sweeps of Sinkhorn–Knopp leave: training can go on from there.
        polytope.check(self.p, self.p_h, self.p_q, tol=1e-3)
        return self

    @classmethod
    def stack(cls, several: Sequence[Self]) -> Self:
        """Mixtures of one shape along a leading axis, ς a tensor too."""
        together: Any = {
            name: torch.stack([getattr(one, name) for one in several])
            for name in several[0].tensors()
        }
        varsigma: Any = torch.tensor([one.varsigma for one in several], dtype=torch.float64)
        return cls(varsigma=varsigma.to(together["w"]), **together)

    def clone(self) -> Self:
        """Return a copy with memory of its own."""
        return self.replace(**{name: t.clone() for name, t in self.tensors().items()})

    def to_tensors(self) -> dict[str, Tensor]:
        """Everything as named tensors, for a file or a buffer; ς as a float64 number."""
        varsigma = torch.as_tensor(self.varsigma, dtype=torch.float64)
        return {**self.tensors(), "varsigma": varsigma}


def memory_name(memory: int) -> str:
    """What a memory is called in every table and picture: #17, counted from 0."""
    return f"#{memory}"


def from_memories(
    w: Tensor,
    p_q: Tensor,
    *,
    beta: float | Tensor,
    varsigma: float = 1.0,
    uniform_weight: float = 1.0,
) -> Mixture:
    """Memories with uninformative class weights: p = p_h p_q^T (App. initialization).

    p_h is 1/(P+P_0) for a memory, P_0/(P+P_0) for the uniform component; uniform_weight: P_0.
    """
    if not 0.0 <= uniform_weight <= 1e30:
        raise ValueError(f"uniform_weight must lie in [0, 1e30], got {uniform_weight}")
    p_h = torch.cat([w.new_tensor([uniform_weight]), w.new_ones(len(w))])
    p_h = p_h / (len(w) + uniform_weight)
    p_q = p_q.to(w)
    return Mixture(
        w=w,
        p=p_h[:, None] * p_q[None, :],
        beta=torch.as_tensor(beta, dtype=w.dtype, device=w.device),
        varsigma=float(varsigma),
        p_h=p_h,
        p_q=p_q,
    )
