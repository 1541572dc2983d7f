"""A model card: Markdown with the YAML front matter that model hubs read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from mnemosphere.base.text import printable
from mnemosphere.export.facts import facts
from mnemosphere.fitted.model import FittedModel

_NAMED = 60  # classes that are named
_USE = """## Use

```python
import mnemosphere as mn

model = mn.load("model.safetensors")
model.predict(X)
```"""


def model_card(
    model: FittedModel,
    X: Any = None,
    y: Any = None,
    *,
    title: str | None = None,
    license: str | None = None,
) -> str:
    """Write the model card: what the model is, how it was trained and how well it does.

    Parameters
    ----------
    model : FittedModel
        A fitted classifier or clusterer.
    X : array-like of shape (n, N), default None
        Rows to measure the model on; None: the card has no measurements.
    y : array-like of shape (n,), default None
        Their labels.
    title : str, default None
        Heading; None: a heading that names the model.
    license : str, default None
        An identifier that model hubs know, such as "mit" or "cc-by-4.0".

    Returns
    -------
    str
        Markdown.

    Examples
    --------
    >>> card = mn.export.model_card(model, X_test, y_test, title="Wines")
    >>> "# Wines" in card
    True
    """
    known = facts(model, X, y)
    name = " ".join((title or f"mnemosphere {known['kind']}").split())
    parts = [_front_matter(known, license), f"# {_text(name)}", _summary(known)]
    if "measured" in known:
        parts.append(_measures(known))
    if known["records"]:
        parts.append(_records(known))
    parts += [_choices(known), _USE]
    return "\n\n".join(parts) + "\n"


def _front_matter(known: dict[str, Any], license: str | None) -> str:
    """YAML; values are written as JSON does, which YAML reads as well."""
    tags = ["mnemosphere", "associative-memory", "von-mises-fisher", _task(known)]
    matter: dict[str, Any] = {"library_name": "mnemosphere", "tags": tags}
    if license:
        matter["license"] = license
    if known["kind"] == "classifier":  # hubs know no task for clusters
        matter["pipeline_tag"] = _task(known)
    if "measured" in known:
        matter["metrics"] = ["accuracy", "log_loss", "expected_calibration_error"]
    lines = [f"{name}: {json.dumps(value)}" for name, value in matter.items()]
    return "\n".join(["---", *lines, "---"])


def _task(known: dict[str, Any]) -> str:
    kind = "text" if known["encoder"] else "tabular"
    return f"{kind}-{'classification' if known['kind'] == 'classifier' else 'clustering'}"


def _summary(known: dict[str, Any]) -> str:
    groups = "classes" if known["kind"] == "classifier" else "clusters"
    names = [_text(name) for name in known["classes"][:_NAMED]]
    if len(known["classes"]) > _NAMED:
        names.append(f"and {len(known['classes']) - _NAMED} more")
    what = f"{known['n_columns']} features"
    if known["encoder"]:
        what = f"texts as vectors of the encoder {_text(known['encoder'])}"
    return (
        f"A dense associative memory on the sphere: {known['choices']['memories']} memories with soft "
        f"labels, {len(known['classes'])} {groups}, {what}. A row is "
        f"answered for by the memories it resembles.\n\n{groups.capitalize()}: {', '.join(names)}."
    )


def _measures(known: dict[str, Any]) -> str:
    m = known["measured"]
    rows = [
        ("accuracy", f"{m['accuracy']:.4f}"),
        ("log-loss", f"{m['log_loss']:.4f}"),
        ("expected calibration error", f"{m['calibration_error']:.4f}"),
    ]
    return (
        f"## Measured\n\nOn {m['n']} rows with a label. These figures say how the model does on new rows "
        "only if it was not trained on these.\n\n" + _table(("measure", "value"), rows)
    )


def _records(known: dict[str, Any]) -> str:
    rows = [
        (own["memory"], str(own["label"]), f"{own['right']} of {own['held_out']}",
         "" if own["confused_with"] is None else str(own["confused_with"]))
        for own in known["records"]
    ]  # fmt: skip
    return (
        "## Weakest memories\n\nOf the held-out rows in which a memory had the largest share, how many got "
        "their class.\n\n" + _table(("memory", "class", "right", "confused with"), rows)
    )


def _choices(known: dict[str, Any]) -> str:
    choices, settings = known["choices"].items(), known["settings"].items()
    return (
        "## Choices\n\n" + _table(("what", "value"), list(choices))
        + "\n\nSettings of training:\n\n" + _table(("setting", "value"), list(settings))
    )  # fmt: skip


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [tuple(head), tuple("---" for _ in head), *rows]
    cells = [[_text(cell) if cell != "---" else cell for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)


def _text(value: str, limit: int = 120) -> str:
    """A user's name on one line that Markdown takes for text."""
    text = printable(" ".join(str(value).split()))
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    for sign, safe in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(sign, safe)
    for sign in "\\`|*_[]":
        text = text.replace(sign, "\\" + sign)
    return text
