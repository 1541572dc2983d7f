"""Saddle-point theory against Gibbs sampling of the student's posterior, at growing N.

    python -m research theory_vs_gibbs

Theory is the solution of Eq. (saddle-point) of largest free entropy, for orthonormal teacher
memories (the limit of many features). Simulation draws several teachers for each setting, runs
chains, and averages over teachers; its error bar is the spread of the teachers' means, which holds
the Monte Carlo error too. Half of the chains start from the theory's solution for their teacher and
give the estimate; the others start at random and show that the state is reached without help:
chains still elsewhere at the end (two memories on one teacher memory, say) are counted as trapped.

Compared is the mean, over memories, of the overlap with the teacher memory that a memory overlaps
most with according to the theory, or with all of them that tie: all in the symmetric phase, where
no permutation changes it and matching would pick the larger fluctuation. The same mean over all
where the broken state gains so little free entropy that chains hop between permutations at these N.

A second difference, "clamped", pairs each teacher with the theory for its own memories: what is
left there is the error of the equations and not the chance overlaps between teacher memories. Times
N it is compared with the correction of order 1/N that theory.finite_size_corrections computes.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import multiprocessing
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.numerics import sphere
from mnemosphere.theory import OrderParameters, finite_size_corrections, saddle_point, solver
from mnemosphere.theory.diagnostics import estimate, split_r_hat
from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.teacher_student import sample_data, sample_posterior, sample_teacher
from research import report
from research.benchmarks._options import add_device, parser

N_STARTS = 32
TRAPPED = 0.05  # a random chain's mean this far from the informed chains' sits in another state
TOLERANCE = 0.01  # at the largest N in the broken phase, on top of three standard errors


@dataclass(frozen=True)
class Case:
    """One point of the phase diagram; p_0 is the share of the student's uniform component."""

    name: str
    n_teacher: int
    n_student: int
    upsilon: float
    rho: float
    beta: float
    p_0: float = 0.0
    memories: tuple[float, ...] | None = None  # shares among the memories, None: equal
    soft_labels: tuple[tuple[float, ...], ...] | None = None
    hops: bool = False  # broken, but by so little that chains hop between permutations

    @property
    def p_h(self) -> Tensor:
        """Shares of the student's components, (P+1,)."""
        shares = self.memories or (1 / self.n_student,) * self.n_student
        return torch.tensor(
            [self.p_0, *((1 - self.p_0) * share for share in shares)], dtype=torch.float64
        )

    @property
    def targets(self) -> Tensor:
        """Soft labels of the teacher, (P*, C+1); one column without labels."""
        if self.soft_labels is None:
            return torch.ones(self.n_teacher, 1, dtype=torch.float64)
        return torch.tensor(self.soft_labels, dtype=torch.float64)

    def problem(self, n: int, gram: Tensor | None = None) -> SaddlePointProblem:
        """Eq. (saddle-point) at N = n for teacher memories of this Gram matrix, or orthonormal."""
        problem = SaddlePointProblem.clamped(
            torch.eye(self.n_teacher, n, dtype=torch.float64),
            self.targets,
            beta=self.beta,
            rho=self.rho,
            upsilon=self.upsilon,
            p_h=self.p_h,
        )
        # Only inner products enter, so P* coordinates do.
        gram = torch.eye(self.n_teacher, dtype=torch.float64) if gram is None else gram
        return problem.replace(patterns=torch.linalg.cholesky(gram))


SHARP_2 = ((0.9, 0.05, 0.05), (0.05, 0.9, 0.05))
SOFT_2 = ((0.6, 0.3, 0.1), (0.3, 0.6, 0.1))
EVEN_2 = ((0.5, 0.3, 0.2),) * 2
EVEN_3 = ((0.5, 0.3, 0.2),) * 3
SHARP_3 = ((0.8, 0.1, 0.1), (0.1, 0.8, 0.1), (0.7, 0.2, 0.1))

CASES = [
    Case("2x2", 2, 2, upsilon=1.0, rho=2.0, beta=10.0),
    Case("2x2", 2, 2, upsilon=0.5, rho=2.0, beta=10.0),
    Case("2x2", 2, 2, upsilon=1.0, rho=0.5, beta=10.0),
    Case("2x2", 2, 2, upsilon=2.0, rho=1.0, beta=8.0),
    Case("3x3", 3, 3, upsilon=1.0, rho=2.0, beta=10.0),
    Case("2x2 uniform", 2, 2, upsilon=1.0, rho=2.0, beta=10.0, p_0=0.2),
    Case("2x2", 2, 2, upsilon=0.3, rho=1.0, beta=6.0),
    Case("2x2", 2, 2, upsilon=0.2, rho=1.0, beta=5.0),
    Case("3x3", 3, 3, upsilon=0.3, rho=0.5, beta=5.0),
    Case("2x2 uniform", 2, 2, upsilon=0.3, rho=1.0, beta=4.0, p_0=0.2),
    Case("2x2 labels", 2, 2, upsilon=1.0, rho=2.0, beta=10.0, soft_labels=SHARP_2),
    Case("2x2 labels", 2, 2, upsilon=0.3, rho=1.0, beta=6.0, soft_labels=SHARP_2),
    Case("2x2 soft labels", 2, 2, upsilon=0.5, rho=1.0, beta=10.0, soft_labels=SOFT_2),
    Case("3x3 labels", 3, 3, upsilon=1.0, rho=1.0, beta=10.0, soft_labels=SHARP_3),
    Case("2x2 even labels", 2, 2, upsilon=0.3, rho=1.0, beta=6.0, soft_labels=EVEN_2),
    Case("3x3 even labels", 3, 3, upsilon=0.2, rho=1.0, beta=5.0, soft_labels=EVEN_3),
    # Labels that barely inform: over the whole polytope of class weights log Z varies by 0.0036 N
    # only. At N = 4000 chains keep their permutation and matched overlaps meet the theory.
    Case("2x2 weak labels", 2, 2, upsilon=0.2, rho=0.5, beta=3.0, soft_labels=SOFT_2, hops=True),
    Case("1x1", 1, 1, upsilon=0.5, rho=1.0, beta=5.0),
    Case("3x1", 3, 1, upsilon=1.0, rho=1.0, beta=6.0),
    Case("2x3", 2, 3, upsilon=1.0, rho=2.0, beta=6.0),
    Case("2x3", 2, 3, upsilon=1.0, rho=1.0, beta=11.0),
    Case("2x3", 2, 3, upsilon=0.3, rho=0.5, beta=4.0),
    Case("3x2", 3, 2, upsilon=1.0, rho=2.0, beta=10.0),
    Case("4x2", 4, 2, upsilon=1.0, rho=2.0, beta=8.0),
    Case("2x4", 2, 4, upsilon=1.0, rho=2.0, beta=7.0),
    Case("4x4", 4, 4, upsilon=1.0, rho=1.0, beta=12.0),
    Case("2x2 unequal", 2, 2, upsilon=1.0, rho=1.0, beta=10.0, memories=(0.7, 0.3)),
    Case("3x3 unequal", 3, 3, upsilon=1.0, rho=2.0, beta=10.0, memories=(0.5, 0.3, 0.2)),
    Case("2x3 unequal", 2, 3, upsilon=1.0, rho=2.0, beta=7.0, memories=(0.5, 0.25, 0.25)),
    Case("2x3 uniform", 2, 3, upsilon=1.0, rho=2.0, beta=6.0, p_0=0.2),
    Case("3x2 uniform", 3, 2, upsilon=0.5, rho=2.0, beta=8.0, p_0=0.1),
    Case("2x3 soft labels", 2, 3, upsilon=1.0, rho=2.0, beta=6.0, soft_labels=SOFT_2),
    Case("3x2 labels", 3, 2, upsilon=0.5, rho=1.0, beta=8.0, soft_labels=SHARP_3),
    Case("2x2 uniform, soft labels", 2, 2, upsilon=1.0, rho=1.0, beta=8.0, p_0=0.2,
         soft_labels=SOFT_2),
    Case("2x2 unequal, soft labels", 2, 2, upsilon=0.5, rho=1.0, beta=8.0, memories=(0.6, 0.4),
         soft_labels=SOFT_2),
    Case("2x2", 2, 2, upsilon=0.15, rho=3.0, beta=10.0),
    Case("2x2", 2, 2, upsilon=5.0, rho=0.3, beta=10.0),
]  # fmt: skip


def solve(problem: SaddlePointProblem, *, seed: int) -> OrderParameters:
    """The solution of largest free entropy."""
    generator = torch.Generator().manual_seed(seed)
    starts = saddle_point.random_starts(problem, N_STARTS, generator=generator)
    solution = solver.solve(problem, starts).raise_if_failed()
    return solution[int(solution.objective.argmax())]


def is_broken(m: Tensor) -> bool:
    """Whether memories differ, or a single one prefers some teacher memory, beyond solver error."""
    return bool((m - m.mean()).abs().max() > 1e-6)


def own_weights(m: Tensor, case: Case) -> Tensor:
    """Weights (P*, P) of the overlaps compared: each memory's largest, or all that tie."""
    if case.hops:
        return torch.full_like(m, 1 / m.numel())
    top = (m > m.amax(0) - 1e-4).to(m.dtype)
    return top / top.sum(0) / m.shape[1]


def align(m: Tensor, reference: Tensor, case: Case) -> Tensor:
    """Overlaps m (chains, draws, P*, P), each chain permuted to be like the reference (P*, P).

    The teacher's memories may be permuted, and the student's among those of equal share.
    """
    shares = case.p_h[1:].tolist()
    memories = [
        list(order)
        for order in itertools.permutations(range(case.n_student))
        if all(abs(shares[i] - shares[j]) < 1e-12 for i, j in enumerate(order))
    ]
    teachers = [list(order) for order in itertools.permutations(range(case.n_teacher))]
    aligned = []
    for chain in m:
        mean = chain.mean(0)
        _, t, k = max(
            (float((mean[t][:, k] * reference).sum()), t, k) for t in teachers for k in memories
        )
        aligned.append(chain[:, t][:, :, k])
    return torch.stack(aligned)


def informed(m: Tensor, teacher: Tensor, n_chains: int, *, generator: torch.Generator) -> Tensor:
    """Memories (chains, P, N) with these overlaps (P*, P) with the teacher's (P*, N)."""
    basis, triangle = torch.linalg.qr(teacher.T)  # (N, P*), (P*, P*)
    u = torch.linalg.solve(triangle.T, m)  # m = Rᵀ u, (P*, P)
    shape = (n_chains, m.shape[1], teacher.shape[1])
    noise = torch.randn(*shape, generator=generator, dtype=m.dtype, device=m.device)
    noise = sphere.project(noise - (noise @ basis) @ basis.T)
    rest = (1 - u.square().sum(0)).clamp_min(0).sqrt()  # (P,)
    return sphere.project((basis @ u).T + rest[:, None] * noise)


def simulate(
    case: Case, n: int, reference: Tensor, args: argparse.Namespace, seed: int
) -> report.Json:
    """One teacher: the chains' estimate, its diagnostics, and theory for these very memories."""
    generator = torch.Generator(device=args.device).manual_seed(seed)
    teacher = sample_teacher(
        case.n_teacher,
        n,
        case.targets.shape[1] - 1,
        upsilon=case.upsilon,
        soft_labels=case.targets,
        generator=generator,
    )
    data = sample_data(teacher, case.rho, generator=generator)
    clamped = solve(case.problem(n, (teacher.w @ teacher.w.T).cpu()), seed=seed)
    half = args.chains // 2
    n_random = (args.chains - half) * case.n_student
    random = sphere.sample_uniform(n_random, n, generator=generator, dtype=torch.float64)
    start = torch.cat(
        [
            informed(clamped.m, teacher.w, half, generator=generator),
            random.reshape(-1, case.n_student, n),
        ]
    )
    posterior = sample_posterior(
        teacher,
        data,
        n_memories=case.n_student,
        beta=case.beta,
        p_h=case.p_h,
        start=start,
        n_chains=args.chains,
        n_burn_in=args.burn_in,
        n_sweeps=args.sweeps,
        generator=generator,
    )
    weights = own_weights(reference, case)
    trace = (align(posterior.trace, reference, case) * weights).sum((-2, -1))  # (chains, draws)
    result = estimate(trace[:half])
    chains = trace.mean(1)
    theirs = align(clamped.m[None, None], reference, case)[0, 0]
    return {
        "seed": seed,
        "gibbs": float(result.mean),
        "monte_carlo_error": float(result.standard_error),
        "ess": float(result.ess),
        "r_hat": float(split_r_hat(trace)),
        "chains": chains.tolist(),
        "trapped": int(((chains[half:] - result.mean).abs() > TRAPPED).sum()),
        "theory_clamped": float((theirs * weights).sum()),
    }


def mean_and_error(values: list[float]) -> tuple[float, float]:
    return statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5


def compare(
    case: Case, n: int, n_teachers: int, args: argparse.Namespace, seed: int
) -> report.Json:
    """Theory against the average over teachers for one setting and one N."""
    began = time.perf_counter()
    problem = case.problem(n)
    state = solve(problem, seed=seed)
    m, weights = state.m, own_weights(state.m, case)
    theory = float((m * weights).sum())
    try:
        correction = float((finite_size_corrections(problem, state).m * weights).sum())
        reason = "" if not case.hops else "chains hop between permutations"
    except ValueError as error:
        correction, reason = math.nan, str(error)
    runs = [simulate(case, n, m, args, seed + 1 + i) for i in range(n_teachers)]
    gibbs, error = mean_and_error([run["gibbs"] for run in runs])
    clamped, clamped_error = mean_and_error([run["gibbs"] - run["theory_clamped"] for run in runs])
    return {
        "setting": case.name,
        "n_teacher": case.n_teacher,
        "n_student": case.n_student,
        "upsilon": case.upsilon,
        "rho": case.rho,
        "beta": case.beta,
        "p_0": case.p_0,
        "p_h": case.p_h.tolist(),
        "soft_labels": case.soft_labels,
        "n_features": n,
        "phase": "broken" if is_broken(m) else "symmetric",
        "theory": theory,
        "correction": correction if not reason else None,
        "no_correction": reason,
        "theory_overlaps": m.tolist(),
        "gibbs": gibbs,
        "standard_error": error,
        "difference": gibbs - theory,
        "clamped_difference": clamped,
        "clamped_standard_error": clamped_error,
        "within_tolerance": abs(gibbs - theory) <= TOLERANCE + 3 * error,
        "largest_r_hat": max(run["r_hat"] for run in runs),
        "random_chains": n_teachers * (args.chains - args.chains // 2),
        "trapped_chains": sum(run["trapped"] for run in runs),
        "smallest_ess": min(run["ess"] for run in runs),
        "seconds": round(time.perf_counter() - began, 2),
        "teachers": runs,
    }


HEADER = (
    f"{'setting':24} {'υ':>4} {'ϱ':>4} {'β':>4} {'p_0':>4} {'N':>5} {'phase':9} {'theory':>7} "
    f"{'Gibbs':>7} {'error':>7} {'diff':>8} {'clamped':>8} {'error':>7} "
    f"{'R-hat':>6} {'trapped':>7} {'ok':>3}"
)


def line(row: report.Json) -> str:
    return (
        f"{row['setting']:24} {row['upsilon']:4g} {row['rho']:4g} {row['beta']:4g} "
        f"{row['p_0']:4g} {row['n_features']:5d} {row['phase']:9} {row['theory']:7.4f} "
        f"{row['gibbs']:7.4f} {row['standard_error']:7.4f} {row['difference']:+8.4f} "
        f"{row['clamped_difference']:+8.4f} {row['clamped_standard_error']:7.4f} "
        f"{row['largest_r_hat']:6.2f} {row['trapped_chains']:3d}/{row['random_chains']:<3d} "
        f"{'yes' if row['within_tolerance'] else 'NO':>3}"
    )


def summarize(rows: list[report.Json]) -> report.Json:
    """Whether the largest N meets the tolerance, and whether differences shrink from the smallest.

    Shrinking is measured on the clamped differences, free of the teachers' chance overlaps.
    """
    largest, smallest = (pick(row["n_features"] for row in rows) for pick in (max, min))
    last = [row for row in rows if row["n_features"] == largest]
    first = [row for row in rows if row["n_features"] == smallest][: len(last)]
    shrinks = [
        abs(b["clamped_difference"])
        <= abs(a["clamped_difference"]) + 3 * b["clamped_standard_error"]
        for a, b in zip(first, last, strict=True)
    ]
    return {
        "settings": len(last),
        "broken": sum(row["phase"] == "broken" for row in last),
        "labeled": sum(row["soft_labels"] is not None for row in last),
        "unlike_the_teacher": sum(
            row["n_teacher"] != row["n_student"]
            or row["soft_labels"] is not None
            or len(set(row["p_h"][1:])) > 1
            or row["p_0"] > 0
            for row in last
        ),
        "within_tolerance": sum(row["within_tolerance"] for row in last),
        "largest_difference_broken": max(
            (abs(row["difference"]) for row in last if row["phase"] == "broken"), default=None
        ),
        "trapped_chains": sum(row["trapped_chains"] for row in rows),
        "random_chains": sum(row["random_chains"] for row in rows),
        "largest_clamped_difference": max(abs(row["clamped_difference"]) for row in last),
        "shrinking": sum(shrinks),
    }


def parse(argv: list[str]) -> argparse.Namespace:
    options = parser(__doc__, "theory_vs_gibbs")
    options.add_argument("--sizes", type=int, nargs="+", default=[100, 300, 1000], metavar="N")
    options.add_argument("--teachers", type=int, nargs="+", default=[12, 8, 5], metavar="T",
                        help="teachers for each size")  # fmt: skip
    options.add_argument("--settings", type=int, nargs="+", metavar="I", help="rows of CASES")
    options.add_argument("--chains", type=int, default=4)
    options.add_argument("--burn-in", type=int, default=80)
    options.add_argument("--sweeps", type=int, default=160)
    options.add_argument("--seed", type=int, default=0)
    add_device(options, "cpu")
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--workers", type=int, default=1, help="processes")
    args = options.parse_args(argv)
    args.command = report.command_line(["theory_vs_gibbs", *argv])
    if len(args.teachers) != len(args.sizes):
        options.error("give one number of --teachers for each of --sizes")
    if min(args.teachers) < 2 or args.chains < 2:
        options.error("need at least 2 teachers and 2 chains: one informed, one random")
    return args


def run_one(task: tuple[argparse.Namespace, int, int, int]) -> report.Json:
    """One setting at one N, with teachers of its own."""
    args, index, n, n_teachers = task
    torch.set_num_threads(args.threads)
    seed = args.seed + 10_000_000 * index + 1_000 * n
    return compare(CASES[index], n, n_teachers, args, seed)


def main(argv: list[str]) -> None:
    args = parse(argv)
    chosen = range(len(CASES)) if args.settings is None else args.settings
    sizes = list(zip(args.sizes, args.teachers, strict=True))
    tasks = [(args, index, n, n_teachers) for index in chosen for n, n_teachers in sizes]
    rows = []
    print(HEADER, flush=True)
    with contextlib.ExitStack() as stack:
        each: Iterator[report.Json] = map(run_one, tasks)
        if args.workers > 1:
            context = multiprocessing.get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(args.workers, mp_context=context))
            each = pool.map(run_one, tasks)
        for row in each:
            rows.append(row)
            print(line(row), flush=True)
            report.write(args.out, content(args, rows))
    print(json.dumps(summarize(rows)))


def content(args: argparse.Namespace, rows: list[report.Json]) -> report.Json:
    """All that is written: how the numbers came about, and the numbers."""
    return {
        **report.head(
            args.command, device=args.device, seeds=[args.seed], describes=("theory", "numerics")
        ),
        "chains": args.chains,
        "burn_in": args.burn_in,
        "sweeps": args.sweeps,
        "tolerance": TOLERANCE,
        "summary": summarize(rows),
        "rows": rows,
    }
