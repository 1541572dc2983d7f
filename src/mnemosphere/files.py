"""Files that are written whole or not at all, and safetensors files with a header of ours."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from mnemosphere.schema import check_depth

if TYPE_CHECKING:
    from torch import Tensor

try:
    import fcntl
except ImportError:  # not everywhere
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "checksum", "join_prefixes", "plain", "read_arrays", "read_tensors", "remove_leftovers",
    "strip_prefix", "to_json", "write_atomically", "write_tensors", "writing",
]  # fmt: skip

_WHOLE = 1 << 19  # bytes of a tensor up to which every one of them goes into the hash itself
_COLUMNS, _LINES = 509, 512  # 64-bit words that are summed together, 2 MB of them
_THREADS = min(4, os.cpu_count() or 1)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old one or the new one whole."""
    with writing(path) as file:
        file.write(content)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which takes its name when all is written and nothing has failed."""
    remove_leftovers(path)
    while True:
        # An ordinary file, so that it gets the permissions the user's other files get.
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
        opened = temporary.open("xb")
        if fcntl is None:
            break
        fcntl.flock(opened, fcntl.LOCK_EX)  # says that somebody is at work; a crash lets go of it
        if temporary.exists():
            break
        opened.close()  # somebody was quicker and took it for a leftover
    try:
        with opened as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if fcntl is not None:
                os.replace(temporary, path)
        if fcntl is None:  # where there are no such locks, open files keep their names
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(path: Path) -> None:
    """Remove what killed processes have left of `write_atomically(path, ...)`."""
    ours = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{32}}")
    for left in path.parent.glob(".*") if fcntl is not None else ():
        if ours.fullmatch(left.name) and left.is_file():
            with contextlib.suppress(OSError), left.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink()


def checksum(tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> str:
    """SHA-256 of the header and of names, types, shapes and numbers of the tensors.

    A large tensor goes in by sums of its 64-bit words, over the lines and the columns of blocks of
    2 MB: that takes a tenth of the time, and any change of less than 4 kB changes some sum.
    """
    digest = hashlib.sha256(json.dumps(header).encode())
    for name in sorted(tensors):
        _take_in(digest, name, tensors[name].detach().cpu().contiguous().numpy())
    return digest.hexdigest()


def _take_in(digest: Any, name: str, array: NDArray[Any], *, copy: bool = False) -> NDArray[Any]:
    """Add an array to a checksum; returns it or a copy, made on the way while it is at hand."""
    digest.update(repr((name, f"torch.{array.dtype}", array.shape)).encode())
    content = array.reshape(-1).view(np.uint8)
    out = np.empty_like(content) if copy else content
    line = 8 * _COLUMNS
    rest = content.size // line * line if content.size > _WHOLE else 0

    def sums(start: int) -> bytes:
        part = slice(start, min(start + _LINES * line, rest))
        if copy:
            out[part] = content[part]
        block = out[part].view(np.uint64).reshape(-1, _COLUMNS)
        return bytes(block.sum(0)) + bytes(block.sum(1))

    starts = range(0, rest, _LINES * line)
    with ThreadPoolExecutor(_THREADS) as pool:  # makes as many as are needed
        for found in pool.map(sums, starts) if len(starts) > 1 else map(sums, starts):
            digest.update(found)
    if copy:
        out[rest:] = content[rest:]
    digest.update(out[rest:].data)
    return out.view(array.dtype).reshape(array.shape)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write named tensors and a header of plain values atomically, with their checksum."""
    from safetensors.torch import save

    # A copy of each: safetensors refuses tensors that share memory, as params and best often do.
    copies = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
    header = {**header, "checksum": checksum(copies, header)}
    write_atomically(path, save(copies, {"mnemosphere": json.dumps(header)}))


def read_tensors(
    path: Path, kind: str, version: int, *, older: Sequence[int] = ()
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read (header, tensors) of a file as `read_arrays` does."""
    import torch

    header, arrays = read_arrays(path, kind, version, older=older)
    return header, {name: torch.from_numpy(array) for name, array in arrays.items()}


def read_arrays(
    path: Path, kind: str, version: int, *, older: Sequence[int] = ()
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read (header, arrays) of a file whose format is `kind`; ValueError where it is not.

    older: versions that are read too; they need not have a checksum.
    """
    if not path.is_file():
        raise ValueError(f"{path} is no file: give the path of one")
    known = [*older, version]
    arrays: dict[str, NDArray[Any]] = {}
    if hasattr(os, "posix_fadvise"):  # the disk reads on while a part of it is checked
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("mnemosphere", "{}"))
            check_depth(header)
            header = header if isinstance(header, dict) else {}
            told, found = header.pop("checksum", None), header.get("version")
            readable = header.get("format") == kind and type(found) is int and found in known
            digest = hashlib.sha256(json.dumps(header).encode())
            # Copies: what is mapped from the file would change when the file does.
            for name in sorted(file.keys()) if readable else ():
                arrays[name] = _take_in(digest, name, file.get_tensor(name), copy=True)
    except (SafetensorError, TypeError, ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())[:200]  # it may quote the file
        raise ValueError(
            f"{path} is damaged or not a safetensors file ({reason}): choose another file"
        ) from error
    if header.get("format") != kind:
        other = _short(header.get("format", "of another program"))
        raise ValueError(f"{path} is not a {kind} file but {other}: choose another file")
    if not readable:
        raise ValueError(
            f"{path} has format version {_short(found)}, this release reads "
            f"{', '.join(map(str, known))}: use the release that wrote it, or write it again"
        )
    if (told is not None or found == version) and told != digest.hexdigest():
        raise ValueError(
            f"{path} is damaged: it has been changed since it was written (its checksum differs); "
            "get or save it again"
        )
    return header, arrays


def _short(value: object) -> str:
    """A value that a file has where a short one belongs."""
    return str(value)[:40]


def strip_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors named `prefix.*`, without that prefix."""
    start = prefix + "."
    return {name[len(start) :]: t for name, t in tensors.items() if name.startswith(start)}


def join_prefixes(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors of several parts, each named `part.name`: what `strip_prefix` takes apart."""
    return {f"{part}.{name}": t for part, tensors in parts.items() for name, t in tensors.items()}


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
