"""The commands of the research."""

import pytest

from research import __main__ as start


@pytest.fixture
def run(capsys):
    """Run a command; what it wrote on standard error."""

    def call(*arguments, code=0):
        capsys.readouterr()
        found = start.main([str(a) for a in arguments])
        errors = capsys.readouterr().err
        assert found == code, errors
        return errors

    return call
