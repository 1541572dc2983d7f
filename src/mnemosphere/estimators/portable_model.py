"""A fitted model handed on: as a table of its memories, edited, as a page, a card, a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from mnemosphere.data.rows import StoredRows
from mnemosphere.estimators import editing
from mnemosphere.estimators.memory_model import MemoryModel
from mnemosphere.estimators.memory_table import RowsBehind, memory_table, rows_behind
from mnemosphere.files import strip_prefix
from mnemosphere.model.parameters import Parameters
from mnemosphere.schema import Array, check_tensors
from mnemosphere.theory import stationarity

__all__ = ["PortableModel"]

_ROWS_BEHIND = {
    "typical": Array("P 3", torch.int64, low=-1), "support": Array("P", low=0, nan=True),
}  # fmt: skip


class PortableModel(MemoryModel, ABC):
    """What stands behind memories, and what can be made of them.

    `mnemosphere.export` is imported where it is used: it reads fitted models, and few runs need it.
    """

    typical_rows_: NDArray[np.int64] | None  # (P, 3) numbers of rows; None where not known
    support_: NDArray[np.float64] | None  # (P,) rows that each memory answers for

    def _set_params(self, params: Parameters) -> None:
        super()._set_params(params)
        self._set_rows_behind(None)

    def _set_rows_behind(self, behind: RowsBehind | None) -> None:
        self.typical_rows_, self.support_ = (None, None) if behind is None else behind

    @property
    def _rows_behind(self) -> RowsBehind | None:
        if self.typical_rows_ is None or self.support_ is None:
            return None
        return RowsBehind(self.typical_rows_, self.support_)

    def _look_at_rows(self, stored: StoredRows, weight: Tensor | None) -> None:
        """Keep the numbers of the training rows that are typical of each memory."""
        self._set_rows_behind(rows_behind(self.params_, self._normalizer, stored, weight))

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        header, tensors = super()._state()
        if self.typical_rows_ is not None and self.support_ is not None:
            tensors["rows.typical"] = torch.from_numpy(self.typical_rows_)
            tensors["rows.support"] = torch.from_numpy(self.support_)
        return header, tensors

    def _set_state(self, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super()._set_state(header, tensors)
        rows = strip_prefix(tensors, "rows")
        if rows:
            check_tensors(rows, _ROWS_BEHIND, {"P": self.n_memories_})
            self._set_rows_behind(RowsBehind(rows["typical"].numpy(), rows["support"].numpy()))

    @property
    @abstractmethod
    def _smoothing(self) -> float:
        """ε of the soft labels."""

    # Memories as a table, and edited.

    def memory_table(self, X: ArrayLike | None = None, y: ArrayLike | None = None) -> Any:
        """One line per memory, as a pandas frame.

        name (#17, counted from 0), label and soft_label net of smoothing, purity (its largest
        entry), support (rows behind the memory), share of all rows, supported (False where fewer
        than one row stands behind it), beta_split (NaN unless rows are given: then all of this is
        measured on them), nearest memory and overlap, typical_rows (their numbers in X).
        """
        return memory_table(self, X, y)

    def without_memories(self, memories: Iterable[int | str], *, class_prior: str = "hold") -> Self:
        """A fitted model without some memories (numbers or names), not retrained.

        class_prior: "hold" keeps the frequencies of the classes, for which other memories change
        their soft labels; "follow" keeps the soft labels, and the frequencies change.
        """
        return editing.without_memories(self, memories, class_prior)

    def relabel_memory(
        self, memory: int | str, label: object, *, class_prior: str = "hold"
    ) -> Self:
        """A fitted model in which one memory has another label, {label: weight} or None."""
        return editing.relabel_memory(self, memory, label, class_prior)

    def with_memories(self, X: ArrayLike, y: ArrayLike, *, class_prior: str = "hold") -> Self:
        """A fitted model with the rows X, labeled y, as further memories, not retrained."""
        return editing.with_memories(self, X, y, class_prior)

    # Handing on.

    def explore(
        self,
        path: str | PathLike[str],
        X: ArrayLike | None = None,
        y: ArrayLike | None = None,
        *,
        max_rows: int = 500,
        image_shape: Sequence[int] | str | None = "auto",
        layout: str = "auto",
        certificate: stationarity.Certificate | None = None,
        title: str | None = None,
    ) -> None:
        """Write one HTML file in which the model runs: to draw, recall and look at memories.

        X, y: rows to measure by; up to `max_rows` of them go into the page, of each class its
        share. image_shape: (rows, columns) or (rows, columns, 3), None for tables; "auto": a
        square where rows have no names, no negative numbers and a square number of features.
        layout of the map: "pca", "umap" or "auto". certificate: of `certify`, which is taken
        here where that is a matter of seconds. The file needs no server and no network.
        """
        from mnemosphere.export.page import write_page

        check_is_fitted(self, "params_")
        write_page(
            self, Path(path), X, y, max_rows=max_rows, image_shape=image_shape, layout=layout,
            certificate=certificate, title=title,
        )  # fmt: skip

    def card(
        self, X: ArrayLike | None = None, y: ArrayLike | None = None, *, title: str | None = None
    ) -> str:
        """A model card in Markdown with YAML front matter; rows (X, y) are what it measures by."""
        from mnemosphere.export.card import model_card

        check_is_fitted(self, "params_")
        return model_card(self, X, y, title=title)

    def to_onnx(self, path: str | PathLike[str]) -> None:
        """Write an ONNX graph: raw rows in; label, probabilities, novelty out. See the docs."""
        from mnemosphere.export.onnx_graph import write_onnx

        check_is_fitted(self, "params_")
        write_onnx(self, Path(path))
