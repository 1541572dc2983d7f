"""Arrays need no more than the required packages; what is missing is named in one line."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from mnemosphere.base.machine import how_to_install

ROOT = Path(__file__).parents[1]
BLOCK = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"typer", "rich", "matplotlib", "pandas", "pyarrow", "PIL"}:
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Block())
"""
NEEDS = {
    "mn.Dataset.open('rows.parquet')": "pyarrow",
    "mn.plots.memories": "matplotlib",
    "mn.interpret.memory_table(model)": "pandas",
}
REST = f"""
import runpy
import time
from pathlib import Path

import numpy as np
import mnemosphere as mn

class Slow(mn.Callback):
    def on_start(self, run):
        time.sleep(1)

from mnemosphere import *  # noqa: F403
model = clf.model_
Path("rows.parquet").write_bytes(b"PAR1")
for line in {list(NEEDS)!r}:
    try:
        eval(line)
    except ImportError as error:
        print(error)
sys.stderr = sys.stdout
x = np.random.default_rng(0).normal(size=(40, 3))
mn.DAMClassifier(3, search=None, max_iter=1, verbose=1, callbacks=[Slow()]).fit(x, x[:, 0] > 0)
runpy.run_module("mnemosphere", run_name="__main__")
"""


def test_the_extra_holds_what_is_blocked():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extra = {re.match(r"\w+", line)[0] for line in project["optional-dependencies"]["app"]}
    assert extra == {"typer", "matplotlib", "pandas", "pyarrow"}
    needed = {re.match(r"[\w-]+", line)[0] for line in project["dependencies"]}
    assert needed == {"torch", "numpy", "scipy", "scikit-learn", "safetensors"}


def test_without_the_extra_the_readme_runs_and_what_is_missing_is_named(tmp_path):
    """Its first example on arrays, a fit that shows its progress, and the command line, which ends it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    first = re.search(r"```python\n(.+?)```", text, re.DOTALL)[1]
    code = BLOCK + first.replace("as_frame=True", "") + REST
    words = [sys.executable, "-c", code]
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    explained, mark, rest = found.stdout.partition("this needs")
    assert explained.startswith("row 0: benign ")
    told = (mark + rest).splitlines()
    assert told[:3] == [f"this needs {name}: {how_to_install('app')}" for name in NEEDS.values()]
    assert told[3].startswith("training 3 memories 0/")
    assert found.returncode != 0
    assert (found.stdout + found.stderr).strip().endswith(how_to_install("app"))


def test_importing_the_estimators_loads_nothing_that_they_do_not_need():
    """Beyond torch and scikit-learn's own checks: each of these costs a tenth of a second or more."""
    code = "import sys; from mnemosphere import DAMClassifier; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(found.stdout.split())
    assert "mnemosphere.estimators.classifier" in loaded
    assert loaded.isdisjoint({"onnx", "matplotlib", "typer", "sklearn.pipeline", "skl2onnx"})
