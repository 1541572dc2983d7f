"""Arrays need no more than the required packages; what is missing is named in one line."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from mnemosphere.machine import how_to_install

ROOT = Path(__file__).parents[1]
BLOCK = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"typer", "rich", "matplotlib", "pandas", "pyarrow", "PIL"}:
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Block())
"""


def run(code):
    """Standard output of Python without the packages of `app`; AssertionError if it fails."""
    found = subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_the_extra_holds_what_is_blocked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = {re.match(r"\w+", line)[0] for line in project["optional-dependencies"]["app"]}
    assert extra == {"typer", "rich", "matplotlib", "pandas", "pyarrow"}
    needed = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]}
    assert needed == {"torch", "numpy", "scipy", "scikit-learn", "safetensors"}


NEEDS = {
    "mn.Dataset.open('rows.parquet')": "pyarrow",
    "mn.plots.memories": "matplotlib",
    "mn.interpret.memory_table(model)": "pandas",
}


def test_the_first_example_of_the_readme_runs_and_what_is_missing_is_named(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.+?)```", text, re.DOTALL)[1]
    code += f"""
import os
os.chdir({str(tmp_path)!r})
open("rows.parquet", "wb").write(b"PAR1")
import mnemosphere as mn
model = clf.model_
for line in {list(NEEDS)!r}:
    try:
        eval(line)
    except ImportError as error:
        print(error)
"""
    accuracy, *told = run(code).splitlines()
    assert float(accuracy) > 0.9
    assert told == [f"this needs {name}: {how_to_install('app')}" for name in NEEDS.values()]


def test_progress_is_shown_without_rich():
    code = """
import time
import numpy as np
import mnemosphere as mn

class Slow(mn.Callback):
    def on_start(self, run):
        time.sleep(1)

sys.stderr = sys.stdout
x = np.random.default_rng(0).normal(size=(40, 3))
mn.DAMClassifier(3, search=None, verbose=1, callbacks=[Slow()]).fit(x, x[:, 0] > 0)
"""
    assert run(code).startswith("training 3 memories 0/")


def test_the_command_line_says_what_it_needs():
    code = "import runpy; runpy.run_module('mnemosphere', run_name='__main__')"
    found = subprocess.run([sys.executable, "-c", BLOCK + code], capture_output=True, text=True)
    assert found.returncode != 0
    assert found.stderr.strip().splitlines()[-1].endswith(how_to_install("app"))
