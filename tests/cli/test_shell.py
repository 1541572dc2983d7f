import errno
import subprocess
import sys

import pytest

import mnemosphere
from mnemosphere.cli.shell import describe, printable
from mnemosphere.text import format_table

COMMANDS = ["demo", "train", "predict", "evaluate", "explain", "cluster", "recall", "plot", "explore",
            "export"]  # fmt: skip
HEAVY = {"torch", "sklearn", "numpy", "pandas", "matplotlib", "scipy"}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["train", "--help"]])
def test_help_and_version_load_nothing_heavy(arguments):
    code = (
        "import sys\n"
        "from mnemosphere.cli import main\n"
        f"sys.argv = ['mnemosphere', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code, stop.code\n"
        f"heavy = {HEAVY!r} & set(sys.modules)\nassert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert mnemosphere.__version__ in done.stdout or "Usage" in done.stdout


def test_a_closed_pipe_is_no_error(table, trained):
    # The reader is gone before anything is written. A command that starts quickly.
    code = (
        "import os, sys\n"
        "from mnemosphere.cli import main\n"
        "read, write = os.pipe()\nos.close(read)\nos.dup2(write, 1)\n"
        f"sys.argv = ['mnemosphere', 'predict', {str(trained)!r}, {str(table)!r}]\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 141
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr


def test_help_lists_every_command(run):
    text = run("--help").stdout
    assert all(f" {command} " in text for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(run, command):
    every, text = (run(command, flag).stdout for flag in ("--help-all", "--help"))
    assert f"\n      mnemosphere {command} " in text  # an example
    assert not {"<bool>", "None", "default: none)"} & set(text.split())
    options = [line for line in text.splitlines() if line.startswith("  -")]
    assert "--json" in text
    assert len(options) <= 15
    assert "--quiet" in every
    assert "--quiet" not in text


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["evaluat"], "Did you mean 'evaluate'?"),
        (["train", "--memorise", "3"], "--memorise"),
        (["plot", "faces", "m"], "'faces' is not one of"),
        (["predict"], "MODEL"),
        (["explain", "m", "d", "--top", "0"], "--top"),
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


def test_tables_fit_or_stack():
    rows = [{"name": "猫猫", "count": "3", "text": "x"}, {"name": "b", "count": "12", "text": "y"}]
    wide = format_table(rows, 40).splitlines()
    assert wide[0] == "name  count  text"
    assert wide[2] == "猫猫      3  x"
    assert wide[3] == "b        12  y"
    narrow = format_table(rows, 12).splitlines()
    assert narrow[0] == "name  count"
    assert narrow[4:] == ["", "name  text", "──────────", "猫猫  x", "b     y"]
