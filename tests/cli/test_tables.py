"""Reading is pandas', and costs what pandas costs."""

import time
import warnings

import numpy as np
import pandas as pd
import pytest

from mnemosphere.base import machine
from mnemosphere.cli.tables import held_out, read_table


def read(tmp_path, text):
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    return read_table(tmp_path / "a.csv")


def test_text_files(tmp_path):
    """A byte order mark, the index that pandas writes, quotes, empty lines, words that are no value."""
    found = read(tmp_path, '\ufeff,a, b,c\n0,1,"x, y",NA\n\n1,2.5,"two\nlines",\n')
    assert found.columns.tolist() == ["a", "b", "c"]
    assert found.index.tolist() == [0, 1, 2]
    assert found["a"].fillna(0).tolist() == [1, 0, 2.5]
    assert found["b"].fillna("").tolist() == ["x, y", "", "two\nlines"]
    assert found["c"].fillna("").tolist() == ["NA", "", ""]


def test_cells_without_a_column_are_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"a\.csv cannot be read: Length of header"):
        read(tmp_path, "a,b\n1,2,3\n4,5,6\n")


def test_files_that_do_not_fit_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "available_memory", lambda device="cpu": 10.0)
    with pytest.raises(ValueError, match=r"files larger than memory are for mn\.Dataset"):
        read(tmp_path, "a,b\n1,2\n")


def test_many_columns_take_what_pandas_takes(tmp_path):
    path, n = tmp_path / "wide.csv", 30_000
    table = pd.DataFrame(np.zeros((3, n)), columns=[f"c{k}" for k in range(n)])
    table.assign(label=list("aba")).to_csv(path, index=False)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = pd.read_csv(path, low_memory=False)
    middle = time.process_time()
    found = read_table(path)
    assert found.equals(plain)
    assert time.process_time() - middle < 3 * (middle - began) + 0.5


def test_a_fifth_of_each_class_is_held_out():
    labels = pd.Series(["a"] * 53 + ["b"] * 9 + ["c"] * 4 + [None] * 6).sample(frac=1)
    one, two = (held_out(labels, seed) for seed in (0, 1))
    for held in (one, two):
        assert labels[held].value_counts().to_dict() == {"a": 10, "b": 1}
    assert (one != two).any()
    assert (one == held_out(labels, 0)).all()
