"""A file format: `source ||| target` on each line, as fast_align reads and phrase tables are written."""

from collections.abc import Iterator
from pathlib import Path

from seqloom.core.errors import Problems
from seqloom.core.files import LineReader
from seqloom.text.formats.segments import Format, Languages, Pair


def read_pairs(path: Path, _languages: Languages, encoding: str) -> Iterator[Pair | None]:
    """The pairs of a file; None for a line with an empty side, which is counted and left out."""
    problems = Problems()
    for number, line in enumerate(LineReader(path, encoding), start=1):
        source, bars, target = (part.strip() for part in line.partition("|||"))
        if not bars:
            problems.add("expected source ||| target", path, number)
        elif not problems:
            yield Pair(source, target, number) if source and target else None
    problems.require_none()


BARS = Format("BARS", suffixes=(".bars",), pairs=read_pairs)
