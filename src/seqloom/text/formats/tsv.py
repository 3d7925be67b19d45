"""Source and target with a tab between them. Quotes are ordinary characters: nothing is escaped."""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from seqloom.core.errors import Problems


def column_problem(line: str) -> str | None:
    """What is wrong with a line of a table, if anything: every line has two columns."""
    columns = line.count("\t") + 1
    return None if columns == 2 else f"{columns} column{'s' if columns > 1 else ''}, expected source, tab, target"


def split_rows(lines: Iterable[str], path: Path, *, skipped: Collection[int] = ()) -> Iterator[tuple[str, str]]:
    """The two columns of each line; both are empty in those with a number in `skipped`.

    At a line that has more or fewer, no more are given, and the rest is only looked through, so that the DataError can
    name all such lines.
    """
    problems = Problems()
    for number, line in enumerate(lines, start=1):
        if number in skipped:
            yield "", ""
            continue
        if problem := column_problem(line):
            problems.add(problem, path, number)
        if not problems:
            source, target = line.split("\t")
            yield source, target
    problems.require_none("a line end or a tab inside a sentence, or plain text without tabs?")
