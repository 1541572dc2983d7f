"""MNIST (LeCun, Cortes and Burges) and Fashion-MNIST (Xiao, Rasul and Vollgraf, 2017) from their IDX files.

IDX: two zero bytes, a type code, the number of axes, sizes, then the data, all big-endian. Files may be
gzipped.
"""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mnemosphere
from mnemosphere import NamedData

_CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker",
            "Bag", "Ankle boot")  # fmt: skip
CLASSES = {"mnist": tuple("0123456789"), "fashion-mnist": _CLOTHES}
STEMS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte",
         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")  # fmt: skip
_BYTES = 0x08  # the type code of the four files


def load_data(name: str, directory: str | Path | None = None) -> NamedData:
    """A data set of the package, or "mnist" or "fashion-mnist": 60,000 + 10,000 images of 28x28.

    The files of the last two lie in `directory/<name>`, `directory`, `$MNEMOSPHERE_DATA/<name>` or
    `$MNEMOSPHERE_DATA`.
    """
    if name not in CLASSES:
        return mnemosphere.load_data(name)
    roots = [Path(root) for root in (directory, os.environ.get("MNEMOSPHERE_DATA")) if root]
    # The named subfolder first: both data sets use the same four file names.
    folders = [folder for root in roots for folder in (root / name, root)]
    other = {*CLASSES} - {name}
    for folder in folders:
        paths = [_path(folder, stem) for stem in STEMS]
        if folder.name not in other and any(path.is_file() for path in paths):
            x, y, x_test, y_test = (read_idx(path) for path in paths)
            return NamedData(
                name, x.reshape(len(x), -1), y.astype(np.int64), x_test.reshape(len(x_test), -1),
                y_test.astype(np.int64), x.shape[1:], CLASSES[name],
            )  # fmt: skip
    raise FileNotFoundError(
        f"no files of {name} found: put {', '.join(STEMS)} (plain or .gz) into a folder DIR/{name} "
        "and pass directory=DIR or set MNEMOSPHERE_DATA=DIR"
    )


def _path(folder: Path, stem: str) -> Path:
    """The plain file, or the packed one where there is none."""
    plain = folder / stem
    return plain if plain.is_file() else folder / f"{stem}.gz"


def read_idx(path: Path) -> NDArray[Any]:
    """An IDX file of bytes, plain or gzipped, as a writable array; ValueError names a damaged file."""
    content = path.read_bytes()
    if content.startswith(b"\x1f\x8b"):  # some browsers unpack a file and keep its name
        content = gzip.decompress(content)
    n_axes = content[3] if content[:3] == bytes([0, 0, _BYTES]) else 0
    start = 4 + 4 * n_axes
    shape = struct.unpack(f">{n_axes}I", content[4:start]) if len(content) >= start else ()
    if n_axes == 0 or len(content) != start + np.prod(shape, dtype=np.int64):
        raise ValueError(f"{path} is no IDX file of bytes, or is damaged: download it again")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()
