"""What stands behind each memory, against plain enumeration over the rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import mnemosphere as mn
from mnemosphere.data.rows import StoredRows
from mnemosphere.interpret import exemplars as module

pd = pytest.importorskip("pandas")


def test_typical_rows_are_those_of_the_largest_responsibility(data, fitted):
    shares = fitted.transform(data.x)
    unit = data.x - data.x.mean(1, keepdims=True) if fitted.normalize_ == "center" else data.x
    assert fitted.typical_rows_.shape == (7, 3)
    for memory, rows in enumerate(fitted.typical_rows_):
        own = [int(r) for r in rows if r >= 0]
        assert len(set(own)) == len(own)
        others = np.setdiff1d(np.arange(len(unit)), own)
        if len(own) == 3:
            assert shares[own, memory].min() >= shares[others, memory].max() - 1.1e-3
        else:
            assert shares[others, memory].max(initial=0) < 6e-4
    np.testing.assert_allclose(fitted.support_, shares.sum(0), rtol=1e-9)


def test_numbers_are_those_of_x_as_given_copies_and_empty_rows_included():
    x = np.array([[0, 0], [1, 0], [1, 0], [0, 1], [0, 1.0], [1, 0]])
    weights = [[1e-9, 1e-9, 1e-9], [0.9, 0.02, 0.01], [0.02, 0.9, 0.01]]
    model = mn.as_estimator(mn.interpret.from_parameters([[1, 0], [0, 1]], weights, beta=30.0))
    stored = StoredRows.of(x, torch.device("cpu"))
    found = module.find_exemplars(model.model_.votes, model.model_.normalizer, stored)
    assert set(found.typical[0]) == {1, 2, 5}
    assert set(found.typical[1]) == {3, 4, -1}
    assert found.typical[1][2] == -1
    # A row without direction is not anyone's: the others stand for it.
    np.testing.assert_allclose(found.support, [3 * 6 / 5, 2 * 6 / 5], rtol=1e-6)
    weight = torch.tensor([1.0, 1, 0, 1, 1, 2]).double()
    found = module.find_exemplars(model.model_.votes, model.model_.normalizer, stored, weight)
    assert set(found.typical[0]) == {1, 5, -1}
    np.testing.assert_allclose(found.support, [3 * 6 / 5, 2 * 6 / 5], rtol=1e-6)


def test_many_rows_are_looked_at_evenly_and_in_chunks(fitted, data, monkeypatch):
    stored = StoredRows.of(np.tile(data.x, (3, 1)), torch.device("cpu"))
    whole = module.find_exemplars(fitted.model_.votes, fitted.model_.normalizer, stored)
    monkeypatch.setattr(module, "_MOST_ROWS", 61)
    some = module.find_exemplars(fitted.model_.votes, fitted.model_.normalizer, stored)
    assert some.support.sum() == pytest.approx(whole.support.sum(), rel=0.25)
    monkeypatch.undo()
    monkeypatch.setattr("mnemosphere.model.kernel._CHUNK_ELEMENTS", {"cpu": 1})
    parts = module.find_exemplars(fitted.model_.votes, fitted.model_.normalizer, stored)
    np.testing.assert_allclose(parts.support, whole.support, rtol=1e-12)
    shares = np.tile(fitted.transform(data.x), (3, 1))
    for memory in range(7):
        ours, theirs = parts.typical[memory], whole.typical[memory]
        np.testing.assert_allclose(shares[ours, memory], shares[theirs, memory], atol=1.1e-3)


def test_the_table_reads_as_the_attributes_do(data, fitted):
    table, standing = fitted.memory_table(), fitted.model_.standing.numpy()
    shown, n_alike = np.unique(standing, return_counts=True)
    assert table["name"].tolist() == [f"#{m}" for m in shown]
    assert table["n_alike"].tolist() == n_alike.tolist()
    explained = fitted.explain(data.x[:1], n_nearest=7)
    net = np.empty((7, 4))
    net[explained.memory[0]] = explained.soft_label[0]
    names = [*fitted.classes_.tolist(), None]
    for m in shown:
        row = table.loc[m]
        found = np.array([row["soft_label"].get(name, 0.0) for name in names])
        np.testing.assert_allclose(found, net[m], atol=1e-9 if row["n_alike"] == 1 else 0.01)
        assert row["label"] == names[net[m].argmax()]
        assert row["purity"] == pytest.approx(found.max())
        assert row["support"] == pytest.approx(fitted.support_[standing == m].sum())
    unit = fitted.model_.votes.w.numpy()[shown]
    overlap = unit @ unit.T - 3 * np.eye(len(shown))
    assert table["nearest"].tolist() == [f"#{shown[k]}" for k in overlap.argmax(1)]
    np.testing.assert_allclose(table["nearest_overlap"], overlap.max(1), rtol=1e-6)
    assert table["share"].sum() == pytest.approx(1.0)
    assert table["supported"].tolist() == (table["support"] >= 1).tolist()
    assert table["beta_split"].isna().all()
    rows = fitted.memory_table(data.x, data.y)
    wanted = fitted.certify(data.x, data.y, max_iter=0).beta_split
    np.testing.assert_allclose(rows["beta_split"], wanted[shown])


def test_rows_behind_memories_are_in_the_file(fitted, data, tmp_path):
    fitted.save(tmp_path / "m.safetensors")
    back = mn.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(back.typical_rows_, fitted.typical_rows_)
    np.testing.assert_array_equal(back.support_, fitted.support_)
    smaller = mn.as_estimator(mn.interpret.shrink(fitted.model_, data.x, data.y, n_memories=5))
    assert smaller.typical_rows_ is None
    smaller.save(tmp_path / "s.safetensors")
    assert mn.load(tmp_path / "s.safetensors").typical_rows_ is None
    assert smaller.memory_table()["support"].isna().all()
