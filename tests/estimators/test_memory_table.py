"""What stands behind each memory, against plain enumeration over the rows."""

import numpy as np
import pytest

import mnemosphere as mn
from quick_models import reloaded

pd = pytest.importorskip("pandas")


def test_the_table_reads_as_the_attributes_do(data, fitted):
    table, standing = fitted.memory_table(), fitted.model_.standing.numpy()
    shown, n_alike = np.unique(standing, return_counts=True)
    assert table["name"].tolist() == [f"#{m}" for m in shown]
    assert table["n_alike"].tolist() == n_alike.tolist()
    explained = fitted.explain(data.x[:1], n_memories=7)
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
    assert table["share"].sum() == pytest.approx(1.0)


def test_rows_behind_memories_are_forgotten_by_a_new_prior(fitted, tmp_path):
    prior = 1.0 + np.arange(len(fitted.classes_))
    other = mn.as_estimator(mn.interpret.with_class_prior(fitted.model_, prior))
    assert other.typical_rows_ is None
    assert reloaded(other, tmp_path).typical_rows_ is None
    assert other.memory_table()["support"].isna().all()
