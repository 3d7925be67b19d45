"""Lines of text as they arrive: split at LF only, so that as many go in as come out."""

import codecs
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, cast

from seqloom.cli.output import require_open
from seqloom.core.compressed import open_bytes
from seqloom.core.errors import DataError, Problem
from seqloom.core.files import LONGEST_LINE, require_file

CHUNK = 1 << 18
"""Bytes read at most before what is there is passed on; a pipe or a terminal passes on what it has."""


class Arriving(Protocol):
    """Bytes that can be taken as they arrive."""

    def read1(self, size: int, /) -> bytes:
        """At most so many bytes, as soon as there are some; none at the end."""
        ...


@contextmanager
def open_input(path: Path | None) -> Iterator[Arriving]:
    """A file (`.gz`, `.xz` and `.zst` are decompressed), or standard input for None."""
    if path is None:
        require_open(sys.stdin, "standard input")
        yield cast("Arriving", sys.stdin.buffer)
        return
    require_file(path)
    with open_bytes(path) as stream:
        yield stream


def read_blocks(stream: Arriving, name: str, *, warn: Callable[[str], None] = lambda _: None) -> Iterator[list[str]]:
    """The lines that have arrived, block by block; a block is never empty, and waits for no line after it.

    A CR before LF goes, and so does a byte-order mark at the start; NUL becomes a space, which is warned of once.
    """
    pieces: list[bytes] = []  # of the line that has not ended yet
    done, has_warned = 0, False
    for chunk in _chunks(stream):
        head, line_end, tail = chunk.rpartition(b"\n")
        is_last = not chunk
        if not line_end and not is_last:
            pieces.append(tail)
            if sum(map(len, pieces)) > LONGEST_LINE:
                message = f"the line is longer than {LONGEST_LINE:,} bytes; is this a text file?"
                raise DataError(problems=[Problem(message, name, done + 1)])
            continue
        block = b"".join([*pieces, head])
        if done == 0:
            block = block.removeprefix(codecs.BOM_UTF8)
        pieces = [tail]
        if is_last and not block:
            return
        lines = _decode(block, name, first=done + 1)
        if not has_warned and b"\0" in block:
            number = done + 1 + block[: block.index(b"\0")].count(b"\n")
            warn(f"{name}:{number}: NUL characters are read as spaces; is this binary data?")
            has_warned = True
        done += len(lines)
        yield lines


def _chunks(stream: Arriving) -> Iterator[bytes]:
    """What a stream gives, with an empty chunk at its end."""
    while chunk := stream.read1(CHUNK):
        yield chunk
    yield b""


def _decode(block: bytes, name: str, *, first: int) -> list[str]:
    try:
        text = block.decode("utf-8")
    except UnicodeDecodeError as error:
        before = block[: error.start]
        line = first + before.count(b"\n")
        column = len(before[before.rfind(b"\n") + 1 :].decode("utf-8")) + 1
        message = f"invalid UTF-8 byte 0x{block[error.start]:02X}; convert the text first, such as with: iconv -t utf-8"
        raise DataError(problems=[Problem(message, name, line, column)]) from error
    return [line.removesuffix("\r").replace("\0", " ") for line in text.split("\n")]
