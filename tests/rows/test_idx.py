import gzip
import struct

import numpy as np
import pytest

from mnemosphere.rows.idx import read_idx

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array):
    kind = array.dtype.str[1:]
    header = struct.pack(f">BBBB{array.ndim}I", 0, 0, CODES[kind], array.ndim, *array.shape)
    return header + array.astype(f">{kind}").tobytes()


@pytest.mark.parametrize("dtype", list(CODES))
@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gz"])
def test_round_trip(tmp_path, dtype, pack):
    """The content decides whether a file is packed, not its name."""
    array = np.random.default_rng(3).integers(0, 120, (5, 7, 3)).astype(dtype)
    path = tmp_path / ("a-idx3.gz" if pack is bytes else "a-idx3")
    path.write_bytes(pack(idx_bytes(array)))
    got = read_idx(path)
    np.testing.assert_array_equal(got, array)
    assert got.dtype == np.dtype(dtype)
    assert got.flags.writeable


GOOD = idx_bytes(np.arange(35, dtype=np.uint8).reshape(5, 7))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an IDX file"),
        (b"\x89PNG1234", "starts with bytes 89 50 4e 47"),
        (b"\0\0\x0a\x01" + GOOD[4:], "type 0x0a"),
        (GOOD[:9], "damaged IDX header .* 2 axes in 9 bytes"),
        (GOOD[:-1], r"shape \(5, 7\) of uint8 needs 47 bytes and the file has 46"),
        (GOOD + b"!", "needs 47 bytes and the file has 48"),
        (gzip.compress(GOOD, mtime=0)[:-12], "damaged gzip file"),
    ],
)
def test_errors_are_one_line_and_name_the_file(tmp_path, content, message):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        read_idx(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
