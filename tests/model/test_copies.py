"""Memories that repeat another: merging is the reverse of duplication."""

import pytest
import torch
from torch.testing import assert_close

from mnemosphere.model import objectives
from mnemosphere.model.batch import Batch
from mnemosphere.model.copies import alike, duplicate, merge_duplicates
from mnemosphere.model.mixture import Mixture
from mnemosphere.model.one_pass import log_joint
from mnemosphere.numerics import sphere

B, N, P, C = 61, 7, 5, 3


def make(seed: int) -> tuple[Mixture, Batch]:
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(P, N, generator=generator, dtype=torch.float64)
    which = torch.randint(P, (B,), generator=generator)
    noise = torch.randn(B, N, generator=generator, dtype=torch.float64)
    x = sphere.project(centers[which] + 0.3 * noise)
    q = objectives.soft_labels(which % C, C, 0.1, dtype=torch.float64)
    p = torch.rand(P + 1, C + 1, generator=generator, dtype=torch.float64) + 0.1
    p = p / p.sum()
    beta = torch.tensor(12.0, dtype=torch.float64)
    params = Mixture(sphere.project(centers), p, beta, 0.7, p.sum(1), p.sum(0))
    return params, Batch(x, q)


@pytest.mark.parametrize("which", [[0], [3, 1], [4, 0, 2, 1, 3]])
def test_merging_undoes_duplication(which):
    params, _ = make(0)
    grown = duplicate(params, torch.tensor(which))
    merged, _ = merge_duplicates(grown, grown.p)
    assert_close(merged.w, params.w, rtol=0, atol=1e-12)
    assert_close(merged.p, params.p, rtol=1e-12, atol=0)
    assert_close(merged.p_h, params.p_h, rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shares", [(0.5,), (0.9, 0.3, 0.05)])
def test_copies_of_any_weight_are_merged_back_and_no_prediction_changes(shares, dtype):
    params, rows = make(2)
    w, p, net = params.w, params.p, params.p.flip(1).contiguous()
    for share in shares:  # memory 1 once more, with a share of its weight
        w, p, net = (torch.cat([t, t[k : k + 1]]) for t, k in ((w, 1), (p, 2), (net, 2)))
        for weights in (p, net):
            weights[-1] *= share
            weights[2] *= 1 - share
    grown = params.replace(w=w, p=p, p_h=p.sum(1)).to(dtype=dtype)
    merged, classes = merge_duplicates(grown, net.to(dtype))
    assert merged.n_memories == P
    assert merged.w.dtype == classes.dtype == dtype
    merged.check()
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    x = rows.x.to(dtype)
    for before, after in ((p, merged.p), (net, classes)):
        expected = log_joint(grown.replace(p=before.to(dtype)), x)
        assert_close(log_joint(merged.replace(p=after), x), expected, rtol=0, atol=tolerance)


def test_what_differs_is_not_merged():
    params, _ = make(3)
    same, weights = merge_duplicates(params, params.p)
    assert same is params
    assert weights is params.p
    copy = duplicate(params, torch.tensor([1]))
    copy.p[-1] = copy.p[-1].flip(0)  # the same direction, other labels
    assert merge_duplicates(copy, copy.p)[0].n_memories == P + 1
    copy = duplicate(params, torch.tensor([1]))
    copy.w[-1] = sphere.project(copy.w[-1] + 1e-7)
    assert merge_duplicates(copy, copy.p)[0].n_memories == P + 1
    assert alike(copy).tolist() == [0, 1, 2, 3, 4, 1]  # but a reader cannot distinguish them


def test_the_heaviest_stands_for_those_that_repeat_it():
    """Along a chain with steps of 0.03, the limit is an overlap of 0.999: 0.0447."""
    angle = 0.03 * torch.arange(7, dtype=torch.float64)
    w = torch.stack([angle.cos(), angle.sin()], 1)
    p = torch.ones(8, 2, dtype=torch.float64)
    p[4] = 2.0  # memory 3
    p = p / p.sum()
    params = Mixture(w, p, torch.tensor(1.0).double(), 1.0, p.sum(1), p.sum(0))
    assert alike(params).tolist() == [0, 0, 3, 3, 3, 5, 5]
    assert alike(params, distance=0.1).tolist() == [3] * 7
