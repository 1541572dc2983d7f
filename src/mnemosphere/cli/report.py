"""Figures about a model, in words and pictures."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from mnemosphere.cli.table_rows import LargeRows, Rows
from mnemosphere.interpret import evaluate
from mnemosphere.machine import device_name, versions

_WORST = 10
_ENDED = {"max_iter": "as many as allowed", "stable": "no memory is a saddle any more"}


def score(model: Any, rows: Rows | LargeRows) -> dict[str, Any]:
    """What `interpret.evaluate` finds on the labeled rows, with the worst of them by name."""
    labeled = (part.take(part.labeled) for part in rows.batches())
    parts = ((part.x, part.y, part.names) for part in labeled if part.y is not None and len(part))
    found = evaluate(model.model_, parts, _WORST)
    worst = found["worst_rows"]
    found["worst_rows"] = [{rows.kind: str(row.pop("row")), **row} for row in worst]
    return found


def about_model(model: Any) -> dict[str, Any]:
    """What was chosen from the data and learned, and what that depended on: for a record."""
    names = ("mnemosphere", "scipy", "scikit-learn", "pandas", "safetensors")
    return {
        "chosen": {
            "memories": model.n_memories_,
            "varsigma": model.varsigma_,
            "normalize": model.normalize_,
            "beta": model.beta_,
        },
        "passes": model.n_iter_,
        "status": model.status_,
        "history": model.history_,
        "device": device_name(model.params_.w.device),
        "versions": versions() | {name: version(name) for name in names},
    }


def model_facts(model: Any) -> dict[str, str]:
    """What a fitted model is, in words."""
    asked = model.get_params()

    def how(name: str, word: str) -> str:
        return f"  ({word} from the data)" if asked[name] in ("auto", "learn") else ""

    return {
        "memories": f"{model.n_memories_}{how('n_memories', 'chosen')}",
        "regularizer ς": f"{model.varsigma_:.3g}{how('varsigma', 'chosen')}",
        "normalization": f"{model.normalize_}{how('normalize', 'chosen')}",
        "inverse temperature β": f"{model.beta_:.4g}{how('beta', 'learned')}",
        "passes over the data": f"{model.n_iter_}  ({_ENDED.get(model.status_, model.status_)})",
    }
