"""Memory that passes work in one after another."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from mnemosphere.model import accumulate, kernel
from mnemosphere.model.objectives import conditional, joint
from mnemosphere.model.workspace import reused, room


def test_room_is_kept_inside_and_gone_outside():
    like = torch.ones(2)
    assert room("a", (3, 5), like) is None
    with reused():
        first = room("a", (3, 5), like)
        assert first.shape == (3, 5)
        with reused():  # of the part of a longer training
            assert room("a", (2, 7), like).data_ptr() == first.data_ptr()
        assert room("b", (3, 5), like).data_ptr() != first.data_ptr()
        assert room("a", (3, 5), like.double()).dtype == torch.float64
        assert room("a", (5, 5), like).shape == (5, 5)
        assert room("a", (5, 5), torch.empty(2, device="meta")) is None
    assert room("a", (3, 5), like) is None


def test_room_of_inference_mode_is_not_written_to_outside_of_it():
    like = torch.ones(2)
    with reused():
        with torch.inference_mode():
            first = room("a", (3, 5), like)
            assert room("a", (3, 5), like).data_ptr() == first.data_ptr()
        other = room("a", (3, 5), like)
        other.zero_()  # would raise
        with torch.inference_mode():  # what was made outside may be written to anywhere
            assert room("a", (3, 5), like).data_ptr() == other.data_ptr()


@pytest.mark.parametrize("rule", [joint, conditional])
def test_sums_do_not_depend_on_what_passes_before_have_left(problem, monkeypatch, rule):
    monkeypatch.setattr(kernel, "_CHUNK_ELEMENTS", {"cpu": 1})
    large, small = problem(3, rows=197, memories=11), problem(4, rows=71, memories=7)
    alone = [accumulate(case.params, case.batch, rule) for case in (large, small, large)]
    with reused():
        after = [accumulate(case.params, case.batch, rule) for case in (large, small, large)]
        shares = list(kernel.memory_shares(large.params, large.batch, rule))
        log_joint = kernel.log_joint(large.params, large.x)
    for one, other in zip(alone, after, strict=True):
        for name in ("w_bar", "p_bar", "overlap", "loss", "count"):
            assert torch.equal(getattr(one, name), getattr(other, name))
    # Shares of all chunks, kept until the end, sum up to the same.
    whole = torch.cat([share for _, share in shares])
    assert_close(whole.T @ large.x, alone[0].w_bar)
    assert torch.equal(log_joint, kernel.log_joint(large.params, large.x))
