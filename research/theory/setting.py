"""What the pictures of teacher and student share: the setting, and the two states to compare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mnemosphere.theory import (
    OrderParameters,
    SaddlePointProblem,
    Solution,
    random_starts,
    solve_saddle_point,
    symmetric_transition,
)
from mnemosphere.theory.teacher_student import match_memories

# Overlaps that differ by more than this are told apart; solutions are known to about 1e-8.
BROKEN = 1e-4


@dataclass(frozen=True)
class Setting:
    """A teacher with P* orthonormal memories and a student with P of equal share.

    p_0 is the share of the student's uniform component. soft_labels (P* rows of C+1 numbers that
    sum to 1) are the teacher's; None: no labels.
    """

    n_teacher: int = 2
    n_student: int = 2
    beta: float = 10.0
    rho: float = 2.0
    upsilon: float = 1.0
    p_0: float = 0.0
    n_features: int = 1000
    soft_labels: tuple[tuple[float, ...], ...] | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.p_0 < 1.0:
            raise ValueError(f"the uniform component's share must lie in [0, 1), got {self.p_0}")
        if self.soft_labels and len({len(row) for row in self.soft_labels}) != 1:
            raise ValueError("soft labels need rows of one length, C+1 numbers each")

    @property
    def p_h(self) -> Tensor:
        """Shares (P+1,) of the student's components."""
        share = (1.0 - self.p_0) / self.n_student
        return torch.tensor([self.p_0] + [share] * self.n_student, dtype=torch.float64)

    @property
    def targets(self) -> Tensor | None:
        """The teacher's soft labels (P*, C+1)."""
        if self.soft_labels is None:
            return None
        return torch.tensor(self.soft_labels, dtype=torch.float64)

    def problem(self, **changes: Any) -> SaddlePointProblem:
        """The saddle-point equations, with some of beta, rho, upsilon changed."""
        values = {name: changes.get(name, getattr(self, name)) for name in PARAMETERS}
        return SaddlePointProblem.uniform(
            self.n_teacher, self.n_student, n_features=self.n_features, p_h=self.p_h,
            labels=self.targets, **values,
        )  # fmt: skip

    def transition(self) -> float:
        """β at which the symmetric solution turns unstable."""
        return symmetric_transition(self.problem(), "beta")


PARAMETERS = ("beta", "rho", "upsilon")


def two_starts(problem: SaddlePointProblem, *, generator: torch.Generator) -> OrderParameters:
    """An informed start, memory μ on teacher μ mod P*, and an uninformed one, nearly symmetric."""
    shape = (problem.n_teacher, problem.n_student)
    own = torch.arange(shape[1]) % shape[0] == torch.arange(shape[0])[:, None]
    noise = torch.rand(2, *shape, dtype=torch.float64, generator=generator)
    even = torch.full(shape, 0.5 / shape[0] ** 0.5, dtype=torch.float64)
    # Noise parts memories that share a teacher, and lets the symmetric start leave a saddle.
    m = torch.stack([0.9 * own, even]) + 0.01 * noise
    p = random_starts(problem, 2, generator=generator).p
    return OrderParameters(m, p)


def solve_two(problem: SaddlePointProblem, *, generator: torch.Generator) -> Solution:
    """Where the informed start (0) and the uninformed one (1) end."""
    starts = two_starts(problem, generator=generator)
    # Critical slowing down: at the transition itself 1e-8 may not be met, and need not be.
    return solve_saddle_point(problem, starts, tol=1e-8, max_iter=3000)


def matched(m: Tensor) -> Tensor:
    """Overlaps (P*, P) with the memories in the order that matches the teacher's."""
    return m[:, match_memories(m)]


def is_broken(m: Tensor) -> bool:
    """Whether some memory (column of m) overlaps differently with different teachers."""
    return bool((m - m.mean(0)).abs().max() > BROKEN)
