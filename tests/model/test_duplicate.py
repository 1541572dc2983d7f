"""Duplication: the network grows and stays the same function, until the copies move apart."""

import pytest
import torch

from mnemosphere.model.copies import duplicate
from mnemosphere.model.one_pass import evaluate, log_joint
from small_models import PROPER, P, make_data, make_params


@pytest.mark.parametrize("which", [[], [0], [2, 0], [1, 2, 0]])
def test_duplication_changes_neither_density_nor_loss(which):
    batch = make_data(7)
    params = make_params(7)
    grown = duplicate(params, torch.tensor(which, dtype=torch.long)).check()
    assert grown.n_memories == P + len(which)
    before, after = (log_joint(m, batch.x) for m in (params, grown))
    assert (before - after).abs().max() < 1e-12
    for rule in PROPER:
        assert evaluate(params, batch, rule) == pytest.approx(
            evaluate(grown, batch, rule), abs=1e-12
        )
    assert grown.p_h[0] == params.p_h[0]
    assert torch.equal(grown.p[0], params.p[0])
