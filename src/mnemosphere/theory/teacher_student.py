"""Teacher and student, Sec. (teacher-student): planted data and the student's posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from mnemosphere.numerics import polytope, sphere, vmf
from mnemosphere.theory import gibbs
from mnemosphere.theory.diagnostics import Estimate, estimate
from mnemosphere.theory.problem import equal_memories


def _check_positive(value: float, name: str, hint: str) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be positive and finite, got {value}: {hint}")


def _check_count(value: int, name: str, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


@dataclass(frozen=True)
class Teacher:
    """Planted weights: no uniform component and equal shares 1/P*, as in the paper.

    Attributes
    ----------
    w : tensor of shape (P*, N)
        Unit rows.
    g : tensor of shape (P*, C+1)
        Soft labels, rows that sum to 1; the last column is the class "none of the C".
    beta : float
        β* = υN.

    Examples
    --------
    >>> teacher.w.shape, teacher.g.shape
    (torch.Size([2, 30]), torch.Size([2, 1]))
    """

    w: Tensor
    g: Tensor
    beta: float

    @property
    def p_q(self) -> Tensor:
        """Share of each class among the data, tensor of shape (C+1,)."""
        return self.g.mean(0)


@dataclass(frozen=True)
class PlantedData:
    """M examples of a teacher.

    Attributes
    ----------
    x : tensor of shape (M, N)
        Unit rows.
    y : tensor of int of shape (M,)
        Classes, columns of g.
    cluster : tensor of int of shape (M,)
        The teacher's memory behind each row.

    Examples
    --------
    >>> data.x.shape, len(data.y)
    (torch.Size([120, 30]), 120)
    """

    x: Tensor
    y: Tensor
    cluster: Tensor


def sample_teacher(
    n_memories: int,
    n_features: int,
    n_classes: int = 0,
    *,
    upsilon: float,
    soft_labels: Tensor | None = None,
    generator: torch.Generator,
) -> Teacher:
    """Draw a teacher: memories uniform on the sphere, soft labels uniform on the simplex or given.

    Parameters
    ----------
    n_memories : int
        Memories P*.
    n_features : int
        N.
    n_classes : int, default 0
        Classes C; 0: no labels, which is one column.
    upsilon : float
        υ = β*/N, which sets the noise of the data.
    soft_labels : tensor of shape (P*, C+1), default None
        Soft labels; None: drawn.
    generator : torch.Generator
        Source of the draws.

    Returns
    -------
    Teacher
        In float64, on the generator's device.

    Examples
    --------
    >>> mn.theory.sample_teacher(2, 30, 3, upsilon=1.0, generator=generator).g.shape
    torch.Size([2, 4])
    """
    _check_count(n_memories, "n_memories", 1)
    _check_count(n_features, "n_features", 2)
    _check_count(n_classes, "n_classes", 0)
    _check_positive(upsilon, "upsilon", "it is β*/N; large means little noise")
    device = generator.device
    w = sphere.sample_uniform(
        n_memories, n_features, generator=generator, dtype=torch.float64, device=device
    )
    shape = (n_memories, n_classes + 1)
    if soft_labels is None:
        u = torch.rand(*shape, generator=generator, dtype=torch.float64, device=device)
        g = -torch.log1p(-u)  # normalized exponential variables are uniform on the simplex
    else:
        if tuple(soft_labels.shape) != shape:
            raise ValueError(
                f"soft_labels must be (n_memories, n_classes + 1) = {shape}, "
                f"got {tuple(soft_labels.shape)}"
            )
        g = soft_labels.to(device=device, dtype=torch.float64)
        if bool((g < 0).any()) or not torch.allclose(g.sum(1), g.new_ones(n_memories)):
            raise ValueError("soft_labels must be non-negative with rows that sum to 1")
    return Teacher(w, g / g.sum(1, keepdim=True), upsilon * n_features)


def sample_data(teacher: Teacher, rho: float, *, generator: torch.Generator) -> PlantedData:
    """Draw M = round(ϱ P* N) examples of a teacher.

    The memory `μ*` is uniform, `x ~ vMF(w*^μ*, β*)` and `y ~ g*^μ*`.

    Parameters
    ----------
    teacher : Teacher
        The teacher.
    rho : float
        ϱ = M/(P* N).
    generator : torch.Generator
        Source of the draws.

    Returns
    -------
    PlantedData
        Rows, classes and the memory behind each row.

    Examples
    --------
    >>> mn.theory.sample_data(teacher, 1.0, generator=generator).x.shape
    torch.Size([60, 30])
    """
    _check_positive(rho, "rho", "it is M/(P* N), examples per memory and dimension")
    n_memories, n = teacher.w.shape
    n_rows = round(rho * n_memories * n)
    if n_rows == 0:
        raise ValueError(f"rho = {rho} gives no data at P* = {n_memories}, N = {n}: raise it")
    device = teacher.w.device
    cluster = torch.randint(n_memories, (n_rows,), generator=generator, device=device)
    kappa = torch.tensor(teacher.beta, dtype=torch.float64, device=device)
    x = vmf.sample(teacher.w[cluster], kappa, generator=generator)
    y = torch.multinomial(teacher.g[cluster], 1, generator=generator)[:, 0]
    return PlantedData(x, y, cluster)


def match_memories(overlaps: Tensor) -> Tensor:
    """Order (..., P) of student memories that best matches the teacher's, by overlaps (..., P*, P).

    Maximizes the sum of matched overlaps. Column j of the reordered matrix is the match of teacher
    memory j when P ≥ P* (surplus memories last); when P < P*, matches come in the teacher's order.
    """
    n_memories = overlaps.shape[-1]
    flat = overlaps.reshape(-1, *overlaps.shape[-2:]).cpu().numpy()
    orders = []
    for matrix in flat:
        _, matched = linear_sum_assignment(matrix, maximize=True)
        chosen = [int(i) for i in matched]
        orders.append(chosen + [i for i in range(n_memories) if i not in chosen])
    order = torch.tensor(orders, device=overlaps.device)
    return order.reshape(*overlaps.shape[:-2], n_memories)


@dataclass(frozen=True)
class Posterior:
    """Draws of the student's weights after burn-in, memories in the chains' own order.

    Attributes
    ----------
    trace : tensor of shape (chains, draws, P*, P)
        Overlaps `⟨w*^μ*, w^μ⟩`.
    class_weights : tensor of shape (chains, draws, P+1, C+1)
        Class weights p.
    state : GibbsState
        Last state of the chains, w (chains, P, N) and p (chains, P+1, C+1).

    Examples
    --------
    >>> posterior.trace.shape
    torch.Size([2, 5, 2, 2])
    """

    trace: Tensor
    class_weights: Tensor
    state: gibbs.GibbsState

    def order(self) -> Tensor:
        """Order the memories of each draw: one permutation per chain, from its mean overlaps.

        Returns
        -------
        tensor of int of shape (chains, draws, P)
            Numbers of memories.

        Examples
        --------
        >>> posterior.order().shape
        torch.Size([2, 5, 2])
        """
        order = match_memories(self.trace.mean(1))  # (chains, P)
        return order[:, None].expand(-1, self.trace.shape[1], -1)

    def overlaps(self) -> Estimate:
        """Estimate the posterior mean of the overlaps, memories ordered as in `order`.

        It is right while chains keep their permutation, as in the broken phase. In the symmetric phase, see
        `mean_overlap`.

        Returns
        -------
        Estimate
            Means (P*, P) with standard errors, R-hat and effective sample size.

        Examples
        --------
        >>> posterior.overlaps().mean.shape
        torch.Size([2, 2])
        """
        order = self.order()[:, :, None, :].expand_as(self.trace)
        return estimate(self.trace.gather(3, order))

    def mean_overlap(self) -> Estimate:
        """Estimate the posterior mean of the average over all P*·P overlaps, which no permutation changes.

        Returns
        -------
        Estimate
            Mean with standard error, R-hat and effective sample size.

        Examples
        --------
        >>> posterior.mean_overlap().mean.shape
        torch.Size([])
        """
        return estimate(self.trace.mean((2, 3)))


def sample_posterior(
    teacher: Teacher,
    data: PlantedData,
    *,
    n_memories: int,
    beta: float,
    p_h: Tensor | None = None,
    p_q: Tensor | None = None,
    start: Literal["teacher", "random"] | Tensor = "random",
    n_chains: int = 4,
    n_burn_in: int = 200,
    n_sweeps: int = 500,
    generator: torch.Generator,
) -> Posterior:
    """Sample the student's weights given data, Eq. (posterior), and record their overlaps.

    The student has uniform priors on the sphere and on {p ≥ 0: row sums p_h, column sums p_q}. It does
    not know β*. Broken and symmetric phases may be metastable, so compare both kinds of start.

    Parameters
    ----------
    teacher : Teacher
        The teacher.
    data : PlantedData
        Its examples.
    n_memories : int
        Memories P of the student.
    beta : float
        Inverse temperature β of the student.
    p_h : tensor of shape (P+1,), default None
        Weights of the student's memories; None: all equal, without uniform component.
    p_q : tensor of shape (C+1,), default None
        Weights of the student's classes; None: the teacher's.
    start : {"random", "teacher"} or tensor of shape (chains, P, N), default "random"
        "random": uniform on the sphere. "teacher": the teacher's memories, repeated or cut to P.
    n_chains : int, default 4
        Chains.
    n_burn_in : int, default 200
        Sweeps that are not recorded.
    n_sweeps : int, default 500
        Sweeps that are.
    generator : torch.Generator
        Source of the draws.

    Returns
    -------
    Posterior
        Overlaps and class weights of the draws.

    Examples
    --------
    >>> mn.theory.sample_posterior(
    ...     teacher, data, n_memories=2, beta=10.0, n_chains=2, n_burn_in=5, n_sweeps=5,
    ...     generator=generator,
    ... ).trace.shape
    torch.Size([2, 5, 2, 2])
    """
    _check_count(n_memories, "n_memories", 1)
    _check_count(n_chains, "n_chains", 1)
    _check_count(n_burn_in, "n_burn_in", 0)
    _check_count(n_sweeps, "n_sweeps", 4)
    _check_positive(beta, "beta", "it is the student's inverse temperature")
    x = data.x
    p_h = (equal_memories(n_memories) if p_h is None else p_h).to(x)
    p_q = (teacher.p_q if p_q is None else p_q).to(x)
    n_columns = teacher.g.shape[1]
    if tuple(p_h.shape) != (n_memories + 1,) or tuple(p_q.shape) != (n_columns,):
        raise ValueError(
            f"p_h and p_q must have {n_memories + 1} and {n_columns} entries, "
            f"got shapes {tuple(p_h.shape)} and {tuple(p_q.shape)}"
        )
    polytope.check_marginals(p_h, p_q)
    seen = torch.bincount(data.y, minlength=n_columns) > 0
    if bool((seen & (p_q == 0)).any()):
        raise ValueError("p_q is 0 for a class that occurs in the data: give it a positive share")

    w = _start(start, teacher, n_chains, n_memories, generator)
    state = gibbs.GibbsState(w, (p_h[:, None] * p_q).expand(n_chains, -1, -1))
    rows = gibbs.Likelihood(x, data.y, x.new_full((n_chains,), beta))
    moves = n_memories + n_columns
    trace, class_weights = [], []
    for i in range(n_burn_in + n_sweeps):
        state = gibbs.sweep(state, rows, class_weight_moves=moves, generator=generator)
        if i >= n_burn_in:
            trace.append(teacher.w @ state.w.mT)  # (P*, N) @ (chains, N, P)
            class_weights.append(state.p)
    return Posterior(torch.stack(trace, 1), torch.stack(class_weights, 1), state)


def _start(
    start: Literal["teacher", "random"] | Tensor,
    teacher: Teacher,
    n_chains: int,
    n_memories: int,
    generator: torch.Generator,
) -> Tensor:
    """First memories of the chains, (chains, P, N)."""
    n_teacher, n = teacher.w.shape
    shape = (n_chains, n_memories, n)
    if isinstance(start, Tensor):
        if tuple(start.shape) != shape:
            raise ValueError(f"start must be (chains, P, N) = {shape}, got {tuple(start.shape)}")
        sphere.check(start, name="start")
        return start.to(teacher.w)
    if start == "teacher":
        index = torch.arange(n_memories, device=teacher.w.device) % n_teacher
        return teacher.w[index].expand(shape)
    if start == "random":
        w = sphere.sample_uniform(
            n_chains * n_memories,
            n,
            generator=generator,
            dtype=teacher.w.dtype,
            device=teacher.w.device,
        )
        return w.reshape(shape)
    raise ValueError(f"start must be 'teacher', 'random' or a tensor, got {start!r}")
