import io
import re

import numpy as np
import pytest
from PIL import Image

from mnemosphere import plots

W = np.random.default_rng(0).normal(size=(6, 12))


def picture():
    return plots.memories(W, (3, 4))


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_same_data_same_bytes(tmp_path, suffix, monkeypatch):
    first = plots.save(picture(), tmp_path / f"a{suffix}").read_bytes()
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")  # another day
    second = plots.save(picture(), tmp_path / f"b{suffix}").read_bytes()
    assert first == second
    assert not re.search(rb"20[2-9]\d-\d\d-\d\d|D:20\d\d", first)


@pytest.mark.parametrize(
    ("name", "start"), [("x.png", b"\x89PNG"), ("x.PDF", b"%PDF"), ("x.svg", b"<?xml")]
)
def test_the_suffix_chooses_the_format_and_folders_are_made(tmp_path, name, start):
    path = plots.save(picture(), str(tmp_path / "new" / "folder" / name))
    assert path == tmp_path / "new" / "folder" / name
    assert path.read_bytes().startswith(start)
    assert [p.name for p in path.parent.iterdir()] == [name]


def test_the_drawn_memory_is_in_the_file():
    buffer = io.BytesIO()
    ax = plots.memories(np.array([[1.0, -1.0]]), (1, 2), named=False)
    ax.figure.savefig(buffer, format="png", dpi=100)
    image = np.asarray(Image.open(buffer).convert("RGB")).astype(int)
    middle = image[image.shape[0] // 2]
    left, right = middle[len(middle) // 4], middle[3 * len(middle) // 4]
    assert left[0] > left[2] + 50  # positive is red
    assert right[2] > right[0] + 50  # negative is blue
