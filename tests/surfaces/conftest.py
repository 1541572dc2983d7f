"""What the tests of surfaces share."""

import pytest

from browser import Browser, find_chromium


@pytest.fixture(scope="module")
def browser():
    program = find_chromium()
    if program is None:
        yield None
        return
    with Browser(program) as found:
        yield found
