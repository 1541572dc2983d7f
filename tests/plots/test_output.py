import io

import numpy as np
import pytest
from PIL import Image

from mnemosphere import plots

W = np.random.default_rng(0).normal(size=(6, 12))


def picture():
    return plots.memories(W, (3, 4))


@pytest.mark.parametrize(
    ("suffix", "start"), [(".png", b"\x89PNG"), (".PDF", b"%PDF"), (".svg", b"<?xml")]
)
def test_the_suffix_chooses_the_format_and_same_data_are_same_bytes(
    tmp_path, monkeypatch, suffix, start
):
    first = plots.save(picture(), tmp_path / "new" / "folder" / f"a{suffix}")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")  # another day
    second = plots.save(picture(), str(tmp_path / f"b{suffix}"))
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes().startswith(start)
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_the_drawn_memory_is_in_the_file():
    buffer = io.BytesIO()
    ax = plots.memories(np.array([[1.0, -1.0]]), (1, 2), named=False)
    ax.figure.savefig(buffer, format="png", dpi=100)
    image = np.asarray(Image.open(buffer).convert("RGB")).astype(int)
    middle = image[image.shape[0] // 2]
    left, right = middle[len(middle) // 4], middle[3 * len(middle) // 4]
    assert left[0] > left[2] + 50  # positive is red
    assert right[2] > right[0] + 50  # negative is blue
