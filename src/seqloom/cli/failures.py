"""From an exception to one message on stderr and an exit status."""

import errno
import os
import sys
import traceback
from typing import Any

import typer

from seqloom.cli.output import clean, json_line
from seqloom.core.errors import DataError, SeqloomError, exit_code_of

_BAD_COMMAND_LINE: Any = typer.BadParameter.__mro__[2]
"""What the command line library raises for a line that it cannot read; it has no public name of its own."""

_USERS_OWN = {errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EROFS}
"""Reasons of the operating system that another path or permission would remove: usage, not failure."""


def report(error: BaseException, *, as_json: bool, is_debug: bool) -> int:
    """Say what went wrong, and return the exit status. A closed pipe is nobody's mistake and is met with silence."""
    if isinstance(error, BrokenPipeError):
        _let_go_of_stdout()
        return 0
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    message, code = _explain(error)
    if is_debug:
        traceback.print_exception(error)
    if as_json:
        problems = [vars(problem) for problem in error.problems] if isinstance(error, DataError) else []
        record = {"event": "error", "message": message, "exit_code": code, "problems": problems}
        print(json_line(record), file=sys.stderr)
    else:
        label = typer.style("error:", fg="red", bold=True)
        text = "\n".join(clean(line) for line in message.split("\n"))
        typer.echo(f"{label} {text}" if code < 128 else text, err=True)
    return code


def _explain(error: BaseException) -> tuple[str, int]:
    if isinstance(error, SeqloomError):
        return str(error), exit_code_of(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", 130
    if isinstance(error, _BAD_COMMAND_LINE):
        return _of_command_line(error), 2
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}", 2 if error.errno in _USERS_OWN else 1
    if isinstance(error, MemoryError):
        return "there is not enough memory; make data.tokens_per_batch or search.tokens_per_batch smaller", 1
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"internal error: {what}\nThis is a mistake in Seqloom; please report it with what --debug shows.", 1


def _of_command_line(error: Any) -> str:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "seqloom"
    message = error.format_message().rstrip(".")
    return f"{message}{'' if message.endswith('?') else ';'} see: {command} --help"


def _let_go_of_stdout() -> None:
    """Send what is still to be written nowhere, or the interpreter would complain about it as it ends."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        return
