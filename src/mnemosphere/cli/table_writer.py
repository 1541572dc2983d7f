"""Tables are written part by part, and appear whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mnemosphere.base.files import writing
from mnemosphere.base.machine import need
from mnemosphere.cli.rows import Rows
from mnemosphere.cli.shell import Terminal
from mnemosphere.estimators.progress import Progress


def write_table(path: Path, parts: Iterable[Any], like: Any = None) -> None:
    """Write frames below each other.

    like: a frame with the types of all columns, which a part might lack; text needs none.
    """
    name = path.name.lower()
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        if name.endswith(".parquet"):
            pa = need("pyarrow")
            schema = pa.Schema.from_pandas(like, preserve_index=False)
            with need("pyarrow.parquet").ParquetWriter(file, schema) as out:
                for part in parts:
                    out.write_table(pa.Table.from_pandas(part, schema, preserve_index=False))
        else:
            # No time stamp and no name: the same rows give the same bytes.
            gz = {"method": "gzip", "mtime": 0, "filename": ""} if name.endswith(".gz") else None
            how = {"index": False, "sep": "\t" if ".tsv" in name else ",", "compression": gz}
            for part in parts:
                part.to_csv(file, header=file.tell() == 0, mode="wb", **how)


def counted(terminal: Terminal, stage: str, rows: Rows, parts: Iterable[Any]) -> Iterator[Any]:
    """The parts of a table of these rows, with a line of progress."""
    with Progress(terminal.live) as progress:
        done = 0
        for part in parts:
            yield part
            done += len(part)
            progress.show(stage, done, len(rows))
