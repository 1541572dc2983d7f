"""A fitted model handed on: as a table of its memories, edited, as a page, a card, a graph."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
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
from mnemosphere.estimators.base import as_numpy
from mnemosphere.estimators.counterfactual import Counterfactual, counterfactual
from mnemosphere.estimators.explanation import Explanation, explain
from mnemosphere.estimators.memory_model import MemoryModel
from mnemosphere.estimators.memory_table import (
    RowsBehind,
    memory_table,
    rows_behind,
    strongest_features,
)
from mnemosphere.estimators.streaming import set_stream, stream_tensors
from mnemosphere.files import as_tensors, join_prefixes, strip_prefix
from mnemosphere.interpret.certified import CertifiedRadius, certified_radius
from mnemosphere.model.certificates import Certificate
from mnemosphere.model.parameters import Parameters
from mnemosphere.schema import Array, check_tensors, items, text

_ROWS_BEHIND = {
    "typical": Array("P 3", "int64", low=-1), "support": Array("P", low=0, nan=True),
    "names": Array("bytes", "uint8", optional=True),
}  # fmt: skip
_FEATURES = {"names": Array("bytes", "uint8")}
_LETTERS = 200  # of the name of a row


class PortableModel(MemoryModel, ABC):
    """What stands behind memories, and what can be made of them.

    `mnemosphere.export` is imported where it is used: it reads fitted models, and few runs need it.
    """

    typical_rows_: NDArray[np.int64] | None  # (P, 3) numbers of rows; None where not known
    support_: NDArray[np.float64] | None  # (P,) rows that each memory answers for
    row_names_: NDArray[Any] | None  # (P, 3) what the typical rows are called; see `name_rows`

    def _keep(self, params: Parameters) -> None:
        super()._keep(params)
        self._set_rows_behind(None)

    def _set_rows_behind(self, behind: RowsBehind | None) -> None:
        none = (None, None, None)
        self.typical_rows_, self.support_, self.row_names_ = none if behind is None else behind

    @property
    def _rows_behind(self) -> RowsBehind | None:
        if self.typical_rows_ is None or self.support_ is None:
            return None
        return RowsBehind(self.typical_rows_, self.support_, self.row_names_)

    def _look_at_rows(self, stored: StoredRows, weight: Tensor | None, n_rows: int) -> None:
        """Keep the numbers of the training rows that are typical of each memory."""
        found = rows_behind(self.params_, self._normalizer, stored, weight)
        # A sample of a data set stands for all of it.
        support = found.support * max(1.0, n_rows / stored.n_rows)
        self._set_rows_behind(found._replace(support=support))

    def _state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        header, tensors = super()._state()
        if self.typical_rows_ is not None and self.support_ is not None:
            tensors["rows.typical"] = torch.from_numpy(self.typical_rows_)
            tensors["rows.support"] = torch.from_numpy(self.support_)
        if self.row_names_ is not None:
            tensors["rows.names"] = _as_bytes(self.row_names_.tolist())
        if self._named is not None:
            tensors["features.names"] = _as_bytes(self._named)
        tensors |= join_prefixes({"stream": stream_tensors(self)})
        return header, tensors

    def _set_state(self, header: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
        super()._set_state(header, arrays)
        rows = strip_prefix(arrays, "rows")
        if rows:
            check_tensors(rows, _ROWS_BEHIND, {"P": self.n_memories_})
            names = None
            if "names" in rows:
                told = _from_bytes(rows["names"])
                items(items(text, 3))(told, "rows.names")
                names = np.array(told, dtype=object)
                if names.shape != rows["typical"].shape:
                    raise ValueError(f"rows.names are of {len(told)} memories")
            self._set_rows_behind(RowsBehind(rows["typical"], rows["support"], names))
        features = strip_prefix(arrays, "features")
        if features:
            check_tensors(features, _FEATURES, {})
            told = _from_bytes(features["names"])
            items(text)(told, "features.names")
            if len(told) != self._n_numbers:
                raise ValueError(f"features.names are of {len(told)} features")
            self._named = told
        set_stream(self, as_tensors(strip_prefix(arrays, "stream")))

    @property
    @abstractmethod
    def _smoothing(self) -> float:
        """ε of the soft labels."""

    def name_rows(self, names: ArrayLike | Mapping[int, str]) -> Self:
        """Call the training rows by ids or texts of yours, (n,) in the order of `fit`.

        Or a mapping from numbers of rows, those of `typical_rows_` at least.

        Explanations, the table of memories, pages and model files then show these names, cut after
        200 letters, in place of numbers.
        """
        check_is_fitted(self, "params_")
        if self.typical_rows_ is None:
            raise ValueError("no rows stand behind the memories of this model: fit it first")
        if isinstance(names, Mapping):
            told = [str(names.get(k, ""))[:_LETTERS] for k in self.typical_rows_.ravel().tolist()]
            self.row_names_ = np.array(told, dtype=object).reshape(self.typical_rows_.shape)
            return self
        given = np.array([str(name)[:_LETTERS] for name in as_numpy(names)], dtype=object)
        if given.ndim != 1 or len(given) <= self.typical_rows_.max():
            raise ValueError(
                f"names has {len(given)} entries, but row {self.typical_rows_.max()} was trained "
                "on: pass one per row of X, as it was given to fit"
            )
        self.row_names_ = np.where(self.typical_rows_ < 0, "", given[self.typical_rows_])
        return self

    def name_features(self, names: ArrayLike) -> Self:
        """Call the features by names of yours, (N,): `vectorizer.get_feature_names_out()`.

        For sparse matrices, arrays and tensors, which have none of their own. Explanations, tables,
        pictures, pages and model files then show them.
        """
        check_is_fitted(self, "params_")
        given = [str(name) for name in as_numpy(names).tolist()]
        if len(given) != self._n_numbers:
            raise ValueError(
                f"names must have one entry for each of {self._n_numbers} features, got "
                f"{len(given)}"
            )
        self._named = given
        return self

    # Decisions.

    def explain(self, X: ArrayLike, n_nearest: int = 5) -> Explanation:
        """Why each row got its class: the memories that decided it, their shares, soft labels.

        `features(row)` of what comes back says what each feature did, with parts that add up.
        """
        return explain(self, X, n_nearest)

    def counterfactual(
        self,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        hold: Sequence[int | str] = (),
        max_features: int | None = None,
    ) -> Counterfactual:
        """The smallest change of each row that makes `predict` say y, in the units of X.

        y: one class or one per row; None for the most probable after the verdict. hold: features
        that must stay, by name or number. max_features: change no more than so many, those that
        the smallest change moves most. Small is what is small in standard deviations of the
        training rows with normalize='standard', else along the sphere. The search is local, so
        what it finds is not proved to be the smallest, but it is verified by `predict`.
        """
        return counterfactual(self, X, y, hold, max_features)

    def certified_radius(self, X: ArrayLike) -> CertifiedRadius:
        """How far each row may move before `predict` can give it another class: a proven bound.

        The radius is the length of a change in the units of X, or in standard deviations of the
        features if rows are standardized; `meaning` of the result says which. `counterfactual`
        finds a row that does change the class: the two bracket the true distance.
        """
        check_is_fitted(self, "params_")
        rows = self._stored(X, reset=False, gaps=True)
        params, precision = self._class_params, self.params_.w.dtype
        return certified_radius(params, self._normalizer, rows, self.classes_, precision)

    # Memories as a table, and edited.

    def memory_table(self, X: ArrayLike | None = None, y: ArrayLike | None = None) -> Any:
        """One line per memory, as a pandas frame.

        name (#17, counted from 0), label and soft_label net of smoothing, purity (its largest
        entry), support (rows behind the memory), share of all rows, supported (False where fewer
        than one row stands behind it), beta_split (NaN unless rows are given: then all of this is
        measured on them), nearest memory and overlap, features (those of the largest weight in the
        overlap with it), typical_rows (their numbers in X, or what `name_rows` calls them).
        """
        return memory_table(self, X, y)

    def strongest_features(self, n_features: int = 10) -> Any:
        """The features in which each memory points furthest, as a pandas frame; terms of a text.

        One line for each of the `n_features` largest weights in the overlap with it, by modulus:
        memory, label, rank, feature (by its name, see `name_features`, or its number), weight. A
        metric has its say in them.
        """
        return strongest_features(self, n_features)

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
        certificate: Certificate | None = None,
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
        from mnemosphere.export.payload import payload

        check_is_fitted(self, "params_")
        content = payload(
            self, X, y, max_rows=max_rows, image_shape=image_shape, layout=layout,
            certificate=certificate, title=title,
        )  # fmt: skip
        write_page(Path(path), content)

    def card(
        self, X: ArrayLike | None = None, y: ArrayLike | None = None, *, title: str | None = None
    ) -> str:
        """A model card in Markdown with YAML front matter; rows (X, y) are what it measures by."""
        from mnemosphere.export.card import model_card

        check_is_fitted(self, "params_")
        return model_card(self, X, y, title=title)

    def to_onnx(self, path: str | PathLike[str]) -> None:
        """Write an ONNX graph: raw rows in; label, probabilities, novelty out. See the docs."""
        from mnemosphere.export.onnx_graph import to_onnx

        to_onnx(self, path)


def _as_bytes(names: list[Any]) -> Tensor:
    """Texts as a tensor: a header is no place for many."""
    return torch.frombuffer(bytearray(json.dumps(names).encode()), dtype=torch.uint8)


def _from_bytes(array: NDArray[Any]) -> Any:
    return json.loads(array.tobytes())
