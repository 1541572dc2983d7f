"""Groups of processes for tests: forks of this one, which need not import anything."""

import contextlib
import gc
import multiprocessing
import os
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

_SECONDS = 60.0


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Forks beside threads, which leave no garbage to them: some of it waits for its threads."""
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def run_group(n: int, work: Callable[[int], Any]) -> list[Any]:
    """What `work(rank)` returns, or raises, in each of n processes of one group."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:

        def child(rank: int, pipe: Any) -> None:
            torch.set_num_threads(1)
            for _, other in pipes[rank + 1 :]:
                other.close()
            dist.init_process_group(
                "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=n,
                timeout=timedelta(seconds=_SECONDS),
            )  # fmt: skip
            try:
                found = work(rank)
            except BaseException as error:  # ends this process, as it does under torchrun
                pipe.send_bytes(pickle.dumps(error))
                os._exit(1)
            # By value: tensors in shared memory would be gone with a process that is killed.
            pipe.send_bytes(pickle.dumps(found))
            pipe.recv()  # nobody leaves before all have an answer
            os._exit(0)

        pipes = [context.Pipe() for _ in range(n)]
        with forking():
            processes = [
                context.Process(target=child, args=(rank, pipes[rank][1])) for rank in range(n)
            ]
            for process, (_, theirs) in zip(processes, pipes, strict=True):
                process.start()
                theirs.close()  # so that the end of a process is the end of its pipe
        try:
            found = []
            for rank, (pipe, _) in enumerate(pipes):
                if not pipe.poll(2 * _SECONDS):
                    raise TimeoutError(f"rank {rank} of {n} hangs")
                try:
                    found.append(pickle.loads(pipe.recv_bytes()))
                except (EOFError, OSError) as error:  # it was killed
                    found.append(error)
            return found
        finally:
            for process in processes:
                process.kill()
                process.join()


def run_forked(work: Callable[[], Any]) -> Any:
    """What `work()` returns in another process."""
    ours, theirs = multiprocessing.Pipe()

    def child() -> None:
        torch.set_num_threads(1)
        theirs.send(work())

    with forking():
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
    try:
        assert ours.poll(2 * _SECONDS)
        return ours.recv()
    finally:
        process.kill()
        process.join()
