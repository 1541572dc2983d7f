"""A file that is no model, or none any more, is refused with one clear line; reading one runs no code."""

import json
import os
import pickle
import threading

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

import mnemosphere as mn
from mnemosphere.base.files import read_tensors, write_tensors
from mnemosphere.export.files import FORMAT, VERSION
from problems import Case, campaign
from quick_models import assert_same_model, small


class Trap:
    """Unpickling this would run code."""

    def __reduce__(self):
        return (os.mkdir, ("trap-was-sprung",))


def pickled(path, content):
    path.write_bytes(pickle.dumps(Trap()))


def torch_file(path, content):
    torch.save(Trap(), path)


def cut(path, content):
    path.write_bytes(content[: len(content) // 2])


def flipped(path, content):
    changed = bytearray(content)
    changed[-len(content) // 5] ^= 1  # in the tensors
    path.write_bytes(bytes(changed))


def flipped_header(path, content):
    path.write_bytes(content.replace(b"converged", b"Converged", 1))


def empty(path, content):
    path.write_bytes(b"")


def text(path, content):
    path.write_text("label,x\n1,2\n")


def tensors_alone(path, content):
    path.write_bytes(save(load(content)))


def version(number):
    def write(path, content):
        path.write_bytes(content)
        header, tensors = read_tensors(path, FORMAT, VERSION)
        write_tensors(path, tensors, header | {"version": number})

    return write


def another_class(path, content):
    """With the right checksum."""
    path.write_bytes(content)
    header, tensors = read_tensors(path, FORMAT, VERSION)
    header["model"]["type"] = "system"
    write_tensors(path, tensors, header)


DAMAGED = {
    "pickle": (pickled, "is damaged or not a safetensors file"),
    "torch": (torch_file, "is damaged or not a safetensors file"),
    "cut": (cut, "is damaged or not a safetensors file"),
    "empty": (empty, "is damaged or not a safetensors file"),
    "text": (text, "is damaged or not a safetensors file"),
    "flipped": (flipped, "is damaged: it has been changed since it was written"),
    "flipped header": (flipped_header, "is damaged: it has been changed since it was written"),
    "tensors alone": (tensors_alone, "is not a mnemosphere-model file but of another program"),
    "older": (version(VERSION - 1), f"has format version {VERSION - 1}, this release reads"),
    "newer": (version(VERSION + 1), f"has format version {VERSION + 1}, this release reads"),
    "another class": (
        another_class,
        r"holds no model \(KeyError: 'system'\): save the model again",
    ),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_what_is_no_model_is_refused_and_runs_nothing(how, saved, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write, message = DAMAGED[how]
    path = tmp_path / "m.safetensors"
    write(path, saved.read_bytes())
    with pytest.raises(ValueError, match=f"m.safetensors {message}") as caught:
        mn.load(path)
    assert "\n" not in str(caught.value)
    assert [file.name for file in tmp_path.iterdir()] == ["m.safetensors"]


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model file at .*nothing: check the path"):
        mn.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="is no file"):
        mn.load(tmp_path)


def test_sizes_that_do_not_agree(saved, tmp_path):
    header, tensors = read_tensors(saved, FORMAT, VERSION)
    tensors["votes.p"] = tensors["votes.p"][:, 1:]
    write_tensors(tmp_path / "m", tensors, header)
    with pytest.raises(ValueError, match=r"holds no model .*3 classes"):
        mn.load(tmp_path / "m")


def model_of(kind):
    rng = np.random.default_rng(0)
    y = np.arange(61) % 3
    x = 3 * rng.normal(size=(3, 6))[y] + 0.6 * rng.normal(size=(61, 6))
    given = {"objective": "joint", "varsigma": 0.9, "max_iter": 2, "random_state": 0}
    if kind == "classifier":
        model = mn.DAMClassifier(7, growth=3, geometry="standard", **given)
        return model.fit(x, np.array(["ant", "bee", "wasp"])[y]).calibrate(x + 1e-3), x
    return mn.DAMClusterer(3, geometry="unit", max_iter=2, random_state=0).fit(x), x


@pytest.fixture(scope="module", params=["classifier", "clusterer"])
def case(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    model, x = model_of(request.param)
    mn.save(model, path)
    return Case(name=request.param, path=path, content=path.read_bytes(), x=x,
                expected=model.predict_proba(x))  # fmt: skip


@campaign(400)
@given(
    kind=st.sampled_from(["bit", "bytes", "cut", "grow", "zero", "copy", "digit"]),
    at=st.floats(0, 1, exclude_max=True),
    other=st.floats(0, 1, exclude_max=True),
    length=st.integers(1, 2000),
    noise=st.randoms(use_true_random=False),
)
def test_changed_bytes_are_refused_or_change_nothing(case, kind, at, other, length, noise):
    raw = bytearray(case.content)
    at, other = int(at * len(raw)), int(other * len(raw))
    length = min(length, len(raw) - max(at, other))
    if kind == "bit":
        raw[at] ^= 1 << noise.randrange(8)
    elif kind == "digit":  # of the header
        digits = [
            i for i in range(8, 8 + int.from_bytes(raw[:8], "little")) if chr(raw[i]).isdigit()
        ]
        raw[noise.choice(digits)] = ord(noise.choice("0123456789"))
    else:
        new = {"bytes": noise.randbytes(length), "cut": b"", "zero": bytes(length)}
        new |= {"grow": noise.randbytes(length), "copy": raw[other : other + length]}
        raw[at : at if kind == "grow" else at + length] = new[kind]
    case.path.write_bytes(bytes(raw))
    found = loaded_or_refused(case.path)
    if isinstance(found, str):
        assert "\n" not in found
        assert len(found) < 600
    else:
        assert np.array_equal(found.predict_proba(case.x), case.expected)


def loaded_or_refused(path):
    """The model of a file, or what is said of it."""
    try:
        return mn.load(path)
    except ValueError as error:
        return str(error)


def test_a_file_is_read_while_others_replace_it(fitted, fresh, saved, tmp_path):
    """Whole or not at all, however often it is written meanwhile."""
    path, done = tmp_path / "m.safetensors", threading.Event()
    fitted.save(path)

    def write():
        while not done.is_set():
            fitted.save(path)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(30):
            assert np.array_equal(
                mn.load(path).predict_proba(fresh.x), fitted.predict_proba(fresh.x)
            )
    finally:
        done.set()
        writer.join()


def test_a_loaded_model_does_not_need_its_file(fitted, fresh, saved, tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(saved.read_bytes())
    loaded = mn.load(path)
    with path.open("r+b") as file:
        file.truncate(10)  # a map of it would end the process
    assert_same_model(loaded, fitted, fresh.x)


def test_a_file_that_is_rewritten_in_place_is_read_whole_or_refused(saved, tmp_path):
    path, done, content = tmp_path / "m.safetensors", threading.Event(), saved.read_bytes()
    path.write_bytes(content)

    def write():
        while not done.is_set():
            path.write_bytes(content)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(50):
            found = loaded_or_refused(path)
            assert not isinstance(found, str) or "is damaged" in found
    finally:
        done.set()
        writer.join()


def test_a_stream_goes_on_from_a_file(data, tmp_path):
    model = small(n_memories=3).partial_fit(data.x, data.y)
    model.save(tmp_path / "m")
    again = mn.load(tmp_path / "m").partial_fit(data.x, data.y)
    assert np.array_equal(again.memories_, model.partial_fit(data.x, data.y).memories_)


def test_the_header_is_readable_by_anyone(saved):
    """Plain JSON in the metadata of a plain safetensors file."""
    content = saved.read_bytes()
    about = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    header = json.loads(about["__metadata__"]["mnemosphere"])
    assert (header["format"], header["version"]) == ("mnemosphere-model", VERSION)
    assert header["model"]["record"]["settings"]["n_memories"] == 7
    assert load(content)["votes.p"].shape == (8, 4)
