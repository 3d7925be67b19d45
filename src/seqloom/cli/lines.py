"""Lines of text as they arrive: split at LF only, so that as many go in as come out."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Protocol, cast

import typer

from seqloom.cli.output import require_open
from seqloom.core.files import LineReader, require_file
from seqloom.core.text_files import LineDecoder, OnBad, open_bytes
from seqloom.text.formats.readers import Languages, PairReader, holds_both_sides, is_tsv
from seqloom.text.formats.tsv import split_rows

CHUNK = 1 << 18
"""Bytes read at most before what is there is passed on; a pipe or a terminal passes on what it has."""


Encoding = Annotated[
    str | None,
    typer.Option(
        "--encoding", metavar="NAME", help="How the text is encoded: utf-8, latin-1, utf-16, cp1252, gb18030 …"
    ),
]
OnBadUtf8 = Annotated[
    Literal["error", "replace", "skip"] | None,
    typer.Option(
        "--on-bad-utf8",
        help="What becomes of bytes that are no text: an error, U+FFFD in place of each, or an empty line in place of "
        "theirs.",
    ),
]


@dataclass(frozen=True)
class Decoding:
    """How bytes become text."""

    encoding: str = "utf-8"
    on_bad: OnBad = "error"

    @staticmethod
    def asked(encoding: str | None, on_bad: OnBad | None) -> "Decoding":
        """As the flags have it; an encoding that nobody knows is refused."""
        LineDecoder("", encoding)
        return Decoding(encoding or "utf-8", on_bad or "error")


def decoding_settings(encoding: str | None, on_bad: OnBad | None) -> list[str]:
    """What the flags mean as settings of the data."""
    given = (("data.encoding", encoding), ("data.on_bad_utf8", on_bad))
    return [f"{name}={value}" for name, value in given if value is not None]


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


def read_blocks(
    stream: Arriving,
    name: str,
    *,
    decoding: Decoding = Decoding(),
    warn: Callable[[str], None] = lambda _: None,
    is_checked_whole: bool = False,
) -> Iterator[list[str]]:
    """The lines that have arrived, block by block; a block is never empty, and waits for no line after it.

    A CR before LF goes, and so does a byte-order mark at the start; NUL becomes a space, which is warned of once. A bad
    byte is told at once, or (`is_checked_whole`) at the end, together with all others.
    """
    decoder = LineDecoder(name, decoding.encoding, on_bad=decoding.on_bad, nul_is_space=True)
    has_warned = False
    for chunk in _chunks(stream):
        lines = decoder.feed(chunk)
        if not is_checked_whole or not chunk:
            decoder.require_good()
        if decoder.first_nul is not None and not has_warned:
            warn(of_nul(name, decoder.first_nul))
            has_warned = True
        if lines and not chunk:
            lines[-1] = lines[-1].removesuffix("\r")
        if lines:
            yield lines
    for sentence in decoder.notices():
        warn(sentence)


def of_nul(name: str, line: int) -> str:
    """That NULs were met, the first of them in a line."""
    return f"{name}:{line}: NUL characters are read as spaces; is this binary data?"


def _chunks(stream: Arriving) -> Iterator[bytes]:
    """What a stream gives, with an empty chunk at its end."""
    while chunk := stream.read1(CHUNK):
        yield chunk
    yield b""


@dataclass(frozen=True)
class ReadText:
    """The lines of a file, and the numbers (from 1) of those that were skipped because they are no text."""

    lines: list[str]
    skipped: frozenset[int]


def read_text(path: Path, decoding: Decoding, *, warn: Callable[[str], None]) -> ReadText:
    """All lines of a file for a model that is used: NUL becomes a space. What was put right is warned of."""
    reader = LineReader(path, decoding.encoding, on_bad=decoding.on_bad, nul_is_space=True)
    lines = list(reader)
    for sentence in reader.notices():
        warn(sentence)
    if reader.first_nul is not None:
        warn(of_nul(str(path), reader.first_nul))
    return ReadText(lines, frozenset(reader.bad) if decoding.on_bad == "skip" else frozenset())


def read_sides(
    path: Path, decoding: Decoding, *, languages: Languages = (None, None), warn: Callable[[str], None]
) -> tuple[ReadText, ReadText]:
    """Sources and targets of a file that holds both; `languages` choose among those of a translators' file."""
    if is_tsv(path):
        read = read_text(path, decoding, warn=warn)
        pairs = list(split_rows(read.lines, path, skipped=read.skipped))
        skipped = read.skipped
    else:
        reader = PairReader(path, languages=languages, encoding=decoding.encoding)
        pairs, skipped = [(pair.source, pair.target) for pair in reader], frozenset[int]()
        for sentence in reader.notices():
            warn(sentence)
    return ReadText([source for source, _ in pairs], skipped), ReadText([target for _, target in pairs], skipped)


def read_side(
    path: Path,
    decoding: Decoding,
    *,
    side: Literal["source", "target"],
    languages: Languages = (None, None),
    warn: Callable[[str], None],
) -> ReadText:
    """All lines of a text, or those of one side of a file that holds both: .tsv, .tmx, .po, .mo, .xlf, .jsonl."""
    if not holds_both_sides(path):
        return read_text(path, decoding, warn=warn)
    require_file(path)
    source, target = read_sides(path, decoding, languages=languages, warn=warn)
    return source if side == "source" else target
