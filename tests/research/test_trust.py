"""A few attempts of every campaign: the same code as the long ones, and no defects."""

from __future__ import annotations

import pytest

from research.trust import commands, inputs, kills, model_files

SIZES = {model_files: 150, kills: 3, inputs: 30, commands: 12}


@pytest.mark.parametrize("campaign", SIZES, ids=lambda module: module.__name__)
def test_campaign(tmp_path, campaign):
    n = SIZES[campaign]
    tally = campaign.campaign(n, tmp_path, seed=7)
    assert tally.tried == n
    assert tally.examples == {}, tally.as_dict()
