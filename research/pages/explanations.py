"""The tables of the page about explanations."""

from __future__ import annotations

from statistics import mean

from research.pages.marks import markdown
from research.pages.stored import Table, read, source

_SHARES = {
    "stable": "strongest column is that of a refit",
    "as Shapley values": "and that by Shapley values",
    "a label is true": "a row shown has the true label",
    "held at 0.5": "counterfactuals that a refit confirms",
    "held at 0.9": "at a probability of 90%",
}
_DISTANCES = {"shown": "rows shown", "nearest": "nearest rows", "random": "random rows"}
_ANSWERED = {
    "answered by probability": "by the largest probability",
    "answered by accuracy": "without novel rows",
}


def _table(head: dict[str, str], percent: bool) -> Table:
    run = read("explanations")

    def cell(values: list[float]) -> str:
        if not values:
            return "–"
        return f"{100 * mean(values):.0f}" if percent else f"{mean(values):.2f}"

    sets = run["results"]
    rows = [
        [own["set"], *(cell([own[name]] if name in own else []) for name in head)] for own in sets
    ]
    rows.append(["**mean**", *(cell([own[name] for own in sets if name in own]) for name in head)])
    return Table(f"{markdown(['table', *head.values()], rows)}\n\n{source(run)}", [run])


TABLES = {
    "explanations truth": lambda: _table(_SHARES, percent=True),
    "explanations rows": lambda: _table(_DISTANCES, percent=False),
    "explanations answers": lambda: _table(_ANSWERED, percent=True),
}
