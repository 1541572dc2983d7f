"""The tables of many processes and many devices, from the stored results."""

from __future__ import annotations

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
    """One pass of 64 devices, 64/width along rows and `width` along memories.

    A ring sends 2(n−1)/n of a buffer of n processes, a broadcast all of it once; sums in float64.
    """
    lines = DEVICES // width
    own = pass_["memories"] // width
    seconds = pass_["seconds"] / pass_["rows"] * ROWS / DEVICES
    ring = 2 * (lines - 1) / lines
    statistics = 8 * own * (pass_["features"] + COLUMNS + 1)
    along_rows = ring * statistics + 4 * own * pass_["features"] * (lines > 1)
    per_row = 4 + 8 * COLUMNS  # the largest exponent, the densities
    along_memories = 2 * (width - 1) / width * per_row * ROWS / lines
    sent = along_rows + along_memories
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


TABLES = {"ranks": ranks_table, "many devices": devices_table}
