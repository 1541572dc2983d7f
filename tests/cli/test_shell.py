import errno
import subprocess
import sys

import pytest
import typer

import mnemosphere
from mnemosphere.cli import app
from mnemosphere.cli.shell import describe, printable

COMMANDS = typer.main.get_command(app).commands
HEAVY = {"torch", "sklearn", "numpy", "pandas", "matplotlib", "scipy"}


def test_help_loads_nothing_heavy_and_a_closed_pipe_is_no_error():
    """The reader is gone before anything is written."""
    code = f"""
import os, sys
from mnemosphere.cli import main

def run(*words):
    sys.argv = ["mnemosphere", *words]
    try:
        main()
    except SystemExit as stop:
        return stop.code

assert not any(run(*words) for words in (["--help"], ["--version"], ["train", "--help"]))
assert not {HEAVY!r} & set(sys.modules)
root = ["--out", "/", "--overwrite"]
for words in (["train", "no.csv"], ["predict", "no", "digits"], ["predict", ".", ""], ["train", *root]):
    assert run(*words) == 2
assert {HEAVY!r} & set(sys.modules) <= {{"numpy"}}
read, write = os.pipe()
os.close(read)
os.dup2(write, 1)
sys.exit(run("train", "--help"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 141
    missing, no_model, empty, root = done.stderr.splitlines()
    assert missing.startswith("error: no file no.csv, and no data set of that name: check the path")
    assert no_model == "error: no model file at no: check the path"
    assert empty == "error: an argument is empty: give a file, a folder or a name"
    assert root == "error: / is the root of all folders: choose another with --out"
    assert f"mnemosphere {mnemosphere.__version__}\n" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(run, command):
    assert f" {command} " in run("--help").stdout
    assert len(COMMANDS[command].help.splitlines()[0]) <= 60  # else it is cut there
    every, text = (run(command, flag).stdout for flag in ("--help-all", "--help"))
    assert f"\n      mnemosphere {command} " in text  # an example
    # What one types, not types of Python.
    assert not any(part in every for part in ("<", "None", "[required]", "default: ("))
    assert "--json" in text
    assert "--quiet" in every
    assert "--quiet" not in text


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["evaluat"], "Did you mean 'evaluate'?"),
        (["train", "--memorise", "3"], "--memorise"),
        (["predict"], "MODEL"),
    ],
)
def test_wrong_usage_is_one_line(run, arguments, part):
    assert part.lower() in run(*arguments, code=2).error.lower()


@pytest.mark.parametrize(
    ("error", "code", "parts"),
    [
        (ValueError("two\nlines"), 2, ["two lines"]),
        (FileNotFoundError(errno.ENOENT, "No such file", "a.csv"), 2, ["a.csv", "check the path"]),
        (PermissionError(errno.EACCES, "denied", "x"), 2, ["x: denied", "another place"]),
        (MemoryError(), 2, ["not enough memory", "--memories"]),
        (RuntimeError("odd"), 1, ["RuntimeError", "odd", "--debug"]),
    ],
)
def test_errors_become_one_line(error, code, parts):
    message, found = describe(error)
    assert found == code
    assert "\n" not in message
    assert all(part in message for part in parts)


def test_what_is_not_printable_is_shown():
    assert printable("a\x1b[31m\x9b\u202eb é 猫") == "a\\x1b[31m\\x9b\\u202eb é 猫"
