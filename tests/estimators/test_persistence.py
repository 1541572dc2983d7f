"""Model files: the same bits back, a clear word about every file that is not one."""

from __future__ import annotations

import errno
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from sklearn.base import clone
from sklearn.utils._param_validation import validate_parameter_constraints

import mnemosphere as mn
from mnemosphere.estimators import persistence
from mnemosphere.files import write_tensors

NAN = float("nan")


@pytest.fixture(scope="module")
def saved(fitted, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "model.safetensors"
    fitted.save(path)
    return path


def assert_same(one, two, x):
    for name in ("memories_", "class_weights_", "memory_prior_", "class_prior_", "classes_"):
        a, b = getattr(one, name), getattr(two, name)
        assert a.dtype == b.dtype, name
        assert np.array_equal(a, b), name
    for name in ("beta_", "varsigma_", "n_memories_", "normalize_", "n_features_in_"):
        assert getattr(one, name) == getattr(two, name), name
    for name in ("history_", "selection_", "status_", "n_iter_", "converged_"):
        assert getattr(one, name) == getattr(two, name), name
    for method in ("predict", "predict_proba", "score_samples", "novelty", "transform"):
        assert np.array_equal(getattr(one, method)(x), getattr(two, method)(x)), method


@pytest.mark.parametrize("kind", ["center", "unit", "standard"])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_round_trip_is_exact(data, fresh, tmp_path, kind, precision):
    model = mn.DAMClassifier(
        7,
        objective="joint",
        normalize=kind,
        varsigma=0.7,
        precision=precision,
        max_iter=3,
        random_state=0,
    ).fit(data.x, data.y)
    model.save(tmp_path / "model.safetensors")
    loaded = mn.load(tmp_path / "model.safetensors")
    assert_same(model, loaded, fresh.x)
    assert np.array_equal(model.recall(fresh.x), loaded.recall(fresh.x))
    drawn = [m.sample(5, random_state=3)[0] for m in (model, loaded)]
    assert np.array_equal(*drawn)
    x = torch.from_numpy(fresh.x)
    assert torch.equal(model.to_torch()(x), loaded.to_torch()(x))
    again = [m.certify(data.x, data.y).summary() for m in (model, loaded)]
    assert again[0] == again[1]


def test_settings_come_back(data, tmp_path):
    model = mn.DAMClassifier(
        np.int64(5),
        objective="joint",
        normalize="unit",
        varsigma=np.float32(0.5),
        beta=7.0,
        class_weight={0: 1.0, 2: 3.0},
        unlabeled=-1,
        label_smoothing=0.2,
        random_state=4,
        verbose=0,
    ).fit(data.x, data.y)
    model.save(tmp_path / "model.safetensors")
    assert mn.load(tmp_path / "model.safetensors").get_params() == model.get_params()


@pytest.mark.parametrize(
    "settings",
    [
        {"solver": mn.SGD(0.003, 0.9, batch_size=29, patience=7), "max_iter": 3},
        {"solver": mn.FixedPoint(batch_size=31), "objective": 0, "max_iter": 2},
        {"solver": mn.FixedPoint(None), "objective": mn.Refinement(0.5, noise=0.25, max_iter=2)},
        {"objective": mn.Refinement(max_iter=2), "growth": 5, "max_iter": 2},
    ],
    ids=["sgd", "batches", "refinement", "growth"],
)
def test_objects_among_the_settings_come_back(data, fresh, tmp_path, settings):
    """As equal objects, through clone too, and a fit with them gives the same bits."""
    model = mn.DAMClassifier(7, normalize="unit", varsigma=0.9, random_state=0, **settings)
    model.fit(data.x, data.y).save(tmp_path / "model.safetensors")
    loaded = mn.load(tmp_path / "model.safetensors")
    assert loaded.get_params() == model.get_params() == clone(model).get_params()
    for name, value in settings.items():
        assert type(getattr(loaded, name)) is type(value)
    again = clone(loaded).fit(data.x, data.y)
    assert np.array_equal(again.predict_proba(fresh.x), model.predict_proba(fresh.x))


def test_what_belongs_to_the_machine_is_not_stored(data, tmp_path):
    """Callbacks and the device are those of whoever loads the model."""
    store = mn.Checkpoint(tmp_path / "run")
    model = mn.DAMClassifier(
        5, objective="joint", normalize="unit", varsigma=0.9, max_iter=1, device="cpu"
    )
    model.set_params(callbacks=[store]).fit(*data).save(tmp_path / "model.safetensors")
    loaded = mn.load(tmp_path / "model.safetensors")
    assert (loaded.callbacks, loaded.device) == ((), "auto")


@pytest.mark.parametrize("marker", [NAN, "?", object()], ids=["nan", "text", "object"])
def test_marker_of_unlabeled_rows(data, tmp_path, marker):
    model = mn.DAMClassifier(
        5, objective="joint", normalize="unit", varsigma=0.9, max_iter=1, unlabeled=marker
    )
    model.fit(data.x, np.where(np.arange(61) < 30, "a", "b").astype(object))
    model.save(tmp_path / "model.safetensors")
    back = mn.load(tmp_path / "model.safetensors").unlabeled
    if isinstance(marker, float):
        assert np.isnan(back)
    else:
        assert back == (marker if isinstance(marker, str) else None)


@pytest.mark.parametrize(
    "names",
    [
        np.array([-5, 0, 7], dtype=np.int8),
        np.array([0, 1, 2**63], dtype=np.uint64),
        np.array([0.0, 1.0, 2.0]),
        np.array(["ant", "bee", "größte Wespe"]),
        np.array(["ant", "bee", "wasp"], dtype=object),
    ],
    ids=["int8", "uint64", "float", "str", "object"],
)
def test_labels_of_several_types(data, fresh, tmp_path, names):
    model = mn.DAMClassifier(
        5, objective="joint", normalize="unit", varsigma=0.9, max_iter=2, random_state=0
    )
    model.fit(data.x, names[data.y]).save(tmp_path / "model.safetensors")
    assert_same(model, mn.load(tmp_path / "model.safetensors"), fresh.x)


def test_boolean_labels(data, fresh, tmp_path):
    model = mn.DAMClassifier(
        5, objective="joint", normalize="unit", varsigma=0.9, max_iter=2, random_state=0
    )
    model.fit(data.x, data.y == 1).save(tmp_path / "model.safetensors")
    loaded = mn.load(tmp_path / "model.safetensors")
    assert loaded.classes_.dtype == bool
    assert_same(model, loaded, fresh.x)


def test_feature_names(data, tmp_path):
    frame = pd.DataFrame(data.x, columns=list("abcde"))
    model = mn.DAMClassifier(
        5, objective="joint", normalize="unit", varsigma=0.9, max_iter=1, random_state=0
    )
    model.fit(frame, data.y).save(tmp_path / "model.safetensors")
    loaded = mn.load(tmp_path / "model.safetensors")
    assert loaded.feature_names_in_.tolist() == list("abcde")
    assert np.array_equal(loaded.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[list("edcba")])


def test_lineage(grown, images, tmp_path):
    grown.save(tmp_path / "model.safetensors")
    loaded = mn.load(tmp_path / "model.safetensors")
    x = images.x_test[:50]
    assert_same(grown, loaded, x)
    assert loaded.lineage_.n_levels == grown.lineage_.n_levels
    for name, tensor in grown.lineage_.to_tensors().items():
        assert torch.equal(tensor.nan_to_num(-9), loaded.lineage_.to_tensors()[name].nan_to_num(-9))
    for level in range(grown.lineage_.n_levels):
        one, two = grown.at_level(level), loaded.at_level(level)
        assert np.array_equal(one.predict_proba(x), two.predict_proba(x))


def test_streaming_model(data, fresh, tmp_path):
    model = mn.DAMClassifier(5, objective="joint", normalize="unit", varsigma=0.9, random_state=0)
    model.partial_fit(data.x, data.y, classes=[0, 1, 2]).save(tmp_path / "model.safetensors")
    assert_same(model, mn.load(tmp_path / "model.safetensors"), fresh.x)


def test_header_is_readable_by_anyone(saved):
    """Plain JSON in the metadata of a plain safetensors file."""
    with safe_open(saved, framework="np") as file:
        meta = json.loads(file.metadata()["mnemosphere"])
        assert file.get_tensor("params.p").shape == (8, len(meta["classes"]["values"]) + 1)
    assert meta["format"] == "mnemosphere-model"
    assert meta["version"] == 3
    assert meta["estimator"] == "DAMClassifier"


# files that are no models


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
    assert_same(fitted, mn.load(rewritten(saved, tmp_path / "m.safetensors")), fresh.x)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_truncated_file(saved, tmp_path, share):
    path = tmp_path / "cut.safetensors"
    content = saved.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"cut.safetensors is damaged or not a safetensors file"):
        mn.load(path)


def test_foreign_safetensors_file(tmp_path):
    save_file({"weight": torch.zeros(3)}, tmp_path / "other.safetensors")
    with pytest.raises(
        ValueError, match=r"other.safetensors is not a mnemosphere-model file but of another prog"
    ):
        mn.load(tmp_path / "other.safetensors")


def test_checkpoint_is_no_model(data, tmp_path):
    path = tmp_path / "run.safetensors"
    mn.DAMClassifier(
        3,
        objective="joint",
        normalize="unit",
        varsigma=0.9,
        max_iter=1,
        callbacks=[mn.Checkpoint(path)],
    ).fit(*data)
    with pytest.raises(
        ValueError, match="is not a mnemosphere-model file but mnemosphere-checkpoint"
    ):
        mn.load(path)


@pytest.mark.parametrize("content", [b"", b"hello world, this is text", bytes(range(256)) * 9])
def test_no_safetensors_file_at_all(tmp_path, content):
    (tmp_path / "thing.bin").write_bytes(content)
    with pytest.raises(ValueError, match=r"thing.bin is damaged or not a safetensors file"):
        mn.load(tmp_path / "thing.bin")


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


@pytest.mark.parametrize("version", [1, 4, "3", True, None])
def test_another_format(saved, tmp_path, version):
    path = rewritten(saved, tmp_path / "m.safetensors", lambda meta: meta | {"version": version})
    with pytest.raises(
        ValueError, match=rf"m.safetensors has format version {version}, this release reads 2, 3: "
    ):
        mn.load(path)


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


def test_a_changed_file_is_refused(saved, tmp_path):
    content = saved.read_bytes()
    path = tmp_path / "m.safetensors"
    path.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    with pytest.raises(ValueError, match=r"m.safetensors is damaged: it has been changed since"):
        mn.load(path)


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
        {"own": {"selection": [], "temperature": False, "novelty_threshold": None}},
        {"own": {"selection": [], "temperature": 0.0, "novelty_threshold": None}},
        {"own": {"selection": [], "temperature": 1.0, "novelty_threshold": NAN}},
        {"own": {"selection": [[]], "temperature": 1.0, "novelty_threshold": None}},
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
        (shifted("params.varsigma", lambda v: v.float()), r"varsigma is \(\) of torch.float32"),
        (lambda t: {"params.color": t["params.p"]}, "'color' is unknown"),
        (lambda t: {"normalizer.mean": t["params.p"]}, "mean is .* expected"),
        (shifted("own.label_mass", lambda m: -m), "label_mass has numbers that are not finite or"),
        (shifted("own.label_mass", lambda m: m[:2]), r"label_mass is \(2,\)"),
        (shifted("own.net_class_weights", lambda p: p * 2), "net_class_weights and the weights"),
        (shifted("rows.typical", lambda r: r.float()), "typical is .* of torch.float32"),
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


def test_what_could_not_be_read_is_not_written(data, tmp_path):
    model = mn.DAMClassifier(
        5, objective="joint", normalize="unit", varsigma=0.9, max_iter=1, random_state=0
    )
    model.fit(*data).temperature_ = NAN
    with pytest.raises(ValueError, match="this model cannot be saved: temperature is nan"):
        model.save(tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no model file at .*nowhere.safetensors: check"):
        mn.load(tmp_path / "nowhere.safetensors")


def test_folder_in_place_of_a_file(tmp_path):
    with pytest.raises(ValueError, match="is a folder: give the model file in it"):
        mn.load(tmp_path)


# writing


def test_no_folder_to_write_to(fitted, tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"folder .*nowhere does not exist: create it first"
    ):
        fitted.save(tmp_path / "nowhere" / "model.safetensors")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser writes anywhere")
def test_folder_without_permission(fitted, tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        fitted.save(tmp_path / "model.safetensors")


def test_unwritable_folder(fitted, tmp_path, monkeypatch):
    """As the superuser sees a read-only disk."""

    def refuse(*args, **kwargs):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(OSError, match=r"Read-only file system: .*" + tmp_path.name):
        fitted.save(tmp_path / "model.safetensors")


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
def test_full_disk_leaves_the_old_file_and_no_litter(fitted, fresh, tmp_path, monkeypatch, call):
    path = tmp_path / "model.safetensors"
    fitted.save(path)
    before = path.read_bytes()
    other = mn.DAMClassifier(3, objective="joint", normalize="unit", varsigma=0.5, max_iter=1).fit(
        *fresh
    )

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(call, full)
        with pytest.raises(OSError, match="No space left on device"):
            other.save(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.safetensors"]
    other.save(path)  # the disk has room again: the new file takes the old one's place
    assert mn.load(path).n_memories_ == 3


def test_labels_that_cannot_be_saved(data, tmp_path):
    days = np.array(["2020-01-01", "2021-01-01", "2022-01-01"], dtype="datetime64[D]")
    model = mn.DAMClassifier(3, objective="joint", normalize="unit", varsigma=0.9, max_iter=1)
    model.fit(data.x, days[data.y])
    with pytest.raises(
        ValueError, match=r"labels of dtype datetime64\[D\] cannot be saved: use numbers, strings"
    ):
        model.save(tmp_path / "model.safetensors")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("name", persistence._ESTIMATORS)
def test_defaults_are_sound(name):
    """So a file's settings that are the defaults need no look."""
    kind = persistence._ESTIMATORS[name]
    validate_parameter_constraints(kind._parameter_constraints, persistence._DEFAULTS[name], name)
    assert persistence._DEFAULTS[name].keys() == kind().get_params().keys()
