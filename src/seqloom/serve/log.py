"""The log of a server: lines of JSON that never hold texts or keys.

Messages of exceptions and arguments of log records may quote a request, so a line has the kind of an exception and the
places it passed instead.
"""

import asyncio
import contextlib
import logging
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

from seqloom.core.events import json_line

MAX_PLACES = 8
"""Places of an exception that a line has, the innermost ones."""


def places_of(error: BaseException) -> list[str]:
    """Where an exception was raised, the innermost place last."""
    frames = traceback.extract_tb(error.__traceback__)[-MAX_PLACES:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]


class ServerLog:
    """Writes events as lines: `log("worker_ended", pid=7)`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __call__(self, event: str, **values: Any) -> None:
        """Write a line. The values must not have texts or keys."""
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03}Z"
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(json_line({"time": stamp, "event": event, **values}) + "\n")
            self._stream.flush()

    def capture(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take in what libraries report: their log records, warnings, and exceptions that nobody awaited."""
        loop.set_exception_handler(self._on_exception)
        logging.getLogger().handlers[:] = [_Records(self)]
        logging.captureWarnings(True)

    def _on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None:
            self("error", kind=type(error).__name__, where=places_of(error))


class _Records(logging.Handler):
    """Log records of libraries as lines, without their arguments."""

    def __init__(self, log: ServerLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        values: dict[str, Any] = {"logger": record.name, "where": [f"{record.filename}:{record.lineno}"]}
        if record.exc_info and (error := record.exc_info[1]) is not None:
            values |= {"kind": type(error).__name__, "where": places_of(error)}
        self._log("library_" + record.levelname.lower(), **values)
