"""The parts of benchmarks that decide what is measured."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import torch

from mnemosphere import DAMClassifier
from mnemosphere.data import load
from research.benchmarks import conditional, processor


def test_fidelity_asks_the_memory_of_largest_overlap():
    stored = load("digits")
    x, y = stored.x_train[:400], stored.y_train[:400]
    model = DAMClassifier(
        31,
        objective="joint",
        varsigma=0.25,
        normalize="center",
        max_iter=3,
        random_state=0,
        device="cpu",
    ).fit(x, y)
    rows = stored.x_test
    centered = rows - rows.mean(1, keepdims=True)
    nearest = (centered @ model.memories_.T).argmax(1)
    soft = torch.from_numpy(model.class_weights_)[1:, :-1]
    word = model.classes_[soft.argmax(1).numpy()[nearest]]
    expected = np.mean(word == model.predict(rows))
    assert expected < 1
    assert conditional.fidelity(model.model_, rows) == expected


def test_the_study_of_the_conditional_objective_reports_each_data_set(tmp_path, monkeypatch):
    digits = load("digits")
    kept = {"x_train": digits.x_train[:300], "y_train": digits.y_train[:300]}
    small = dataclasses.replace(digits, **kept)
    monkeypatch.setattr(conditional, "load", lambda name, directory: small)
    (tmp_path / "texts").mkdir()
    names = np.array([f"intent {k}" for k in range(10)])
    np.savez(
        tmp_path / conditional.EMBEDDINGS, x_train=kept["x_train"], y_train=names[kept["y_train"]],
        x_test=digits.x_test, y_test=names[digits.y_test],
    )  # fmt: skip
    words = ["--data", str(tmp_path), "--out", str(tmp_path), "--device", "cpu", "--seeds", "2"]
    for name in ("mnist", "banking"):
        conditional.main([*words, "--only", name, "--memories", "10", "20"])
        found = json.loads((tmp_path / f"conditional_{name}.json").read_text(encoding="utf-8"))
        assert {"command", "seeds", "versions", "device"} <= set(found)
        assert (found["data"], found["rows"], found["classes"]) == (name, 300, 10)
        assert [line["memories"] for line in found["results"]] == [10, 20]
        assert [fit["seed"] for fit in found["fits"]] == [0, 0, 1, 1]
        for line in found["results"]:
            own = [f["accuracy"] for f in found["fits"] if f["memories"] == line["memories"]]
            assert line["accuracy"] == pytest.approx(np.mean(own))
            assert (line["lowest"], line["highest"]) == (min(own), max(own))
            assert line["lowest"] > 80


def test_the_products_of_a_pass_are_those_with_all_rows(problem, monkeypatch):
    monkeypatch.setattr("mnemosphere.model.kernel._CHUNK_ELEMENTS", {"cpu": 1})
    made = problem(5, rows=131, features=7, memories=11)
    x, w = made.batch.x.double(), made.params.w.double()
    found = processor.products(made.params, made.batch, narrowed=False)
    torch.testing.assert_close(found.double(), torch.einsum("bn,mn,bk->mk", x, w, x))
