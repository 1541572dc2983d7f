"""Tables are written part by part, and appear whole or not at all."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from mnemosphere.files import writing
from mnemosphere.machine import need


def write_table(table: Any, path: Path) -> None:
    """Write a pandas frame (an array as .npy) by the suffix of the path, atomically."""
    with table_writer(path, len(table), table) as write:
        write(table)


@contextmanager
def table_writer(path: Path, n_rows: int, like: Any = None) -> Iterator[Callable[[Any], Any]]:
    """What writes one part of the table after another; n_rows: of all of them.

    like: a frame with the types of all columns, which a part might lack; text needs none.
    """
    name = path.name.lower()
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        if name.endswith(".npy"):
            yield partial(_write_array, file, n_rows)
        elif name.endswith(".parquet"):
            pa = need("pyarrow")
            schema = pa.Schema.from_pandas(like, preserve_index=False)
            with need("pyarrow.parquet").ParquetWriter(file, schema) as out:
                yield lambda part: out.write_table(
                    pa.Table.from_pandas(part, schema, preserve_index=False)
                )
        else:
            # No time stamp: the same rows give the same bytes.
            packed = name.endswith(".gz")
            with (
                gzip.GzipFile("", "wb", fileobj=file, mtime=0)
                if packed
                else nullcontext(file) as out
            ):
                yield partial(_write_lines, out, "\t" if ".tsv" in name else ",")


def _write_array(file: BinaryIO, n_rows: int, part: Any) -> None:
    part = np.ascontiguousarray(part)
    if file.tell() == 0:
        shape = (n_rows, *part.shape[1:])
        head = {"descr": part.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, head)
    file.write(part.tobytes())


def _write_lines(file: BinaryIO | gzip.GzipFile, comma: str, part: Any) -> None:
    file.write(part.to_csv(index=False, sep=comma, header=file.tell() == 0).encode())
