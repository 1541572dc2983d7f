"""The IDX format of MNIST: two zero bytes, a type code, the number of axes, sizes, then the data.

Sizes and data are big-endian. Files may be gzipped.
"""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

IDX_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_GZIP_MAGIC = b"\x1f\x8b"


def read_idx(path: str | Path) -> NDArray[Any]:
    """Read one IDX file, plain or gzipped, into a writable array of native byte order.

    Strict: a wrong magic number, an unknown type code, missing or trailing bytes are each a
    ValueError that names the file.
    """
    path, content = Path(path), Path(path).read_bytes()
    # The content decides, not the suffix: some browsers unpack a file and keep its .gz name.
    if content.startswith(_GZIP_MAGIC):
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise ValueError(f"{path}: damaged gzip file ({error}); download it again") from error
    if len(content) < 4 or content[:2] != b"\0\0":
        raise ValueError(
            f"{path}: not an IDX file, it starts with bytes {content[:4].hex(' ')} and not 00 00"
        )
    code, n_axes = content[2], content[3]
    start = 4 + 4 * n_axes
    if code not in IDX_TYPES or n_axes == 0 or len(content) < start:
        raise ValueError(
            f"{path}: damaged IDX header {content[:8].hex(' ')}, type 0x{code:02x} and {n_axes} axes "
            f"in {len(content)} bytes; download it again"
        )
    shape = struct.unpack(f">{n_axes}I", content[4:start])
    dtype = np.dtype(IDX_TYPES[code])
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        raise ValueError(
            f"{path}: shape {shape} of {dtype.name} needs {expected} bytes "
            f"and the file has {len(content)}; download it again"
        )
    # astype copies: an array over `bytes` would be read-only.
    flat = np.frombuffer(content, dtype=dtype, offset=start)
    return flat.reshape(shape).astype(dtype.newbyteorder("="))
