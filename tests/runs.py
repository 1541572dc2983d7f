"""Callbacks and comparisons that the tests of training share."""

import dataclasses

import torch
from torch import Tensor

from mnemosphere.model.mixture import Mixture
from mnemosphere.training.callbacks import Callback, PassRecord, Run


class Log(Callback):
    """Write down every call."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def on_start(self, run: Run) -> None:
        self.calls.append(("start", run.params, run.max_iter))

    def on_batch(self, run: Run, share_done: float) -> None:
        self.calls.append(("batch", run.n_iter, share_done))

    def on_pass(self, run: Run) -> None:
        self.calls.append(("pass", run.history[-1], run.params))

    def of(self, kind: str) -> list[tuple]:
        """What came with the calls of one kind."""
        return [rest for name, *rest in self.calls if name == kind]


class Break(Callback):
    """Raise an error at the k-th call of one kind, counted from 1."""

    def __init__(self, kind: str, k: int, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.kind, self.left, self.error = kind, k, error

    def _count(self, kind: str) -> None:
        self.left -= kind == self.kind
        if kind == self.kind and self.left == 0:
            raise self.error

    def on_batch(self, run: Run, share_done: float) -> None:
        self._count("batch")

    def on_pass(self, run: Run) -> None:
        self._count("pass")


def assert_same_params(a: Mixture, b: Mixture) -> None:
    """To the bit."""
    for field in dataclasses.fields(Mixture):
        one, two = getattr(a, field.name), getattr(b, field.name)
        if isinstance(one, Tensor):
            assert one.dtype == two.dtype, field.name
            assert torch.equal(one, two), field.name
        else:
            assert one == two, field.name


def assert_same_state(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        assert value.dtype == b[name].dtype, name
        assert torch.equal(value, b[name]), name


def timeless(history: list[PassRecord]) -> list[PassRecord]:
    """Records without what a clock said."""
    return [dataclasses.replace(record, seconds=0.0) for record in history]
