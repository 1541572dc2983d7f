"""Files that are written whole or not at all, and what they give back."""

import json
import os
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from mnemosphere.base import files

# Atomic writes


@pytest.mark.parametrize("error", [partial(OSError, 28, "No space left"), KeyboardInterrupt])
@pytest.mark.parametrize("broken", ["replace", "fsync"])
@pytest.mark.parametrize("existing", [True, False])
def test_a_failed_write_leaves_everything_as_it_was(tmp_path, monkeypatch, error, broken, existing):
    path = tmp_path / "file"
    if existing:
        path.write_bytes(b"old")

    def fail(*args):
        raise error()

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises((OSError, KeyboardInterrupt)) as caught:
        files.write_atomically(path, b"new")
    assert error is KeyboardInterrupt or str(path) in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == (["file"] if existing else [])
    if existing:
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
    tensors = {"a.w": whole, "a.same": whole, "b.turned": whole.T, "n": torch.tensor(3),
               "none": whole[:0], "large": LARGE, "flags": whole > 3}  # fmt: skip
    header = {"format": "kind", "version": 7, "deep": {"list": [1, None, "x"]}}
    files.write_tensors(path, tensors, header)
    found, back = files.read_tensors(path, "kind", 7)
    assert found == header
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert torch.equal(back[name], tensor)
        assert back[name].dtype == tensor.dtype


LARGE = torch.arange(1009)


@pytest.mark.parametrize("tensor", [torch.arange(30.0).reshape(5, 6), LARGE], ids=["few", "many"])
def test_a_checksum_sees_every_change(tensor):
    header = {"a": [1.5, None, "ü"], "b": {"c": True}}
    flat = tensor.reshape(-1)
    seen = [files.checksum({"x": tensor, "y": tensor}, header)]
    seen.append(files.checksum({"x": tensor}, header))
    seen.append(files.checksum({"z": tensor, "y": tensor}, header))
    seen.append(files.checksum({"x": tensor, "y": tensor}, header | {"a": [1.5, None, "u"]}))
    seen.append(files.checksum({"x": tensor.reshape(1, *tensor.shape), "y": tensor}, header))
    seen.append(files.checksum({"x": tensor.view(torch.int32), "y": tensor}, header))
    last = len(flat) - 1
    # A number anywhere; two of them exchanged.
    swaps = [(0, 1), (2, last)]
    for i, j in [(0, 0), (last, last), (last // 2, last // 2), *swaps]:
        if j <= last:
            changed = flat.clone()
            changed[[i, j]] = flat[[j, i]] if i != j else flat[i] + 1
            seen.append(files.checksum({"x": changed.reshape(tensor.shape), "y": tensor}, header))
    assert len(set(seen)) == len(seen)
    assert files.checksum({"y": tensor.clone(), "x": tensor}, header) == seen[0]


def kind(version, name="kind"):
    return {"mnemosphere": json.dumps({"format": name, "version": version})}


# (the header of a file, what is said of it, in one short line)
REFUSED = {
    "another kind": (kind(7, "other"), "file is not a kind file but other"),
    "another program": (None, "of another program"),
    "no checksum": (kind(7), "checksum differs"),
    "older": (kind(6), "has format version 6, this"),
    "newer": (kind(8), "has format version 8, this"),
    "overflow": ({"mnemosphere": '{"format": "kind", "version": 1e999}'}, "has format version inf"),
    "open": ({"mnemosphere": "[" * 100_000}, "is damaged or not"),
    "digits": ({"mnemosphere": "9" * 5000}, "is damaged or not"),
    "a long kind": (kind(7, "x" * 5000), "x" * 40),
    "a long version": (kind("x" * 5000), "x" * 40),
}


@pytest.mark.parametrize("what", REFUSED)
def test_other_headers_are_refused_in_one_short_line(tmp_path, what):
    path, (header, message) = tmp_path / "file", REFUSED[what]
    save_file({"a": torch.zeros(2)}, path, header)
    with pytest.raises(ValueError, match=message) as caught:
        files.read_tensors(path, "kind", 7)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300 + len(str(path))


def test_what_is_no_file_of_tensors_is_refused_in_one_short_line(tmp_path):
    """safetensors quotes what it cannot read, however long."""
    path = tmp_path / "file"
    header = b'{"a":{"dtype":"' + b"x" * 5000 + b'","shape":[1],"data_offsets":[0,4]}}'
    for content in (b"no tensors", len(header).to_bytes(8, "little") + header + bytes(4)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="is damaged or not a safetensors file") as caught:
            files.read_tensors(path, "kind", 7)
        assert len(str(caught.value)) < 300 + len(str(path))


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_the_mode_of_an_existing_file_is_kept(tmp_path, mode):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    files.write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_full_disk_and_a_kill_leave_the_old_file(tmp_path):
    """A limit on the size of files is a full disk; a process that is killed while it writes leaves the name alone."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    code = (
        "import os, resource, signal, sys; from pathlib import Path\n"
        "from mnemosphere.base.files import write_atomically, writing\n"
        "path = Path(sys.argv[1])\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "try: write_atomically(path, bytes(5000))\n"
        "except OSError as error: print(error)\n"
        "with writing(path) as file:\n"
        "    file.write(b'half'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-u", "-c", code, str(path)], capture_output=True, text=True, env=env
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert "File too large" in done.stdout
    assert str(path) in done.stdout
    assert path.read_bytes() == b"old"


def test_links_are_followed_and_nothing_but_regular_files_is_replaced(tmp_path):
    target, link = tmp_path / "there" / "file", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to(target)
    for content in (b"one", b"two"):  # a name of nothing yet, then of a file
        files.write_atomically(link, content)
        assert link.is_symlink()
        assert target.read_bytes() == content
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in (tmp_path / "pipe", tmp_path / "folder", Path("/dev/null")):
        with pytest.raises(ValueError, match="is no regular file: choose another name"):
            files.write_atomically(name, b"new")
    assert Path("/dev/null").is_char_device()
    assert [path.name for path in target.parent.iterdir()] == ["file"]
