"""A geometry is one class: no other module needs to know of it, and none names one."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.datasets import load_wine
from torch import Tensor

import mnemosphere as mn
from mnemosphere.geometry import KINDS, Geometry

ROOT = Path(mn.__file__).parent
# The choice and settings, of which some are about patches.
CHOICE = {"estimators/choice.py", "estimators/cluster_training.py", "estimators/clusterer.py", "images/encoder.py",
          "cli/settings.py", "cli/demo.py", "cli/train.py"}  # fmt: skip


def define() -> None:
    """Ranks without circles: each column by its rank among the training rows, 1 appended."""

    @dataclass(frozen=True)
    class Ranks(Geometry):
        name: ClassVar[str] = "ranks"
        _n_constant: ClassVar[int] = 1

        knots: Tensor

        @classmethod
        def fit(cls, rows: Any, targets: Any = None, weight: Any = None, sums: Any = None) -> Ranks:
            x = torch.cat([x for _, x in rows.chunks()])
            levels = torch.linspace(0, 1, 33, dtype=x.dtype)
            return cls(torch.nanquantile(x, levels, dim=0).T.contiguous())

        def in_units(self, x: Tensor) -> tuple[Tensor, str]:
            low, width = self.knots[:, :-1], self.knots.diff(dim=1)
            share = (x[..., None] - low) / torch.where(width > 0, width, 1.0)
            return torch.where(width > 0, share.clamp(0, 1), 0.0).mean(-1), "ranks"

        def coordinates(self, x: Tensor) -> Tensor:
            rank = self.in_units(x.double())[0]
            return torch.cat([rank - 0.5, torch.ones_like(rank[:, :1])], 1)

        def _neutral(self, x: Tensor, unknown: Tensor) -> Tensor:
            return torch.where(unknown, self.knots[:, self.knots.shape[1] // 2], x.double())

        def restore(self, w: Tensor, categories: Sequence[slice] = ()) -> Tensor:
            rank = (w[..., :-1] / w[..., -1:].clamp_min(1e-3) + 0.5).clamp(0, 1)
            place = (rank * (self.knots.shape[1] - 1)).round().long()
            return self.knots.gather(1, place.flatten(0, -2).T).T.view(rank.shape)

        @property
        def units(self) -> Tensor:
            return self.knots.std(1).clamp_min(1e-300)

        def _onnx_coordinates(self, g: Any, rows: Any) -> str:
            low, width = self.knots[:, :-1], self.knots.diff(dim=1)
            middle = g.stored(self.knots[:, self.knots.shape[1] // 2])
            each = g("Unsqueeze", g("Where", rows.unknown, middle, rows.x), [2])
            share = g("Div", g("Sub", each, g.stored(low)), g.stored(width.clamp_min(1e-300)))
            share = g("Mul", g("Min", g("Max", share, 0.0), 1.0), g.stored((width > 0).double()))
            rank = g("ReduceMean", share, [2], keepdims=0)
            return g("Pad", g("Sub", rank, 0.5), [0, 0, 0, 1], 1.0)


@pytest.fixture
def ranks():
    define()
    yield "ranks"
    del KINDS["ranks"]


def test_a_geometry_in_one_file_works_everywhere(ranks, tmp_path):
    frame, y = load_wine(return_X_y=True, as_frame=True)
    frame = frame.astype(float)
    frame.iloc[::7, 3] = np.nan
    seen, fresh = frame[::2], frame[1::2]
    model = mn.DAMClassifier(6, geometry=ranks, random_state=0).fit(seen, y[::2])
    proba = model.predict_proba(fresh)
    assert (proba.argmax(1) == y[1::2]).mean() > 0.9
    assert f"geometry='{ranks}'" in repr(model.model_)
    # Explanations, of a row as it is and as it could be, and the rows that memories stand for.
    assert "memories: #" in str(model.explain(fresh.iloc[:2]))
    other = model.counterfactual(fresh.iloc[:5])
    assert other.found.all()
    low, high = frame.min().to_numpy(), frame.max().to_numpy()
    assert ((model.memories_ >= low) & (model.memories_ <= high)).all()
    assert len(mn.interpret.memory_table(model.model_)) == 6
    assert not model.recall(fresh.iloc[:3]).isna().any(axis=None)
    # Files, the layer and the graph.
    mn.save(model, tmp_path / "m.safetensors")
    np.testing.assert_array_equal(mn.load(tmp_path / "m.safetensors").predict_proba(fresh), proba)
    rows = fresh.to_numpy(copy=True)
    layer = mn.export.DAMModule(model.model_)(torch.from_numpy(rows)).exp()
    np.testing.assert_allclose(layer.numpy(), proba, rtol=0, atol=1e-12)
    onnxruntime = pytest.importorskip("onnxruntime")
    mn.to_onnx(model, tmp_path / "m.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    found = session.run(["probabilities"], {"rows": rows})[0]
    np.testing.assert_allclose(found, proba, rtol=0, atol=1e-5)


def test_no_other_module_names_a_geometry():
    """Neither by a name, alone where only a geometry is called so, nor by what only one has learned."""
    alone = {"unit", "standard", "whitened", "circles"} & KINDS.keys()
    fields = {"metric", "harmonics", "circles"}
    found = []
    for path in sorted(ROOT.rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        if where.startswith("geometry/") or where in CHOICE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            values = [node] if isinstance(node, ast.Constant) else []
            named = any(v.value in alone for v in values if isinstance(v.value, str))
            if isinstance(node, ast.Compare):
                sides = [n for side in (node.left, *node.comparators) for n in ast.walk(side)]
                texts = {n.value for n in sides if isinstance(n, ast.Constant)}
                named = bool(texts & ({"center"} & KINDS.keys()))
            named |= isinstance(node, ast.Attribute) and node.attr in fields
            if named:
                found.append(f"{where}:{node.lineno}")
    assert found == []
