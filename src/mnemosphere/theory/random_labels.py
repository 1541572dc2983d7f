"""The uniform teacher with random class weights: the average over their draws of the best student.

The student's class weights p are few while the data are many, so p settles at its best value for
the class weights g* that the teacher happens to have, and

    f = E_{g*} max_p f(m, m_hat, p; g*).

Eq. (uniform_saddle-point) averages first: it maximizes f(m, m_hat, p; E g*), where every vector of
the teacher has the label distribution p_q*. As f is linear in g* its value is never the larger one,
and it is exact only if all g* are equal. In general labels tell the vectors apart, and break the
symmetry between memories where the averaged equation keeps it.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_point import random_starts
from mnemosphere.theory.solver import solve
from mnemosphere.theory.teacher_student import sample_soft_labels


@dataclass(frozen=True)
class LabelAverage:
    """The solution of largest free entropy for each of D draws of the teacher's class weights.

    Attributes
    ----------
    labels : tensor of shape (D, P*, C+1)
        Class weights of the teacher.
    m : tensor of shape (D, P*, P)
        Overlaps.
    p : tensor of shape (D, P+1, C+1)
        Class weights of the student.
    free_entropy : tensor of shape (D,)
        f/(ϱ P*).

    Examples
    --------
    >>> sizes = {"beta": 4.0, "rho": 2.0, "upsilon": 1.0, "n_features": 1000}
    >>> found = mn.theory.solve_random_labels(
    ...     2, 2, 2, **sizes, n_draws=2, n_starts=2, generator=generator
    ... )
    >>> found.m.shape
    torch.Size([2, 2, 2])
    """

    labels: Tensor
    m: Tensor
    p: Tensor
    free_entropy: Tensor

    @property
    def mean_free_entropy(self) -> float:
        """Mean of `free_entropy` over the draws, float."""
        return float(self.free_entropy.mean())

    @property
    def standard_error(self) -> float:
        """Standard error of `mean_free_entropy` over the draws, float; nan for a single one."""
        if len(self.free_entropy) < 2:
            return math.nan
        return float(self.free_entropy.std()) / math.sqrt(len(self.free_entropy))

    @property
    def spread(self) -> Tensor:
        """Largest gap between two memories' overlaps with one vector, tensor of shape (D,); 0 if symmetric."""
        return (self.m.amax(2) - self.m.amin(2)).amax(1)


def solve_random_labels(
    n_teacher: int,
    n_student: int,
    n_classes: int,
    *,
    beta: float,
    rho: float,
    upsilon: float,
    n_features: int,
    p_h: Tensor | None = None,
    p_q: Tensor | None = None,
    labels: Tensor | None = None,
    n_draws: int = 8,
    n_starts: int = 20,
    tol: float = 1e-10,
    max_iter: int = 5000,
    generator: torch.Generator,
) -> LabelAverage:
    """Solve the saddle-point equations for draws of the teacher's class weights and keep the best solutions.

    Parameters
    ----------
    n_teacher : int
        Memories P* of the teacher.
    n_student : int
        Memories P of the student.
    n_classes : int
        Classes C.
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
        Weights of the student's classes; None: the mean of each draw.
    labels : tensor of shape (D, P*, C+1), default None
        The draws; None: rows uniform on the simplex.
    n_draws : int, default 8
        Draws D.
    n_starts : int, default 20
        Starts for each draw.
    tol : float, default 1e-10
        Residual of a solution.
    max_iter : int, default 5000
        Steps at most.
    generator : torch.Generator
        Source of draws and starts.

    Returns
    -------
    LabelAverage
        The best solution for each draw.

    Raises
    ------
    NotConvergedError
        If no start converges for some draw.

    Examples
    --------
    >>> sizes = {"beta": 4.0, "rho": 2.0, "upsilon": 1.0, "n_features": 1000}
    >>> mn.theory.solve_random_labels(
    ...     2, 2, 2, **sizes, n_draws=2, n_starts=2, generator=generator
    ... ).free_entropy.shape
    torch.Size([2])
    """
    if labels is None:
        if n_draws < 1:
            raise ValueError(f"n_draws must be at least 1, got {n_draws}")
        shape = (n_teacher, n_classes + 1)
        draws = [sample_soft_labels(*shape, generator=generator) for _ in range(n_draws)]
        labels = torch.stack(draws)
    if labels.ndim != 3 or tuple(labels.shape[1:]) != (n_teacher, n_classes + 1):
        raise ValueError(
            f"labels must be (draws, {n_teacher}, {n_classes + 1}), got {tuple(labels.shape)}"
        )
    m, p, values = [], [], []
    for g in labels:
        problem = SaddlePointProblem.uniform(
            n_teacher,
            n_student,
            beta=beta,
            rho=rho,
            upsilon=upsilon,
            n_features=n_features,
            p_h=p_h,
            p_q=p_q,
            labels=g,
        )
        starts = random_starts(problem, n_starts, generator=generator)
        found = solve(problem, starts, tol=tol, max_iter=max_iter)
        if not bool(found.converged.any()):
            found.raise_if_failed()
        best = int(found.objective.masked_fill(~found.converged, -math.inf).argmax())
        m.append(found.m[best])
        p.append(found.p[best])
        values.append(found.objective[best])
    return LabelAverage(labels, torch.stack(m), torch.stack(p), torch.stack(values))
