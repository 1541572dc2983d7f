import numpy as np
import pytest

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
