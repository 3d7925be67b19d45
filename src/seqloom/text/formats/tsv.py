"""Source and target with a tab between them. Quotes are ordinary characters: nothing is escaped."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from seqloom.core.errors import DataError, Problem, Problems


def split_rows(lines: Iterable[str], path: Path, *, skipped: Collection[int] = ()) -> Iterator[tuple[str, str]]:
    """The first two columns of each line; both are empty in those with a number in `skipped`.

    Every line must have as many columns as the first. At a line that has not, no more are given, and the rest is only
    looked through, so that the DataError can name all such lines.
    """
    first = width = 0
    problems = Problems()
    for number, line in enumerate(lines, start=1):
        if number in skipped:
            yield "", ""
            continue
        cells = line.split("\t")
        if width == 0:
            first, width = number, len(cells)
            if width < 2:
                message = "1 column, but column 2 is needed; is this plain text without tabs?"
                raise DataError(problems=[Problem(message, str(path), number)])
        if len(cells) != width:
            found = f"{len(cells)} column{'s' if len(cells) > 1 else ''}"
            problems.add(f"{found}, but line {first} has {width}", path, number)
        if not problems:
            yield cells[0], cells[1]
    problems.require_none("a line end or a tab inside a sentence?")
