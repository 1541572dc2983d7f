"""Sparse rows against the dense rows they stand for."""

import numpy as np
import pytest
import torch
from scipy import sparse

from mnemosphere.model import Batch, accumulate, from_memories, objectives
from mnemosphere.model.curvature import Krylov, Nearest
from mnemosphere.model.kernel import log_joint, memory_shares
from mnemosphere.model.sparse_rows import SparseRows
from mnemosphere.numerics import sphere

B, N, P, C = 23, 13, 5, 3


@pytest.fixture(params=[False, True], ids=["sparse", "rank one"])
def rows(request):
    """(sparse rows, the same dense), unit rows some of which have no entry of their own."""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(B, N)) * (rng.random((B, N)) < 0.3)
    x[4] = 0.0
    x[:, -1] += rng.random(B) + 0.5
    dense = torch.from_numpy(x)
    stored = SparseRows.of(sparse.csr_matrix(x))
    if request.param:
        b, v = torch.from_numpy(rng.normal(size=B)), torch.from_numpy(rng.normal(size=N))
        dense = dense + torch.outer(b, v)
        stored = stored.with_values(stored.value, b, v)
    norm = dense.norm(dim=1)
    unit = stored.with_values(
        stored.value / norm[stored.row],
        None if stored.factor is None else stored.factor / norm,
        stored.direction,
    )
    return unit, dense / norm[:, None]


@pytest.mark.parametrize(
    "part",
    [
        slice(3, 11),
        slice(None, None, 4),
        slice(19, 40),
        slice(5, 5),
        torch.tensor([7, 1, 1, 22]),
        torch.arange(B) % 3 == 0,
        torch.tensor([[1, 4], [22, 0], [3, 3]]),
    ],
    ids=["slice", "step", "beyond the end", "empty", "numbers", "mask", "two axes"],
)
def test_parts_of_the_rows(rows, part):
    torch.testing.assert_close(rows[0][part].to_dense(), rows[1][part])


def test_single_rows_norms_types_and_sums(rows):
    stored, dense = rows
    torch.testing.assert_close(stored[-2], dense[-2])
    torch.testing.assert_close(torch.linalg.vector_norm(stored, dim=1), dense.norm(dim=1))
    torch.testing.assert_close(stored.float().to_dense(), dense.float())
    assert stored.new_zeros(2).dtype == torch.float64
    both = SparseRows.cat([stored[:9], stored[9:10], stored[10:]])
    torch.testing.assert_close(both.to_dense(), dense)
    sphere.check(stored)


def test_products_on_a_processor_and_as_on_a_gpu(rows):
    stored, dense = rows
    rng = torch.Generator().manual_seed(1)
    w = torch.randn(P, N, generator=rng, dtype=torch.float64)
    r = torch.randn(B, P, generator=rng, dtype=torch.float64)
    torch.testing.assert_close(stored @ w.T, dense @ w.T)
    torch.testing.assert_close(stored @ w[0], dense @ w[0])
    torch.testing.assert_close(r.T @ stored, r.T @ dense)
    torch.testing.assert_close(torch.ones_like(w).addmm_(r.T, stored), 1 + r.T @ dense)
    plain = stored.with_values(stored.value)
    torch.testing.assert_close(plain._coo() @ w.T, plain @ w.T)
    torch.testing.assert_close(plain._coo().t() @ r, (r.T @ plain).T)


def test_statistics_shares_and_curvature_equal_those_of_dense_rows(rows):
    generator = torch.Generator().manual_seed(3)
    w = sphere.sample_uniform(P, N, generator=generator, dtype=torch.float64)
    label = torch.randint(C, (B,), generator=generator)
    targets = objectives.soft_labels(label, C, 0.1, dtype=torch.float64)
    weight = torch.rand(B, generator=generator, dtype=torch.float64) + 0.1
    params = from_memories(w, targets.mean(0), beta=7.0, varsigma=0.8)
    some, same = (Batch(x, targets, weight).check(params) for x in rows)
    found, wanted = (accumulate(params, batch, objectives.joint) for batch in (some, same))
    for name in ("w_bar", "p_bar", "overlap", "loss", "count"):
        torch.testing.assert_close(getattr(found, name), getattr(wanted, name), rtol=0, atol=1e-10)
    torch.testing.assert_close(log_joint(params, rows[0]), log_joint(params, rows[1]))
    pairs = zip(*(memory_shares(params, b, objectives.joint) for b in (some, same)), strict=True)
    for (_, one), (_, other) in pairs:
        torch.testing.assert_close(one, other)
    for method in (Nearest(), Krylov()):
        one, other = (
            method(params, b, generator=torch.Generator().manual_seed(0)) for b in (some, same)
        )
        torch.testing.assert_close(one.lambda_min, other.lambda_min, rtol=0, atol=1e-10)


def test_what_rows_cannot_do_is_said(rows):
    with pytest.raises(TypeError, match="not for sparse rows"):
        rows[0].exp()
    with pytest.raises(TypeError, match="columns of sparse rows"):
        rows[0][:, 2]
