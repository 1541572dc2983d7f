"""A few attempts of every campaign: the same code as the long ones, and no defects."""

from __future__ import annotations

import pytest

from research.trust import kills, model_files


@pytest.mark.parametrize(
    ("campaign", "n"), [(model_files, 150), (kills, 5)], ids=lambda v: getattr(v, "__name__", "")
)
def test_campaign(tmp_path, campaign, n):
    tally = campaign.campaign(n, tmp_path, seed=7)
    assert tally.tried == n
    assert tally.examples == {}, tally.as_dict()
