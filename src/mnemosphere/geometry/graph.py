"""What a geometry needs of a graph that takes rows to the sphere outside Python, such as ONNX."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from torch import Tensor


class Graph(Protocol):
    """Makes nodes; they and stored arrays are known by their names. Operations are those of ONNX."""

    double: int  # the type of numbers

    def __call__(self, operation: str, *inputs: Any, **more: Any) -> str:
        """One node of results by their names and of numbers."""

    def constant(self, value: Any, dtype: Any = None) -> str:
        """A stored array; whole numbers have 64 bits."""

    def stored(self, value: Tensor) -> str:
        """A tensor stored in its own precision and read in double."""

    def norms(self, x: str) -> str:
        """Lengths of rows, (batch, 1)."""

    def total(self, x: str) -> str:
        """Sums of rows, (batch, 1)."""


class OnnxRows(NamedTuple):
    """Rows as they come."""

    x: str  # (batch, N) in double precision, NaN for missing values
    unknown: str  # (batch, N) which are missing
    missing: str  # (batch, 1) how many
    n: int  # N


class OnnxUnitRows(NamedTuple):
    """Rows on the sphere, in double precision; (batch, ·) each."""

    unit: str  # with 0 where a feature is not known
    undirected: str  # which have no direction
    gaps: str | None = None  # 1 where not known, else 0; None: they are at a place of their own
    missing: str = ""  # how many are not known
    room: str = ""  # the square of the norm that is left to them
