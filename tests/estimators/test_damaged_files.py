"""A file that is no model, or none any more, is refused with one clear line."""

import copy
import functools
import json
import math
import operator
import os
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open

import mnemosphere as mn
from mnemosphere.base.files import write_tensors
from problems import Case, campaign
from quick_models import assert_same_model, small

NAN = float("nan")


def rewritten(saved, path, change=lambda meta: meta, tensors=None):
    """A copy of a model file with another header or other tensors, and the right checksum."""
    with safe_open(saved, framework="pt") as file:
        meta = json.loads(file.metadata()["mnemosphere"])
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    found = {name: t for name, t in (found | (tensors or {})).items() if t is not None}
    meta.pop("checksum")
    write_tensors(path, found, change(meta))
    return path


def changed(header, place, value):
    """The header with another value in a place such as record.settings."""
    header = copy.deepcopy(header)
    *way, last = place.split(".")
    inside = functools.reduce(operator.getitem, way, header)
    assert last in inside
    inside[last] = value
    return header


def test_the_rewritten_file_is_fine_when_nothing_is_changed(fitted, fresh, saved, tmp_path):
    """The tests below fail for the reason they give, not because of how they write."""
    assert_same_model(fitted, mn.load(rewritten(saved, tmp_path / "m.safetensors")), fresh.x)


class Trap:
    """Unpickling this would run code."""

    def __reduce__(self):
        return (os.mkdir, ("trap-was-sprung",))


@pytest.mark.parametrize("writer", [pickle.dump, torch.save], ids=["pickle", "torch"])
def test_pickles_are_refused_and_not_run(tmp_path, monkeypatch, writer):
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "model.pkl").open("wb") as file:
        writer(Trap(), file)
    with pytest.raises(ValueError, match=r"model.pkl is damaged or not a safetensors file"):
        mn.load(tmp_path / "model.pkl")
    assert not (tmp_path / "trap-was-sprung").exists()


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        ("record.settings.solver", {"object": "Trap", "fields": {}}, "settings are not those of a"),
        ("record.settings.solver", {"object": "SGD", "fields": {"momentum": 7.0}}, "momentum"),
        ("record.history", [{"n_iter": 1}], "'history.0.beta' is missing"),
        ("features.columns", ["a"], "it has 1 names for 5 features"),
        ("features.owner", "DAMClusterer", "model of another estimator"),
        ("classes", {"dtype": "<i1", "values": [0, 1, 300]}, "classes is no array of dtype"),
        ("classes", {"dtype": "<i8", "values": [0, 1, 1]}, "are not different values"),
        ("classes", {"dtype": "<U999999999", "values": ["a", "b", "c"]}, "classes is no array of"),
        ("classes", {"dtype": "i8,i8", "values": [0, 1, 2]}, "classes is no array of dtype"),
        ("estimator", "DAMOracle", "estimator is 'DAMOracle'"),
        ("geometry.name", "oval", "geometry.name is 'oval', expected one of"),
        ("votes.temperature", NAN, "votes.temperature is nan"),
        ("density.varsigma", 7, "varsigma must lie in"),
    ],
)
def test_nonsense_in_the_header(saved, tmp_path, place, value, message):
    path = rewritten(saved, tmp_path / "m.safetensors", lambda meta: changed(meta, place, value))
    with pytest.raises(ValueError, match=f"damaged: .*{message}.*save the model again"):
        mn.load(path)


def shifted(name, change):
    return lambda tensors: {name: change(tensors[name])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shifted("votes.w", lambda w: w * 2), "row 0 of memories has norm 2"),
        (
            shifted("votes.w", lambda w: w.index_fill(1, torch.tensor(1), NAN)),
            "entries that are not finite",
        ),
        (shifted("votes.w", lambda w: w.float()), "must be of one precision"),
        (shifted("votes.slope", lambda s: s * 0), "slope of votes must be one positive number"),
        (shifted("votes.p", lambda p: p * 2), "class weights and frequencies of votes must"),
        (shifted("votes.p", lambda p: p[1:]), r"votes need memories \(P, N\)"),
        (lambda t: {"geometry.mean": t["votes.p"]}, "mean is .* expected"),
        (shifted("label_mass", lambda m: -m), "label_mass has numbers that are not finite or"),
        (shifted("label_mass", lambda m: m[1:]), "label_mass is of 3 classes"),
        (shifted("exemplars.typical", lambda t: t[:-1]), r"exemplars.support is \(7,\) of float64"),
        (
            lambda t: {"lineage.level": t["exemplars.typical"]},
            "lineage is None, expected a mapping",
        ),
    ],
)
def test_numbers_that_make_no_model(saved, tmp_path, change, message):
    with safe_open(saved, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    path = rewritten(saved, tmp_path / "m.safetensors", tensors=change(tensors))
    with pytest.raises(ValueError, match=f"m.safetensors is damaged: .*{message}"):
        mn.load(path)


def test_the_precision_of_a_stream_is_that_of_its_memories(data, tmp_path):
    saved = tmp_path / "saved"
    small(n_memories=3).partial_fit(data.x, data.y).save(saved)
    with safe_open(saved, framework="pt") as file:
        w_bar = file.get_tensor("stream.state.w_bar").float()
    path = rewritten(saved, tmp_path / "m", tensors={"stream.state.w_bar": w_bar})
    with pytest.raises(ValueError, match=r"w_bar is \(3, 5\) of float32, expected .* of float64"):
        mn.load(path)


# Anything changed: the model that was saved, or one clear line

VALUES = [
    None, True, 0, -1, 3, 2**63, 10**30, 0.5, -0.5, 1e300, math.nan, math.inf, "", "auto", "standard",
    "\x1b[31m", "a" * 1000, [], [[]], {}, [1, 2, 3], ["a", "b"], {"a": 1},
    {"object": "SGD", "fields": {}}, {"pairs": [[1, 2]]}, {"object": "os", "fields": {"system": 1}},
]  # fmt: skip
DTYPES = [torch.float16, torch.float32, torch.float64, torch.int8, torch.int64, torch.bool]
WILD = [math.nan, math.inf, -1.0, 0.0, 1e30, 1e-30, 1e300]


def model_of(kind):
    rng = np.random.default_rng(0)
    y = np.arange(61) % 3
    x = 3 * rng.normal(size=(3, 6))[y] + 0.6 * rng.normal(size=(61, 6))
    given = {"objective": "joint", "varsigma": 0.9, "max_iter": 2, "random_state": 0}
    if kind == "classifier":
        model = mn.DAMClassifier(7, growth=3, geometry="standard", **given)
        return model.fit(x, np.array(["ant", "bee", "wasp"])[y]).calibrate(x + 1e-3), x
    if kind == "sgd":
        return mn.DAMClassifier(5, **given | {"solver": mn.SGD(batch_size=16)}).fit(x, y), x
    return mn.DAMClusterer(3, geometry="unit", max_iter=2, random_state=0).fit(x), x


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


@pytest.fixture(scope="module", params=["classifier", "sgd", "clusterer"])
def case(request, tmp_path_factory):
    """A model file, its header and tensors, rows and the model's answers."""
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    model, x = model_of(request.param)
    mn.save(model, path)
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["mnemosphere"])
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    del header["checksum"]
    return Case(
        name=request.param, path=path, content=path.read_bytes(), header=header, tensors=tensors, x=x,
        expected=answers(mn.load(path), x),
    )  # fmt: skip


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


@campaign(400)
@given(
    kind=st.sampled_from(["bit", "bytes", "cut", "grow", "zero", "copy", "digit"]),
    at=st.floats(0, 1, exclude_max=True),
    other=st.floats(0, 1, exclude_max=True),
    length=st.integers(1, 2000),
    noise=st.randoms(use_true_random=False),
)
def test_changed_bytes_are_refused(case, kind, at, other, length, noise):
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
    assert_refused_or_sound(case.path, case.x, case.expected)


def places(value, path=()):
    """Where something stands in nested lists and mappings."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


@campaign(400)
@given(
    kind=st.sampled_from(["value", "remove", "nest", "add", "number"]),
    place=st.integers(0, 10**6),
    value=st.sampled_from(VALUES),
    factor=st.sampled_from([-1.0, 0.0, 2.0, 1e10, 1.0000001]),
    depth=st.sampled_from([1, 3, 500]),
)
def test_changed_fields(case, kind, place, value, factor, depth):
    header = copy.deepcopy(case.header)
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
    write_tensors(case.path, case.tensors, header)
    assert_refused_or_sound(case.path, case.x)


@campaign(400)
@given(
    kind=st.sampled_from(["remove", "rename", "add", "dtype", "shape", "number", "scale", "swap"]),
    which=st.tuples(st.integers(0, 99), st.integers(0, 99)),
    pick=st.integers(0, 10**6),
)
def test_changed_tensors(case, kind, which, pick):
    tensors = dict(case.tensors)
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
    write_tensors(case.path, tensors, case.header)
    assert_refused_or_sound(case.path, case.x)
