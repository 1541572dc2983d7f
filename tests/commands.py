"""A way to run the commands of an application in this process."""

import json

from typer.testing import CliRunner

# A model that is trained at once.
FAST = ["--objective", "joint", "--memories", "6", "--geometry", "standard"]


def caller(app):
    """Run a command; JSON output is checked to be JSON and nothing else."""

    def call(*arguments, code=0, env=None):
        result = CliRunner(env=env).invoke(app, [str(a) for a in arguments])
        shown = f"{result.stdout}\n--- stderr\n{result.stderr}\n{result.exception!r}"
        assert result.exit_code == code, shown
        assert "Traceback" not in result.stderr, shown
        result.json = None
        if "--json" in arguments and result.stdout:
            result.json = json.loads(result.stdout)
        return result

    return call
