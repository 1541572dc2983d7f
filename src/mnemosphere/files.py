"""Files that are written whole or not at all, and safetensors files with a header of ours."""

from __future__ import annotations

import json
import math
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

__all__ = [
    "plain", "read_tensors", "strip_prefix", "to_json", "write_atomically", "write_tensors",
]  # fmt: skip


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one whole."""
    # An ordinary file, so that it gets the permissions the user's other files get.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write named tensors and a header of plain values atomically."""
    # A copy of each: safetensors refuses tensors that share memory, as params and best often do.
    copies = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    write_atomically(path, save(copies, {"mnemosphere": json.dumps(header)}))


def read_tensors(path: Path, kind: str, version: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read (header, tensors) of a file whose format is `kind`; ValueError where it is not."""
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get("mnemosphere", "{}"))
            header = header if isinstance(header, dict) else {}
            read: Callable[[str], Tensor] = file.get_tensor
            tensors = {name: read(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path} is damaged or not a safetensors file ({error}): choose another file"
        ) from error
    if header.get("format") != kind:
        raise ValueError(
            f"{path} is not a {kind} file but {header.get('format', 'of another program')}: "
            "choose another file"
        )
    if header.get("version") != version:
        raise ValueError(
            f"{path} has format version {header.get('version')}, this release reads {version}: "
            "use the release that wrote it, or write it again"
        )
    return header, tensors


def strip_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors named `prefix.*`, without that prefix."""
    start = prefix + "."
    return {name[len(start) :]: t for name, t in tensors.items() if name.startswith(start)}


def plain(value: object) -> Any:
    """A value as JSON can hold it: NumPy scalars and arrays as Python ones; else as it is."""
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def to_json(content: object) -> str:
    """Strict JSON: NaN and infinities null, what is not printable as escapes."""
    text = json.dumps(_finite(plain(content)), indent=2, ensure_ascii=False, default=str)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _finite(value: Any) -> Any:
    """Lists and dicts with None for each number that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else plain(value)
