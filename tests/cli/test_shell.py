import errno
import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import mnemosphere
from mnemosphere.cli import app
from mnemosphere.cli.shell import _complete_data, describe, to_json

COMMANDS = ["demo", "train", "evaluate", "explain", "certify", "shrink", "plot"]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["train", "--help"]])
def test_help_and_version_load_nothing_heavy(arguments):
    code = (
        "import sys\n"
        "from mnemosphere.cli import main\n"
        f"sys.argv = ['mnemosphere', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        "heavy = {'torch', 'sklearn', 'numpy', 'matplotlib', 'scipy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert mnemosphere.__version__ in done.stdout or "Usage" in done.stdout


def test_the_installed_command_runs():
    script = f"{sys.prefix}/bin/mnemosphere"
    done = subprocess.run([script, "--version"], capture_output=True, text=True)
    assert done.stdout == f"mnemosphere {mnemosphere.__version__}\n"
    assert done.returncode == 0


def test_help_lists_every_command_and_the_exit_codes(run):
    text = run("--help").stdout
    assert all(command in text for command in COMMANDS)
    assert "130" in text


def test_no_command_shows_help_and_an_unknown_one_is_a_usage_error(run):
    assert "Usage" in run(code=2).output
    assert "evaluate" in run("evaluat", code=2).stderr  # a near miss is suggested


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(run, command):
    text = run(command, "--help").stdout
    assert "--json" in text
    assert "--quiet" in text


@pytest.mark.parametrize(
    ("error", "code", "parts"),
    [
        (ValueError("two\nlines"), 2, ["two lines"]),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.csv"), 2, ["a.csv", "check the path"]),
        (OSError(errno.ENOSPC, "No space left on device"), 2, ["No space", "free some space"]),
        (PermissionError(errno.EACCES, "denied", "x"), 2, ["x: denied", "another place"]),
        (MemoryError(), 2, ["not enough memory", "--memories"]),
        (FloatingPointError("lower the learning rate"), 2, ["lower the learning rate"]),
        (RuntimeError("odd"), 1, ["RuntimeError", "odd", "--debug"]),
        (
            ValueError(
                "The 'n_memories' parameter of DAMClassifier must be an int in the range [1, inf). "
                "Got -3 instead."
            ),
            2,
            ["--memories must be an int in the range [1, inf), got -3"],
        ),
    ],
)
def test_errors_become_one_line(error, code, parts):
    message, found = describe(error)
    assert found == code
    assert "\n" not in message
    assert all(part in message for part in parts), message


def test_an_unexpected_error_is_exit_code_1_and_debug_shows_where(run, monkeypatch, trained, table):
    def broken(*args, **kwargs):
        raise RuntimeError("wires crossed")

    monkeypatch.setattr("mnemosphere.cli.report.score", broken)
    model = trained / "model.safetensors"
    result = run("evaluate", model, table, code=1)
    assert "error: unexpected RuntimeError: wires crossed" in result.stderr.splitlines()[-1]
    result = CliRunner().invoke(app, ["evaluate", str(model), str(table), "--debug"])
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
    assert "in broken" in result.stderr


def test_interruption_outside_training_is_130(run, monkeypatch, trained, table):
    def stop(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("mnemosphere.cli.report.score", stop)
    result = run("evaluate", trained / "model.safetensors", table, code=130)
    assert result.stderr.splitlines()[-1] == "interrupted: nothing was saved"


def test_json_is_strict():
    text = to_json({"a": np.array([1.5, np.nan, np.inf]), "b": np.int64(3), "c": (True, None, "ς")})
    assert json.loads(text) == {"a": [1.5, None, None], "b": 3, "c": [True, None, "ς"]}


def test_no_color_is_respected(run, trained, table):
    force = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
    arguments = ("evaluate", trained / "model.safetensors", table)
    assert "\x1b[" in run(*arguments, env=force).stdout
    # NO_COLOR takes away colours; bold remains where a terminal is forced.
    plain = run(*arguments, env={"NO_COLOR": "1", "FORCE_COLOR": None}).stdout
    assert "\x1b[" not in plain


def test_completion_offers_data_sets():
    assert _complete_data("mn") == ["mnist-small", "mnist"]
