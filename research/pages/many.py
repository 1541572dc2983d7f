"""The tables of many processes, from the stored results."""

from __future__ import annotations

import re

from research.pages.marks import markdown
from research.pages.stored import read, source


def ranks_table() -> str:
    run = read("ranks")["passes"]
    lines = [
        [r["ranks"], r["pass"], f"{r['seconds']:.2f}", f"{r['efficiency']:.2f}",
         f"{r['exchange']:.1%}" if r["ranks"] > 1 else ""]
        for r in run["measured"]
    ]  # fmt: skip
    head = ["processes", "pass", "seconds", "efficiency", "exchange"]
    size = f"{run['rows']:,} rows, {run['memories']:,} memories, {run['features']} features"
    return f"{markdown(head, lines)}\n\n{source(run)}: {size}, one thread per process"


def restarts_table() -> str:
    """Runs of many processes that were killed and started again."""
    run = read("restarts")["restarts"]
    lines, kills = [], 0
    for outcome, n in run["outcomes"].items():
        found = re.search(r"after (\d+) kills", outcome)
        kills += n * int(found[1]) if found else 0
        lines.append([n, outcome])
    table = markdown(["runs", "ended with"], lines)
    return f"{table}\n\n{source(run)}: {kills} kills, {run['defects']} defects"


TABLES = {"ranks": ranks_table, "restarts": restarts_table}
