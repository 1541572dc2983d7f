"""Tables are written part by part, and appear whole or not at all."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mnemosphere.files import to_json, writing
from mnemosphere.machine import need

Write = Callable[[Any], None]


def write_table(table: Any, path: Path) -> None:
    """Write a pandas frame (an array as .npy) by the suffix of the path, atomically."""
    with table_writer(path, len(table)) as write:
        write(table)


@contextmanager
def table_writer(path: Path, n_rows: int, like: Any = None) -> Iterator[Write]:
    """What writes one part of the table after another; n_rows: of all of them.

    like: a frame with the types of all columns, where a part might have others.
    """
    name = path.name.lower()
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        if name.endswith(".npy"):
            yield _arrays(file, n_rows)
        elif name.endswith(".json"):
            yield _records(file)
            file.write(b"\n]\n" if n_rows else b"[]\n")
        elif name.endswith((".parquet", ".feather")):
            yield from _columns(file, path.suffix.lower(), like)
        elif name.endswith(".gz"):
            # No time stamp: the same rows give the same bytes.
            with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                yield _lines(packed, "\t" if ".tsv" in name else ",")
        else:
            yield _lines(file, "\t" if name.endswith(".tsv") else ",")


def _arrays(file: BinaryIO, n_rows: int) -> Write:
    def write(part: Any) -> None:
        part = np.ascontiguousarray(part)
        if file.tell() == 0:
            head = {"descr": part.dtype.str, "fortran_order": False,
                    "shape": (n_rows, *part.shape[1:])}  # fmt: skip
            np.lib.format.write_array_header_1_0(file, head)
        file.write(part.tobytes())

    return write


def _records(file: BinaryIO) -> Write:
    def write(part: Any) -> None:
        text = to_json(part.to_dict("records"))  # [\n …\n]
        if len(part):
            file.write(((",\n" if file.tell() else "[\n") + text[2:-2]).encode())

    return write


def _lines(file: Any, comma: str) -> Write:
    started = False

    def write(part: Any) -> None:
        nonlocal started
        file.write(part.to_csv(index=False, sep=comma, header=not started).encode())
        started = True

    return write


def _columns(file: BinaryIO, suffix: str, like: Any) -> Iterator[Write]:
    pa, parquet = need("pyarrow"), need("pyarrow.parquet")
    made: list[Any] = []

    def write(part: Any) -> None:
        if not made:
            schema = pa.Schema.from_pandas(part if like is None else like, preserve_index=False)
            if suffix == ".parquet":
                made.append(parquet.ParquetWriter(file, schema))
            else:
                made.append(pa.ipc.new_file(file, schema))
            made.append(schema)
        made[0].write_table(pa.Table.from_pandas(part, made[1], preserve_index=False))

    try:
        yield write
    finally:
        if made:
            made[0].close()
