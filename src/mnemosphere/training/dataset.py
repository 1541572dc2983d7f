"""Rows as training takes them: on the sphere, in memory or in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mnemosphere.model.batch import Batch
from mnemosphere.rows.batches import Dataset, Piece, prefetch
from mnemosphere.training.distributed import Group

_TAKEN_NUMBERS = 1 << 26  # that are copied at a time, of rows that are a part of others
ALONE = Group()


@dataclass(frozen=True)
class ArrayDataset:
    """Unit rows with label weights, held on one device; every process has all of them."""

    whole: Batch
    index: Tensor | None = None  # (n,) the rows that it has of these, in order; None: all
    # Label weights (C+1,) of rows without direction, if they are left out of `label_mass`.
    mass_set_aside: Tensor | float = 0.0
    number: Tensor | None = None  # (n,) what the rows of `whole` are called

    @classmethod
    def of(cls, x: Tensor, targets: Tensor, sample_weight: Tensor | None = None) -> Self:
        """From unit rows; those of no weight are left out, a batch of them would have no mean."""
        rows = Batch(x, targets, sample_weight)
        if sample_weight is not None and not bool((sample_weight > 0).all()):
            rows = rows.take(sample_weight > 0)
        return cls(rows)

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return self.whole.n_rows if self.index is None else len(self.index)

    @property
    def rows(self) -> Batch:
        """All rows, copied if they are a part of others."""
        return self.take(slice(0, self.n_rows))

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.whole.targets.device

    def take(self, rows: Tensor | slice, into: Batch | None = None) -> Batch:
        """Some of the rows, by their places; into: a batch that gets them, if it has the size."""
        if self.index is None and rows == slice(0, self.n_rows):
            return self.whole
        rows = rows if self.index is None else self.index[rows]
        if into is None or isinstance(rows, slice) or len(rows) != into.n_rows:
            return self.whole.take(rows)
        for name in ("x", "targets", "sample_weight"):
            if (values := getattr(self.whole, name)) is not None:
                torch.index_select(values, self.whole.x.ndim - 2, rows, out=getattr(into, name))
        return into

    def batches(
        self,
        size: int | None,
        *,
        generator: torch.Generator | None = None,
        group: Group = ALONE,
        fill: bool = False,
        into: Callable[[], Batch | None] = lambda: None,
    ) -> Iterator[Batch]:
        """One pass in batches of `size` rows; None: all rows as one, but large parts of others in a few.

        In random order, drawn from `generator`; in the stored order if that is None. Each process of a `group`
        has a part of each batch, which may have no rows.
        fill: in random order, a last batch of at least half the size is filled up with rows of the
        one before. into: what a batch of that size is taken into, asked for each time.
        """
        if size is None or size >= self.n_rows:
            size, generator = max(1, self.n_rows), None
            if self.index is not None:
                size = max(1, _TAKEN_NUMBERS // self.whole.x.shape[1])
        order = None
        if generator is not None:
            order = random_order(self.n_rows, self.device, generator)
        for start in range(0, max(1, self.n_rows), size):
            left = self.n_rows - start
            if fill and order is not None and size > left >= size / 2:
                start, left = self.n_rows - size, size
            own = group.part(min(size, left))
            part = slice(start + own.start, start + own.stop)
            yield self.take(part if order is None else order[part], into())

    def sample(self, n: int, *, generator: torch.Generator) -> Batch:
        """Random rows, n of them or all."""
        if n >= self.n_rows:
            return self.rows
        return self.take(random_order(self.n_rows, self.device, generator)[:n])

    def called(self, names: Sequence[int]) -> tuple[Batch, Tensor]:
        """(rows by what they are called, which of the names they are): one without direction has no row."""
        assert self.number is not None
        place = {name: k for k, name in enumerate(self.number.tolist())}
        found = torch.tensor([place.get(name, -1) for name in names], device=self.device)
        return self.whole.take(found[found >= 0]), found >= 0

    def split(
        self, fraction: float, *, generator: torch.Generator
    ) -> tuple[Self, ArrayDataset | None]:
        """(rows to learn from, held-out rows), no row copied."""
        held = held_out(self._targets, fraction, generator=generator)
        if not bool(held.any()):
            return self, None
        parts = (own.nonzero()[:, 0] for own in (~held, held))
        learned, apart = (
            replace(self, index=own if self.index is None else self.index[own]) for own in parts
        )
        return learned, apart

    def with_targets(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same rows with other label weights: `change` of those that they have, (B, C+1)."""
        return replace(self, whole=replace(self.whole, targets=change(self.whole.targets)))

    def without_labels(self, n_columns: int) -> Self:
        """The same rows with label weights of zero in so many columns."""
        return self.with_targets(lambda q: q.new_zeros(1, n_columns).expand(len(q), -1))

    def has_unlabeled(self) -> bool:
        """Whether some rows have no label at all."""
        return bool((self._targets.sum(1) == 0).any())

    def label_mass(self) -> Tensor:
        """Label weights summed over all rows, by class, (C+1,) float64."""
        q, weight = self._targets, self.whole.sample_weight
        if weight is None:
            return q.sum(0, dtype=torch.float64)
        weight = weight if self.index is None else weight[self.index]
        return weight.double() @ q.double()

    @property
    def _targets(self) -> Tensor:
        return self.whole.targets if self.index is None else self.whole.targets[self.index]


@dataclass(frozen=True, kw_only=True)
class FileDataset(ArrayDataset):
    """A random sample of the rows in files, with passes over all of them, put on the sphere batch by batch.

    Starts and curvature look at the sample, and rows are held out of it; none that is like a held-out one is
    trained on.
    """

    files: Dataset
    # From rows as stored to unit rows, and numbers (n,) that are the same for like rows.
    place: Callable[[Piece], tuple[Batch, NDArray[np.int64]]]
    keys: NDArray[np.int64]  # of `whole`
    held: NDArray[np.int64]  # keys of rows that are held out
    mass: Tensor  # (C+1,) label weights of all rows

    @property
    def n_rows(self) -> int:
        """How many rows."""
        return self.files.n_rows - len(self.held)

    def batches(
        self, size: int | None, *, generator: torch.Generator | None = None, group: Group = ALONE,
        **more: object,
    ) -> Iterator[Batch]:  # fmt: skip
        """One pass, in batches of at most `size` rows and of what memory holds."""
        seed = None if generator is None else next_seed(generator)
        most = self.files.batch_rows
        each = most if size is None else min(most, -(-size // group.size))
        own, largest = (group.part(self.files.n_rows, rank) for rank in (group.rank, 0))
        left = -(-largest.stop // each)
        for piece in prefetch(self.files.pieces(each, seed, own)):
            batch, keys = self.place(piece)
            apart = np.isin(keys, self.held)
            batch = batch.take(torch.from_numpy(~apart).to(self.device)) if apart.any() else batch
            left -= 1
            if batch.n_rows or group.many:
                yield batch
        for _ in range(left if group.many else 0):  # others have rows left
            yield self.whole.take(slice(0, 0))

    def sample(self, n: int, *, generator: torch.Generator) -> Batch:
        """Random rows, n of them or as many as were sampled."""
        return self._sampled.sample(n, generator=generator)

    def split(
        self, fraction: float, *, generator: torch.Generator
    ) -> tuple[Self, ArrayDataset | None]:
        """(rows to learn from, held-out rows): half of those sampled at most."""
        share = min(0.5, fraction * self.n_rows / self._sampled.n_rows)
        kept, apart = self._sampled.split(share, generator=generator)
        if apart is None or apart.index is None:
            return self, None
        held = np.union1d(self.held, self.keys[apart.index.cpu().numpy()])
        mass = self.mass - apart.label_mass().to(self.mass)
        return replace(self, index=kept.index, held=held, mass=mass), apart

    def with_targets(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same rows with other label weights."""

        def place(piece: Piece) -> tuple[Batch, NDArray[np.int64]]:
            batch, keys = self.place(piece)
            return replace(batch, targets=change(batch.targets)), keys

        return replace(super().with_targets(change), place=place, mass=change(self.mass[None])[0])

    def label_mass(self) -> Tensor:
        """Label weights summed over all rows, by class, (C+1,) float64."""
        return self.mass

    @property
    def _sampled(self) -> ArrayDataset:
        return ArrayDataset(self.whole, self.index)


def held_out(targets: Tensor, fraction: float, *, generator: torch.Generator) -> Tensor:
    """Which rows are held out, (n,) bool: the one hold-out.

    A `fraction` of the labeled rows of each class, in random order, and none of a class with fewer
    than 1/fraction. Where no row has a label, that fraction of all rows.
    """
    n_rows = targets.shape[0]
    order = torch.randperm(n_rows, generator=generator, device=generator.device).to(targets.device)
    labeled = targets.sum(1) > 0
    label = torch.where(labeled, targets.argmax(1), -1)[order]
    if not bool(labeled.any()):
        label = torch.zeros_like(label)
    label, by_class = label.sort(stable=True)
    # Row r of its class, r = 1, 2, …, is held where r·fraction passes a whole number.
    first = torch.searchsorted(label, label)
    rank = (torch.arange(n_rows, device=label.device) - first).double()
    chosen = (((rank + 1) * fraction).floor() > (rank * fraction).floor()) & (label >= 0)
    held = torch.zeros_like(chosen)
    held[order[by_class[chosen]]] = True
    return held


def random_order(n: int, device: torch.device, generator: torch.Generator) -> Tensor:
    """A permutation of n rows, (n,), drawn on the device that they are on."""
    if device.type == "cpu":
        return torch.randperm(n, generator=generator)
    there = torch.Generator(device).manual_seed(next_seed(generator))
    return torch.randperm(n, generator=there, device=device)


def next_seed(generator: torch.Generator) -> int:
    """A number from the run's generator, which seeds another."""
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))
