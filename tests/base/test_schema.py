"""Dataclasses as plain values and tensors, by their annotations alone."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.base.limits import Range
from mnemosphere.base.schema import Array, put_together, take_apart


@dataclass
class Leaf:
    w: Annotated[Tensor, Array("P N")]
    weight: Annotated[NDArray[np.float64], Array("P", low=0)]
    size: Annotated[int, Range(1)] = 1
    cached: Any = field(default=None, metadata={"saved": False})

    def check(self):
        if self.size == 13:
            raise ValueError("unlucky")
        return self


@dataclass
class Tree:
    kind: Literal["oak", "elm"]
    leaves: tuple[Leaf, ...]
    labels: NDArray[Any]
    late: frozenset[Any]
    state: dict[str, Tensor]
    pair: tuple[int, float]
    note: str | None = None
    first: Leaf | None = None
    mask: Annotated[Tensor, Array("n", "bool")] | None = None


def leaf(n: int) -> Leaf:
    w = torch.arange(2.0 * n, dtype=torch.float64).reshape(n, 2)
    return Leaf(w, np.linspace(0, 1, n), n, cached=object())


def apart(**changes):
    """(plain values after JSON, tensors) of a tree."""
    given = Tree("oak", (leaf(3), leaf(5)), np.array(["a", "b"]), frozenset({"b"}),
                 {"sum": torch.ones(2)}, (3, 0.5), first=leaf(2))  # fmt: skip
    vars(given).update(changes)
    tensors: dict[str, Tensor] = {}
    plain = take_apart(Tree, given, tensors)
    return json.loads(json.dumps(plain)), tensors


def test_a_dataclass_comes_back():
    plain, tensors = apart()
    assert {*tensors} == {f"{p}.{n}" for p in ("leaves.0", "leaves.1", "first")
                          for n in ("w", "weight")} | {"state.sum"}  # fmt: skip
    found = put_together(Tree, plain, tensors)
    assert (found.kind, found.late, found.pair, found.note, found.mask) == (
        "oak", {"b"}, (3, 0.5), None, None,
    )  # fmt: skip
    assert found.labels.dtype == "<U1"
    assert [one.size for one in found.leaves] == [3, 5]
    assert torch.equal(found.first.w, leaf(2).w)
    assert found.first.cached is None
    assert apart(mask=torch.tensor([True]))[1]["mask"].dtype == torch.bool


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "ash"}, "kind is 'ash', expected one of"),
        ({"kind": None}, "kind is None"),
        ({"pair": (3, "x")}, "pair.1 is 'x', expected a value of type float"),
        ({"pair": (True, 1.0)}, "pair.0 is True, expected a value of type int"),
        ({"note": 3}, "note is 3, expected a value of type str"),
        ({"first": Leaf(torch.ones(2, 2).double(), np.zeros(3))}, r"first.weight is \(3,\)"),
        ({"first": Leaf(torch.ones(2, 2), np.zeros(2))}, "first.w is .* of float32, expected"),
        ({"first": Leaf(torch.ones(2, 2).double(), -np.ones(2))}, "below 0"),
        ({"first": leaf(2), "leaves": (leaf(13),)}, "unlucky"),
        ({"first": Leaf(leaf(2).w, np.zeros(2), 0)}, "first.size is 0, expected a number from 1"),
    ],
)
def test_what_is_not_as_annotated_is_named(changes, message):
    with pytest.raises(ValueError, match=message):
        put_together(Tree, *apart(**changes))


def test_nothing_is_missing_and_nothing_unknown():
    plain, tensors = apart()
    for key in plain:
        with pytest.raises(ValueError, match=f"'{key}' is missing"):
            put_together(Tree, {k: v for k, v in plain.items() if k != key}, tensors)
    for key in tensors:
        with pytest.raises(ValueError, match=f"the tensor '{key}' is missing"):
            put_together(Tree, plain, {k: v for k, v in tensors.items() if k != key})
    with pytest.raises(ValueError, match=r"pair is \[3\], expected a list"):
        put_together(Tree, plain | {"pair": [3]}, tensors)
    with pytest.raises(ValueError, match="'more' is unknown"):
        put_together(Tree, plain | {"more": 1}, tensors)
    with pytest.raises(ValueError, match=r"the tensor 'first\.more' is unknown"):
        put_together(Tree, plain, tensors | {"first.more": torch.ones(1)})
