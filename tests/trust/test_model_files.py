"""A model file with something changed is the model that was saved, or one clear error."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.pipeline import make_pipeline

import mnemosphere as mn
from mnemosphere.files import write_tensors

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
many = settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])

VALUES = [
    None, True, 0, -1, 3, 2**63, 10**30, 0.5, -0.5, 1e300, math.nan, math.inf, "", "auto", "standard",
    "\x1b[31m", "a" * 1000, [], [[]], {}, [1, 2, 3], ["a", "b"], {"a": 1},
    {"object": "SGD", "fields": {}}, {"pairs": [[1, 2]]}, {"object": "os", "fields": {"system": 1}},
]  # fmt: skip
DTYPES = [torch.float16, torch.float32, torch.float64, torch.int8, torch.int64, torch.bool]
WILD = [math.nan, math.inf, -1.0, 0.0, 1e30, 1e-30, 1e300]


def fitted(kind):
    rng = np.random.default_rng(0)
    y = np.arange(61) % 3
    x = 3 * rng.normal(size=(3, 6))[y] + 0.6 * rng.normal(size=(61, 6))
    given = {"objective": "joint", "varsigma": 0.9, "max_iter": 2, "random_state": 0}
    if kind == "classifier":
        model = mn.DAMClassifier(7, growth=3, normalize="standard", **given)
        return model.fit(x, np.array(["ant", "bee", "wasp"])[y]).calibrate(x), x
    if kind == "sgd":
        return mn.DAMClassifier(5, **given | {"solver": mn.SGD(batch_size=16)}).fit(x, y), x
    if kind == "clusterer":
        return mn.DAMClusterer(3, normalize="unit", max_iter=2, random_state=0).fit(x), x
    images = rng.random((29, 16))
    encoder = mn.PatchEncoder((4, 4), patch=(2, 3), grid=2, n_memories=3, max_iter=2)
    pipeline = make_pipeline(encoder, mn.DAMClassifier(3, normalize="unit", **given))
    return pipeline.fit(images, np.arange(29) % 2), images


def answers(model, x):
    """Everything that a loaded model can be asked for."""
    found = [np.asarray(model.predict(x)), model.predict_proba(x)]
    if not hasattr(model, "steps"):
        inner = model.model_
        found += [model.transform(x), model.recall(x[:3]), model.sample(2, random_state=0)[0]]
        found += [mn.interpret.score_samples(inner, x), mn.interpret.novelty(inner, x)]
        model.memory_table()
        if model.lineage_ is not None:
            levels = range(model.lineage_.n_levels)
            found += [mn.as_estimator(mn.interpret.at_level(inner, k)).transform(x) for k in levels]
    return found


@pytest.fixture(scope="module", params=["classifier", "sgd", "clusterer", "pipeline"])
def case(request, tmp_path_factory):
    """A model file, its header and tensors, rows and the model's answers."""
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    model, x = fitted(request.param)
    mn.save(model, path)
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["mnemosphere"])
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    del header["checksum"]
    return path, path.read_bytes(), header, tensors, x, answers(mn.load(path), x)


def assert_refused_or_sound(path, x, expected=None):
    """One clear line, or a model with finite answers: those `expected`, if given."""
    try:
        model = mn.load(path)
    except ValueError as error:
        said = str(error)
        assert said.strip()
        assert "\n" not in said
        assert len(said) < 600
        return
    found = answers(model, x)
    assert all(np.isfinite(a).all() for a in found if a.dtype.kind == "f")
    if expected is not None:
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


@many
@given(
    kind=st.sampled_from(["bit", "bytes", "cut", "grow", "zero", "copy", "digit"]),
    at=st.floats(0, 1, exclude_max=True),
    other=st.floats(0, 1, exclude_max=True),
    length=st.integers(1, 2000),
    noise=st.randoms(use_true_random=False),
)
def test_changed_bytes_are_refused(case, kind, at, other, length, noise):
    path, content, *_, x, expected = case
    raw = bytearray(content)
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
    path.write_bytes(bytes(raw))
    assert_refused_or_sound(path, x, expected)


def places(value, path=()):
    """Where something stands in nested lists and mappings."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


@many
@given(
    kind=st.sampled_from(["value", "remove", "nest", "add", "number"]),
    place=st.integers(0, 10**6),
    value=st.sampled_from(VALUES),
    factor=st.sampled_from([-1.0, 0.0, 2.0, 1e10, 1.0000001]),
    depth=st.sampled_from([1, 3, 500]),
    sealed=st.booleans(),
)
def test_changed_fields(case, kind, place, value, factor, depth, sealed):
    path, _, header, tensors, x, _ = case
    header = copy.deepcopy(header)
    known = list(places(header))
    *way, last = known[place % len(known)]
    inside = header
    for key in way:
        inside = inside[key]
    if kind == "remove":
        del inside[last]
    elif kind == "nest":
        for _ in range(depth):
            inside[last] = [inside[last]]
    elif kind == "add" and isinstance(inside, dict):
        inside["more"] = value
    elif kind == "number" and isinstance(inside[last], int | float):
        inside[last] = inside[last] * factor
    else:
        inside[last] = value
    if sealed:
        write_tensors(path, tensors, header)
    else:  # as an earlier version wrote it, without a checksum
        save_file(tensors, path, {"mnemosphere": json.dumps({**header, "version": 2})})
    assert_refused_or_sound(path, x)


@many
@given(
    kind=st.sampled_from(["remove", "rename", "add", "dtype", "shape", "number", "scale", "swap"]),
    which=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    pick=st.integers(0, 10**6),
)
def test_changed_tensors(case, kind, which, pick):
    path, _, header, tensors, x, _ = case
    tensors = dict(tensors)
    name, other = (sorted(tensors)[k % len(tensors)] for k in which)
    tensor = tensors[name].clone()
    flat = tensor.reshape(-1)
    if kind == "remove":
        del tensors[name]
    elif kind == "rename":
        tensors[name + "x"] = tensors.pop(name)
    elif kind == "add":
        tensors[name + ".more"] = tensor
    elif kind == "dtype":
        tensors[name] = tensor.to(DTYPES[pick % len(DTYPES)])
    elif kind == "shape":
        shapes = [flat, flat[None], flat[:-1], flat[:0], tensor[None], flat.repeat(2)]
        tensors[name] = shapes[pick % len(shapes)].contiguous()
    elif kind == "number" and len(flat):
        whole = not tensor.is_floating_point()
        flat[pick % len(flat)] = pick % 100 if whole else WILD[pick % len(WILD)]
        tensors[name] = flat.reshape(tensor.shape)
    elif kind == "scale":
        tensors[name] = (tensor.double() * [-1.0, 0.0, 2.0, 1e200][pick % 4]).to(tensor)
    else:
        tensors[name], tensors[other] = tensors[other].clone(), tensor
    write_tensors(path, tensors, header)
    assert_refused_or_sound(path, x)
