"""Parts of a computation on several threads, for compiled loops, which release the interpreter's lock."""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import torch

MIN_SHARED_WORK = 1 << 22
"""Products and sums from which on waking another thread costs less than it saves: some 50 microseconds of work."""
PARTS_PER_THREAD = 4
"""Parts are smaller than a thread's share, so that one that was delayed takes fewer of them."""


def parts_of(work: int, *, most: int) -> int:
    """Into how many parts a computation is split; 1 if that would not pay."""
    threads = torch.get_num_threads()
    if threads == 1 or work < MIN_SHARED_WORK:
        return 1
    return max(1, min(most, threads * PARTS_PER_THREAD))


def share(parts: int, compute: Callable[[int], None]) -> None:
    """Compute all parts, on as many threads as torch uses, this one among them. Each part is computed once."""
    if parts == 1:
        compute(0)
        return
    numbers = iter(range(parts))  # the interpreter's lock gives each number to one thread

    def work() -> None:
        for part in numbers:
            compute(part)

    helpers = [_pool(os.getpid()).submit(work) for _ in range(min(parts, torch.get_num_threads()) - 1)]
    work()
    for helper in helpers:
        if not helper.cancel():  # it may not have begun, and nothing is left to do
            helper.result()


@cache
def _pool(_process: int) -> ThreadPoolExecutor:
    """The threads of a process; one that was forked has its own."""
    return ThreadPoolExecutor(max_workers=os.cpu_count(), thread_name_prefix="seqloom-loops")
