"""What protects a run folder: a lock with the process that holds it, signals, and the removal of leftovers."""

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

# On a signal a run finishes its step, saves a checkpoint and stops.

STOPPING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Ctrl-C, the signal of a scheduler, and that of a closed terminal (which Windows does not have)."""


def stopping_signals() -> list[signal.Signals]:
    """Those that this process does not ignore: under nohup it continues when its terminal is closed."""
    return [number for number in STOPPING if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]


class ImmediateStop(BaseException):
    """Raised in the main thread by a second SIGINT: stop now, without finishing the step."""


class Signals:
    """A context that records signals instead of ending the process; a second SIGINT raises `ImmediateStop`.

    Only the main thread can handle signals in Python: in another thread this does nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in stopping_signals():
                self._before[number] = signal.signal(number, self._record)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

    def _record(self, number: int, _frame: FrameType | None) -> None:
        if self.received is signal.SIGINT and number == signal.SIGINT:
            raise ImmediateStop
        self.received = self.received or signal.Signals(number)


# Leftovers of a process that died in a run folder: partly written and partly removed files, recognised by their names.

_TEMPORARY = re.compile(r".+\.(partial|old|before)-[0-9a-f]{8}")
"""Names of files and folders before they are complete, or while they are being removed."""

_REPLACED = re.compile(r"(.+)\.before-[0-9a-f]{8}")
"""What was being replaced; it gets its name back where the replacement never came."""


def remove_leftovers(run: Path, *, listener: Listener) -> None:
    """Remove what is unfinished, and report it in one notice. Call it only while holding the lock of the run."""
    for path in sorted(run.rglob("*")):
        name = _REPLACED.fullmatch(path.name)
        if name is not None and not (place := path.with_name(name[1])).exists():
            path.replace(place)
            notice(listener, f"put back {place.relative_to(run).as_posix()}, which was being replaced")
    found = sorted(path for path in run.rglob("*") if _TEMPORARY.fullmatch(path.name))
    leftovers = [path for path in found if not any(above in found for above in path.parents)]
    problems = []
    for path in leftovers:
        try:
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        except OSError as error:
            problems.append(f"{path}: {error.strerror or error}")
    if leftovers:
        names = ", ".join(path.relative_to(run).as_posix() for path in leftovers)
        notice(listener, f"removed what an interrupted run had left unfinished: {names}")
    if problems:
        notice(listener, f"some of it is still there: {'; '.join(problems)}")


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
        raise UsageError(f"{run} cannot be written: {reason}; a run stores everything there. {remedy}") from error
    try:
        yield
    finally:
        with suppress(OSError):  # of a folder that has become read-only
            record.unlink(missing_ok=True)
            (run / "lock").unlink(missing_ok=True)  # while it is held: a process that has it open notices and retries
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
