"""Files that are written whole or not at all, and what they give back."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from mnemosphere import files

# Atomic writes


@pytest.mark.parametrize("broken", ["replace", "fsync"])
@pytest.mark.parametrize("existing", [True, False])
def test_a_failed_write_leaves_everything_as_it_was(tmp_path, monkeypatch, broken, existing):
    path = tmp_path / "file"
    if existing:
        path.write_bytes(b"old")

    def fail(*args):
        raise OSError("no space left on device")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="no space left"):
        files.write_atomically(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == (["file"] if existing else [])
    if existing:
        assert path.read_bytes() == b"old"


def test_ctrl_c_while_writing_leaves_everything_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        files.write_atomically(path, b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"


def test_the_new_file_is_on_disk_before_it_takes_the_name(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    events = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(fd):
        events.append("fsync")
        real_fsync(fd)

    def replace(a, b):
        events.append(("replace", path.read_bytes()))
        real_replace(a, b)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    files.write_atomically(path, b"new")
    assert events[:2] == ["fsync", ("replace", b"old")]
    assert path.read_bytes() == b"new"


# Tensors with a header


def test_tensors_and_header_come_back(tmp_path):
    path = tmp_path / "file"
    whole = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    tensors = {"a.w": whole, "a.same": whole, "b.turned": whole.T, "n": torch.tensor(3)}
    header = {"format": "kind", "version": 7, "deep": {"list": [1, None, "x"]}}
    files.write_tensors(path, tensors, header)
    found, back = files.read_tensors(path, "kind", 7)
    assert found == header
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(back[name], tensor)
        assert back[name].dtype == tensor.dtype


def test_only_the_kind_and_version_asked_for_are_read(tmp_path):
    path = tmp_path / "file"
    files.write_tensors(path, {"a": torch.zeros(2)}, {"format": "kind", "version": 7})
    for kind, version, message in (
        ("other", 7, "is not a other file but kind"),
        ("kind", 8, "has format version 7, this release reads 8"),
    ):
        with pytest.raises(ValueError, match=message) as caught:
            files.read_tensors(path, kind, version)
        assert str(path) in str(caught.value)
    save_file({"a": torch.zeros(3)}, path)
    with pytest.raises(ValueError, match="of another program"):
        files.read_tensors(path, "kind", 7)
    path.write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="is damaged or not a safetensors file"):
        files.read_tensors(path, "kind", 7)


def test_any_safetensors_reader_can_read_them(tmp_path):
    path = tmp_path / "file"
    files.write_tensors(path, {"a": torch.ones(2)}, {"format": "kind"})
    assert load_file(path)["a"].tolist() == [1.0, 1.0]
    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["mnemosphere"]) == {"format": "kind"}


def test_strip_prefix_takes_whole_names():
    a, b = torch.zeros(1), torch.ones(1)
    tensors = {"params.w": a, "params.deep.p": b, "params2.w": b, "w": b}
    assert files.strip_prefix(tensors, "params") == {"w": a, "deep.p": b}


def test_plain_values_are_those_of_json():
    value = {
        1: np.float32(0.5),
        "a": [np.int64(3), (np.bool_(True), None)],
        "b": np.arange(4).reshape(2, 2),
        "c": {"d": np.array(2.5)},
    }
    plain = {"1": 0.5, "a": [3, [True, None]], "b": [[0, 1], [2, 3]], "c": {"d": 2.5}}
    assert files.plain(value) == plain
    assert json.loads(json.dumps(files.plain(value))) == plain
