"""Where training starts: memories on rows, or on means of texts."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from choices import targets_of
from mnemosphere.data import ArrayDataset
from mnemosphere.estimators.start import Start
from mnemosphere.model.batch import Batch
from mnemosphere.model.parameters import component_prior
from mnemosphere.numerics import sphere
from mnemosphere.training.fixed_point import FixedPoint


def test_start_puts_memories_on_rows_and_classes_by_their_mass():
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(
        torch.randn(53, 5, generator=generator, dtype=torch.float64), dim=1
    )
    weight = torch.rand(53, generator=generator, dtype=torch.float64)
    q = targets_of(np.arange(53) % 3, 3)
    dataset = ArrayDataset.of(x, q, weight)
    params = Start(7, beta=3.0, uniform_weight=2.0)(dataset, 0.5, generator)
    assert (params.n_memories, float(params.beta), params.varsigma) == (7, 3.0, 0.5)
    mass = weight @ q
    torch.testing.assert_close(params.p_q, mass / mass.sum())
    torch.testing.assert_close(params.p, torch.outer(params.p_h, params.p_q))  # uninformative
    assert params.p_h.tolist() == pytest.approx([2 / 9] + [1 / 9] * 7)
    nearest = (params.w @ x.T).amax(1)  # close to a row, each to its own
    assert nearest.min() > 0.9
    assert len({int(i) for i in (params.w @ x.T).argmax(1)}) == 7


def test_texts_start_from_means_of_their_classes():
    """Rows of a thousand features and more that mostly have none in common, and no others."""
    rng = np.random.default_rng(3)
    n, wide = 211, 1009
    y = rng.integers(0, 3, n)
    x = np.zeros((n, wide))
    x[np.arange(n)[:, None], rng.integers(0, wide, (n, 5))] = 1.0
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    start = Start(7, refined=True)
    texts = ArrayDataset.of(torch.from_numpy(x), targets_of(y, 3))
    assert start.is_solution(texts)
    params = start(texts, 0.5, torch.Generator().manual_seed(0))
    assert int((params.w != 0).sum(1).min()) > 50  # a row has five entries
    assert len(set(params.p[1:].argmax(1).tolist())) == 3
    narrow = ArrayDataset.of(torch.from_numpy(x[:, :20] + 1e-3), targets_of(y, 3))
    alike = ArrayDataset.of(torch.from_numpy(np.abs(x) + 0.05), targets_of(y, 3))
    partly = ArrayDataset.of(
        torch.from_numpy(x), targets_of(y, 3) * torch.from_numpy(y[:, None] > 0)
    )
    assert not any(start.is_solution(rows) for rows in (narrow, alike, partly))


def test_start_without_labels_takes_every_class_for_as_good():
    x = torch.eye(5, dtype=torch.float64)
    dataset = ArrayDataset.of(x, torch.zeros(5, 4, dtype=torch.float64))
    params = Start(3)(dataset, 1.0, torch.Generator().manual_seed(0))
    assert params.p_q.tolist() == [0.25] * 4
    assert float(params.beta) > 0


@pytest.mark.parametrize("memories", [5, 29, 89])  # on few of some rows, on many, on nearly all
@pytest.mark.parametrize("beta", [None, 3.0])
def test_rows_as_several_geometries_see_them_start_alike(memories, beta):
    generator = torch.Generator().manual_seed(1)
    y = np.arange(97) % 3
    x = torch.randn(97, 5, generator=generator, dtype=torch.float64)
    weight = torch.rand(97, generator=generator, dtype=torch.float64)
    seen = [
        ArrayDataset(Batch(sphere.project(x * scale), targets_of(y, 3), weight))
        for scale in torch.rand(3, 5, generator=generator, dtype=torch.float64)
    ]
    start = Start(memories, beta, None, own_labels=True)
    found = start.on_same_rows(seen, 7)
    for one, params in zip(seen, found, strict=True):
        alone = start(one, 1.0, torch.Generator().manual_seed(7))
        for name, tensor in alone.to_tensors().items():
            torch.testing.assert_close(
                params.to_tensors()[name], tensor, rtol=1e-13, atol=0, msg=name
            )
    pairs = zip(seen, found, strict=True)
    assert len({tuple((p.w @ one.rows.x.T).argmax(1).tolist()) for one, p in pairs}) == 1
    assert len({float(params.beta) for params in found}) == (3 if beta is None else 1)


def test_a_geometry_that_leaves_rows_out_starts_by_itself():
    x = sphere.project(torch.randn(59, 4, generator=torch.Generator().manual_seed(2)))
    q = targets_of(np.arange(59) % 3, 3).float()
    seen = [ArrayDataset(Batch(x[:n], q[:n])) for n in (59, 53)]
    start = Start(11, own_labels=True)
    for one, params in zip(seen, start.on_same_rows(seen, 5), strict=True):
        alone = start(one, 1.0, torch.Generator().manual_seed(5))
        assert torch.equal(params.w, alone.w)
        assert torch.equal(params.p, alone.p)


@pytest.mark.parametrize("memories", [11, 31, 97])  # the last: more than there are rows
def test_memories_with_held_weights_start_with_the_labels_of_their_rows(memories):
    generator = torch.Generator().manual_seed(3)
    y = np.arange(61) % 3
    x = sphere.project(torch.randn(61, 5, generator=generator, dtype=torch.float64))
    dataset = ArrayDataset(Batch(x, targets_of(y, 3)))
    start = Start(memories, own_labels=True)
    params = start(dataset, 0.5, torch.Generator().manual_seed(4))
    assert params.check() is params
    assert torch.equal(params.p_h, component_prior(memories, 1.0, dtype=torch.float64))
    nearest = (params.w @ x.T).argmax(1)
    assert (params.p[1:, :3].argmax(1) == torch.from_numpy(y)[nearest]).all()
    solver = start.solver(FixedPoint(7))
    assert solver.once_per_pass
    assert not solver.learn_weights
    learned = Start(memories, own_labels=True, learned_weights=True).solver(FixedPoint(7))
    assert learned.learn_weights
    assert not learned.once_per_pass
    assert not Start(memories).solver(FixedPoint(7)).once_per_pass
