"""Tables of the pages on the theory, from the stored results."""

from __future__ import annotations

from collections.abc import Callable

from research.pages.stored import Table, table
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


def edge_table() -> Table:
    """Order of the transition against m."""
    run = facts.study("edge-kernels")
    rows = [
        row | {"m": str(row["m"]).removesuffix(".0").replace("inf", "∞"),
               **{key: f"{row[key]:.3f}" if row[key] else "never" for key in ("line", "end", "jump")}}
        for row in run["data"]["orders"] if row["memories"] == 3
    ]  # fmt: skip
    columns = {
        "*m*": "{m}",
        "unstable from β<sub>e</sub>": "{line}",
        "parted from": "{end}",
        "jump": "{jump}",
    }
    return table(columns, rows, run)


def joint_splits_table() -> Table:
    """Minima at fixed class weights, and what is left of them if classes are divided."""
    run = facts.study("joint-splits")
    columns = {
        "β": "{beta:g}", "saddles": "{saddle}", "minima at fixed class weights": "{minimum}",
        "of these, label saddles": "{label saddle}",
        "λ<sub>joint</sub>, median, in units of the pull": "{lambda_joint:.5f}",
    }  # fmt: skip
    return table(columns, run["data"]["models"], run)


TABLES: dict[str, Callable[[], Table]] = {
    "solutions": solutions_table,
    "beyond weak": weak_table,
    "beyond edge": edge_table,
    "beyond joint": joint_splits_table,
}
