"""Errors a user can meet, each class with the exit code of the command that meets it.

    0  done             1  failure          2  usage: flags, config, paths
    3  data             4  model            129, 130, 143  stopped by SIGHUP, SIGINT, SIGTERM

A message says what is wrong, shows the value, says where, and offers a remedy.
"""

import errno
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar


class SeqloomError(Exception):
    """Anything the command line reports as one sentence, without a traceback."""

    exit_code: ClassVar[int] = 1


class TrainingError(SeqloomError):
    """A run that cannot continue: non-finite steps in a row, a full disk, a lost rank."""


class UsageError(SeqloomError):
    """A command or call that cannot be carried out as written: flags, paths, values."""

    exit_code = 2

    def __init__(self, message: str = "", *, file: Path | None = None) -> None:
        """`file` is the one that the message is about, if it is about one."""
        super().__init__(message)
        self.file = file


class ConfigError(UsageError):
    """A setting that is unknown, of the wrong type, or out of range."""


def check_known(name: str, value: str, known: Sequence[str]) -> None:
    """Raise a ConfigError for a value that an argument does not have: no type checker may have seen the call."""
    if value not in known:
        raise ConfigError(f"unknown {name}={value!r}; use {', '.join(known[:-1])} or {known[-1]}")


@dataclass(frozen=True)
class Problem:
    """One thing wrong with a data file: where, and what."""

    message: str
    file: str | None = None
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        return f"{place}: {self.message}" if place else self.message


MAX_LISTED_PROBLEMS = 1_000
"""Problems that an error lists; more are counted."""


class DataError(SeqloomError):
    """Text or files that do not fit their purpose. Shows the first five problems and counts the rest."""

    exit_code = 3
    shown: ClassVar[int] = 5

    def __init__(self, message: str = "", *, problems: Sequence[Problem] = (), more: int = 0) -> None:
        """`more` counts problems of the same kind that are not listed."""
        self.problems = tuple(problems[:MAX_LISTED_PROBLEMS])
        self.more = more = more + len(problems) - len(self.problems)
        lines = [message] if message else []
        lines += [str(problem) for problem in self.problems[: self.shown]]
        rest = max(0, len(self.problems) - self.shown) + more
        if rest:
            lines.append(f"… and {rest:,} more problem{'s' if rest > 1 else ''} like {'these' if rest > 1 else 'this'}")
        super().__init__("\n".join(lines))


class Problems:
    """What is wrong with a file, met one by one: so many are kept as an error lists, all are counted."""

    def __init__(self) -> None:
        self._listed: list[Problem] = []
        self._count = 0

    def add(self, message: str, file: Path, line: int, column: int | None = None) -> None:
        """One more thing that is wrong."""
        self._count += 1
        if len(self._listed) < MAX_LISTED_PROBLEMS:
            self._listed.append(Problem(message, str(file), line, column))

    def __bool__(self) -> bool:
        return self._count > 0

    def require_none(self, message: str = "") -> None:
        """Raise a DataError if anything was wrong."""
        if self:
            raise DataError(message, problems=self._listed, more=self._count - len(self._listed))


class ModelError(SeqloomError):
    """A model directory or checkpoint that is damaged, foreign, or does not fit what it is used with."""

    exit_code = 4


class SeqloomWarning(UserWarning):
    """What a user should know about a result that was computed without a listener; the command line prints it once."""


def warn(message: str) -> None:
    """Give a SeqloomWarning that points at the line outside this package that called it."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, SeqloomWarning, stacklevel=level)


class Stopped(SeqloomError):
    """A run that a signal ended in good order; `code` is 128 and its number: 130 for SIGINT."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def exit_code_of(error: SeqloomError) -> int:
    """The exit status that the command line gives for this error."""
    return error.code if isinstance(error, Stopped) else error.exit_code


def is_of_user(error: OSError) -> bool:
    """Whether another path or permission would remove a reason of the operating system: usage, not failure."""
    return error.errno in _OF_USER


_OF_USER = {
    *(errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EROFS),
    *(errno.ENAMETOOLONG, errno.ELOOP),
}


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that memory ran out; torch has a class for GPUs and none for the CPU."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)


_OUT_OF_MEMORY = ("can't allocate memory", "not enough memory", "bad_alloc")
