"""The tables of the benchmarks, from the stored results."""

from __future__ import annotations

from collections.abc import Callable

from research.benchmarks.conditional import CASES
from research.pages.stored import RESULTS, Table, read, table
from research.report import Json

_KINDS = {
    "mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "mnist-patches": "MNIST, patches",
    "fashion-mnist-patches": "Fashion-MNIST, patches", "banking": "BANKING77, MiniLM vectors",
}  # fmt: skip


def _conditional() -> tuple[list[Json], list[Json]]:
    """(a row for each data set and number of memories, the runs)."""
    found = [name for name in CASES if (RESULTS / f"conditional_{name}.json").exists()]
    runs = [read(f"conditional_{name}") for name in found]
    rows = [
        row | {"kind": _KINDS[run["data"]], "all": row["encoding_seconds"] + row["seconds"],
               "rows": run["rows"], "device": run["device"]}
        for run in runs for row in run["results"]
    ]  # fmt: skip
    return rows, runs


def conditional_table() -> Table:
    """The conditional objective on each data set, mean and range over the seeds."""
    columns = {
        "data": "{kind}", "memories": "{memories}",
        "test accuracy": "{accuracy:.2f}% ({lowest:.2f}–{highest:.2f})",
        "log-loss": "{log_loss:.3f}", "class of the nearest memory": "{fidelity:.1f}%",
        "seeds": "{seeds}", "seconds": "{all:.2g}",
    }  # fmt: skip
    rows, runs = _conditional()
    return table(columns, rows, *runs)


def gpu_cost_table() -> Table:
    """Seconds of conditional fits of large data."""
    columns = {"data": "{kind}", "rows": "{rows:,}", "memories": "{memories:,}",
               "fit, s": "{all:.2g}", "machine": "{device}"}  # fmt: skip
    rows, runs = _conditional()
    return table(columns, rows, *runs)


def ranks_table() -> Table:
    """Passes by several processes."""
    run = read("ranks")["passes"]
    rows = [r | {"part": f"{r['exchange']:.1%}" if r["ranks"] > 1 else ""} for r in run["measured"]]
    columns = {"processes": "{ranks}", "pass": "{pass}", "seconds": "{seconds:.2f}",
               "efficiency": "{efficiency:.2f}", "exchange": "{part}"}  # fmt: skip
    size = f"{run['rows']:,} rows, {run['memories']:,} memories, {run['features']} features"
    return table(columns, rows, run, more=f": {size}, one thread per process")


def starts_table() -> Table:
    """Seconds for many starts of the saddle-point equations."""
    run = read("saddle_starts")
    rows = [r | {"rho": str(r["rho"]).replace("inf", "∞").removesuffix(".0")} for r in run["rows"]]
    columns = {
        "*P*\\* × *P*": "{teacher} × {memories}", "β": "{beta:g}", "ϱ": "{rho}",
        f"seconds, {run['starts']:,} starts": "{seconds:.1f}", "passes, mean": "{passes:.0f}",
        "most": "{most_passes}",
    }  # fmt: skip
    missed = len(rows) * run["starts"] - sum(r["converged"] for r in rows)
    words = f"{missed} starts did not converge" if missed else "every start converged"
    return table(columns, rows, run, more=f"; {words}")


TABLES: dict[str, Callable[[], Table]] = {
    "conditional": conditional_table,
    "cost gpu": gpu_cost_table,
    "ranks": ranks_table,
    "starts": starts_table,
}
