"""Work in several processes, one thread each, or in this one."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

import torch

Piece = TypeVar("Piece", bound=Sequence[Any])
Result = TypeVar("Result")


def threads(jobs: int) -> int:
    """How many each of so many processes has."""
    return torch.get_num_threads() if jobs == 1 else 1


def finished(
    function: Callable[..., Result], work: Sequence[Piece], jobs: int
) -> Iterator[tuple[Piece, Result]]:
    """Each piece of work with its result, as they are finished."""
    if jobs == 1:
        for piece in work:
            yield piece, function(*piece)
        return
    os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that are started
    context = multiprocessing.get_context("spawn")  # a fork would carry over threads of torch
    with ProcessPoolExecutor(
        jobs, mp_context=context, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        waiting = {pool.submit(function, *piece): piece for piece in work}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
