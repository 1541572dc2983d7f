"""The laws of every geometry there is, on every kind of rows."""

import functools
import json
import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import mnemosphere as mn
from draws import generator
from mnemosphere.base.files import plain
from mnemosphere.export import payload
from mnemosphere.geometry import KINDS, Geometry, Product
from mnemosphere.rows.columns import Column, Columns
from mnemosphere.rows.rows import Rows
from quick_models import graph_answers, reloaded

GEOMETRIES = [*KINDS]
N, C = 7, 3
CATEGORIES = (slice(4, 7),)
VECTOR = (0, 2, 3)  # of products, the features of a text
TABLES = ("dense", "zeros", "gaps", "categories", "one row", "huge", "tiny")


def table(name):
    """(rows (n, N), classes (n,))."""
    rng = np.random.default_rng(0)
    y = np.arange(61) % C
    x = rng.normal(size=(len(y), N)) + 2 * np.random.default_rng(1).normal(size=(C, N))[y] + 1
    if name == "zeros":
        x *= rng.random(x.shape) < 0.4
        x[:, 0] += 0.5  # every row has a direction
    if name == "gaps":
        x[rng.random(x.shape) < 0.3] = np.nan
        x[5] = np.nan
    if name == "categories":
        x[:, CATEGORIES[0]] = np.eye(3)[rng.integers(0, 3, len(y))]
    return x * {"huge": 1e300, "tiny": 1e-300}.get(name, 1.0), y


@functools.cache
def learned(kind, name):
    """(the geometry, rows of its table as it takes them, their classes)."""
    x, y = table(name)
    vectors = VECTOR if KINDS[kind].of is Product else ()
    if vectors:  # a direction comes back at unit length; of a text, all numbers are known or none
        own = table("dense" if name == "gaps" else name)[0][:, VECTOR]
        own = own / np.abs(own).max(1, keepdims=True)
        own /= np.linalg.norm(own, axis=1, keepdims=True)
        x[:, VECTOR] = np.where(np.isnan(x[:, [1]]), np.nan, own)
    each = [Column("u", "list" if vectors else "number"), Column("v", "number")]
    each += [Column("w", "list", length=2)] if vectors else [Column("w", "number")] * 2
    three = [Column("c", "category", ("a", "b", "c"))]
    each += three if name == "categories" else [Column("z", "number")] * 3
    columns = Columns(len(each), each=tuple(each))
    rows = Rows.of(x, torch.device("cpu"), columns)
    targets = torch.nn.functional.one_hot(torch.from_numpy(y), C + 1).double()
    geometry = KINDS[kind].fit(rows, targets)
    few = 1 if name == "one row" else len(x)
    return geometry, torch.from_numpy(x[:few]), y[:few]


def points(geometry, n=5):
    w = torch.randn(n, geometry.n_coordinates(N), generator=generator(3), dtype=torch.float64)
    return w / w.norm(dim=1, keepdim=True)


every = pytest.mark.parametrize("kind", GEOMETRIES)
on_every_table = pytest.mark.parametrize("name", TABLES)


@every
@on_every_table
def test_rows_lie_on_the_sphere(kind, name):
    """A row with gaps has what is left of its norm in them; one of nothing else has no place."""
    geometry, x, _ = learned(kind, name)
    unit, undirected = geometry.place(x)
    gone = x.isnan().all(1)
    assert torch.equal(undirected, gone)
    assert unit.shape == (len(x), geometry.n_coordinates(N))
    assert not unit[undirected].any()
    norm = unit[~undirected].nan_to_num(0.0).norm(dim=1)
    whole = ~x[~undirected].isnan().any(1)
    torch.testing.assert_close(norm[whole], torch.ones_like(norm[whole]), rtol=0, atol=1e-12)
    assert bool(((norm > 0) & (norm < 1 + 1e-12)).all())
    assert not unit[~undirected][whole].isnan().any()


@every
@on_every_table
def test_restored_rows_are_the_rows_up_to_what_is_lost(kind, name):
    """In the features' units they are the same; of directions the length, or the mean too, is lost."""
    geometry, x, _ = learned(kind, name)
    x = x[~x.isnan().any(1)]
    categories = CATEGORIES if name == "categories" else ()
    found = geometry.restore(geometry.place(x)[0], categories)
    assert found.shape == x.shape
    if geometry.units is not None:
        size = x.abs().amax(0)
        torch.testing.assert_close(found / size, x / size, rtol=0, atol=1e-9)
        return
    x = x / x.abs().amax(1, keepdim=True)
    lost = torch.stack([found, torch.ones_like(x)][: 1 + geometry.n_unused_directions], 2)
    share = torch.linalg.lstsq(lost, x[..., None]).solution
    assert bool((share[:, 0] > 0).all())
    torch.testing.assert_close((lost @ share)[..., 0], x, rtol=0, atol=1e-12)


@every
def test_gaps_change_no_other_row_and_no_ratio(kind):
    geometry, x, _ = learned(kind, "gaps")
    unit, undirected = geometry.place(x)
    whole = ~x.isnan().any(1)
    assert bool(whole.any())
    torch.testing.assert_close(unit[whole], geometry.place(x[whole])[0], rtol=0, atol=1e-15)
    # With an ordinary value in place of a gap, the known coordinates are as they are but for their length.
    filled, _ = geometry.place(geometry.fill(x))
    filled = filled.nan_to_num(0.0)  # of a text that is missing, there is none
    if geometry.mixing is None:
        filled[geometry.per_coordinate(x.isnan(), constant=0)] = 0.0
    known, filled = unit[~undirected].nan_to_num(0.0), filled[~undirected]
    cut = [len(VECTOR)] if isinstance(geometry, Product) else []  # each part has its own length
    for one, other in zip(known.tensor_split(cut, 1), filled.tensor_split(cut, 1), strict=True):
        there = one.norm(dim=1) > 0
        cosine = torch.cosine_similarity(one[there], other[there], eps=1e-300)
        torch.testing.assert_close(cosine, torch.ones_like(cosine), rtol=0, atol=1e-12)


@every
def test_completed_rows_keep_what_is_known(kind):
    geometry, x, _ = learned(kind, "gaps")
    found = geometry.restore(points(geometry, len(x))).numpy()
    done = geometry.complete(x.numpy(), found)
    known = ~np.isnan(x.numpy())
    np.testing.assert_array_equal(done[known], x.numpy()[known])
    assert np.isfinite(done).all()
    whole = learned(kind, "dense")[1]
    holes = torch.where(torch.rand(whole.shape, generator=generator(4)) < 0.3, torch.nan, whole)
    geometry = learned(kind, "dense")[0]
    itself = geometry.restore(geometry.place(whole)[0])
    np.testing.assert_allclose(geometry.complete(holes.numpy(), itself.numpy()), whole, rtol=1e-9)


@every
@pytest.mark.parametrize("name", ["dense", "zeros", "categories"])
def test_a_coordinate_belongs_to_one_feature(kind, name):
    """But for what all of them share, such as their mean; and a memory counts where it has coordinates."""
    geometry, x, _ = learned(kind, name)
    changed, own = x.clone(), geometry.per_coordinate(torch.arange(N)[None] == 2, constant=0)[0]
    changed[:, 2] = x[:, 2].roll(1)
    moved = (geometry.coordinates(changed) - geometry.coordinates(x))[:, ~own]
    if moved.shape[1]:
        shared = moved.mean(1, keepdim=True) if geometry.n_unused_directions else 0.0
        torch.testing.assert_close(moved - shared, torch.zeros_like(moved), rtol=0, atol=1e-12)
    w = points(geometry)
    assert geometry.strengths(w).shape == (len(w), N)
    if geometry.mixing is None:
        some = geometry.strengths(w * own)
        assert bool((some[:, 2] != 0).all())
        assert not some[:, torch.arange(N) != 2].any()


def test_the_protocol_is_small():
    assert len([name for name in dir(Geometry) if not name.startswith("_")]) <= 20


NODE = """
const [model, given] = require("fs").readFileSync(0, "utf8").split("\\u0000");
const { stored, n, rows } = JSON.parse(given);
(async () => {
  const { geometry, answers } = await eval(model + `;(async () => {
    const found = await unpackAll(stored);
    const geometry = geometryOf(found.geometry);
    const model = new Model(found, n);
    const answers = rows.map((row) => {
      const x = geometry.toSphere(Float64Array.from(row, (v) => v ?? NaN));
      return Array.from(model.read(model.overlaps(x)).proba);
    });
    return { geometry, answers };
  })()`);
  console.log(JSON.stringify(answers));
})();
"""


def by_page(model, x):
    """Probabilities that the page shows, by its own code."""
    stored = payload.payload(model.model_)
    rows = [[None if np.isnan(v) else v for v in row] for row in x.tolist()]
    given = json.dumps(plain({"stored": stored, "n": C, "rows": rows}, finite=True))
    code = (Path(payload.__file__).parent / "web" / "model.js").read_text(encoding="utf-8")
    found = subprocess.run(
        ["node", "-e", NODE], input=f"{code}\0{given}", capture_output=True, text=True, check=True
    )
    return np.array(json.loads(found.stdout))


@every
@pytest.mark.parametrize("name", ["gaps", "categories"])
def test_python_torch_graph_and_page_say_the_same(kind, name, tmp_path):
    _, x, y = learned(kind, name)
    x = given = x.numpy()
    if KINDS[kind].of is Product:
        others = np.delete(x, VECTOR, 1)
        given = pd.DataFrame({f"x{j}": column for j, column in enumerate(others.T)})
        given.insert(1, "text", list(x[:, VECTOR]))
        x = np.insert(others, [1, 1, 1], x[:, VECTOR], 1)
    all_say_the_same(kind, given, y, x, -3 * x[:7], tmp_path)


@pytest.mark.parametrize("kind", ["circles", "text50+circles"])
def test_all_say_the_same_of_categories_with_gaps(kind, tmp_path):
    x, y = table("gaps")
    level, shop = (np.random.default_rng(2).integers(0, k, len(x)) for k in (4, 40))
    frame = pd.DataFrame(x[:, 1:], columns=[f"x{j}" for j in range(1, N)])
    frame.insert(2, "level", np.where(np.arange(len(x)) % 5, [f"level {k}" for k in level], None))
    frame["shop"] = [f"shop {k}" for k in shop]  # of which few have a number
    if kind != "circles":
        frame["vector"] = list(table("dense")[0][:, :3])
    own = mn.DAMClassifier(1, geometry=kind, max_iter=1, random_state=0).fit(frame, y)
    numbers = [column for column in frame if column.startswith("x")]
    beyond = frame.iloc[:7].assign(**{column: -3 * frame[column] for column in numbers})
    rows, further = (mn.interpret.encode(own.model_, x).to_numpy() for x in (frame, beyond))
    all_say_the_same(kind, frame, y, rows, further, tmp_path)


def all_say_the_same(kind, given, y, x, further, tmp_path):
    """A model of given rows, of them as numbers x and of further ones."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the row without direction
        model = mn.DAMClassifier(5, objective="joint", geometry=kind, varsigma=0.7, random_state=0)
        model.fit(given, y)
        x = np.concatenate([x, further])  # beyond the training rows
        wanted = model.predict_proba(x)
    np.testing.assert_array_equal(reloaded(model, tmp_path).predict_proba(x), wanted)
    layer = mn.export.DAMModule(model.model_)(torch.from_numpy(x)).exp()
    np.testing.assert_allclose(layer.numpy(), wanted, rtol=0, atol=1e-12)
    if shutil.which("node"):
        np.testing.assert_allclose(by_page(model, x), wanted, rtol=0, atol=1e-6)
    found = graph_answers(model, tmp_path, x)["probabilities"]
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)
