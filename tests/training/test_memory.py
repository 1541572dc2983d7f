"""What rows take on their way to the sphere: themselves once more, and a bounded workspace."""

import os
import subprocess
import sys

import pytest

N_ROWS, N = 100_003, 61
ROWS = N_ROWS * N * 4  # bytes of the rows in single precision
WORKSPACE = 40 << 20
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status"),
]

# Memory is what the process holds at most. Freed memory goes back at once, whatever allocator
# torch was built with.
BEGIN = f"""
import numpy as np, torch
from pathlib import Path
import mnemosphere as mn
from mnemosphere.geometry import KINDS
from mnemosphere.rows.rows import Rows
from mnemosphere.geometry.base import on_sphere
from mnemosphere.rows.rows import sort_and_merge_duplicates
from mnemosphere.model.batch import Batch

rng = np.random.default_rng(0)
x = np.empty(({N_ROWS}, {N}), dtype="DTYPE")
y = rng.integers(0, 3, {N_ROWS})
for k in range(0, {N_ROWS}, 1000):
    x[k : k + 1000] = rng.standard_normal(x[k : k + 1000].shape) + y[k : k + 1000, None]

def prepared(x, y, kind):
    rows = Rows.of(x, torch.device("cpu")).check_finite(gaps=True)
    rows.observed()
    targets = torch.nn.functional.one_hot(torch.from_numpy(y), 4).float()
    _, (rows, targets, weight) = sort_and_merge_duplicates(rows, targets, None)
    geometry = KINDS[kind].fit(rows, targets)
    return Batch(on_sphere(rows, geometry, torch.float32)[0], targets)

def clustered(x, kind):
    mn.DAMClusterer(
        3, n_memories=5, geometry=kind, max_iter=1, varsigma=1.0, random_state=0,
        precision="float32", device="cpu",
    ).fit(x)

def held():
    told = Path("/proc/self/status").read_text()
    return int(told.split("VmHWM:")[1].split()[0]) * 1024

def peak(action):
    action(x[:2000], y[:2000])
    Path("/proc/self/clear_refs").write_text("5")  # the peak is of now on
    before = held()
    action(x, y)
    return held() - before
"""


def run(code):
    """What a program of its own prints, a number in each line."""
    env = os.environ | {"MIMALLOC_PURGE_DELAY": "0", "MALLOC_MMAP_THRESHOLD_": "131072"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [int(line) for line in done.stdout.split()]


def test_rows_are_taken_once_more():
    """By preparing them, whitened before and after the metric is applied, and by a fit."""
    program = """
x[len(x) // 2, 3] = np.nan
print(peak(lambda x, y: prepared(x, y, "whitened")))
x[len(x) // 2, 3] = 0.0
print(peak(lambda x, y: clustered(x, "standard")))
"""
    seen, fitted = run(BEGIN.replace("DTYPE", "float32") + program)
    assert seen < 2 * ROWS + WORKSPACE
    assert fitted < ROWS + WORKSPACE


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("standard", "float16"), ("standard", "float32"), ("unit", "float32"), ("center", "uint8")],
)
def test_rows_are_put_on_the_sphere_in_chunks(kind, dtype):
    program = f"""
if x.dtype.kind == "f":
    x[len(x) // 2, 3] = np.nan
print(peak(lambda x, y: prepared(x, y, {kind!r})))
"""
    (taken,) = run(BEGIN.replace("DTYPE", dtype) + program)
    assert taken < ROWS + WORKSPACE


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_rows_in_files_are_never_held_together(tmp_path, suffix):
    path = tmp_path / f"rows{suffix}"
    write(path, 2 * N_ROWS)
    program = f"""
del x, y
small = np.random.default_rng(0).normal(size=(40_000, {N}))
clustered(mn.Dataset.from_batches(lambda: [small], memory=8 << 20), "unit")
before = held()
clustered(mn.Dataset.open({str(path)!r}, memory=8 << 20), "unit")
print(held() - before)
"""
    (taken,) = run(BEGIN.replace("DTYPE", "float32") + program)
    assert taken < 1.5 * ROWS < path.stat().st_size


def write(path, n_rows):
    """Random numbers, a part at a time."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng, step = np.random.default_rng(0), 20_000
    parts = (
        rng.standard_normal((min(step, n_rows - k), N), dtype=np.float32)
        for k in range(0, n_rows, step)
    )
    if path.suffix == ".npy":
        stored = np.lib.format.open_memmap(path, "w+", np.float32, (n_rows, N))
        for k, part in enumerate(parts):
            stored[k * step : k * step + len(part)] = part
        return
    schema = pa.schema([(f"f{k}", pa.float32()) for k in range(N)])
    with pq.ParquetWriter(path, schema) as file:
        for part in parts:
            file.write_table(pa.table(list(part.T), schema=schema))
