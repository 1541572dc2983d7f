"""Files that are written whole or not at all, and safetensors files with a header of ours."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar

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

Numbers = TypeVar("Numbers")  # tensors or arrays
NORMS = " norms"
_WHOLE = 1 << 16  # bytes, up to which every one of them goes into the hash itself
_COLUMNS = 509  # 64-bit words of a line; lines and columns of a block are summed
_LINE, _LINES = 8 * _COLUMNS, 512  # bytes of one, and how many a block of 2 MB has
_BLOCK = _LINES * _LINE
_MANY = 1 << 24  # bytes, from which on a second thread looks at what the first has read
_LONGEST_HEADER = 100_000_000  # bytes, as safetensors has it
_LARGE = 1 << 30  # bytes, from which on memory is looked at
_TYPES = {name: np.dtype(kind) for name, kind in {
    "BOOL": "?", "U8": "u1", "I8": "i1", "U16": "<u2", "I16": "<i2", "U32": "<u4", "I32": "<i4",
    "U64": "<u8", "I64": "<i8", "F16": "<f2", "F32": "<f4", "F64": "<f8",
}.items()}  # fmt: skip
_NAMES = {kind.name: name for name, kind in _TYPES.items()}


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
    """SHA-256 of the header and of names, types, shapes and numbers of the tensors; see `_Sums`."""
    digest = hashlib.sha256(json.dumps(header).encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(repr((name, str(tensor.dtype), tuple(tensor.shape))).encode())
        _add(digest, _bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> NDArray[np.uint8]:
    return tensor.detach().cpu().contiguous().numpy().reshape(-1).view(np.uint8)


class _Sums:
    """What goes into a hash for many bytes: sums of 64-bit words over lines and columns of blocks.

    That takes a tenth of the time, and any change of less than 4 kB changes some sum. Few bytes,
    and those after the last line, go in as they are.
    """

    def __init__(self, content: NDArray[np.uint8]) -> None:
        self._content = content
        self._n_lines = content.size // _LINE if content.size > _WHOLE else 0
        n_blocks = -(-self._n_lines // _LINES)
        self._table = np.zeros((n_blocks, _COLUMNS + _LINES), np.uint64)

    def take(self, begin: int, end: int) -> None:
        """Sum the block between these places; threads may take one each."""
        end = min(end, self._n_lines * _LINE) // _LINE * _LINE
        if begin < end:
            words = self._content[begin:end].view(np.uint64).reshape(-1, _COLUMNS)
            row = self._table[begin // _BLOCK]
            words.sum(0, out=row[:_COLUMNS])
            words.sum(1, out=row[_COLUMNS : _COLUMNS + len(words)])

    def add_to(self, digest: Any) -> None:
        """Put them into the hash."""
        n_sums = len(self._table) * _COLUMNS + self._n_lines
        digest.update(self._table.reshape(-1)[:n_sums].data)
        digest.update(self._content[self._n_lines * _LINE :].data)


def _add(digest: Any, content: NDArray[np.uint8]) -> None:
    sums = _Sums(content)
    for at in range(0, content.size, _BLOCK):
        sums.take(at, min(at + _BLOCK, content.size))
    sums.add_to(digest)


def write_tensors(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, Any]) -> None:
    """Write named tensors and a header of plain values atomically, as safetensors has them.

    The last field of the header is the checksum of the whole file without it.
    """
    places: dict[str, Any] = {"__metadata__": {}}
    parts, at = [], 0
    for name, tensor in sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])):
        parts.append(_bytes(tensor))
        about = {"dtype": _NAMES[str(tensor.dtype)[6:]], "shape": list(tensor.shape)}
        places[name] = about | {"data_offsets": [at, at := at + parts[-1].size]}
    content = np.concatenate(parts) if parts else np.empty(0, np.uint8)

    def head(seal: str) -> bytes:
        places["__metadata__"]["mnemosphere"] = json.dumps({**header, "checksum": seal})
        text = json.dumps(places, separators=(",", ":")).encode()
        return text + b" " * (-len(text) % 8)  # numbers begin at a multiple of 8

    digest = hashlib.sha256(head(""))
    _add(digest, content)
    sealed = head(digest.hexdigest())
    with writing(path) as file:
        for part in (len(sealed).to_bytes(8, "little"), sealed, content.data):
            file.write(part)


def read_tensors(
    path: Path, kind: str, version: int, *, older: Sequence[int] = ()
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read (header, tensors) of a file that `opened` opens."""
    with opened(path, kind, version, older=older) as (header, arrays):
        return header, as_tensors(arrays())


def as_tensors(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """The same memory as tensors."""
    import torch

    return {name: torch.from_numpy(array) for name, array in arrays.items()}


@contextlib.contextmanager
def opened(
    path: Path, kind: str, version: int, *, older: Sequence[int] = (), norms_of: str = ""
) -> Iterator[tuple[dict[str, Any], Callable[[], dict[str, NDArray[Any]]]]]:
    """The header of a file whose format is `kind`, and what reads its arrays.

    ValueError where the file is no such one or damaged, from either of them. older: versions that
    are read too; they may lack a checksum. norms_of: how names of matrices end whose rows' norms
    are taken on the way, as a further array each: its name and `NORMS`, which no file has.
    """
    if not path.is_file():
        raise ValueError(f"{path} is no file: give the path of one")
    known = [*older, version]
    with path.open("rb", buffering=0) as file:
        with _refusing(path):
            head, header, places = _read_header(file)
        told, found = header.pop("checksum", None), header.get("version")
        if header.get("format") != kind:
            other = _short(header.get("format", "of another program"))
            raise ValueError(f"{path} is not a {kind} file but {other}: choose another file")
        if type(found) is not int or found not in known:
            raise ValueError(
                f"{path} has format version {_short(found)}, this release reads "
                f"{', '.join(map(str, known))}: use the release that wrote it, or write it again"
            )

        def arrays() -> dict[str, NDArray[Any]]:
            size = places[-1].end if places else 0
            if size > _LARGE:
                check_memory(size, "cpu", str(path), "load it where there is more")
            digest = hashlib.sha256(head.replace(str(told).encode(), b"", 1))
            with _refusing(path):
                read = _read_data(file, places, digest, norms_of)
            if (told is not None or found == version) and told != digest.hexdigest():
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


def _read_header(file: FileIO) -> tuple[bytes, dict[str, Any], list[_Place]]:
    """All before the arrays, our header in it, and where they lie, in order.

    ValueError where they do not fill the rest of the file.
    """
    length = int.from_bytes(file.read(8), "little")
    left = os.fstat(file.fileno()).st_size - 8 - length
    if left < 0 or length > _LONGEST_HEADER:
        raise ValueError("its header is too long")
    head = file.read(length)
    told = json.loads(head)
    header = json.loads((told.pop("__metadata__", None) or {}).get("mnemosphere", "{}"))
    check_depth(header)
    places = sorted(
        _Place(begin, end, name, _TYPES[about["dtype"]], tuple(about["shape"]))
        for name, about in told.items()
        for begin, end in [about["data_offsets"]]
    )
    at = 0
    for place in places:
        begin, end, name, dtype, shape = place
        whole = {int}.issuperset(map(type, (begin, end, *shape))) and min(shape, default=0) >= 0
        size = dtype.itemsize * math.prod(shape) if whole else -1
        if begin != at or end - at != size or size < 0 or name.endswith(NORMS):
            raise ValueError(f"{_short(name)} is not of the size that it has")
        at = end
    if at != left:
        raise ValueError(f"it has {left} bytes of numbers, not {at}")
    return head, header if isinstance(header, dict) else {}, places


def _read_data(
    file: FileIO, places: list[_Place], digest: Any, norms_of: str
) -> dict[str, NDArray[Any]]:
    """The rest of a file, which goes into the hash too."""
    size = places[-1].end if places else 0
    content = np.empty(size, np.uint8)
    arrays = {p.name: content[p.begin : p.end].view(p.dtype).reshape(p.shape) for p in places}
    sums = _Sums(content)
    matrices = [
        p for p in places
        if norms_of and p.name.endswith(norms_of) and len(p.shape) == 2 and p.end > p.begin
        and p.dtype.kind == "f"
    ]  # fmt: skip
    squares = {p.name + NORMS: np.zeros(p.shape[0], p.dtype) for p in matrices}
    spans: SimpleQueue[tuple[int, int] | None] = SimpleQueue()  # what has been read

    def look() -> None:
        while (span := spans.get()) is not None:
            sums.take(*span)
            for begin, end, name, _, shape in matrices:
                # The rows that end in this block: all before it has been read.
                first, last = (
                    (min(max(at, begin), end) - begin) * shape[0] // (end - begin) for at in span
                )
                if first < last:
                    rows = arrays[name][first:last]
                    np.einsum("ij,ij->i", rows, rows, out=squares[name + NORMS][first:last])

    second = Thread(target=look) if size >= _MANY else None
    if second is not None:
        second.start()
    try:
        for begin in range(0, size, _BLOCK):
            at, end = begin, min(begin + _BLOCK, size)
            while at < end:
                more = file.readinto(content[at:end].data)
                if not more:
                    raise ValueError("it ends too early")
                at += more
            spans.put((begin, end))
    finally:
        spans.put(None)
        spans.put(None)
        look()
        if second is not None:
            second.join()
    sums.add_to(digest)
    return arrays | {name: np.sqrt(found) for name, found in squares.items()}


def _short(value: object) -> str:
    """A value that a file has where a short one belongs."""
    return str(value)[:40]


def strip_prefix(tensors: Mapping[str, Numbers], prefix: str) -> dict[str, Numbers]:
    """The tensors named `prefix.*`, without that prefix."""
    start = prefix + "."
    return {name[len(start) :]: t for name, t in tensors.items() if name.startswith(start)}


def join_prefixes(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors of several parts, each named `part.name`: what `strip_prefix` takes apart."""
    return {f"{part}.{name}": t for part, tensors in parts.items() for name, t in tensors.items()}


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
