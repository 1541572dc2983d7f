"""Saddle-point theory against Gibbs sampling of the student's posterior, at growing N.

    python -m research theory_vs_gibbs

Theory is the solution of Eq. (saddle-point) of largest free entropy, for orthonormal teacher
memories (the limit of many features). Simulation draws several teachers for each setting, runs
chains, and averages over teachers; its error bar is the spread of the teachers' means, which holds
the Monte Carlo error too. Half of the chains start from the teacher and give the estimate; the
others start at random and show that the state is reached without help: chains still elsewhere at
the end (two memories on one teacher memory, say) are counted as trapped.

What is compared depends on the phase that the theory predicts. Broken: the overlaps of matched
memories, one permutation per chain. Symmetric: the average of all overlaps, which no permutation
changes; matching would pick the larger fluctuation and read high. The same where the broken state
gains so little free entropy that chains hop between permutations at these N.

A second difference, "clamped", pairs each teacher with the theory for its own memories: what is
left there is the error of the equations and not the chance overlaps between teacher memories.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass

import torch
from torch import Tensor

from mnemosphere.numerics import sphere
from mnemosphere.theory import saddle_point, solver
from mnemosphere.theory.diagnostics import estimate, split_r_hat
from mnemosphere.theory.problem import SaddlePointProblem
from mnemosphere.theory.teacher_student import (
    match_memories,
    sample_data,
    sample_posterior,
    sample_teacher,
)
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
    soft_labels: tuple[tuple[float, ...], ...] | None = None
    hops: bool = False  # broken, but by so little that chains hop between permutations

    @property
    def p_h(self) -> Tensor:
        """Shares of the student's components, (P+1,)."""
        share = (1 - self.p_0) / self.n_student
        return torch.tensor([self.p_0] + [share] * self.n_student, dtype=torch.float64)

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
]


def solve(problem: SaddlePointProblem, *, seed: int) -> Tensor:
    """Overlaps (P*, P) of the solution of largest free entropy, memories matched to the teacher."""
    generator = torch.Generator().manual_seed(seed)
    starts = saddle_point.random_starts(problem, N_STARTS, generator=generator)
    solution = solver.solve(problem, starts).raise_if_failed()
    m = solution.m[int(solution.objective.argmax())]
    return m[:, match_memories(m)]


def is_broken(m: Tensor) -> bool:
    """Whether the matched memories prefer their teacher to the others, beyond solver error."""
    return bool((m - m.mean(1, keepdim=True)).abs().max() > 1e-6)


def quantity(m: Tensor, matched: bool) -> Tensor:
    """The number compared, from overlaps (..., P*, P): see the module's docstring."""
    return m.diagonal(dim1=-2, dim2=-1).mean(-1) if matched else m.mean((-2, -1))


def simulate(case: Case, n: int, matched: bool, args: argparse.Namespace, seed: int) -> report.Json:
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
    half = args.chains // 2
    informed = teacher.w[torch.arange(case.n_student) % case.n_teacher].expand(half, -1, -1)
    n_random = (args.chains - half) * case.n_student
    random = sphere.sample_uniform(n_random, n, generator=generator, dtype=torch.float64)
    start = torch.cat([informed, random.reshape(-1, case.n_student, n)])
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
    trace = quantity(posterior.overlaps("chain").trace, matched)  # (chains, draws)
    result = estimate(trace[:half])
    chains = trace.mean(1)
    clamped = solve(case.problem(n, (teacher.w @ teacher.w.T).cpu()), seed=seed)
    return {
        "seed": seed,
        "gibbs": float(result.mean),
        "monte_carlo_error": float(result.standard_error),
        "ess": float(result.ess),
        "r_hat": float(split_r_hat(trace)),
        "chains": chains.tolist(),
        "trapped": int(((chains[half:] - result.mean).abs() > TRAPPED).sum()),
        "theory_clamped": float(quantity(clamped, matched)),
    }


def mean_and_error(values: list[float]) -> tuple[float, float]:
    return statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5


def compare(
    case: Case, n: int, n_teachers: int, args: argparse.Namespace, seed: int
) -> report.Json:
    """Theory against the average over teachers for one setting and one N."""
    began = time.perf_counter()
    m = solve(case.problem(n), seed=seed)
    broken = is_broken(m)
    matched = broken and not case.hops
    theory = float(quantity(m, matched))
    runs = [simulate(case, n, matched, args, seed + 1 + i) for i in range(n_teachers)]
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
        "soft_labels": case.soft_labels,
        "n_features": n,
        "phase": "broken" if broken else "symmetric",
        "quantity": "matched overlap" if matched else "mean overlap",
        "theory": theory,
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
    f"{'setting':16} {'υ':>4} {'ϱ':>4} {'β':>4} {'p_0':>4} {'N':>5} {'phase':9} {'theory':>7} "
    f"{'Gibbs':>7} {'error':>7} {'diff':>8} {'clamped':>8} {'error':>7} "
    f"{'R-hat':>6} {'trapped':>7} {'ok':>3}"
)


def line(row: report.Json) -> str:
    return (
        f"{row['setting']:16} {row['upsilon']:4g} {row['rho']:4g} {row['beta']:4g} "
        f"{row['p_0']:4g} {row['n_features']:5d} {row['phase']:9} {row['theory']:7.4f} "
        f"{row['gibbs']:7.4f} {row['standard_error']:7.4f} {row['difference']:+8.4f} "
        f"{row['clamped_difference']:+8.4f} {row['clamped_standard_error']:7.4f} "
        f"{row['largest_r_hat']:6.2f} {row['trapped_chains']:3d}/{row['random_chains']:<3d} "
        f"{'yes' if row['within_tolerance'] else 'NO':>3}"
    )


def summarize(rows: list[report.Json]) -> report.Json:
    """Whether the largest N meets the tolerance, and whether differences shrink from the smallest.

    Shrinking is judged on the clamped differences, free of the teachers' chance overlaps.
    """
    largest, smallest = (pick(row["n_features"] for row in rows) for pick in (max, min))
    last = [row for row in rows if row["n_features"] == largest]
    first = [row for row in rows if row["n_features"] == smallest]
    shrinks = [
        abs(b["clamped_difference"])
        <= abs(a["clamped_difference"]) + 3 * b["clamped_standard_error"]
        for a, b in zip(first, last, strict=True)
    ]
    return {
        "settings": len(last),
        "broken": sum(row["phase"] == "broken" for row in last),
        "labeled": sum(row["soft_labels"] is not None for row in last),
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
    args = options.parse_args(argv)
    args.command = report.command_line(["theory_vs_gibbs", *argv])
    if len(args.teachers) != len(args.sizes):
        options.error("give one number of --teachers for each of --sizes")
    if min(args.teachers) < 2 or args.chains < 2:
        options.error("need at least 2 teachers and 2 chains: one informed, one random")
    return args


def main(argv: list[str]) -> None:
    args = parse(argv)
    torch.set_num_threads(args.threads)
    chosen = range(len(CASES)) if args.settings is None else args.settings
    rows = []
    print(HEADER, flush=True)
    for index in chosen:
        for n, n_teachers in zip(args.sizes, args.teachers, strict=True):
            seed = args.seed + 10_000_000 * index + 1_000 * n  # its own teachers for each pair
            rows.append(compare(CASES[index], n, n_teachers, args, seed))
            print(line(rows[-1]), flush=True)
        report.write(args.out, content(args, rows))
    print(json.dumps(summarize(rows)))


def content(args: argparse.Namespace, rows: list[report.Json]) -> report.Json:
    """All that is written: how the numbers came about, and the numbers."""
    return {
        **report.head(args.command, device=args.device, seeds=[args.seed]),
        "chains": args.chains,
        "burn_in": args.burn_in,
        "sweeps": args.sweeps,
        "tolerance": TOLERANCE,
        "summary": summarize(rows),
        "rows": rows,
    }
