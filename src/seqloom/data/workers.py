"""Work on blocks in several processes, with the results in the order of the blocks.

What comes out does not depend on how many processes there are. A program that starts processes must guard its beginning
with `if __name__ == "__main__":`.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, TypeVar

from seqloom.core.errors import SeqloomError, UsageError

BLOCK_TIMEOUT = 600.0
"""Seconds for one block after which a process is taken to hang; it takes a fraction of one."""

BLOCKS_PER_WORKER = 3
"""Blocks in progress for each process: none waits for the next, and little is held in memory."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def processors() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(function: Callable[[Item], Result], items: Iterable[Item], *, workers: int) -> Iterator[Result]:
    """`function` of each item, in order; in this process where `workers` is 1.

    The function is sent to each process once: one of a module, a `partial` of it, or a method of what can be sent.
    """
    if workers == 1:
        yield from map(function, items)
        return
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(
            "each worker process imports this program again; put its code below "
            'if __name__ == "__main__":, or set data.workers=1'
        )
    processes = OwnProcesses()
    pool = ProcessPoolExecutor(workers, mp_context=processes, initializer=_begin, initargs=(function,))
    remaining = iter(items)
    try:
        with _ignoring_interrupts():
            first = islice(remaining, BLOCKS_PER_WORKER * workers)
            under_way: deque[Future[Any]] = deque(pool.submit(_work, item) for item in first)
        while under_way:
            result = under_way.popleft().result(timeout=BLOCK_TIMEOUT)
            under_way.extend(pool.submit(_work, item) for item in islice(remaining, 1))
            yield result
        pool.shutdown()
    except BrokenProcessPool as error:
        raise SeqloomError(
            f"one of {workers} processes ended, perhaps out of memory; set data.workers=1. A program of your "
            'own also needs if __name__ == "__main__": before what it does'
        ) from error
    except TimeoutError as error:
        raise SeqloomError(
            f"one of {workers} processes made no progress for {BLOCK_TIMEOUT:g} seconds; retry, or set data.workers=1"
        ) from error
    finally:  # after an error, nothing that is under way is needed
        pool.shutdown(wait=False, cancel_futures=True)
        processes.end()


class OwnProcesses(SpawnContext):
    """Starts processes for a pool, and knows which they are: the program may have others, which are not to be ended."""

    def __init__(self) -> None:
        super().__init__()
        self._made: list[SpawnProcess] = []

    def Process(self, *args: Any, **options: Any) -> SpawnProcess:  # type: ignore[override]  # noqa: N802
        """Make a process for the pool."""
        process = SpawnProcess(*args, **options)
        self._made.append(process)
        return process

    @property
    def alive(self) -> list[SpawnProcess]:
        """Those that have started and not ended."""
        return [process for process in self._made if process.pid is not None and process.is_alive()]

    def end(self) -> None:
        """End them all, at once."""
        while left := self.alive:  # one may have been starting
            for process in left:
                process.kill()  # a stopped process ignores everything else
                process.join()


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """For processes that are started inside: Ctrl-C reaches all of them, and the first one ends the others."""
    if threading.current_thread() is not threading.main_thread():
        yield  # where signals cannot be set, and do not come
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# --- in the processes ------------------------------------------------------------------------------------------------

_function: Callable[[Any], Any] | None = None


def _begin(function: Callable[[Any], Any]) -> None:
    global _function
    _function = function
    end_with_parent()


def end_with_parent() -> None:
    """End this process when the one that started it has ended, however it ended."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def _work(item: Any) -> Any:
    assert _function is not None
    return _function(item)
