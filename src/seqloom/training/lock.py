"""One trainer per run folder: a lock file that says which process on which host holds it."""

import json
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from seqloom.core.errors import UsageError


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the lock of a run folder. The lock of a process that is gone from this host is taken over."""
    path = run / "lock"
    try:
        run.mkdir(parents=True, exist_ok=True)
        while not _create(path):
            _remove_if_stale(path)
        _remove_attempts(run)
    except OSError as error:
        reason = error.strerror or str(error)
        is_begun = os.access(run / "run.json", os.F_OK)
        way = "Copy the run to a place that can be written" if is_begun else "Name another folder"
        raise UsageError(f"{run} cannot be written: {reason}; a run keeps all it has there. {way}") from error
    try:
        yield
    finally:
        # A folder that has become read-only keeps its lock; it will be seen to be of a process that is gone.
        with suppress(OSError):
            path.unlink(missing_ok=True)


def holder_of(run: Path) -> str | None:
    """The process that works in a run folder, in words; None where none does, or it is this one."""
    try:
        content = _content(run / "lock")
    except OSError:
        return None
    return _holder(content) if _is_held(content) else None


def _create(path: Path) -> bool:
    """Whether the lock is now ours. It appears with its content: an empty one would look stale to another process."""
    content = json.dumps({"pid": os.getpid(), "host": socket.gethostname()})
    written = path.with_name(f"lock.new-{secrets.token_hex(4)}")
    written.write_text(content, encoding="utf-8")
    try:
        os.link(written, path)
    except (FileExistsError, FileNotFoundError):  # held, or taken for what a dead process has left: try again
        return False
    except OSError:  # a file system without hard links
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(content)
        except FileExistsError:
            return False
    finally:
        written.unlink(missing_ok=True)
    return True


def _remove_attempts(run: Path) -> None:
    """Remove what processes that died while they reached for the lock have left."""
    for pattern in ("lock.new-*", "lock.stale-*"):
        for attempt in run.glob(pattern):
            with suppress(FileNotFoundError):
                if not _is_held(_content(attempt)):
                    attempt.unlink()


def _remove_if_stale(path: Path) -> None:
    try:
        content = _content(path)
    except FileNotFoundError:
        return
    if _is_held(content):
        raise UsageError(f"{path.parent} is in use by {_holder(content)}; wait for it, or delete {path} if it is gone")
    # Only one of several processes that find a stale lock can rename it away; if what it got hold of is by then the
    # fresh lock of another, that one goes back.
    aside = path.with_name(f"lock.stale-{secrets.token_hex(4)}")
    try:
        path.rename(aside)
    except FileNotFoundError:
        return
    if _content(aside) == content:
        aside.unlink()
    else:
        aside.replace(path)


def _content(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _is_held(content: str) -> bool:
    """Whether the process of a lock may be alive. One on another host may; a file cut short by a crash is nobody's."""
    try:
        record = json.loads(content)
        pid, host = int(record["pid"]), str(record["host"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False
    if host != socket.gethostname():
        return True
    # A container that was restarted often gives the same number again: then the lock is our own, from before.
    return pid != os.getpid() and _is_alive(pid)


def _is_alive(pid: int) -> bool:
    if os.name == "nt":
        return True  # there signal 0 would end the process; the message says how to go on
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # of a number that no process can have
        return False
    except PermissionError:
        return True
    return True


def _holder(content: str) -> str:
    record = json.loads(content)
    return f"process {record['pid']} on {record['host']}"
