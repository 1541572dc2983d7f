"""The commands of the research."""

import pytest

from commands import caller
from research.app import app


@pytest.fixture
def run():
    """Run `reproduce` or a study of the theory."""
    return caller(app)
