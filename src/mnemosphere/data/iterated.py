"""Rows from anything that can be iterated more than once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mnemosphere.data.readers import Piece, Reader


class BatchReader(Reader):
    """What can be iterated more than once, as one file without end in sight."""

    def __init__(self, batches: Callable[[], Iterable[Any]] | Iterable[Any]) -> None:
        self._again = batches if callable(batches) else lambda: batches
        self.path, self._n = Path("batches"), 0
        first = next(iter(self._again()), None)
        if first is None:
            raise ValueError("there are no batches: pass a function that starts anew each time")
        self.n_features = _batch(first).x.shape[1]
        self._n = sum(_batch(b).x.shape[0] for b in self._again())
        self.blocks = [self._n]

    @property
    def n_bytes(self) -> int:
        """As if they were float64."""
        return 8 * self._n * self.n_features

    def read(self, block: int, piece_rows: int, *, labels_only: bool = False) -> Iterator[Piece]:
        """All rows: there is one block."""
        n = 0
        for batch in self._again():
            piece = _batch(batch)
            n += piece.x.shape[0]
            for start in range(0, piece.x.shape[0], piece_rows):
                part = slice(start, start + piece_rows)
                yield Piece(*(None if v is None else v[part] for v in piece))
        if n != self._n:
            raise ValueError(
                f"the batches had {self._n} rows and now {n}: they must be the same every time"
            )


def _batch(given: Any) -> Piece:
    parts = list(given) if isinstance(given, (tuple, list)) else [given]
    if not 1 <= len(parts) <= 3:
        raise ValueError(f"a batch must be x, (x, y) or (x, y, weight), got {len(parts)} parts")
    x, y, weight = [*parts, None, None][:3]
    labels = (None if v is None else np.asarray(v) for v in (y, weight))
    return Piece(x if hasattr(x, "shape") else np.asarray(x), *labels)
