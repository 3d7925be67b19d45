"""Run folders that another process holds."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from seqloom.training.run_guard import RECORD


def write_record(run: Path, pid: int, host: str | None = None) -> Path:
    """Name a holder of a run's lock."""
    path = run / RECORD
    path.write_text(json.dumps({"pid": pid, "host": host or socket.gethostname()}))
    return path


@contextmanager
def held(run: Path, pid: int) -> Iterator[None]:
    """The lock of a run, held as if by another process: a second descriptor of the file conflicts as its own would."""
    with FileLock(run / "lock"):
        write_record(run, pid)
        yield
