"""Files that are written whole or not at all, and safetensors files with a sealed header."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

# What reading a damaged file may raise.
_DAMAGED = (AttributeError, KeyError, RecursionError, SafetensorError, TypeError, ValueError)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one whole."""
    with writing(path) as file:
        file.write(content)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes its name when all is written and nothing has failed.

    Links are followed, and the mode of an existing file is kept. ValueError for a name of anything but a
    regular file, such as a device.
    """
    path = Path(os.path.realpath(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(f"folder {path.parent} does not exist: create it first")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no regular file: choose another name")
    # An ordinary file, so that a new one gets the mode that the user's other files get.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            if path.exists():
                shutil.copymode(path, temporary)
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = str(path)  # a full disk does not name it
        raise


def checksum(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> str:
    """SHA-256 of the header and of names, types, shapes and numbers of the tensors."""
    digest = hashlib.sha256(json.dumps(header).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        digest.update(tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()


def pack_tensors(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> bytes:
    """Named tensors and a header of plain values, as a safetensors file.

    The header is JSON in the metadata; its last field is the `checksum` of all else.
    """
    # Each with memory of its own, which safetensors asks for.
    plain = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    sealed = json.dumps({**header, "checksum": checksum(plain, header)})
    found: bytes = save(plain, {"mnemosphere": sealed})
    return found


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write `pack_tensors` to a file, atomically."""
    write_atomically(path, pack_tensors(tensors, header))


def read_tensors(path: Path, kind: str, version: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """`unpack_tensors` of a file."""
    if not path.is_file():
        raise ValueError(f"{path} is no file: give the path of one")
    return unpack_tensors(path.read_bytes(), kind, version, path)  # whole: the file may change


def unpack_tensors(
    content: bytes, kind: str, version: int, path: object
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """(header, tensors) that `pack_tensors` has packed, with format `kind`; path: what errors name.

    ValueError if they are no such ones, of another version, or damaged.
    """
    try:
        tensors = load(content)
        about = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        header = json.loads(about.get("__metadata__", {}).get("mnemosphere", "{}"))
        told, found = header.pop("checksum", None), header.get("version")
        whole = told == checksum(tensors, header)
    except _DAMAGED as error:
        reason = " ".join(str(error).split())[:200]  # it may quote the file
        raise ValueError(
            f"{path} is damaged or not a safetensors file ({reason}): choose another file"
        ) from error
    if header.get("format") != kind:
        other = str(header.get("format", "of another program"))[:40]
        raise ValueError(f"{path} is not a {kind} file but {other}: choose another file")
    if found != version:
        raise ValueError(
            f"{path} has format version {str(found)[:40]}, this release reads {version}: use the "
            "release that wrote it, or write it again"
        )
    if not whole:
        raise ValueError(
            f"{path} is damaged: it has been changed since it was written (its checksum differs); "
            "get or save it again"
        )
    return header, tensors


def plain(value: object, *, finite: bool = False) -> Any:
    """A value as JSON can hold it: NumPy scalars and arrays as Python ones; else as it is.

    finite: None in place of NaN and infinities.
    """
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(item, finite=finite) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, finite=finite) for item in value]
    return None if finite and isinstance(value, float) and not math.isfinite(value) else value


def to_json(content: object) -> str:
    """Strict JSON: NaN and infinities null, what is not printable as escapes."""
    text = json.dumps(plain(content, finite=True), indent=2, ensure_ascii=False, default=str)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
