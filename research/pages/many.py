"""The tables of many processes and many devices, from the stored results."""

from __future__ import annotations

import re

from research.pages.marks import markdown
from research.pages.stored import read, source
from research.report import Json

DEVICES, ROWS, COLUMNS = 64, 1_000_000, 11  # GPUs, rows of a pass, classes + 1
NVLINK, NETWORK = 450e9, 50e9  # bytes per second that one GPU sends


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


def estimate(pass_: Json, width: int) -> Json:
    """One pass of `fit_wide` on 64 devices, 64/width along rows and `width` along memories.

    A sum over a ring of n sends 2(n−1)/n of a buffer, a broadcast all of it once; numbers are of
    four bytes.
    """
    lines = DEVICES // width
    memories = pass_["memories"]
    seconds = pass_["seconds"] / pass_["rows"] * ROWS / DEVICES
    # w̄ and overlap of its own memories, p̄ of all; the step's class weights and prior come back.
    along_rows = memories // width * (pass_["features"] + 1) + memories * COLUMNS
    # Of each row its largest exponent and its densities; p̄ is put together.
    along_memories = (1 + COLUMNS) * ROWS / lines + memories * COLUMNS
    parts = ((lines, along_rows), (width, along_memories))
    numbers = sum(2 * (n - 1) / n * part for n, part in parts) + memories * (COLUMNS + 1)
    sent = 4 * numbers
    return {"seconds": seconds, "sent": sent, "nvlink": sent / NVLINK, "network": sent / NETWORK}


def devices_table() -> str:
    run = read("ranks")["kernel"]
    lines = []
    for pass_ in run["passes"]:
        for width in (1, 8, 64):
            found = estimate(pass_, width)
            share = found["seconds"] / (found["seconds"] + found["network"])
            lines.append([
                f"{pass_['memories']:,} x {pass_['features']:,}", f"{DEVICES // width} x {width}",
                f"{4 * pass_['memories'] * pass_['features'] / width / 1e6:,.1f}",
                f"{1e3 * found['seconds']:.2f}", f"{found['sent'] / 1e6:,.1f}",
                f"{1e3 * found['nvlink']:.2f}", f"{1e3 * found['network']:.2f}", f"{share:.2f}",
            ])  # fmt: skip
    head = ["P x N", "rows x memories", "memories on a GPU, MB", "pass, ms", "sent, MB",
            "at NVLink, ms", "at 400 Gb/s, ms", "efficiency at 400 Gb/s"]  # fmt: skip
    return f"{markdown(head, lines)}\n\n{source(run)}"


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


TABLES = {"ranks": ranks_table, "many devices": devices_table, "restarts": restarts_table}
