"""The teacher–student problem that the saddle-point equations are about."""

import math
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mnemosphere.numerics import bessel, sphere


class ValidityWarning(UserWarning):
    """The parameters leave the regime β ≪ N, β(1 − ς²) ≪ 2Nς in which the equations were derived.

    Near a transition the second ratio counts 1/|1 − λ| times, λ the largest eigenvalue of the symmetric state.

    Examples
    --------
    >>> issubclass(mn.theory.ValidityWarning, UserWarning)
    True
    """


# The derivation drops terms of relative size β/N, and β(1 − ς²)/(2Nς) from the noise of the
# examples; beyond this bound they show.
MAX_DROPPED = 0.1


def varsigma(x: float) -> float:
    """ς(x) = x / (√(x² + 1) + 1), with ς(∞) = 1. Below Eq. (uniform_saddle-point)."""
    # hypot does not overflow where x² would.
    return 1.0 if math.isinf(x) else x / (math.hypot(x, 1.0) + 1.0)


@dataclass(frozen=True)
class SaddlePointProblem:
    """Data of the saddle-point equations; build it with `uniform` or `clamped`.

    Attributes
    ----------
    patterns : tensor of shape (P*, D)
        Unit rows, float64 like all tensors.
    targets : tensor of shape (P*, C+1)
        Expected soft labels of the patterns. One column means: no labels.
    p_h : tensor of shape (P+1,)
        The student's weights of memories; p_h[0] is the uniform component.
    p_q : tensor of shape (C+1,)
        The student's weights of classes.
    beta : float
        Inverse temperature β of the student.
    rho : float
        ϱ = M/(P* N), which may be infinite.
    upsilon : float
        υ = β*/N, which may be infinite.
    n_features : int
        N, which enters through log Ω_N(β)/Ω_N(0) alone.
    uniform_teacher : bool
        Whether the patterns are orthonormal with equal targets, so that they may be permuted.

    Examples
    --------
    >>> mn.theory.SaddlePointProblem.uniform(
    ...     2, 3, beta=10.0, rho=2.0, upsilon=1.0, n_features=1000
    ... ).n_student
    3
    """

    patterns: Tensor
    targets: Tensor
    p_h: Tensor
    p_q: Tensor
    beta: float
    rho: float
    upsilon: float
    n_features: int
    uniform_teacher: bool

    def __post_init__(self) -> None:
        for name in ("patterns", "targets", "p_h", "p_q"):
            object.__setattr__(self, name, getattr(self, name).to(torch.float64))
        for name in ("beta", "rho", "upsilon"):
            object.__setattr__(self, name, float(getattr(self, name)))
        _check_scalars(self)
        _check_arrays(self)
        # Sums and norms that are off by the rounding of float32 are made exact.
        for name in ("targets", "p_h", "p_q"):
            value = getattr(self, name)
            object.__setattr__(self, name, value / value.sum(-1, keepdim=True))
        object.__setattr__(self, "patterns", sphere.project(self.patterns))

    @classmethod
    def uniform(
        cls,
        n_teacher: int,
        n_student: int,
        *,
        beta: float,
        rho: float,
        upsilon: float,
        n_features: int,
        p_h: Tensor | None = None,
        p_q: Tensor | None = None,
        labels: Tensor | None = None,
    ) -> "SaddlePointProblem":
        """Set up Eq. (uniform_saddle-point), with a uniform teacher and one draw of its class weights.

        Parameters
        ----------
        n_teacher : int
            Memories P* of the teacher.
        n_student : int
            Memories P of the student.
        beta : float
            Inverse temperature β of the student.
        rho : float
            ϱ = M/(P* N), which may be infinite.
        upsilon : float
            υ = β*/N, which may be infinite.
        n_features : int
            N.
        p_h : tensor of shape (P+1,), default None
            Weights of the student's memories; None: all equal, without uniform component.
        p_q : tensor of shape (C+1,), default None
            Weights of the student's classes; None: the mean of the teacher's class weights.
        labels : tensor of shape (P*, C+1), default None
            Class weights g* of each vector of the teacher, rows that sum to 1; None: no labels. If all rows
            are equal, the paper's equation is exact.

        Returns
        -------
        SaddlePointProblem
            The equations.

        Examples
        --------
        >>> weights = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
        >>> mn.theory.SaddlePointProblem.uniform(
        ...     2, 2, beta=10.0, rho=2.0, upsilon=1.0, n_features=1000, labels=weights.expand(2, 3)
        ... ).n_columns
        3
        """
        if n_teacher < 1 or n_student < 1:
            raise ValueError(f"need at least one memory each, got {n_teacher} and {n_student}")
        if labels is None:
            labels = torch.ones(n_teacher, 1)
        elif labels.ndim != 2 or labels.shape[0] != n_teacher:
            raise ValueError(f"labels must be ({n_teacher}, C+1), got {tuple(labels.shape)}")
        # Vectors with class weights of their own look like clamped ones.
        uniform = bool((labels == labels[0]).all())
        values = {"beta": beta, "rho": rho, "upsilon": upsilon, "n_features": n_features}
        x = torch.eye(n_teacher)
        return cls._build(x, labels, n_student, p_h, p_q, uniform_teacher=uniform, **values)

    @classmethod
    def clamped(
        cls,
        patterns: Tensor,
        targets: Tensor | None = None,
        *,
        n_student: int | None = None,
        beta: float,
        rho: float,
        upsilon: float,
        p_h: Tensor | None = None,
        p_q: Tensor | None = None,
    ) -> "SaddlePointProblem":
        """Set up Eq. (saddle-point), with a teacher clamped to given patterns.

        Parameters
        ----------
        patterns : tensor of shape (P*, N)
            Unit rows.
        targets : tensor of shape (P*, C+1), default None
            Their soft labels; None: no labels.
        n_student : int, default None
            Memories P of the student; give this or `p_h`.
        beta : float
            Inverse temperature β of the student.
        rho : float
            ϱ = M/(P* N), which may be infinite.
        upsilon : float
            υ = β*/N, which may be infinite.
        p_h : tensor of shape (P+1,), default None
            Weights of the student's memories; None: all equal, without uniform component.
        p_q : tensor of shape (C+1,), default None
            Weights of the student's classes; None: the mean of the targets.

        Returns
        -------
        SaddlePointProblem
            The equations.

        Examples
        --------
        >>> inf = float("inf")
        >>> mn.theory.SaddlePointProblem.clamped(
        ...     teacher.w, n_student=1, beta=5.0, rho=inf, upsilon=inf
        ... ).n_teacher
        2
        """
        q = torch.ones(patterns.shape[0], 1) if targets is None else targets
        values = {"beta": beta, "rho": rho, "upsilon": upsilon, "n_features": patterns.shape[1]}
        return cls._build(patterns, q, n_student, p_h, p_q, uniform_teacher=False, **values)

    @classmethod
    def _build(
        cls, patterns: Tensor, targets: Tensor, n_student: int | None, p_h: Tensor | None,
        p_q: Tensor | None, **values: Any,
    ) -> "SaddlePointProblem":  # fmt: skip
        """A problem with equal memories and the mean of the targets unless others are given."""
        if p_h is None:
            if n_student is None:
                raise ValueError("the number of memories is unknown: pass n_student or p_h")
            p_h = equal_memories(n_student)
        elif n_student is not None and p_h.shape[0] != n_student + 1:
            raise ValueError(f"p_h must have {n_student + 1} entries, got {p_h.shape[0]}")
        p_q = targets.to(torch.float64).mean(0) if p_q is None else p_q
        problem = cls(patterns=patterns, targets=targets, p_h=p_h, p_q=p_q, **values)
        problem.warn_if_invalid()
        return problem

    @property
    def n_teacher(self) -> int:
        """Number of patterns P*, int."""
        return self.patterns.shape[0]

    @property
    def n_student(self) -> int:
        """Number of memories P of the student, int."""
        return self.p_h.shape[0] - 1

    @property
    def n_columns(self) -> int:
        """Number of label columns C + 1, int; 1 without labels."""
        return self.p_q.shape[0]

    @cached_property
    def beta_eff(self) -> float:
        """β_eff = ς(2υ) β, float."""
        return self.beta * varsigma(2.0 * self.upsilon)

    @property
    def gain(self) -> float:
        """2 β_eff ϱ, which multiplies ‖x_bar‖ inside ς, float."""
        return 2.0 * self.beta_eff * self.rho

    @cached_property
    def log_ratio(self) -> float:
        """Log Ω_N(β)/Ω_N(0) = β_eff m^{μ* 0}."""
        return float(bessel.log_omega_ratio(self.beta, self.n_features))

    @property
    def noise(self) -> float:
        """s² = β²(1 − ς(2υ)²)/N, the variance of a field over examples of one pattern, float."""
        share = self.beta_eff / self.beta
        return self.beta**2 * (1.0 - share * share) / self.n_features

    def replace(self, **changes: Any) -> "SaddlePointProblem":
        """Copy the problem with some attributes changed, and check it again.

        Parameters
        ----------
        **changes
            Attributes and their new values.

        Returns
        -------
        SaddlePointProblem
            The copy.

        Examples
        --------
        >>> problem.replace(beta=12.0).beta
        12.0
        """
        return replace(self, **changes)

    def compressed(self) -> "SaddlePointProblem":
        """The same equations in coordinates of the patterns' span: nothing outside ever moves."""
        if self.patterns.shape[1] <= self.n_teacher:
            return self
        _, triangle = torch.linalg.qr(self.patterns.T)  # x = (Q R)ᵀ, (D, P*)
        return self.replace(patterns=triangle.T.contiguous())

    def warn_if_invalid(self) -> None:
        """Warn (ValidityWarning) outside β ≪ N and s² ≪ 2β_eff |1 − λ|, s² the noise of a field.

        With ϱ = υ = ∞ the equations are Eq. (stationarity), which holds at any β: no warning.
        """
        if math.isinf(self.rho) and math.isinf(self.upsilon):
            return
        dropped = self.noise / (2.0 * self.beta_eff)
        distance = min(1.0, abs(1.0 - self._parting()))
        if self.beta > MAX_DROPPED * self.n_features:
            message = (
                f"beta = {self.beta:g} is not small against n_features = {self.n_features}: the "
                "equations drop terms of relative size beta/n_features; lower beta or raise "
                "n_features"
            )
        elif dropped > MAX_DROPPED * distance:
            near = f", and a transition at a distance of {distance:.2g} multiplies them"
            message = (
                f"the noise of the examples is not small at upsilon = {self.upsilon:g}, beta = "
                f"{self.beta:g}: the equations drop terms of relative size {dropped:.2g}"
                f"{near if distance < 1.0 else ''}; lower beta, or raise upsilon or n_features"
            )
        else:
            return
        warnings.warn(message, ValidityWarning, stacklevel=4)

    def _parting(self) -> float:
        """λ = β_eff a, with which memories of the symmetric state part; 0 where it has no closed form."""
        equal = float(self.p_h[0]) == 0.0 and bool((self.p_h[1:] == self.p_h[1]).all())
        if not self.uniform_teacher or not equal or min(self.n_teacher, self.n_student) == 1:
            return 0.0
        root = math.sqrt(self.n_teacher)
        return self.beta_eff * varsigma(self.gain * root / self.n_student) / root


def equal_memories(n_student: int) -> Tensor:
    """p_h (P+1,) of equal memories, without uniform component."""
    p_h = torch.full((n_student + 1,), 1.0 / n_student, dtype=torch.float64)
    p_h[0] = 0.0
    return p_h


def _check_scalars(problem: SaddlePointProblem) -> None:
    for name in ("rho", "upsilon", "beta"):
        value = getattr(problem, name)
        if math.isnan(value) or value <= 0.0:
            raise ValueError(f"{name} must be positive, got {value}")
    if math.isinf(problem.beta):
        raise ValueError("beta must be finite, got inf: take a large number for the hard limit")
    if problem.n_features < 2:
        raise ValueError(f"n_features must be at least 2, got {problem.n_features}")


def _check_arrays(problem: SaddlePointProblem) -> None:
    x, q, p_h, p_q = problem.patterns, problem.targets, problem.p_h, problem.p_q
    if x.ndim != 2 or q.ndim != 2 or p_h.ndim != 1 or p_q.ndim != 1:
        raise ValueError("patterns and targets must be matrices, p_h and p_q vectors")
    if q.shape != (x.shape[0], p_q.shape[0]):
        raise ValueError(
            f"targets must have shape {(x.shape[0], p_q.shape[0])}, got {tuple(q.shape)}"
        )
    if p_h.shape[0] < 2:
        raise ValueError("p_h needs the uniform component and at least one memory")
    if not torch.allclose(x.norm(dim=1), torch.ones_like(x[:, 0]), atol=1e-6):
        raise ValueError("patterns must be unit rows: divide each row by its norm")
    for name, value in (("p_h", p_h), ("p_q", p_q)):
        if not bool(torch.isfinite(value).all()) or abs(float(value.sum()) - 1.0) > 1e-6:
            raise ValueError(
                f"infeasible marginal: {name} must sum to 1, got {float(value.sum()):.12g}"
            )
    if float(p_h[0]) < 0 or bool((p_h[1:] <= 0).any()):
        raise ValueError(
            "infeasible marginal: p_h must be positive for every memory and non-negative for the "
            "uniform component 0; drop memories of weight zero"
        )
    if bool((p_q <= 0).any()):
        raise ValueError(
            "infeasible marginal: p_q must be positive; drop empty label columns or smooth labels"
        )
    if bool((q < 0).any()) or not torch.allclose(q.sum(1), torch.ones_like(q[:, 0]), atol=1e-6):
        raise ValueError("targets must be non-negative rows that sum to 1")
