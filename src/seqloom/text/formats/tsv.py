"""Columns of text with tabs between them. Quotes are ordinary characters: nothing is escaped."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from seqloom.core.errors import DataError, Problem, Problems, UsageError
from seqloom.core.files import read_lines


def read_tsv(path: Path, *, columns: Sequence[int] = (1, 2), encoding: str = "utf-8") -> Iterator[tuple[str, ...]]:
    """The chosen columns (counted from 1) of each line, `.gz` too.

    Every line must have as many columns as the first. At a line that has not, reading stops, and the rest is only
    looked through, so that the DataError can name all such lines.
    """
    if not columns or min(columns) < 1:
        raise UsageError(
            f"columns are counted from 1, and at least one is needed; these were asked for: {list(columns)}"
        )
    return split_rows(read_lines(path, encoding), path, columns=columns)


def split_rows(
    lines: Iterable[str], path: Path, *, columns: Sequence[int] = (1, 2), skipped: Collection[int] = ()
) -> Iterator[tuple[str, ...]]:
    """The same for lines that were read already; those with a number in `skipped` have empty columns."""
    width = 0
    problems = Problems()
    for number, line in enumerate(lines, start=1):
        if number in skipped:
            yield ("",) * len(columns)
            continue
        cells = line.split("\t")
        if width == 0:
            width = len(cells)
            if width < max(columns):
                _refuse_first(path, width, columns)
        if len(cells) != width:
            problems.add(f"{len(cells)} column{'s' if len(cells) > 1 else ''}, but line 1 has {width}", path, number)
        if not problems:
            yield tuple(cells[column - 1] for column in columns)
    problems.require_none("a line end or a tab inside a sentence?")


def _refuse_first(path: Path, width: int, columns: Sequence[int]) -> None:
    plural = "column" if width == 1 else "columns"
    hint = "; is this plain text without tabs?" if width == 1 else ""
    message = f"{width} {plural}, but column {max(columns)} is needed{hint}"
    raise DataError(problems=[Problem(message, str(path), 1)])
