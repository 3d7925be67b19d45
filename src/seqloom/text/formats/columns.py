"""Tables and records with further columns, each of which is read as whole symbols beside the source.

    walk TAB walked TAB V;PST                                             data.symbols=[3]
    walk TAB V;PST TAB walked                                             data.symbols=[2]
    {"source": "walk", "target": "walked", "features": ["V", "PST"]}      data.symbols=[features]

The source of such a pair has its symbols after a tab, "walk TAB V;PST". The text before the tab is cut as any other;
symbols are cut at semicolons, bars and white space only, and have ids of their own, whatever letters they consist of.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from seqloom.core.errors import Problems, UsageError
from seqloom.core.files import LineReader
from seqloom.text.formats.jsonl import JSONL, BadRecord, read_pairs, require_text, require_texts
from seqloom.text.formats.segments import Format, Languages, Pair
from seqloom.text.symbols import join_symbols


def formats_with_symbols(columns: Sequence[int | str], formats: Sequence[Format]) -> tuple[Format, ...]:
    """The formats, of which tables and JSONL read these columns (counted from 1) or members as symbols."""
    members = [column for column in columns if isinstance(column, str)]
    places = [column for column in columns if isinstance(column, int)]

    def records(path: Path, languages: Languages, encoding: str) -> Iterator[Pair | None]:
        if places:
            raise UsageError(f"{path} has members, not columns: name them, as in data.symbols=[features]")
        return read_pairs(path, languages=languages, encoding=encoding, symbols=lambda each: _members(each, members))

    def rows(path: Path, _languages: Languages, encoding: str) -> Iterator[Pair]:
        if members:
            raise UsageError(f"{path} has columns without names: give their numbers, as in data.symbols=[3]")
        return read_rows(path, places, encoding=encoding)

    table = Format("TSV", (".tsv",), pairs=rows)
    return table, *(replace(each, pairs=records) if each is JSONL else each for each in formats)


def read_rows(path: Path, places: Sequence[int], *, encoding: str = "utf-8") -> Iterator[Pair]:
    """The pairs of a table. A DataError at the end names the lines with more or fewer columns than expected."""
    problems = Problems()
    for number, line in enumerate(LineReader(path, encoding), start=1):
        pair = pair_of_row(line, places, number)
        if isinstance(pair, str):
            problems.add(pair, path, number)
        elif not problems:
            yield pair
    problems.require_none()


def pair_of_row(line: str, places: Sequence[int], number: int) -> Pair | str:
    """The pair in a line of a table, or what is wrong with it."""
    cells = line.split("\t")
    if len(cells) != len(places) + 2:
        columns = f"{len(cells)} column{'s' if len(cells) > 1 else ''}"
        asked = f"data.symbols=[{', '.join(map(str, places))}]"
        return f"{columns}, expected {len(places) + 2}: source and target, and the symbols of {asked}"
    source, target = (cell for place, cell in enumerate(cells, start=1) if place not in places)
    return Pair(source, target, number, join_symbols(cells[place - 1] for place in places))


def _members(record: dict[str, Any], names: Sequence[str]) -> str:
    values = []
    for name in names:
        if name not in record:
            raise BadRecord(f"no member {name!r}, which data.symbols names; there are {', '.join(record)[:80]}")
        value = record[name]
        values += require_texts(value) if isinstance(value, list) else [require_text(value) or ""]
    return join_symbols(values)
