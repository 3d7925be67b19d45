"""Arguments of the Python interface: checked before the work begins, and refused in one sentence.

The command line passes what the annotations require. A program may pass anything, and a wrong argument should be an
error of `seqloom.core.errors` that names the argument, not a TypeError from some depth.
"""

import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from seqloom.core.errors import UsageError

T = TypeVar("T")

MAX_SHOWN = 40
"""Characters of a value in a message."""


def shown(value: object) -> str:
    """A value as a message shows it, in one line, with its type."""
    if value is None:
        return "None"
    text = re.sub(r"\s*\n\s*", " ", repr(value))  # arrays and tables have several lines
    return f"{text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + '…'} ({type(value).__name__})"


def as_path(value: Any, name: str) -> Path:
    """A path that was given as text or as a Path."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str):
        raise UsageError(f"{name} must be a path, as text or Path; got {shown(value)}")
    if not text or "\0" in text:
        raise UsageError(f"{name}={text!r} is not a path; give the name of a file or folder")
    return Path(text)


def as_names(values: Any, name: str, *, example: str) -> tuple[str, ...]:
    """Texts or Paths in a list, as text. One text alone is refused: it would be read letter by letter."""
    if isinstance(values, str | bytes | Mapping | os.PathLike) or not isinstance(values, Iterable):
        raise UsageError(f"{name} must be a list of text, such as {example}; got {shown(values)}")
    given = tuple(values)
    for each in given:
        if not isinstance(each, str | Path) or not str(each):
            raise UsageError(f"{name} must be a list of text, such as {example}; got one that holds {shown(each)}")
    return tuple(map(str, given))


def as_text(value: Any, name: str) -> str:
    """Text."""
    if not isinstance(value, str):
        raise UsageError(f"{name} must be text (str); got {shown(value)}")
    return value


def as_lines(lines: Any, name: str) -> list[str]:
    """Lines as a list, from whatever gives text one by one."""
    if isinstance(lines, str):
        raise UsageError(f"{name} takes a list of lines; got one string, write [{lines[:MAX_SHOWN]!r}]")
    if isinstance(lines, bytes | Mapping) or not isinstance(lines, Iterable):
        raise UsageError(f"{name} takes a list of lines; got {shown(lines)}")
    given = list(lines)
    for number, line in enumerate(given, start=1):
        if not isinstance(line, str):
            raise UsageError(f"{name} takes lines of text (str); line {number} is {shown(line)}")
    return given


def as_whole_number(value: Any, name: str, *, least: int) -> int:
    """A whole number from `least` on. True and False are not numbers here."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UsageError(f"{name} must be a whole number; got {shown(value)}")
    number = int(value.__index__())
    if number < least:
        raise UsageError(f"{name}={number} is too small; give {least} or more")
    return number


def require_choice(value: Any, name: str, choices: Sequence[str]) -> None:
    """Refuse anything but one of these words."""
    if isinstance(value, str) and value in choices:
        return
    near = difflib.get_close_matches(value, choices, n=1) if isinstance(value, str) else []
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise UsageError(f"{name} must be {' or '.join(map(repr, choices))}; got {shown(value)}{hint}")


def require_instance(value: Any, name: str, kind: type[T] | tuple[type[T], ...], *, what: str) -> None:
    """Refuse a value of another type; `what` describes what is expected, and how to get it."""
    if not isinstance(value, kind):
        raise UsageError(f"{name} must be {what}; got {shown(value)}")


def require_callable(value: Any, name: str) -> None:
    """Refuse what cannot be called."""
    if not callable(value):
        raise UsageError(f"{name} must be a function; got {shown(value)}")
