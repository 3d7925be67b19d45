"""What other processes are given to do in tests: they import it by its name."""

import os
import signal
from pathlib import Path

from seqloom.core.errors import DataError
from seqloom.data.workers import in_order


def square(number: int) -> int:
    """Its square."""
    return number * number


def fail_at_five(number: int) -> int:
    """Itself, but for one that is refused."""
    if number == 5:
        raise DataError("five is not wanted")
    return number


def die_at_five(number: int) -> int:
    """Itself, but for one that ends the process."""
    if number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def process_number(_: int) -> int:
    """Which process this is."""
    return os.getpid()


def leave_workers(folder: str) -> None:
    """Begin with other processes, note one of them, and die."""
    results = in_order(process_number, range(50), workers=2)
    (Path(folder) / "worker").write_text(str(next(results)))
    os.kill(os.getpid(), signal.SIGKILL)
