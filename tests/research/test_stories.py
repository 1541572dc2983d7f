"""The ten stories of the docs, from file to decision."""

import re
from pathlib import Path

import pandas as pd
import pytest

from research.benchmarks.stories import STORIES, tell

PAGE = Path(__file__).parents[2] / "docs" / "stories.md"
QUICK = ("--memories", "20", "--varsigma", "0.8", "--geometry", "standard", "--max-iter", "8")
FAST = {"train": (*QUICK, "--objective", "joint"), "cluster": QUICK}


@pytest.mark.parts("name")
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n == "many")) for n in STORIES]
)
def test_a_story_ends_as_told(name, tmp_path, small_pictures):
    story = STORIES[name]
    told = tell(story, tmp_path, FAST)
    for words in story.says:
        assert words in told, told
    assert len(story.commands) <= 5
    if story.picture is not None:
        assert (tmp_path / story.picture).stat().st_size > 5000
    if name == "messy":
        answers = pd.read_csv(tmp_path / "answers.csv")
        new = pd.read_csv(tmp_path / "new.csv")
        assert answers["customer_id"].tolist() == new["customer_id"].tolist()
    if name == "other-world":
        answers = pd.read_csv(tmp_path / "answers.csv")
        assert answers["prediction"].isna().mean() > 0.6
        assert answers["line"].tolist() == list(range(2, 32))


def test_the_page_tells_these_stories():
    text = PAGE.read_text(encoding="utf-8")
    shown = [" ".join(line.split()) for line in re.sub(r"\\\n", "", text).splitlines()]
    for name, story in STORIES.items():
        for command in story.commands:
            assert command in shown, command
        if story.picture is not None:
            assert f"images/story-{name}.png" in text
