"""One trainer per run folder: a lock file that says which process on which host holds it."""

import json
import os
import re
import secrets
import shutil
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType, TracebackType

from seqloom.core.errors import UsageError
from seqloom.core.events import Listener, notice

# Signals ask a run to stop; it finishes its step, saves, and then does so.

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Ctrl-C, what a scheduler sends, and what comes when a terminal is closed (which Windows knows not)."""


def stopping_signals() -> list[signal.Signals]:
    """Those that this process hears of: under nohup it goes on when its terminal is closed."""
    return [number for number in STOPPING if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]


class ImmediateStop(BaseException):
    """Raised in the main thread by a second SIGINT: stop now, without finishing the step."""


class Signals:
    """While it is entered, signals to stop are noted rather than obeyed; a second SIGINT raises `ImmediateStop`.

    Python lets only the main thread handle signals: in another thread this does nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in stopping_signals():
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.received is signal.SIGINT and number == signal.SIGINT:
            raise ImmediateStop
        self.received = self.received or signal.Signals(number)


# What a process that died has left in a run folder: half-written and half-removed things, known by their names.

_NAME = re.compile(r".+\.(partial|old|before)-[0-9a-f]{8}")
"""Names under which things are written before they get their own, or removed after they have lost it."""

_BEFORE = re.compile(r"(.+)\.before-[0-9a-f]{8}")
"""What had a name before something newer got it; where that never happened, it gets its name back."""


def remove_leftovers(run: Path, *, listener: Listener) -> None:
    """Remove what is unfinished, and tell of it in one notice. Call it only while holding the lock of the run."""
    _put_back(run, listener=listener)
    found = sorted(path for path in run.rglob("*") if _NAME.fullmatch(path.name))
    leftovers = [path for path in found if not any(above in found for above in path.parents)]
    problems = [sentence for path in leftovers if (sentence := _remove(path)) is not None]
    if leftovers:
        names = ", ".join(path.relative_to(run).as_posix() for path in leftovers)
        notice(listener, f"removed what an interrupted run had left unfinished: {names}")
    if problems:
        notice(listener, f"some of it is still there: {'; '.join(problems)}")


def _put_back(run: Path, *, listener: Listener) -> None:
    for path in sorted(run.rglob("*")):
        name = _BEFORE.fullmatch(path.name)
        if name is not None and not (place := path.with_name(name[1])).exists():
            path.replace(place)
            notice(listener, f"put back {place.relative_to(run).as_posix()}, which was being replaced")


def _remove(path: Path) -> str | None:
    """What stood in the way, if something did."""
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return None


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
