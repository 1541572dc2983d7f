"""From stored rows to unit rows: the precision, the numbers of rows, rows that do not fit."""

import numpy as np
import pytest
import torch

from mnemosphere.geometry import Unit
from mnemosphere.geometry.base import on_sphere, unit_chunks
from mnemosphere.rows.rows import Rows

CPU = torch.device("cpu")


def unit_table(n=23, features=5):
    x = np.random.default_rng(0).normal(size=(n, features))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_are_rounded_once_at_the_end(dtype):
    """Norms are taken in double precision, whatever comes out."""
    x = 1e3 * unit_table()
    found, undirected = on_sphere(Rows.of(x, CPU), Unit(), dtype)
    assert found.dtype == dtype
    assert not undirected.any()
    eps = torch.finfo(dtype).eps
    np.testing.assert_allclose(found.double().numpy(), unit_table(), atol=eps, rtol=0)


def test_chunks_are_the_whole_in_order():
    x = unit_table(5, 400_000)
    x[3] = 0.0
    rows = Rows.of(x, CPU)
    parts = list(unit_chunks(rows, Unit(), torch.float64))
    assert [part.shape[0] for part, _ in parts] == [2, 2, 1]
    whole, undirected = on_sphere(rows, Unit(), torch.float64)
    assert torch.equal(torch.cat([part for part, _ in parts]), whole)
    assert torch.equal(torch.cat([gone for _, gone in parts]), undirected)
    assert undirected.nonzero()[:, 0].tolist() == [3]


def test_unit_rows_in_the_right_precision_are_not_copied():
    stored = Rows.of(torch.from_numpy(unit_table()).float(), CPU)
    found, undirected = on_sphere(stored, Unit(), torch.float32)
    assert found.data_ptr() == stored.values.data_ptr()
    assert not undirected.any()
    assert on_sphere(stored, Unit(), torch.float64)[0].dtype == torch.float64
    stored.values[22] *= 1 + 1e-5  # in the last chunk
    found, _ = on_sphere(stored, Unit(), torch.float32)
    assert found.data_ptr() != stored.values.data_ptr()
    torch.testing.assert_close(found.norm(dim=1), torch.ones(23), rtol=0, atol=2e-7)
