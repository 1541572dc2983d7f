"""The tables of the page about explanations."""

from __future__ import annotations

from functools import partial

import numpy as np

from research.pages.marks import markdown
from research.pages.stored import Table, read, source

_TRUTH = {
    "stable": "strongest column is that of a refit", "as Shapley values": "and that by Shapley values",
    "a label is true": "a row shown has the true label", "held at 0.5": "counterfactuals that a refit confirms",
    "held at 0.9": "at a probability of 90%",
}  # fmt: skip
_ROWS = {"shown": "rows shown", "nearest": "nearest rows", "random": "random rows"}


def _table(head: dict[str, str], form: str) -> Table:
    run = read("explanations")
    values = np.array([[own.get(name, np.nan) for name in head] for own in run["results"]])
    named = [*((own["set"], line) for own, line in zip(run["results"], values, strict=True)),
             ("**mean**", np.nanmean(values, axis=0))]  # fmt: skip
    rows = [
        [name, *("–" if np.isnan(v) else form.format(v, 100 * v) for v in line)]
        for name, line in named
    ]
    return Table(f"{markdown(['table', *head.values()], rows)}\n\n{source(run)}", [run])


TABLES = {
    "explanations truth": partial(_table, _TRUTH, "{1:.0f}"),
    "explanations rows": partial(_table, _ROWS, "{0:.2f}"),
}
