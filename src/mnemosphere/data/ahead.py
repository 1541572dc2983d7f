"""Reading ahead, in another thread."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

_T = TypeVar("_T")
_END: Any = object()


def ahead(items: Iterator[_T]) -> Iterator[_T]:
    """The same items, the next one made by another thread while one is worked on."""
    with ThreadPoolExecutor(1) as other:
        coming = other.submit(next, items, _END)
        while (item := coming.result()) is not _END:
            coming = other.submit(next, items, _END)
            yield item
