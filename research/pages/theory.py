"""Tables of the pages on the theory, from the stored results."""

from __future__ import annotations

from collections.abc import Callable

from research.pages.stored import Table, table
from research.report import Json
from research.theory import facts


def _memory(column: list[float]) -> str:
    return "(" + ", ".join(f"{v:.3f}" for v in column) + ")"


def solutions_table() -> Table:
    """The whole ladder at P = P* = 3."""
    run = facts.study("solutions")
    rows = [
        row | {"columns": ", ".join(dict.fromkeys(_memory(c) for c in sorted(row["m"], reverse=True)))}
        for row in run["data"]["solutions"]
    ]  # fmt: skip
    columns = {
        "overlaps of a memory, sorted": "{columns}", "distinct memories": "{groups}",
        "index": "{index}", "copies": "{copies}", "free entropy": "{free_entropy:.5f}",
    }  # fmt: skip
    return table(columns, rows, run, more=f"; Σ (−1)^index · copies = {run['data']['sum']}")


def weak_table() -> Table:
    """Weak teachers: theory and samples."""
    run = facts.study("weak-teachers")
    columns = {
        "*P* = *P*\\*": "{memories}", "*b*": "{b:g}", "own overlap, paper": "{paper:.3f}",
        "with noise": "{theory:.3f}", "sampled from the teacher": "{sampled:.3f} ± {error:.3f}",
        "from random starts": "{random:.3f} ± {random_error:.3f}",
        "mean of all overlaps, with noise": "{theory_mean:.3f}",
        "sampled less theory, each teacher": "{excess} ± {excess_error:.3f}",
    }  # fmt: skip
    rows = [
        row | {"excess": f"{row['excess']:.3f}".replace("-", "−")}
        for row in run["data"]["points"] if row["memories"] > 1
    ]  # fmt: skip
    return table(columns, rows, run)


def finite_size_table() -> Table:
    """Overlaps by theory and sampling, and N times their difference."""
    run = facts.study("finite-size")
    first, last = (run["data"]["rows"][0]["sampled"][k]["n_features"] for k in (0, -1))
    rows = [
        {"name": _setting(row["setting"]), "phase": row["phase"], "theory": row["theory"],
         "computed": "" if row["computed"] is None else _signed(row["computed"]), **row["sampled"][-1],
         **{f"gap {s['n_features']}": f"{_signed(s['gap'])} ± {s['gap_error']:.2f}" for s in row["sampled"]}}
        for row in run["data"]["rows"]
    ]  # fmt: skip
    columns = {
        "*P*\\* × *P*, υ, ϱ, β": "{name}", "phase": "{phase}", "theory": "{theory:.4f}",
        f"Gibbs, *N* = {last}": "{mean:.4f} ± {error:.4f}",
        **{f"*N*Δ, {n}": f"{{gap {n}}}" for n in (first, last)}, "computed": "{computed}",
    }  # fmt: skip
    return table(columns, rows, run)


def _setting(own: Json) -> str:
    name = f"{own['n_teacher']} × {own['n_student']}, {own['upsilon']:g}, {own['rho']:g}, {own['beta']:g}"
    name += ", uniform" if own["p_0"] else ""
    return name + (", soft labels" if own["soft_labels"] else "")


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def order_table() -> Table:
    """Continuous or not, by the numbers of teacher vectors and memories."""
    run = facts.study("transition-order")
    columns = {"*P*\\*": "{teacher}", "*P*": "{student}", "β": "{beta:.4f}", "order": "{order}"}
    return table(columns, run["data"]["orders"], run)


def merging_table() -> Table:
    """ς at which memories merge, and the ς that fits best."""
    run = facts.study("merging")
    rows = [row | {"cost": f"{row['excess']:.3f} ± {row['error']:.3f}".replace("-", "−")}
            for row in run["data"]["sets"]]  # fmt: skip
    columns = {
        "data": "{set}", "collapse": "{collapse:.2f}", "merging": "{merging:.2f}", '"auto"': "{auto:.2f}",
        "best on fresh rows": "{best:.1f}", '"auto": log-loss above the best': "{cost}",
    }  # fmt: skip
    return table(columns, rows, run)


TABLES: dict[str, Callable[[], Table]] = {
    "solutions": solutions_table,
    "beyond weak": weak_table,
    "theory": finite_size_table,
    "theory order": order_table,
    "beyond varsigma": merging_table,
}
