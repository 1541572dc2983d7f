"""The tables of the benchmarks, from the stored results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from research.benchmarks.conditional import CASES
from research.pages.stored import Table, read, table
from research.report import Json

_KINDS = {
    "mnist": "MNIST", "fashion-mnist": "Fashion-MNIST", "mnist-patches": "MNIST, patches",
    "fashion-mnist-patches": "Fashion-MNIST, patches",
}  # fmt: skip


def _conditional() -> tuple[list[Json], list[Json]]:
    """(a row for each data set and number of memories, the runs)."""
    runs = [read(f"conditional_{name}") for name in CASES]
    rows = [
        row | {"kind": _KINDS[run["data"]], "all": row["encoding_seconds"] + row["seconds"],
               "rows": run["rows"]}
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


def two_layers_table() -> Table:
    """Pixels and patches."""
    rows, runs = _conditional()
    accuracy = {(row["kind"], row["memories"]): f"{row['accuracy']:.2f}%" for row in rows}
    lines = [
        {"what": f"{n} memories{text}", "mnist": accuracy[f"MNIST{kind}", n],
         "fashion": accuracy[f"Fashion-MNIST{kind}", n]}
        for kind, text in {", patches": ", two layers", "": " of pixels"}.items()
        for n in sorted({row["memories"] for row in rows}, reverse=True)
    ]  # fmt: skip
    columns = {"": "{what}", "MNIST": "{mnist}", "Fashion-MNIST": "{fashion}"}
    return table(columns, lines, *runs, guide=True)


def gpu_cost_table() -> Table:
    """Seconds of conditional fits of large data."""
    columns = {"data": "{kind}", "rows": "{rows:,}", "memories": "{memories:,}",
               "fit, s": "{all:.2g}"}  # fmt: skip
    rows, runs = _conditional()
    return table(columns, rows, *runs, guide=True)


def passes_table(device: str) -> Table:
    """Time of a whole pass, its share of the measured peak, and that of a step of k-means."""
    columns = {
        "problems": "{problems}", "rows": "{rows:,}", "features": "{features}",
        "memories": "{memories:,}", "classes": "{classes:,}", "objective": "{objective}",
        "ms": "{milliseconds:.3g}", "of the peak": "{share:.0f}%",
        "times a step of k-means": "{of_kmeans:.2g}",
    }  # fmt: skip
    run = read(f"passes_{device}")
    rows = [row | {"share": 100 * row["share_of_peak"]} for row in run["cases"]]
    return table(columns, rows, run)


def works_with_table() -> str:
    """Versions of other packages, and what was run with them."""
    columns = {"package": "{package}", "version": "{version}", "what was run": "{what}"}
    return table(columns, read("works_with")["tested"]).text.strip()


def graphs_table() -> Table:
    """ONNX graphs of default models."""
    columns = {
        "data": "{data}", "memories": "{memories}", "opset": "{opset}", "nodes": "{nodes}",
        "graph, kB": "{graph:.0f}", "model file, kB": "{file:.0f}",
    }  # fmt: skip
    run = read("works_with")
    return table(columns, run["graphs"], run)


def explanations_table() -> Table:
    """Truth and use of explanations, a line for each set."""
    run = read("explanations")
    columns = {
        "table": "{set}", "same strongest column after a refit": "{stable:.0%}",
        "same by Shapley values": "{as Shapley values:.0%}", "shown rows": "{shown:.2f}",
        "nearest": "{nearest:.2f}", "random": "{random:.2f}", "true label shown": "{a label is true:.0%}",
        "counterfactual confirmed": "{held:.0%}", "at 90%": "{held surely:.0%}",
    }  # fmt: skip
    return table(columns, run["results"], run)


def stored_patterns_table() -> Table:
    """Share of stored patterns that do not come back."""
    run = read("stored_patterns")
    return table({name: f"{{{name}}}" for name in run["results"][0]}, run["results"], run)


TABLES: dict[str, Callable[[], Table | str]] = {
    "conditional": conditional_table,
    "cost gpu": gpu_cost_table,
    "passes cpu": partial(passes_table, "cpu"),
    "passes gpu": partial(passes_table, "gpu"),
    "graphs": graphs_table,
    "two layers": two_layers_table,
    "works with": works_with_table,
    "explanations": explanations_table,
    "stored patterns": stored_patterns_table,
}
