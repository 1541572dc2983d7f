"""Files that are written whole or not at all, and safetensors files with a header of ours."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mnemosphere.machine import check_memory
from mnemosphere.schema import check_depth

if TYPE_CHECKING:
    from torch import Tensor

try:
    import fcntl
except ImportError:  # not everywhere
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "checksum", "join_prefixes", "opened", "plain", "read_tensors", "remove_leftovers",
    "strip_prefix", "to_json", "write_atomically", "write_tensors", "writing",
]  # fmt: skip

_WHOLE = 1 << 19  # bytes of a tensor up to which every one of them goes into the hash itself
_COLUMNS = 509  # 64-bit words of a line; lines and columns of a block are summed
_LINE = 8 * _COLUMNS
_BLOCK = 512 * _LINE  # 2 MB
_THREADS, _MANY = 4, 8 << 20  # from so many bytes on
_LONGEST_HEADER = 100_000_000  # bytes, as safetensors has it
_LARGE = 1 << 30  # bytes, from which on memory is looked at
_TYPES = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip


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
    arrays = {name: t.detach().cpu().contiguous().numpy() for name, t in tensors.items()}
    sums = {name: _each(_sums, _parts(array)[0], array.nbytes) for name, array in arrays.items()}
    return _digest(digest, arrays, sums)


def _digest(
    digest: Any, arrays: Mapping[str, NDArray[Any]], sums: Mapping[str, Iterable[bytes]]
) -> str:
    """The checksum from the hash of the header, arrays and the sums of their blocks."""
    for name, array in sorted(arrays.items()):
        digest.update(repr((name, _torch_name(array.dtype), array.shape)).encode())
        for found in sums[name]:
            digest.update(found)
        digest.update(_parts(array)[1].data)
    return str(digest.hexdigest())


@lru_cache
def _torch_name(dtype: np.dtype[Any]) -> str:
    return f"torch.{dtype.name}"


def _each(action: Callable[[Any], bytes], items: Sequence[Any], n_bytes: int) -> list[bytes]:
    """`action` of each; for so many bytes threads may be worth their start."""
    if n_bytes < _MANY:
        return [action(item) for item in items]
    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(action, items))


def _parts(array: NDArray[Any]) -> tuple[list[NDArray[np.uint8]], NDArray[np.uint8]]:
    """The blocks of an array that are summed, and the rest, which goes into the hash as it is."""
    content = array.reshape(-1).view(np.uint8)
    rest = content.size // _LINE * _LINE if content.size > _WHOLE else 0
    blocks = [content[at : min(at + _BLOCK, rest)] for at in range(0, rest, _BLOCK)]
    return blocks, content[rest:]


def _sums(block: NDArray[np.uint8]) -> bytes:
    words = block.view(np.uint64).reshape(-1, _COLUMNS)
    return bytes(words.sum(0)) + bytes(words.sum(1))


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
    """Read (header, tensors) of a file that `opened` opens."""
    import torch

    with opened(path, kind, version, older=older) as (header, arrays):
        return header, {name: torch.from_numpy(array) for name, array in arrays().items()}


@contextlib.contextmanager
def opened(
    path: Path, kind: str, version: int, *, older: Sequence[int] = ()
) -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, NDArray[Any]]]]]:
    """The header of a file whose format is `kind`, and what reads its arrays.

    ValueError where the file is no such one or damaged, from either of them. older: versions that
    are read too; they may lack a checksum.
    """
    if not path.is_file():
        raise ValueError(f"{path} is no file: give the path of one")
    known = [*older, version]
    with path.open("rb", buffering=0) as file:
        with _refusing(path):
            header, places = _read_header(file)
        told, found = header.pop("checksum", None), header.get("version")
        if header.get("format") != kind:
            other = _short(header.get("format", "of another program"))
            raise ValueError(f"{path} is not a {kind} file but {other}: choose another file")
        if type(found) is not int or found not in known:
            raise ValueError(
                f"{path} has format version {_short(found)}, this release reads "
                f"{', '.join(map(str, known))}: use the release that wrote it, or write it again"
            )
        digest = hashlib.sha256(json.dumps(header).encode())

        def arrays() -> dict[str, NDArray[Any]]:
            size = places[-1].end if places else 0
            if size > _LARGE:
                check_memory(size, "cpu", str(path), "load it where there is more")
            with _refusing(path):
                read, sums = _read_data(file, places)
            if (told is not None or found == version) and told != _digest(digest, read, sums):
                raise ValueError(
                    f"{path} is damaged: it has been changed since it was written (its checksum "
                    "differs); get or save it again"
                )
            return read

        yield header, arrays


@contextlib.contextmanager
def _refusing(path: Path) -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]  # it may quote the file
        raise ValueError(
            f"{path} is damaged or not a safetensors file ({reason}): choose another file"
        ) from error


class _Place(NamedTuple):
    """Where the data of a file hold an array."""

    begin: int
    end: int
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


def _read_header(file: FileIO) -> tuple[dict[str, Any], list[_Place]]:
    """Our header, and where arrays lie, in order; ValueError where they do not fill the file."""
    length = int.from_bytes(file.read(8), "little")
    left = os.fstat(file.fileno()).st_size - 8 - length
    if left < 0 or length > _LONGEST_HEADER:
        raise ValueError("its header is too long")
    told = json.loads(file.read(length))
    header = json.loads((told.pop("__metadata__", None) or {}).get("mnemosphere", "{}"))
    check_depth(header)
    places = sorted(
        _Place(begin, end, name, np.dtype(_TYPES[about["dtype"]]), tuple(about["shape"]))
        for name, about in told.items()
        for begin, end in [about["data_offsets"]]
    )
    at = 0
    for place in places:
        whole = all(type(n) is int and n >= 0 for n in (*place[:2], *place.shape))
        size = place.dtype.itemsize * math.prod(place.shape) if whole else -1
        if place.begin != at or place.end - at != size:
            raise ValueError(f"{_short(place.name)} is not of the size that it has")
        at = place.end
    if at != left:
        raise ValueError(f"it has {left} bytes of numbers, not {at}")
    return header if isinstance(header, dict) else {}, places


def _read_data(
    file: FileIO, places: Sequence[_Place]
) -> tuple[dict[str, NDArray[Any]], dict[str, list[bytes]]]:
    """Arrays, and the sums of their blocks, taken as these are read.

    What one thread has read it sums while another reads.
    """
    start, turn = file.tell(), Lock()

    def read(part: NDArray[np.uint8], at: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(file.fileno(), [part.data], at)
        with turn:
            file.seek(at)
            return file.readinto(part.data)

    arrays = {place.name: np.empty(place.shape, place.dtype) for place in places}
    pieces: list[tuple[str, int, NDArray[np.uint8], bool]] = []
    for at, _, name, *_ in places:
        blocks, rest = _parts(arrays[name])
        for part in [*blocks, rest]:
            pieces.append((name, at, part, part is not rest))
            at += part.size

    def take(piece: tuple[str, int, NDArray[np.uint8], bool]) -> bytes:
        _, at, part, summed = piece
        done = 0
        while done < part.size:
            more = read(part[done:], start + at + done)
            if not more:
                raise ValueError("it ends too early")
            done += more
        return _sums(part) if summed else b""

    sums: dict[str, list[bytes]] = {place.name: [] for place in places}
    found = _each(take, pieces, places[-1].end if places else 0)
    for (name, *_), one in zip(pieces, found, strict=True):
        sums[name].append(one)
    return arrays, sums


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
