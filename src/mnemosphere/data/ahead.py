"""Reading ahead, in another thread."""

from __future__ import annotations

from collections.abc import Iterator
from queue import Empty, Full, Queue
from threading import Event, Thread
from typing import TypeVar

__all__ = ["ahead"]

_T = TypeVar("_T")


def ahead(items: Iterator[_T]) -> Iterator[_T]:
    """The same items, the next one made by another thread while one is worked on."""
    ready: Queue[tuple[_T | None, BaseException | None]] = Queue(maxsize=1)
    stop = Event()

    def put(entry: tuple[_T | None, BaseException | None]) -> None:
        while not stop.is_set():
            try:
                ready.put(entry, timeout=0.1)
                return
            except Full:
                continue

    def work() -> None:
        try:
            for item in items:
                put((item, None))
                if stop.is_set():
                    return
            put((None, StopIteration()))
        except BaseException as error:
            put((None, error))

    thread = Thread(target=work, daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield item  # type: ignore[misc]
    finally:
        stop.set()
        while thread.is_alive():
            try:
                ready.get_nowait()
            except Empty:
                thread.join(0.01)
