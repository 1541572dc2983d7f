"""The tables on the page of the theory."""

from __future__ import annotations

from research.pages.marks import markdown
from research.pages.stored import read, source


def theory_table() -> str:
    """Theory and Gibbs sampling at the largest N; N times what is left at every N; computed."""
    run = read("theory_vs_gibbs")
    sizes = sorted({row["n_features"] for row in run["rows"]})
    rows = []
    for k in range(0, len(run["rows"]), len(sizes)):
        group = run["rows"][k : k + len(sizes)]
        last = group[-1]
        computed = last["correction"]
        size, _, rest = last["setting"].partition(" ")
        rows.append(
            [
                size.replace("x", " × ") + (f", {rest}" if rest else ""),
                f"{last['upsilon']:g}, {last['rho']:g}, {last['beta']:g}",
                last["phase"],
                f"{last['theory']:.4f}",
                f"{last['gibbs']:.4f} ± {last['standard_error']:.4f}",
                *(
                    f"{row['n_features'] * row['clamped_difference']:.2f}".replace("-", "−")
                    for row in group
                ),
                "" if computed is None else f"{computed:.2f}".replace("-", "−"),
            ]
        )
    head = [
        "*P*\\* × *P*", "υ, ϱ, β", "phase", "theory", f"Gibbs, *N* = {sizes[-1]}",
        *(f"*N*Δ, {n}" for n in sizes), "computed",
    ]  # fmt: skip
    return f"{markdown(head, rows)}\n\n{source(run)}"


def starts_table() -> str:
    """Seconds for many starts of the saddle-point equations."""
    run = read("saddle_starts")
    rows = [
        [
            f"{r['teacher']} × {r['memories']}",
            f"{r['beta']:g}",
            str(r["rho"]).replace("inf", "∞").removesuffix(".0"),
            f"{r['seconds']:.1f}",
            f"{r['passes']:.0f}",
            str(r["most_passes"]),
        ]
        for r in run["rows"]
    ]
    head = ["*P*\\* × *P*", "β", "ϱ", f"seconds, {run['starts']:,} starts", "passes, mean", "most"]
    missed = len(rows) * run["starts"] - sum(r["converged"] for r in run["rows"])
    words = f"{missed} starts did not converge" if missed else "every start converged"
    return f"{markdown(head, rows)}\n\n{source(run)}; {words}"


TABLES = {"theory": theory_table, "starts": starts_table}
