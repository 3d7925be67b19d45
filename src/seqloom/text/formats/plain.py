"""Plain text: one sentence per line, UTF-8 unless said otherwise, LF between lines."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from seqloom.core.errors import DataError
from seqloom.core.files import read_lines, write_atomically


def read_plain(path: Path, *, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a text file, `.gz` too. Only LF ends a line."""
    return read_lines(path, encoding)


def write_plain(path: Path, lines: Iterable[str]) -> None:
    """Write lines, each with LF at its end, so that `read_plain` gives the same ones back."""
    write_atomically(path, join_lines(lines, str(path)))


def join_lines(lines: Iterable[str], name: str) -> str:
    """The content of a file with these lines; one that would come back as two, or shorter, is refused."""
    kept = []
    for number, line in enumerate(lines, start=1):
        if "\n" in line or line.endswith("\r"):
            raise DataError(f"{name}:{number}: {line[:60]!r} has a line end inside; make it a space first")
        kept.append(f"{line}\n")
    return "".join(kept)
