"""Rows in: arrays, frames of any columns and tensors, as the numbers that a model takes."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from numbers import Number
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from mnemosphere.data.completion import fill_blanks
from mnemosphere.data.dataset import FileDataset
from mnemosphere.data.encoding import Encoding, is_frame
from mnemosphere.data.normalize import Normalizer
from mnemosphere.data.prepare import on_sphere
from mnemosphere.data.rows import StoredRows, as_given
from mnemosphere.machine import pick_device
from mnemosphere.model import retrieval
from mnemosphere.model.gaps import has_gaps
from mnemosphere.model.parameters import Parameters
from mnemosphere.model.sparse_rows import SparseRows


class RowsIn:
    """What a user passes as X, checked, encoded, and completed where a reading needs that."""

    params_: Parameters
    n_features_in_: int
    normalize_: str
    device: str
    _normalizer: Normalizer
    _encoding: Encoding | None = None  # of a frame whose columns are not all numbers
    _named: list[str] | None = None  # what the user calls the features

    def _stored(self, X: Any, *, reset: bool, gaps: bool = False) -> StoredRows:
        """X as it is stored, checked for shape, names and numbers.

        NaN is a gap, what is not known. It stays where `gaps` or training can deal with it; else
        it is filled in as the memories expect.
        """
        if isinstance(X, StoredRows):  # of a data set that was checked
            return X.on(self.params_.w.device)
        if isinstance(X, FileDataset):
            raise TypeError(
                "this takes rows in memory, got a Dataset: pass rows of it, batch by batch, as in "
                "`for x, y, weight in dataset`"
            )
        X = as_given(X)
        tensor = isinstance(X, Tensor)
        if reset:
            on_gpu = tensor and X.is_cuda and self.device == "auto"
            device = X.device if on_gpu else pick_device(self.device)
        else:
            device = self.params_.w.device
        if reset:
            self._named = None
            self._encoding = None if tensor or not is_frame(X) else self._learn_columns(X)
        if self._encoding is not None and not tensor:
            rows: Any = self._encode_columns(X, self._encoding, reset)
        else:
            rows = self._check_tensor(X, reset) if tensor else self._check_table(X, reset)
        stored = StoredRows.of(rows, device)
        dense = not isinstance(stored.values, SparseRows)
        stored.check_finite(self._feature_names(), gaps=dense)
        if reset and dense and stored.values.is_floating_point():
            never = stored.always_missing()
            if bool(never.any()):
                place = int(never.nonzero()[0])
                name = repr((self._feature_names() or range(len(never)))[place])
                raise ValueError(f"column {name} of X is NaN in every row: drop it")
        return stored if gaps or reset else self._completed(stored)

    def _completed(self, stored: StoredRows) -> StoredRows:
        """The rows with their gaps filled in; a row of nothing else gets neutral numbers."""
        values = stored.values
        if not values.is_floating_point() or not has_gaps(values):
            return stored
        values = values.to(stored.device).double()
        x, lost = on_sphere(stored, self._normalizer, self.params_.w.dtype)
        found = torch.where(lost[:, None], 0.0, x)
        found[~lost] = retrieval.expected_memory(self.params_, x[~lost])
        restored = self._normalizer.restore(found).double().cpu().numpy()
        full = torch.from_numpy(fill_blanks(values.cpu().numpy(), restored, self.normalize_))
        neutral = self._normalizer.to(stored.device).fill(values, values.isnan())
        full = torch.where(lost[:, None], neutral, full.to(stored.device))
        return StoredRows(full, stored.device)

    def _check_tensor(self, X: Tensor, reset: bool) -> Tensor:
        plain = X.layout in (torch.strided, torch.sparse_csr)
        if not plain or X.is_nested or X.is_quantized or X.is_meta:
            raise TypeError(
                "X must be a dense or a sparse CSR tensor, of no other layout and not nested, "
                "quantized or meta: use X.to_sparse_csr(), X.to_dense() or X.dequantize()"
            )
        _check_shape(X)
        if X.is_complex():
            raise ValueError("Complex data not supported in X: pass real and imaginary parts apart")
        if reset:
            self.n_features_in_ = int(X.shape[1])
            self.__dict__.pop("feature_names_in_", None)
        elif X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        return X

    def _check_table(self, X: Any, reset: bool) -> NDArray[Any]:
        if X is None or isinstance(X, (list, tuple, str, Number)):
            try:
                X = np.asarray(X)
            except ValueError as error:
                raise ValueError(
                    "X must be (rows, features), got rows of unlike lengths: fill them up"
                ) from error
        _check_shape(X)
        kinds = {getattr(d, "kind", "") for d in (getattr(X, "dtype", None), *_column_types(X))}
        if "c" in kinds:
            raise ValueError("Complex data not supported in X: pass real and imaginary parts apart")
        if kinds & {"m", "M"}:
            raise ValueError("X holds dates: pass a data frame, or numbers, such as days")
        if not kinds.isdisjoint({"U", "S"}) and X.size > 0:
            word = next((v for v in X.reshape(-1).tolist() if not _is_number(v)), X.reshape(-1)[0])
            raise ValueError(f"X holds text ({word!r}): pass a data frame, or drop the column")
        try:
            rows: NDArray[Any] = validate_data(
                self, X, reset=reset, dtype="numeric", ensure_all_finite=False, accept_sparse="csr"
            )
        except ValueError as error:
            if "could not convert string" not in str(error):
                raise
            text = str(error).partition(": ")[2].removeprefix("np.str_(").removesuffix(")")
            raise ValueError(
                f"X holds text ({text}): pass a data frame, or drop the column"
            ) from error
        if rows.dtype.kind not in "buif":
            raise ValueError(f"X must hold numbers, got dtype {rows.dtype}: convert its columns")
        return rows

    def _learn_columns(self, frame: Any) -> Encoding | None:
        """How the columns of a frame become numbers; None where they are."""
        encoding, notes = Encoding.fit(frame)
        for note in notes:
            warnings.warn(note, UserWarning, stacklevel=4)
        if not encoding.names:
            raise ValueError("no column of X is left to learn from: see the warnings about them")
        return None if encoding.is_plain else encoding

    def _encode_columns(self, X: Any, encoding: Encoding, reset: bool) -> NDArray[Any]:
        """Columns of any kind as numbers; what `encode` has made of them stays as it is."""
        X = X.to_pandas() if hasattr(X, "to_pandas") else X if is_frame(X) else np.asarray(X)
        _check_shape(X)
        if is_frame(X):
            own = [column.name for column in encoding.columns]
            encoded = own != encoding.names == list(map(str, X.columns))
        else:
            encoded = X.shape[1] == len(encoding.names) and X.dtype.kind in "buif"
        if encoded:
            return np.asarray(X, dtype=np.float64)
        if 0 in X.shape:
            raise ValueError(f"X must have rows and columns, at least one each, got {X.shape}")
        validate_data(self, X, reset=reset, skip_check_array=True)
        return encoding(X)

    def _feature_names(self) -> list[Any] | None:
        """Names of the numbers that rows consist of, (N,)."""
        if self._named is not None:
            return list(self._named)
        if self._encoding is not None:
            return list(self._encoding.names)
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else list(names)

    @property
    def _n_numbers(self) -> int:
        """How many numbers a row consists of, N."""
        return self.n_features_in_ if self._encoding is None else len(self._encoding.names)

    def _with_gaps(self, X: Any, known: Any) -> tuple[Tensor, Tensor | None]:
        """Unit rows, NaN filled in neutrally, and the mask of the coordinates that are known."""
        stored = self._stored(X, reset=False, gaps=True)
        values = stored.values.to(stored.device).double()
        gaps = torch.isnan(values)
        mask: Tensor | None = None
        if known is not None:
            mask = known if isinstance(known, Tensor) else torch.from_numpy(np.array(known))
            if mask.dtype != torch.bool:
                raise ValueError(f"known must be booleans, True to keep, got {mask.dtype}")
            if mask.shape != values.shape:
                raise ValueError(
                    f"known must be {tuple(values.shape)} like X, got {tuple(mask.shape)}"
                )
            mask = mask.to(values.device)
            gaps &= ~mask
        elif bool(gaps.any()):
            mask = ~gaps
        empty = gaps.all(1)
        if bool(empty.any()):
            raise ValueError(f"row {int(empty.nonzero()[0])} of X has no known feature: drop it")
        normalizer = self._normalizer.to(values.device)
        filled = type(stored)(normalizer.fill(values, gaps), stored.device)
        filled.check_finite(self._feature_names())
        x, lost = on_sphere(filled, normalizer, self.params_.w.dtype)
        if bool(lost.any()):
            raise ValueError(
                f"row {int(lost.nonzero()[0])} of X is {self._no_direction} where it is known, so "
                "it has no direction to start from: drop it"
            )
        if mask is not None and normalizer.extra:
            mask = torch.cat([mask, mask.new_ones(mask.shape[0], 1)], dim=1)
        return x, mask

    @property
    def _no_direction(self) -> str:
        return "constant" if self.normalize_ == "center" else "all zeros"

    def encode(self, X: Any, *, fill: bool = True) -> Any:
        """The numbers that rows consist of for this model, (n, N): a frame with their names.

        An array where X has no named columns. Categories, dates and lists are spread out as in
        training; blanks are filled in as the memories expect them, unless `fill` is False. An
        ONNX graph of the model takes these numbers, and so does every method of the model.
        """
        check_is_fitted(self, "params_")
        stored = self._stored(X, reset=False, gaps=not fill)
        numbers = stored.values.cpu().numpy().astype(np.float64)
        if not is_frame(X):
            return numbers
        import pandas as pd

        return pd.DataFrame(numbers, columns=self._feature_names(), index=getattr(X, "index", None))

    def decode(self, numbers: Any) -> Any:
        """Undo `encode`: a frame of columns like those of training, without those left out.

        So `memories_`, or what `recall` and `sample` return, can be read as rows of the table.
        """
        check_is_fitted(self, "params_")
        numbers = np.asarray(numbers, dtype=np.float64)
        if self._encoding is not None:
            return self._encoding.decode(numbers)
        names = self._feature_names()
        if names is None:
            return numbers
        import pandas as pd

        return pd.DataFrame(numbers, columns=names)


def _check_shape(X: Any) -> None:
    if getattr(X, "ndim", 2) == 0:
        raise ValueError(f"X must be (rows, features), got {X}: pass an array, a frame or a tensor")
    if getattr(X, "ndim", 2) == 1:
        raise ValueError(
            f"X must be (rows, features), got shape {tuple(X.shape)}. Reshape your data: "
            "X.reshape(-1, 1) is one feature, X.reshape(1, -1) one row"
        )
    if isinstance(X, Tensor) and (X.ndim != 2 or 0 in X.shape):
        raise ValueError(f"X must be (rows, features), at least one each, got {tuple(X.shape)}")


def _column_types(X: Any) -> Iterable[Any]:
    types = getattr(X, "dtypes", ())  # of a frame, one per column
    return types if isinstance(types, Iterable) else ()


def _is_number(text: str | bytes) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
