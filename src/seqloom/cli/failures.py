"""From an exception to one message on stderr and an exit status."""

import errno
import os
import re
import select
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from seqloom.cli.console import clean, discard_rest
from seqloom.core.archive import by_origin
from seqloom.core.errors import (
    ConfigError,
    DataError,
    ModelError,
    Problem,
    SeqloomError,
    Stopped,
    TrainingError,
    UsageError,
    exit_code_of,
    is_of_user,
    is_out_of_memory,
)
from seqloom.core.events import json_line
from seqloom.core.files import why_unwritten
from seqloom.core.terminal import visible, visible_lines
from seqloom.training.run_guard import stopping_signals

_BAD_COMMAND_LINE: Any = typer.BadParameter.__mro__[2]
"""What the command line library raises for a line that it cannot parse; the class has no public name."""

_MAX_NAME_CHARACTERS = 200

_PLACE = re.compile(r"(?P<file>.+?):(?P<line>[0-9]+)(:(?P<column>[0-9]+))?: (?P<message>.*)")


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP: the command ends as after Ctrl-C and removes its locks and partial files."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = signal.Signals(number)


def raise_on_termination() -> None:
    """From now on these signals raise `Terminated`. Training has its own handlers, which save a checkpoint first."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise Terminated(number)

    for number in stopping_signals():
        if number != signal.SIGINT:
            signal.signal(number, end)


def report(
    error: BaseException, *, as_json: bool, is_debug: bool, is_streaming: bool = True, words: Sequence[str] = ()
) -> int:
    """Print the error and return the exit status. `words` are those of the command line.

    `is_streaming` means that the command's results are what it prints: a reader that closes the pipe early is then
    not an error.
    """
    if isinstance(error, BrokenPipeError) and _is_closed_by_reader(sys.stdout):
        discard_rest(sys.stdout)
        if is_streaming:
            return 0
        error = SeqloomError("standard output was closed before the result could be printed; everything else is done")
    if isinstance(error, SystemExit):
        if is_streaming and isinstance(error.__context__, BrokenPipeError):  # rich exits this way while it prints help
            return 0
        return error.code if isinstance(error.code, int) else 1
    message, code = _explain(error)
    # A line break in a name must not start what looks like another message.
    for name in (part for word in words for part in (word, word.partition("=")[2]) if "\n" in part):
        message = message.replace(name, name.replace("\n", "\\n"))
    try:
        if is_debug:
            print(visible_lines("".join(traceback.format_exception(error))), end="", file=sys.stderr)
        if as_json:
            problems = [vars(problem) for problem in _problems(error, message)]
            record = {"event": "error", "kind": _kind(error), "message": message, "exit_code": code}
            print(visible(json_line({**record, "problems": problems})), file=sys.stderr)
        else:
            rank = f"rank {os.environ.get('RANK')}: " if os.environ.get("WORLD_SIZE", "1") != "1" else ""
            label = typer.style(f"{rank}error:", fg="red", bold=True)
            text = "\n".join(clean(line) for line in message.split("\n"))
            typer.echo(f"{label} {text}" if code < 128 else text, err=True)
    except OSError:  # stderr is closed; the exit status remains
        discard_rest(sys.stderr)
    return code


def _explain(error: BaseException) -> tuple[str, int]:
    if isinstance(error, SeqloomError):
        return by_origin(str(error)), exit_code_of(error)
    if isinstance(error, Terminated):
        return f"stopped by {error.number.name}", 128 + error.number
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if isinstance(error, _BAD_COMMAND_LINE):
        context = getattr(error, "ctx", None)
        message = " ".join(error.format_message().split()).rstrip(".").replace("Value error, ", "")
        command = context.command_path if context is not None else "seqloom"
        return f"{message}{'' if message.endswith('?') else ';'} see: {command} --help", 2
    if isinstance(error, OSError):
        place = f"{shortened(by_origin(os.fsdecode(error.filename)))}: " if error.filename else ""
        # It is unknown on which disk standard output is.
        reason = error.strerror if error.errno == errno.ENOSPC else why_unwritten(error, Path(), need=None)
        return f"{place}{reason or error}", 2 if is_of_user(error) else 1
    if is_out_of_memory(error):
        return "out of memory; reduce data.tokens_per_batch or search.tokens_per_batch", 1
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"internal error: {what}\nThis is a bug in Seqloom; please report it with the output of --debug.", 1


def _kind(error: BaseException) -> str:
    """The kind of error in a word."""
    kinds: dict[type[BaseException], str] = {
        ConfigError: "config",
        DataError: "data",
        ModelError: "model",
        TrainingError: "training",
        Stopped: "stopped",
        KeyboardInterrupt: "stopped",
        UsageError: "usage",
        _BAD_COMMAND_LINE: "usage",
        SeqloomError: "failure",
        OSError: "system",
        MemoryError: "memory",
    }
    found = next((kind for each, kind in kinds.items() if isinstance(error, each)), "internal")
    return "memory" if found == "internal" and is_out_of_memory(error) else found


def _problems(error: BaseException, message: str) -> list[Problem]:
    """The problems of a data error; for other errors, those whose lines start with a place in the same form."""
    if isinstance(error, DataError):
        return list(error.problems)
    if isinstance(error, UsageError) and error.file is not None:
        return [Problem(message.removeprefix(f"{error.file}: "), str(error.file))]
    found = [_PLACE.fullmatch(line) for line in message.split("\n")] if isinstance(error, SeqloomError) else []
    return [
        Problem(each["message"], each["file"], int(each["line"]), int(each["column"]) if each["column"] else None)
        for each in found
        if each
    ]


def shortened(name: object) -> str:
    """A file name for a message: of a very long one, both ends."""
    text = os.fsdecode(name) if isinstance(name, bytes) else str(name)
    return text if len(text) <= _MAX_NAME_CHARACTERS else f"{text[:60]}…{text[-60:]}"


def _is_closed_by_reader(stream: Any) -> bool:
    """Whether a stream is a pipe or a socket whose other end is closed."""
    try:
        watched = select.poll()
        watched.register(stream.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in watched.poll(0))
    except (OSError, ValueError, AttributeError):  # no file behind it, or a system without poll
        return False
