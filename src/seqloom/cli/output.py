"""Results on stdout: plain words and JSON, in UTF-8 whatever the locale, without control characters from the data."""

import io
import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from seqloom.core.errors import UsageError
from seqloom.core.terminal import TerminalWriter, visible

if TYPE_CHECKING:
    from seqloom.metrics.translation import Score


class Numbered(Protocol):
    """A stream with a number by which the operating system knows it."""

    def fileno(self) -> int: ...


def use_utf8() -> None:
    """Read and write UTF-8 and LF in every locale."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def stand_in_for_closed() -> None:
    """Hold the numbers of the streams that the program was started without (`<&-`, `>&-`, `2>&-`).

    A file that is opened later would get such a number, and what is meant for the stream would be written into it.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free, which is that of the stream
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # messages may go nowhere  # noqa: SIM115


def require_open(stream: object, name: str) -> None:
    """Refuse to work with a stream that was closed before the program began."""
    if stream is None:
        raise UsageError(f"{name} is closed; leave out the >&- or <&- that closes it, or name a file")


def counted(number: int, noun: str) -> str:
    """1 line, 2 lines."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def let_go_of(stream: Numbered) -> None:
    """Send what is still to be written nowhere, or the interpreter would complain about it as it ends."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def clean(text: str) -> str:
    """Text from data as a terminal may show it on one line: nothing in it is obeyed, and what would be is spelt out."""
    return visible(text)


def guard_terminal(words: Sequence[str]) -> None:
    """Where results go to a terminal, spell out what it would obey; into files and pipes they go byte for byte.

    Help is left alone: it has colours, and no word of it comes from data.
    """
    ours = words[: words.index("--")] if "--" in words else words
    is_help = any(word in ("-h", "--help") for word in ours)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.isatty() and not is_help:
        sys.stdout = TerminalWriter(
            sys.stdout.buffer, encoding="utf-8", errors="backslashreplace", newline="\n", line_buffering=True
        )


def one_line(text: str) -> str:
    """Text that stays one line of a file."""
    return text.replace("\r", " ").replace("\n", " ")


def json_line(values: Any) -> str:
    """A record as one line of JSON; numbers that JSON cannot write become null."""
    return json.dumps(_plain(values), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def score_rows(scores: "Sequence[Score]") -> list[str]:
    """A line per score: name, value, 95% interval, signature."""
    return table(
        [(score.name, f"{score.value:.2f}", interval_text(score.interval), score.signature) for score in scores]
    )


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows with their cells one below the other: the first column to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([f"{row[0]:{widths[0]}}", *map(str.rjust, row[1:-1], widths[1:-1]), row[-1]]).rstrip() for row in rows
    ]


def interval_text(interval: tuple[float, float] | None) -> str:
    """The 95% interval in brackets."""
    return "" if interval is None else f"[{interval[0]:.2f}, {interval[1]:.2f}]"


def duration(seconds: float) -> str:
    """Seconds as somebody would say them: "42 s", "3 min 07 s", "2 h 05 min"."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(count: int) -> str:
    """A number of bytes in the unit that suits it."""
    amount = float(count)
    for unit in ("bytes", "kB", "MB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} GB"


def examples(*lines: str) -> str:
    """The end of a command's help: lines that can be typed as they are, each a paragraph of its own."""
    return "\n\n".join(["[bold]Examples[/bold]", *(f"[cyan]{line}[/cyan]" for line in lines)])
