"""Why a row got its class: a small table one can print, index and draw."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from mnemosphere.data.prepare import on_sphere
from mnemosphere.estimators.base import as_numpy, check_whole
from mnemosphere.files import plain
from mnemosphere.model import retrieval

if TYPE_CHECKING:
    from matplotlib.figure import Figure, SubFigure

__all__ = ["Explanation", "Reason", "deciding", "explain"]

_AT_ONCE = 1000  # rows whose explanations are held at a time
_SHOWN = 5  # rows of a notebook's table


@dataclass(frozen=True)
class Reason:
    """One memory's part in one decision."""

    memory: int  # counted from 0
    share: float  # P(memory | x): shares times soft labels add up to P(class | x)
    overlap: float  # ⟨w, x⟩
    label: object  # the memory's own most likely class; None for "none of them"
    label_weight: float  # how much of its soft label that is
    typical_rows: tuple[int, ...] = ()  # numbers of training rows that are most like it

    @property
    def name(self) -> str:
        """What the memory is called in tables and pictures."""
        return f"#{self.memory}"

    @property
    def soft_label(self) -> str:
        """Its label and how much of it that is."""
        return f"{'none of them' if self.label is None else self.label} ({self.label_weight:.0%})"


@dataclass(frozen=True)
class Explanation:
    """For n rows the k memories with the largest share of the decision, largest first."""

    rows: NDArray[Any]  # (n, N) unit rows; in the features' units with normalize='standard'
    classes: NDArray[Any]  # (C,)
    verdict: NDArray[Any]  # (n,)
    probability: NDArray[Any]  # (n,) of the verdict
    memory: NDArray[Any]  # (n, k)
    share: NDArray[Any]  # (n, k)
    overlap: NDArray[Any]  # (n, k)
    uniform_share: NDArray[Any]  # (n,) of the uniform component
    soft_label: NDArray[Any]  # (n, k, C+1)
    memories: NDArray[Any]  # (n, k, N), likewise
    typical_rows: NDArray[Any] | None  # (n, k, 3) numbers of training rows, −1 for none

    def __len__(self) -> int:
        return int(self.verdict.shape[0])

    def __getitem__(self, row: int) -> list[Reason]:
        names = [*self.classes.tolist(), None]
        return [
            Reason(
                memory=int(self.memory[row, j]),
                share=float(self.share[row, j]),
                overlap=float(self.overlap[row, j]),
                label=names[int(self.soft_label[row, j].argmax())],
                label_weight=float(self.soft_label[row, j].max()),
                typical_rows=self._typical(row, j),
            )
            for j in range(self.memory.shape[1])
        ]

    def _typical(self, row: int, j: int) -> tuple[int, ...]:
        if self.typical_rows is None:
            return ()
        return tuple(int(k) for k in self.typical_rows[row, j] if k >= 0)

    def __iter__(self) -> Iterator[list[Reason]]:
        return (self[row] for row in range(len(self)))

    def as_dicts(self) -> list[dict[str, Any]]:
        """One flat dict for each (row, memory): for a data frame or JSON."""
        return [
            {
                "row": row,
                "verdict": plain(self.verdict[row]),
                "probability": float(self.probability[row]),
                "rank": rank,
                **vars(reason),
            }
            for row, reasons in enumerate(self)
            for rank, reason in enumerate(reasons, start=1)
        ]

    def _others(self, row: int) -> float:
        rest = 1 - float(self.share[row].sum()) - float(self.uniform_share[row])
        return max(rest, 0.0)

    def __str__(self) -> str:
        lines = []
        for row, reasons in enumerate(self):
            lines.append(f"row {row}: {self.verdict[row]} ({self.probability[row]:.1%})")
            rows = "  typical rows" if any(r.typical_rows for r in reasons) else ""
            width = max(len(r.soft_label) for r in reasons)
            lines.append(f"  memory   share  overlap  {'soft label':<{width}}{rows}".rstrip())
            for r in reasons:
                typical = ", ".join(map(str, r.typical_rows))
                lines.append(
                    f"  {r.name:>6}  {r.share:>6.1%}  {r.overlap:>7.3f}  "
                    f"{r.soft_label:<{width}}  {typical}".rstrip()
                )
            lines.append(
                f"  {'others':>6}  {self._others(row):>6.1%}  uniform {self.uniform_share[row]:.1%}"
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Tables for a notebook, of the first few rows."""
        parts = []
        for row in range(min(len(self), _SHOWN)):
            title = f"row {row}: {self.verdict[row]} ({self.probability[row]:.1%})"
            cells = [
                (r.name, f"{r.share:.1%}", f"{r.overlap:.3f}", r.soft_label,
                 ", ".join(map(str, r.typical_rows)))
                for r in self[row]
            ]  # fmt: skip
            cells.append(("others", f"{self._others(row):.1%}", "", "", ""))
            cells.append(("uniform", f"{self.uniform_share[row]:.1%}", "", "", ""))
            head = ("memory", "share", "overlap", "soft label", "typical rows")
            body = "".join(
                "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in line) + "</tr>"
                for line in cells
            )
            heads = "".join(f"<th>{cell}</th>" for cell in head)
            parts.append(f"<p><b>{escape(title)}</b></p><table><tr>{heads}</tr>{body}</table>")
        return "".join(parts)

    def __repr__(self) -> str:
        return f"Explanation of {len(self)} rows by {self.memory.shape[1]} memories each"

    def plot(
        self,
        row: int = 0,
        *,
        image_shape: tuple[int, ...] | None = None,
        truth: object = None,
        figure: Figure | SubFigure | None = None,
    ) -> Figure | SubFigure:
        """Draw one row: the input, the memories that decided with their shares, the verdict."""
        from mnemosphere.plots import explanation_strip

        return explanation_strip(
            self.rows[row],
            self.memories[row],
            np.clip(self.share[row] / max(1.0, float(self.share[row].sum())), 0, 1),
            self.soft_label[row],
            plain(self.verdict[row]),
            self.classes.tolist(),
            image_shape,
            truth=truth,
            names=[f"#{m}" for m in self.memory[row]],
            figure=figure,
        )


def explain(model: Any, X: Any, n_nearest: int) -> Explanation:
    """Why each row got its class, by the memories with the largest P(memory | x)."""
    check_is_fitted(model, "params_")
    check_whole(n_nearest, "n_nearest", 1)
    params = model._class_params
    x, lost = on_sphere(model._stored(X, reset=False), model._normalizer, params.w.dtype)
    proba = model._log_joint(params)(x, lost)[:, :-1].double().softmax(1)
    winner = as_numpy(proba.argmax(1))
    # A row without direction is like no memory: the uniform component has all of its share.
    somewhere = torch.where(lost[:, None], params.w[0], x)
    top = retrieval.shares(params, somewhere, None, min(n_nearest, params.n_memories))
    soft = params.p[1:] / params.p[1:].sum(1, keepdim=True)
    memory = as_numpy(top.indices)
    typical = model.typical_rows_
    return Explanation(
        rows=as_numpy(model._normalizer.restore(x)),
        classes=model.classes_,
        verdict=model.classes_[winner],
        probability=as_numpy(proba.amax(1)),
        memory=memory,
        share=as_numpy(torch.where(lost[:, None], 0.0, top.shares)),
        overlap=as_numpy(torch.where(lost[:, None], 0.0, top.overlaps)),
        uniform_share=as_numpy(torch.where(lost, 1.0, top.uniform)),
        soft_label=as_numpy(soft[top.indices]),
        memories=model.memories_[memory],
        typical_rows=None if typical is None else typical[memory],
    )


def deciding(model: Any, x: Any, n_memories: int) -> dict[str, NDArray[Any]]:
    """Columns memory_1, share_1, …: the memories that decided about each row."""
    places = x.iloc if hasattr(x, "iloc") else x
    parts = [
        (found.memory, found.share)
        for k in range(0, len(x), _AT_ONCE)
        for found in [explain(model, places[k : k + _AT_ONCE], n_memories)]
    ]
    memory, share = (np.concatenate(part) for part in zip(*parts, strict=True))
    columns: dict[str, NDArray[Any]] = {}
    for k in range(memory.shape[1]):
        columns |= {f"memory_{k + 1}": memory[:, k], f"share_{k + 1}": share[:, k]}
    return columns
