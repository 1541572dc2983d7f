"""A clear word about every file that is no model, or none any more."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from sklearn.datasets import load_digits, load_iris

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


def test_patches_of_version_2_are_refused():
    """Their cells were hard: the same numbers would mean something else."""
    with pytest.raises(ValueError, match="PatchEncoder of before its cells were soft"):
        mn.load(Path(__file__).parent / "version2" / "pipeline.safetensors")


@pytest.mark.parametrize("name", ["classifier", "clusterer"])
def test_files_of_version_2_are_read(name):
    """Written before files had checksums; the answers are those given then."""
    folder = Path(__file__).parent / "version2"
    case = json.loads((folder / "answers.json").read_text())[name]
    model = mn.load(folder / f"{name}.safetensors")
    rows = np.array(case["rows"])
    if name == "classifier":
        rows = pd.DataFrame(rows, columns=model.feature_names_in_)
        assert model.lineage_.n_levels == 3
    answer = model.transform(rows) if name == "clusterer" else model.predict_proba(rows)
    np.testing.assert_allclose(answer, case["answer"], rtol=1e-9, atol=1e-12)


VERSION3 = Path(__file__).parent / "version3"


@pytest.fixture
def answers():
    """(the answers given by the release that wrote the files, rows for the classifier, iris)."""
    frame = pd.DataFrame(json.loads((VERSION3 / "frame.json").read_text()))
    frame = frame.astype(dict.fromkeys(frame.columns[:4], float))
    x, y = load_iris(return_X_y=True)
    return json.loads((VERSION3 / "expected.json").read_text()), frame, x, y


def test_files_of_version_3_are_read(answers):
    """Tables with categories and gaps, trees of splits, a metric, clusters, patches."""
    expected, frame, x, _ = answers
    images = load_digits(return_X_y=True)[0][:200:37]
    rows = {"classifier": frame, "metric": x[::17], "clusterer": x[::17], "pipeline": images}
    for name, given in rows.items():
        model = mn.load(VERSION3 / f"{name}.safetensors")
        np.testing.assert_allclose(model.predict_proba(given), expected[name], rtol=1e-9)
    model = mn.load(VERSION3 / "classifier.safetensors")
    np.testing.assert_allclose(model.novelty_score(frame), expected["novelty"], rtol=1e-9)
    assert model.lineage_.n_levels > 1
    assert model.memory_table()["typical_rows"].iloc[0][0].startswith("flower ")


def test_a_stream_goes_on_from_a_file_of_version_3(answers):
    expected, _, x, y = answers
    model = mn.load(VERSION3 / "stream.safetensors")
    np.testing.assert_allclose(model.predict_proba(x[::17]), expected["stream"], rtol=1e-9)
    model.partial_fit(x[100:], y[100:], rehearse=True)
    np.testing.assert_allclose(model.predict_proba(x[::17]), expected["stream_on"], rtol=1e-9)


def test_a_changed_file_of_version_3_is_refused(tmp_path):
    content = (VERSION3 / "metric.safetensors").read_bytes()
    (tmp_path / "m").write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    with pytest.raises(ValueError, match="its checksum differs"):
        mn.load(tmp_path / "m")


@pytest.mark.parametrize(
    "key",
    ["settings", "classes", "normalize", "n_features_in", "history", "status", "converged", "own"],
)
def test_missing_key(saved, tmp_path, key):
    path = rewritten(saved, tmp_path / "m.safetensors", without(key))
    with pytest.raises(
        ValueError, match=f"m.safetensors is damaged: .*{key}.*save the model again"
    ):
        mn.load(path)


@pytest.mark.parametrize(
    "name", ["params.w", "params.p", "params.beta", "params.varsigma", "own.label_mass"]
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
        {"own": {"selection": [], "temperature": False}},
        {"own": {"selection": [], "temperature": 0.0}},
        {"own": {"selection": [], "temperature": NAN}},
        {"own": {"selection": [[]], "temperature": 1.0}},
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
        (shifted("params.w", lambda w: w * 2), "row 0 of memories has norm 2"),
        (shifted("params.w", lambda w: w.index_fill(1, torch.tensor(1), NAN)), "are not finite"),
        (shifted("params.w", lambda w: w.int()), "must share one dtype"),
        (shifted("params.beta", lambda b: b * NAN), "beta must be one finite positive number"),
        (shifted("params.varsigma", lambda v: v.float()), r"varsigma is \(\) of float32"),
        (lambda t: {"params.color": t["params.p"]}, "'color' is unknown"),
        (lambda t: {"normalizer.mean": t["params.p"]}, "mean is .* expected"),
        (shifted("own.label_mass", lambda m: -m), "label_mass has numbers that are not finite or"),
        (shifted("own.label_mass", lambda m: m[:2]), r"label_mass is \(2,\)"),
        (shifted("own.net_class_weights", lambda p: p * 2), "net_class_weights do not sum to 1"),
        (shifted("rows.typical", lambda r: r.float()), "typical is .* of float32"),
        (lambda t: {"lineage.level": t["rows.typical"]}, "tree of splits has a tensor"),
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


def test_the_precision_of_a_stream_is_that_of_its_memories(tmp_path):
    saved = tmp_path / "saved"
    mn.load(VERSION3 / "stream.safetensors").save(saved)
    with safe_open(saved, framework="pt") as file:
        w_bar = file.get_tensor("stream.state.w_bar").float()
    path = rewritten(saved, tmp_path / "m", tensors={"stream.state.w_bar": w_bar})
    with pytest.raises(ValueError, match=r"stream\.state is of torch\.float32"):
        mn.load(path)


def test_what_could_not_be_read_is_not_written(data, tmp_path):
    model = small(n_memories=5, max_iter=1)
    model.fit(*data)
    model.model_ = model.model_.recalibrate(temperature=NAN)
    with pytest.raises(ValueError, match="this model cannot be saved: temperature is nan"):
        model.save(tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []
