"""Limits of the system, for as long as a test needs them."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """Let the system refuse larger files, as it does where a quota or a limit is reached."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
