"""Slow campaigns in parts: each run of the tests takes one, chosen by the commit."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

import pytest


@cache
def part() -> int:
    """The part of this run: PART in the environment, else a number that the commit gives."""
    if "PART" in os.environ:
        return int(os.environ["PART"])
    words = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):  # an archive of the sources
        return 0
    return int(told[:6], 16)


def share_out(items: list[pytest.Item]) -> None:
    """Of tests marked `parts(name)`, those of one value of the parameter run; the others are slow.

    Without a name every test is a part. Tests marked `parts(group=...)` are the parts of one group.
    """
    found: dict[str, dict[str, list[pytest.Item]]] = {}
    for item in items:
        mark = item.get_closest_marker("parts")
        if mark is not None and isinstance(item, pytest.Function):
            value = str(item.callspec.params[mark.args[0]]) if mark.args else item.nodeid
            group = mark.kwargs.get("group", f"{item.path}::{item.originalname}")
            own = found.setdefault(group, {})
            own.setdefault(value, []).append(item)
    for by_value in found.values():
        for number, own in enumerate(by_value.values()):
            if number != part() % len(by_value):
                for item in own:
                    item.add_marker(pytest.mark.slow)
