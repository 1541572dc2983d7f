"""A clear word about every file that is no model, or none any more."""

from __future__ import annotations

import json
import os
import pickle

import pytest
import torch
from safetensors import safe_open

import mnemosphere as mn
from mnemosphere.files import write_tensors
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


def without(key):
    return lambda meta: {name: value for name, value in meta.items() if name != key}


def test_the_rewritten_file_is_fine_when_nothing_is_changed(fitted, fresh, saved, tmp_path):
    """The tests below fail for the reason they give, not because of how they write."""
    assert_same_model(fitted, mn.load(rewritten(saved, tmp_path / "m.safetensors")), fresh.x)


def test_checkpoint_is_no_model(data, tmp_path):
    path = tmp_path / "run.safetensors"
    small(n_memories=3, max_iter=1, callbacks=[mn.Checkpoint(path)]).fit(*data)
    with pytest.raises(
        ValueError, match="is not a mnemosphere-model file but mnemosphere-checkpoint"
    ):
        mn.load(path)


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


def test_files_of_another_version_are_refused_with_one_line(saved, tmp_path):
    for version in (4, 6):
        path = rewritten(
            saved, tmp_path / "m.safetensors", lambda meta, v=version: meta | {"version": v}
        )
        with pytest.raises(ValueError, match=f"has format version {version}, this release reads 5"):
            mn.load(path)


@pytest.mark.parametrize(
    "key",
    [
        "settings",
        "classes",
        "normalize",
        "n_features_in",
        "history",
        "status",
        "converged",
        "search",
    ],
)
def test_missing_key(saved, tmp_path, key):
    path = rewritten(saved, tmp_path / "m.safetensors", without(key))
    with pytest.raises(
        ValueError, match=f"m.safetensors is damaged: .*{key}.*save the model again"
    ):
        mn.load(path)


@pytest.mark.parametrize(
    "name",
    ["w", "p", "slope", "offset", "density.p", "density.beta", "density.varsigma", "label_mass"],
)
def test_missing_tensor(saved, tmp_path, name):
    path = rewritten(saved, tmp_path / "m.safetensors", tensors={name: None})
    last = name.split(".")[-1]
    with pytest.raises(ValueError, match=f"m.safetensors is damaged: .*{last}.*save the model"):
        mn.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"settings": {"color": "red"}},
        {"settings": 3},
        {"classes": [0, 1]},
        {"settings": {"solver": {"object": "Trap", "fields": {}}}},
        {"settings": {"solver": {"object": "SGD", "fields": {"momentum": 7.0}}}},
        {"settings": {"solver": {"object": "SGD", "fields": {"momentum": "much"}}}},
        {"settings": {"varsigma": 7}},
        {"settings": {"max_iter": "many"}},
        {"history": [{}]},
        {"history": {}},
        {"status": 3},
        {"converged": 1},
        {"n_features_in": True},
        {"n_features_in": 1e400},
        {"feature_names": ["a"]},
        {"feature_names": [1, 2, 3, 4, 5]},
        {"temperature": False},
        {"temperature": 0.0},
        {"temperature": NAN},
        {"search": [[]]},
        {"objective": "both"},
        {"color": "red"},
        {"classes": {"dtype": "<i1", "values": [0, 1, 300]}},
        {"classes": {"dtype": "<i8", "values": [0, 1, 1]}},
        {"classes": {"dtype": "<i8", "values": [0, 1, 1.5]}},
        {"classes": {"dtype": "<i8", "values": [0, 1, [2]]}},
        {"classes": {"dtype": "<U999999999", "values": ["a", "b", "c"]}},
        {"classes": {"dtype": "O", "values": [0, 1, None]}},
        {"classes": {"dtype": "i8,i8", "values": [0, 1, 2]}},
        {"classes": {"dtype": "rot", "values": [0, 1, 2]}},
        {"estimator": ["DAMClassifier"]},
        {"normalize": "sideways"},
        {"n_features_in": 4},
        {"classes": {"dtype": "<i8", "values": [0, 1]}},
    ],
    ids=lambda change: " ".join(f"{k}={v}" for k, v in change.items())[:30],
)
def test_nonsense_in_the_header(saved, tmp_path, change):
    path = rewritten(saved, tmp_path / "m.safetensors", lambda meta: meta | change)
    with pytest.raises(ValueError, match=r"m.safetensors is damaged: .*save the model again"):
        mn.load(path)


def shifted(name, change):
    return lambda tensors: {name: change(tensors[name])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shifted("w", lambda w: w * 2), "row 0 of memories has norm 2"),
        (shifted("w", lambda w: w.index_fill(1, torch.tensor(1), NAN)), "are not finite"),
        (shifted("w", lambda w: w.int()), "w is .* of int32"),
        (shifted("w", lambda w: w.float()), "must be of one precision"),
        (shifted("slope", lambda s: s * NAN), "slope has numbers that are not finite"),
        (shifted("slope", lambda s: s * 0), "slope of votes must be one positive number"),
        (shifted("offset", lambda s: s / 0), "offset has numbers that are not finite"),
        (shifted("p", lambda p: p * 2), "class weights and frequencies of votes must"),
        (shifted("p", lambda p: p[1:]), r"votes need memories \(P, N\)"),
        (shifted("density.beta", lambda b: b * NAN), "beta must be one finite positive number"),
        (shifted("density.varsigma", lambda v: v.float()), r"varsigma is \(\) of float32"),
        (lambda t: {"density.color": t["p"]}, "'color' is unknown"),
        (lambda t: {"color.p": t["p"]}, "'color.p' is unknown"),
        (lambda t: {"color": t["p"]}, "'color' is unknown"),
        (lambda t: {"normalizer.mean": t["p"]}, "mean is .* expected"),
        (shifted("label_mass", lambda m: -m), "label_mass has numbers that are not finite or"),
        (shifted("label_mass", lambda m: m[:2]), r"label_mass is \(2,\)"),
        (shifted("typical", lambda r: r.float()), "typical is .* of float32"),
        (lambda t: {"lineage.level": t["typical"]}, "tree of splits has a tensor"),
    ],
)
def test_numbers_that_make_no_model(saved, tmp_path, change, message):
    with safe_open(saved, framework="pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    path = rewritten(saved, tmp_path / "m.safetensors", tensors=change(tensors))
    with pytest.raises(ValueError, match=f"m.safetensors is damaged: .*{message}"):
        mn.load(path)


def test_a_tree_of_splits_that_is_none(grown, tmp_path):
    saved = tmp_path / "grown.safetensors"
    grown.save(saved)
    tree = grown.lineage_
    for name, tensor in (
        ("parent", tree.parent + 10**9),
        ("level", tree.level.double()),
        ("level", torch.tensor(0)),
        ("lambda_min", torch.full_like(tree.lambda_min, -torch.inf)),
        ("members.1", tree.members[1].clone().fill_(0)),
        ("members.0", torch.tensor(0)),
        ("members.9", tree.members[1]),
        ("models.0.w", tree.models[1].w),
        ("gate", tree.level),
    ):
        path = rewritten(saved, tmp_path / "m.safetensors", tensors={f"lineage.{name}": tensor})
        with pytest.raises(ValueError, match=r"m.safetensors is damaged: .*save the model again"):
            mn.load(path)


def test_the_precision_of_a_stream_is_that_of_its_memories(data, tmp_path):
    saved = tmp_path / "saved"
    small(n_memories=3).partial_fit(data.x, data.y).save(saved)
    with safe_open(saved, framework="pt") as file:
        w_bar = file.get_tensor("w_bar").float()
    path = rewritten(saved, tmp_path / "m", tensors={"w_bar": w_bar})
    with pytest.raises(ValueError, match=r"its stream is of torch\.float32"):
        mn.load(path)


def test_what_could_not_be_read_is_not_written(data, tmp_path):
    model = small(n_memories=5, max_iter=1)
    model.fit(*data)
    model.model_ = model.model_.replace(votes=model.model_.votes.replace(temperature=NAN))
    with pytest.raises(ValueError, match="this model cannot be saved: temperature is nan"):
        model.save(tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []
