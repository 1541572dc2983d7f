"""Tables are written part by part, and appear whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mnemosphere.base.files import writing
from mnemosphere.base.machine import need


@contextmanager
def table_writer(path: Path, like: Any = None) -> Iterator[Callable[[Any], Any]]:
    """What writes one part of the table after another.

    like: a frame with the types of all columns, which a part might lack; text needs none.
    """
    name = path.name.lower()
    path.parent.mkdir(parents=True, exist_ok=True)
    with writing(path) as file:
        if name.endswith(".parquet"):
            pa = need("pyarrow")
            schema = pa.Schema.from_pandas(like, preserve_index=False)
            with need("pyarrow.parquet").ParquetWriter(file, schema) as out:
                yield lambda part: out.write_table(
                    pa.Table.from_pandas(part, schema, preserve_index=False)
                )
        else:
            # No time stamp and no name: the same rows give the same bytes.
            gz = {"method": "gzip", "mtime": 0, "filename": ""} if name.endswith(".gz") else None
            comma = "\t" if ".tsv" in name else ","
            yield lambda part: part.to_csv(
                file, index=False, sep=comma, header=file.tell() == 0, mode="wb", compression=gz
            )
