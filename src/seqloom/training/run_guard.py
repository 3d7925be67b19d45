"""One trainer per run folder: a lock file that says which process on which host holds it."""

import json
import os
import re
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
from seqloom.core.files import read_json

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
    """Remove what is unfinished, and report it in one notice. Call it only while holding the lock of the run."""
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


RECORD = "lock.json"
"""Which process holds the lock of a run, for messages: the lock itself cannot be read on every system."""


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Hold the lock of a run folder. The operating system releases it when this process ends, however it ends."""
    from filelock import FileLock, Timeout  # here, because it imports asyncio

    lock, record = FileLock(run / "lock", timeout=0), run / RECORD
    try:
        run.mkdir(parents=True, exist_ok=True)
        lock.acquire()
        try:
            # Not every network file system shares its locks between hosts, so a record from elsewhere counts as well.
            if (other := _read_record(run)) and other[1] != socket.gethostname():
                raise UsageError(f"{_in_use(run, other)}; wait for it, or delete {record} if it has ended")
            record.write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname()}), encoding="utf-8")
        except BaseException:
            lock.release()
            raise
    except Timeout as error:
        raise UsageError(f"{_in_use(run, _read_record(run))}; wait for it, or stop it") from error
    except OSError as error:
        reason = error.strerror or str(error)
        is_begun = os.access(run / "run.json", os.F_OK)
        remedy = "Copy the run to a place that can be written" if is_begun else "Name another folder"
        raise UsageError(f"{run} cannot be written: {reason}; a run keeps all it has there. {remedy}") from error
    try:
        yield
    finally:
        with suppress(OSError):  # of a folder that has become read-only
            record.unlink(missing_ok=True)
            (run / "lock").unlink(missing_ok=True)  # while it is held: who has it open already notices and retries
        lock.release()


def holder_of(run: Path) -> str | None:
    """The process that works in a run folder, in words; None where none does, or it is this one."""
    from filelock import FileLock, Timeout

    record = _read_record(run)
    if record is None or record == (os.getpid(), socket.gethostname()):
        return None
    if record[1] == socket.gethostname():
        try:
            with FileLock(run / "lock", timeout=0):
                return None
        except Timeout:
            pass
        except OSError:  # a folder that cannot be written, so that nothing works in it
            return None
    return f"process {record[0]} on {record[1]}"


def _in_use(run: Path, record: tuple[int, str] | None) -> str:
    return f"{run} is in use by {f'process {record[0]} on {record[1]}' if record else 'another process'}"


def _read_record(run: Path) -> tuple[int, str] | None:
    """Process and host; None where there is no record, or it was cut short by a crash."""
    try:
        record = read_json(run / RECORD, largest=1 << 12)
        return int(record["pid"]), str(record["host"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None
