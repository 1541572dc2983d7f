"""All solutions of the saddle-point equations that differ by more than a permutation."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.theory import stability
from mnemosphere.theory.newton import newton
from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.saddle_free import MAX_UNKNOWNS, unknowns
from mnemosphere.theory.saddle_point import (
    OrderParameters,
    conjugate,
    free_entropy_at,
    random_starts,
)
from mnemosphere.theory.solver import solve

# Eigenvalues of the Jacobian this little above 1 are flat directions.
_FLAT = 1e-7


@dataclass(frozen=True)
class Symmetry:
    """What is left of the permutation symmetry of the memories.

    Attributes
    ----------
    kind : str
        "paramagnetic" (no overlap at all), "symmetric" (all memories coincide), "broken" (no two do) or
        "partially broken".
    groups : tuple of tuples of int
        Memories that coincide, largest group first.
    specialization : tuple of P int or None
        For each memory the teacher it overlaps most with; None if several tie.

    Examples
    --------
    >>> mn.theory.classify(state).kind
    'broken'
    """

    kind: str
    groups: tuple[tuple[int, ...], ...]
    specialization: tuple[int | None, ...]


@dataclass(frozen=True)
class DistinctSolution:
    """One solution of the saddle-point equations, up to permutations.

    Attributes
    ----------
    problem : SaddlePointProblem
        The equations.
    m : tensor of shape (P*, P)
        Overlaps.
    m_hat : tensor of shape (P*, P)
        Conjugate overlaps.
    p : tensor of shape (P+1, C+1)
        Class weights of the student.
    free_entropy : float
        f/(ϱ P*).
    symmetry : Symmetry
        Which memories coincide.
    leading_eigenvalue : float
        Largest eigenvalue of the Jacobian of the full map.
    index : int
        Directions in which the free entropy rises; 0 for a local maximum.
    count : int
        Starts that ended here.

    Examples
    --------
    >>> found = mn.theory.find_solutions(problem, 8, generator=generator)[0]
    >>> found.stable, found.symmetry.kind
    (True, 'broken')
    """

    problem: SaddlePointProblem
    m: Tensor
    m_hat: Tensor
    p: Tensor
    free_entropy: float
    symmetry: Symmetry
    leading_eigenvalue: float
    index: int
    count: int

    @property
    def state(self) -> OrderParameters:
        """The order parameters, OrderParameters."""
        return OrderParameters(self.m, self.p)

    @property
    def stable(self) -> bool:
        """Whether it is a local maximum of the free entropy, bool; flat directions are allowed."""
        return self.index == 0


def classify(state: OrderParameters, *, tol: float = 1e-5) -> Symmetry:
    """Determine which memories of a state coincide.

    A single memory counts as symmetric if it overlaps equally with every teacher.

    Parameters
    ----------
    state : OrderParameters
        One state m (P*, P), p (P+1, C+1).
    tol : float, default 1e-5
        Overlaps that differ by less are equal.

    Returns
    -------
    Symmetry
        Kind, groups of memories and their specialization.

    Examples
    --------
    >>> mn.theory.classify(state).groups
    ((0,), (1,))
    """
    m = state.m
    n_teacher, n_student = m.shape
    distance = (m.unsqueeze(2) - m.unsqueeze(1)).abs().amax(0)  # (P, P)
    left = list(range(n_student))
    groups: list[tuple[int, ...]] = []
    while left:
        group = tuple(j for j in left if float(distance[left[0], j]) < tol)
        groups.append(group)
        left = [j for j in left if j not in group]
    groups.sort(key=lambda group: (-len(group), group))
    best = m.amax(0)
    specialization = tuple(
        int(m[:, j].argmax()) if int((m[:, j] > best[j] - tol).sum()) == 1 else None
        for j in range(n_student)
    )
    even = n_teacher == 1 or float((best - m.amin(0)).max()) < tol
    if float(m.abs().max()) < tol:
        kind = "paramagnetic"
    elif len(groups) == 1 and (n_student > 1 or even):
        kind = "symmetric"
    elif len(groups) == n_student:
        kind = "broken"
    else:
        kind = "partially broken"
    return Symmetry(kind, tuple(groups), specialization)


def signature(problem: SaddlePointProblem, state: OrderParameters) -> Tensor:
    """Numbers (S, K) that agree for states equal up to permutations, and else differ.

    Batch of states m (S, P*, P), p (S, P+1, C+1). Memories may be permuted together with their
    rows of p and p_h; the teachers of the uniform problem too. Each memory and each teacher gets a
    color, refined by the colors it overlaps with (color refinement, with smooth functions in place
    of hashes); sorted colors do not depend on the order. The singular values of m tell apart what
    refinement cannot, such as one long cycle of overlaps from two short ones.
    """
    m, p = state.m, state.p
    marginal = problem.p_h[1:].expand(m.shape[0], -1)
    weights = torch.arange(1, problem.n_columns + 1, dtype=m.dtype).sqrt()
    memory = torch.cos(3.0 * marginal) + torch.sin(p[:, 1:, :] * 5.0) @ weights  # (S, P)
    teacher = torch.zeros(m.shape[:2], dtype=m.dtype)  # (S, P*)
    if not problem.uniform_teacher:
        teacher = teacher + torch.arange(problem.n_teacher, dtype=m.dtype)
    for _ in range(3):
        met = torch.sin(2.0 * m + 0.7 * memory.unsqueeze(1)).mean(2)  # (S, P*)
        seen = torch.sin(1.7 * m + 0.9 * teacher.unsqueeze(2)).mean(1)  # (S, P)
        teacher, memory = teacher + met, memory + seen
    return torch.cat(
        [
            memory.sort(1).values,
            teacher.sort(1).values if problem.uniform_teacher else teacher,
            torch.linalg.svdvals(m),
        ],
        dim=1,
    )


def structured_starts(
    problem: SaddlePointProblem, n_starts: int, *, generator: torch.Generator
) -> OrderParameters:
    """Random starts in which groups of memories (and of uniform teachers) move as one.

    The equations keep such ties, so these starts reach solutions that are saddles for generic ones.
    """
    starts = random_starts(problem, n_starts, generator=generator)
    m, p = starts.m.clone(), starts.p.clone()
    for s in range(n_starts):
        leader = _random_ties(problem.n_student, generator)
        m[s] = m[s][:, leader]
        # Class weights of tied memories: the same shape of row, each with its own marginal.
        if problem.n_columns > 1:
            p[s] = problem.p_h.unsqueeze(-1) * problem.p_q
        if problem.uniform_teacher:
            m[s] = m[s][_random_ties(problem.n_teacher, generator)]
    return OrderParameters(m, p)


def _random_ties(n: int, generator: torch.Generator) -> Tensor:
    """For each of n items the item it copies; a random number of groups."""
    n_groups = int(torch.randint(1, n + 1, (1,), generator=generator))
    return torch.randint(n_groups, (n,), generator=generator)


def find_solutions(
    problem: SaddlePointProblem,
    n_starts: int = 200,
    *,
    generator: torch.Generator,
    tol: float = 1e-10,
    max_iter: int = 5000,
    distinct_tol: float = 1e-5,
) -> list[DistinctSolution]:
    """Find distinct solutions from random starts, highest free entropy first.

    A third of the starts climb to local maxima of the free entropy. A third tie groups of memories and
    teachers together, and climb to saddles too. The last third follow Newton's method to the solution nearby,
    whatever its index; with labels, which leave flat directions, and in large problems they climb as well.
    Starts that do not converge are left out.

    Parameters
    ----------
    problem : SaddlePointProblem
        The equations.
    n_starts : int, default 200
        Number of starts.
    generator : torch.Generator
        Source of the starts.
    tol : float, default 1e-10
        Residual of a solution.
    max_iter : int, default 5000
        Maximum number of steps.
    distinct_tol : float, default 1e-5
        Solutions that differ by less are one.

    Returns
    -------
    list of DistinctSolution
        Solutions up to permutations.

    Raises
    ------
    NotConvergedError
        If no start converges.

    Examples
    --------
    >>> found = mn.theory.find_solutions(problem, 8, generator=generator)
    >>> found[0].free_entropy >= found[-1].free_entropy
    True
    """
    if n_starts < 2:
        raise ValueError(f"n_starts must be at least 2, got {n_starts}")
    by_newton = problem.n_columns == 1 and unknowns(problem) <= MAX_UNKNOWNS
    n_near = n_starts // 3 if by_newton else 0
    n_tied = (n_starts - n_near) // 2
    generic = random_starts(problem, n_starts - n_near - n_tied, generator=generator)
    tied = structured_starts(problem, n_tied, generator=generator)
    starts = OrderParameters(torch.cat([generic.m, tied.m]), torch.cat([generic.p, tied.p]))
    climbed = solve(problem, starts, tol=tol, max_iter=max_iter)
    states = [climbed[i] for i in torch.nonzero(climbed.converged).flatten().tolist()]
    if n_near:
        near = random_starts(problem, n_near, generator=generator)
        reached = [
            newton(problem, OrderParameters(*pair)) for pair in zip(near.m, near.p, strict=True)
        ]
        states += [found.state for found in reached if found.residual <= tol]
    if not states:
        climbed.raise_if_failed()
    batch = OrderParameters(torch.stack([s.m for s in states]), torch.stack([s.p for s in states]))
    c = conjugate(problem, batch)
    value = free_entropy_at(problem, c, c.x_bar)
    marks = signature(problem, batch)
    # Greedy grouping in order of free entropy: the signature is compared with each group's first.
    first: list[int] = []
    counts: list[int] = []
    for i in torch.argsort(value, descending=True, stable=True).tolist():
        if first:
            gap = (marks[first] - marks[i]).abs().amax(1)
            nearest = int(gap.argmin())
            if float(gap[nearest]) < distinct_tol:
                counts[nearest] += 1
                continue
        first.append(i)
        counts.append(1)
    distinct = []
    for i, count in zip(first, counts, strict=True):
        eigenvalues = stability.spectrum(problem, states[i])
        index = int((eigenvalues > 1.0 + _FLAT).sum())
        distinct.append(
            DistinctSolution(
                problem, states[i].m, c.m_hat[i], states[i].p, float(value[i]), classify(states[i]),
                float(eigenvalues[0]), index, count,
            )
        )  # fmt: skip
    return distinct
