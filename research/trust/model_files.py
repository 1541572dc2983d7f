"""Model files with something changed: a file is the model that was saved, or is refused."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.pipeline import make_pipeline

import mnemosphere as mn
from mnemosphere.files import write_tensors
from research.trust import Attempt

# What a field of the header may be replaced by.
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 3, 2**31, 2**63, 10**30, -(10**30), 0.5, -0.5, 1e300, 1e-300,
    math.nan, math.inf, "", "auto", "learn", "standard", "\x1b[31m", "[red]", "a" * 1000, [], [[]],
    {}, [1, 2, 3], ["a", "b"], {"a": 1}, {"object": "SGD", "fields": {}}, {"tuple": [2, 2]},
    {"pairs": [[1, 2]]}, {"object": "os", "fields": {"system": 1}},
]  # fmt: skip


def models(seed: int = 0) -> dict[str, Any]:
    """Small fitted models of every kind that a file holds, with everything it may hold."""
    rng = np.random.default_rng(seed)
    y = np.arange(61) % 3
    x = 3 * rng.normal(size=(3, 6))[y] + 0.6 * rng.normal(size=(61, 6))
    images = rng.random((29, 16))
    settings = {"objective": "joint", "varsigma": 0.9, "max_iter": 2, "random_state": seed}
    classifier = mn.DAMClassifier(7, growth=3, normalize="standard", **settings)
    classifier.fit(x, np.array(["ant", "bee", "wasp"])[y]).calibrate(x)
    other = mn.DAMClassifier(
        5, **(settings | {"objective": "conditional"}), solver=mn.SGD(batch_size=16)
    )
    clusterer = mn.DAMClusterer(3, normalize="unit", max_iter=2, random_state=seed)
    encoder = mn.PatchEncoder((4, 4), patch=(2, 3), grid=2, n_memories=3, max_iter=2)
    pipeline = make_pipeline(encoder, mn.DAMClassifier(3, normalize="unit", **settings))
    return {
        "classifier": (classifier, x),
        "sgd": (other.fit(x, y), x),
        "clusterer": (clusterer.fit(x), x),
        "pipeline": (pipeline.fit(images, np.arange(29) % 2), images),
    }


def use(model: Any, x: np.ndarray) -> list[np.ndarray]:
    """Everything a loaded model is asked for; numbers that are not finite raise ValueError."""
    if not hasattr(model, "predict"):  # a pipeline that ends in an encoder
        return [np.asarray(model.transform(x))]
    answers = [np.asarray(model.predict(x))]
    if hasattr(model, "predict_proba"):
        answers.append(model.predict_proba(x))
    parts = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    for part in parts:
        if isinstance(part.model_, mn.FittedModel) and len(parts) == 1:
            answers += [
                mn.interpret.score_samples(part.model_, x),
                mn.interpret.novelty(part.model_, x),
                part.transform(x),
            ]
            answers += [part.recall(x[:3]), part.sample(2, random_state=0)[0], part.memories_]
            part.memory_table()
            if part.novelty_threshold_ is not None:
                answers.append(mn.interpret.is_novel(part.model_, x, 0.1))
            if part.lineage_ is not None:
                answers += [
                    mn.as_estimator(mn.interpret.at_level(part.model_, k)).transform(x)
                    for k in range(part.lineage_.n_levels)
                ]
        part.get_params()
    for answer in answers:
        if answer.dtype.kind == "f" and not np.isfinite(answer).all():
            raise ArithmeticError("an answer is not finite")
    return answers


def compare(path: Path, expected: list[np.ndarray], x: np.ndarray, *, sealed: bool) -> str:
    """What the file at `path` is; sealed: whether its checksum is right, so that it may differ."""
    model = mn.load(path)  # a ValueError is a clear error
    try:
        answers = use(model, x)
    except ArithmeticError:
        return "not finite"
    except Exception as error:
        raise RuntimeError(f"after loading, {type(error).__name__}: {error}") from error
    same = len(answers) == len(expected) and all(
        a.shape == b.shape and a.dtype == b.dtype and np.array_equal(a, b)
        for a, b in zip(answers, expected, strict=True)
    )
    return "the same model" if same else "another model, sealed" if sealed else "another result"


# Bytes.


def mutate_bytes(content: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """(what was done, the file after it)."""
    raw = bytearray(content)
    kind = rng.choice(["bit", "byte", "bytes", "cut", "grow", "zero", "swap", "copy", "digit"])
    at = int(rng.integers(len(raw)))
    length = int(min(len(raw) - at, 2 ** rng.integers(1, 12)))
    other = int(rng.integers(len(raw) - length + 1))
    if kind == "bit":
        raw[at] ^= 1 << int(rng.integers(8))
    elif kind == "byte":
        raw[at] = int(rng.integers(256))
    elif kind == "bytes":
        raw[at : at + length] = rng.bytes(length)
    elif kind == "cut":
        del raw[at : at + length]
    elif kind == "grow":
        raw[at:at] = rng.bytes(length)
    elif kind == "zero":
        raw[at : at + length] = bytes(length)
    elif kind == "swap":
        one, two = raw[at : at + length], raw[other : other + length]
        raw[at : at + length], raw[other : other + length] = two, one
    elif kind == "copy":
        raw[at : at + length] = raw[other : other + length]
    else:  # a digit of the header
        size = 8 + int.from_bytes(raw[:8], "little")
        digits = [i for i in range(8, size) if chr(raw[i]).isdigit()]
        at = int(rng.choice(digits))
        raw[at] = ord("0") + int(rng.integers(10))
    return f"{kind} at {at} of {len(content)}, {length} bytes", bytes(raw)


# Fields, with the checksum made right again.


def read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """(header without checksum, tensors) of a model file."""
    with safe_open(path, framework="pt") as file:
        header = json.loads(file.metadata()["mnemosphere"])
        # Copies: what is mapped from the file would change when the file does.
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    header.pop("checksum", None)
    return header, tensors


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in nested lists and mappings."""
    inner = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inner:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from _places(item, (*path, key))


def mutate_header(header: dict[str, Any], rng: np.random.Generator) -> tuple[str, dict[str, Any]]:
    """One field of the header replaced, removed, doubled or nested."""
    header = copy.deepcopy(header)
    places = list(_places(header))
    *way, last = places[int(rng.integers(len(places)))]
    inside = header
    for key in way:
        inside = inside[key]
    kind = rng.choice(["value", "value", "value", "remove", "nest", "add", "number"])
    value: Any = VALUES[int(rng.integers(len(VALUES)))]
    if kind == "remove":
        del inside[last]
    elif kind == "nest":
        value = inside[last]
        for _ in range(int(rng.choice([1, 3, 50, 500]))):
            value = [value]
        inside[last] = value
    elif kind == "add" and isinstance(inside, dict):
        inside["more"] = value
    elif kind == "number" and isinstance(inside[last], int | float):
        inside[last] = inside[last] * float(rng.choice([-1.0, 0.0, 2.0, 1e10, 1.0000001]))
    else:
        inside[last] = value
    return f"header {'.'.join(map(str, [*way, last]))} {kind} {str(value)[:40]}", header


def mutate_tensors(
    tensors: dict[str, torch.Tensor], rng: np.random.Generator
) -> tuple[str, dict[str, torch.Tensor]]:
    """One tensor replaced, removed, renamed, of another type or shape, or with other numbers."""
    tensors = dict(tensors)
    name = sorted(tensors)[int(rng.integers(len(tensors)))]
    tensor = tensors[name].clone()
    kind = rng.choice(["remove", "rename", "type", "shape", "number", "scale", "swap", "add"])
    if kind == "remove":
        del tensors[name]
    elif kind == "rename":
        tensors[name + str(rng.choice(["x", ".0", "."]))] = tensors.pop(name)
    elif kind == "add":
        tensors[name + ".more"] = tensor
    elif kind == "type":
        kinds = [torch.float16, torch.float32, torch.float64, torch.int8,
                 torch.int64, torch.bool, torch.uint8, torch.int16]  # fmt: skip
        tensors[name] = tensor.to(kinds[int(rng.integers(len(kinds)))])
    elif kind == "shape":
        flat = tensor.reshape(-1)
        shapes = [flat, flat[None], flat[:-1], flat[:0], tensor[None], flat.repeat(2)]
        tensors[name] = shapes[int(rng.integers(len(shapes)))].contiguous()
    elif kind == "number":
        flat = tensor.reshape(-1)
        if flat.numel():
            wild = [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e30, 1e-30, 1e300]
            value = wild[int(rng.integers(len(wild)))]
            whole = not tensor.is_floating_point() and tensor.dtype != torch.bool
            most = torch.iinfo(tensor.dtype).max if whole else 0
            flat[int(rng.integers(flat.numel()))] = (
                int(rng.integers(2**40)) % most if whole else value
            )
        tensors[name] = flat.reshape(tensor.shape)
    elif kind == "scale":
        tensors[name] = (tensor.double() * float(rng.choice([-1.0, 0.0, 2.0, 1e200]))).to(tensor)
    else:
        other = sorted(tensors)[int(rng.integers(len(tensors)))]
        tensors[name], tensors[other] = tensors[other].clone(), tensor
    return f"tensor {name} {kind}", tensors


def attempts(n: int, folder: Path, seed: int) -> Iterator[Attempt]:
    """Half of them bytes; a third fields, with the right checksum; the rest fields of version 2."""
    rng = np.random.default_rng(seed)
    path = folder / "model.safetensors"
    cases = []
    for name, (model, x) in models(seed).items():
        mn.save(model, path)
        cases.append((name, path.read_bytes(), *read(path), use(mn.load(path), x), x))
    for _ in range(n):
        name, content, header, tensors, expected, x = cases[int(rng.integers(len(cases)))]
        way = rng.choice(["bytes", "sealed", "old"], p=[0.5, 0.33, 0.17])
        if way == "bytes":
            what, changed = mutate_bytes(content, rng)
            path.write_bytes(changed)
        else:
            other, numbers = header, tensors
            if rng.random() < 0.6:
                what, other = mutate_header(header, rng)
            else:
                what, numbers = mutate_tensors(tensors, rng)
            if way == "sealed":
                write_tensors(path, numbers, other)
            else:  # as the release before wrote it, without a checksum
                copies = {k: t.contiguous().clone() for k, t in numbers.items()}
                old = {"mnemosphere": json.dumps({**other, "version": 2})}
                save_file(copies, path, old)
        sealed = way != "bytes"
        yield f"{name} {way}: {what}", lambda: compare(path, expected, x, sealed=sealed)  # noqa: B023
