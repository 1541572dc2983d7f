"""A few attempts of every campaign: the same code as the long ones, and no defects."""

from __future__ import annotations

import shutil

import pytest

from research.benchmarks import trust
from research.trust import (
    Tally,
    checkpoints,
    commands,
    inputs,
    kills,
    model_files,
    promises,
    run,
    settings,
)

# How many attempts, and the seed: one that draws no long fits.
SIZES = {
    model_files: (100, 7), kills: (2, 7), inputs: (25, 7), commands: (6, 12), checkpoints: (5, 7),
    settings: (8, 1), promises: (9, 7),
}  # fmt: skip


@pytest.mark.parametrize("campaign", SIZES, ids=lambda module: module.__name__)
def test_campaign(tmp_path, campaign):
    n, seed = SIZES[campaign]
    tally = run(campaign.attempts(n, tmp_path, seed))
    assert tally.tried == n
    assert tally.examples == {}, tally.as_dict()


def test_every_command_is_attacked():
    known = {words[0] for words in commands.COMMANDS.values()}
    assert known == {command.name for command in commands.app.registered_commands}


def test_parts_are_added_up_and_a_process_that_dies_is_a_defect(tmp_path, monkeypatch):
    out = tmp_path / "trust.json"

    def part(name, first, size):
        tally = Tally()
        for _ in range(size):
            tally.add("crash" if first else "the same model", f"{name} {first}")
        return tally

    monkeypatch.setattr(trust, "_part", part)
    monkeypatch.setitem(trust.CAMPAIGNS, "model_files", (7, 5))
    words = ["model_files", "--out", str(out)]
    for attempts, expected in ((5, (5, 0)), (None, (7, 2)), (None, (7, 2))):
        trust.main([*words, *([] if attempts is None else ["--attempts", str(attempts)])])
        found = trust.report.read_json(out, "")["model_files"]
        assert (found["tried"], found["defects"]) == expected
    assert found["parts"] == [[0, 5], [5, 2]]
    monkeypatch.undo()
    monkeypatch.setattr(trust.sys, "executable", shutil.which("false"))
    died = trust._part("kills", 20, 3)
    assert dict(died.outcomes) == {"crash": 1}
    assert died.examples["crash"][0].startswith("kills from 20, 3 attempts: exit code 1")
