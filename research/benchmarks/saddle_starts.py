"""Processor seconds for 1,000 random starts of the saddle-point equations with informative labels.

    python -m research saddle_starts

Clamped orthonormal patterns, two of three classes told apart by labels of 0.9; as many memories as
patterns, and more. Copies then share out classes in flat valleys, where plain steps take thousands
of passes.
"""

from __future__ import annotations

import math
import time

import torch

from mnemosphere import theory
from research import report
from research.benchmarks._options import parser

_SIZES = ((3, 3), (4, 4), (4, 6), (6, 8))


def problem(n_teacher: int, n_student: int, beta: float, rho: float) -> theory.SaddlePointProblem:
    """Orthonormal patterns in 211 dimensions whose labels alternate."""
    generator = torch.Generator().manual_seed(5)
    x = torch.linalg.qr(torch.randn(211, n_teacher, generator=generator).double())[0].T
    q = 0.9 * torch.nn.functional.one_hot(torch.arange(n_teacher) % 2, 3).double() + 0.1 / 3
    return theory.SaddlePointProblem.clamped(
        x, q, n_student=n_student, beta=beta, rho=rho, upsilon=1.0
    )


def main(argv: list[str]) -> None:
    options = parser(__doc__, "saddle_starts")
    options.add_argument("--starts", type=int, default=1000)
    options.add_argument("--beta", type=float, nargs="+", default=[8.0, 20.0])
    args = options.parse_args(argv)
    rows = []
    for n_teacher, n_student in _SIZES:
        for beta in args.beta:
            for rho in (1.0, math.inf):
                one = problem(n_teacher, n_student, beta, rho)
                starts = theory.random_starts(
                    one, args.starts, generator=torch.Generator().manual_seed(0)
                )
                began = time.process_time()
                found = theory.solve_saddle_point(one, starts)
                rows.append(
                    {
                        "teacher": n_teacher,
                        "memories": n_student,
                        "beta": beta,
                        "rho": "inf" if math.isinf(rho) else rho,
                        "seconds": round(time.process_time() - began, 2),
                        "converged": int(found.converged.sum()),
                        "passes": round(float(found.iterations.double().mean()), 1),
                        "most_passes": int(found.iterations.max()),
                    }
                )
                print(rows[-1], flush=True)
    content = {
        **report.head(report.command_line(["saddle_starts", *argv])),
        "starts": args.starts,
        "rows": rows,
    }
    report.write(args.out, content)
