"""TSV: columns come back as they were, what does not fit is named with its line."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nasty
from seqloom.core.errors import DataError
from seqloom.core.files import read_lines
from seqloom.text.formats.readers import split_rows

# A byte-order mark opens files, and NUL is taken for binary data: neither is text.
CELL = nasty.line(most=3, longest=60, without="\t\r\0\ufeff")
REUSED_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


def _rows(path: Path) -> Iterator[tuple[str, str]]:
    return split_rows(read_lines(path), path)


@REUSED_FOLDER
@given(rows=st.lists(st.tuples(CELL, CELL), max_size=4))
def test_columns_come_back(tmp_path: Path, rows: list[tuple[str, str]]) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes("".join("\t".join(row) + "\n" for row in rows).encode())
    assert list(_rows(path)) == rows


def test_odd_separators_and_quotes_are_ordinary(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv.gz"
    path.write_bytes(gzip.compress('say "hi\tsag „hi\r\na\u2028b\x85c\td\n'.encode()))
    assert list(_rows(path)) == [('say "hi', "sag „hi"), ("a\u2028b\x85c", "d")]


def test_lines_with_other_column_counts_are_all_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_text("a\tb\nc\nd\te\nf\tg\th\n", encoding="utf-8")
    rows = _rows(path)
    assert next(rows) == ("a", "b")
    with pytest.raises(DataError) as caught:
        next(rows)
    assert "a.tsv:2: 1 column, expected source, tab, target" in str(caught.value)
    assert [problem.line for problem in caught.value.problems] == [2, 4]


def test_a_column_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("no tabs here\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.txt:1: 1 column, expected source, tab, target"):
        list(_rows(path))
