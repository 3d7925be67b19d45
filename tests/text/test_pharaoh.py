"""Pharaoh lines: read, written, and refused with their place."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import DataError
from seqloom.text.formats.pharaoh import GoldLinks, format_links, parse_links, read_pharaoh


def test_sure_and_possible_links_are_told_apart() -> None:
    found = parse_links(" 0-0  1?2\t10-3 ")
    assert found == GoldLinks(frozenset({(0, 0), (10, 3)}), frozenset({(0, 0), (10, 3), (1, 2)}))
    assert parse_links("") == GoldLinks(frozenset(), frozenset())
    assert parse_links("1?2 1-2").sure == {(1, 2)}


def test_links_are_written_by_source_then_target_as_numbers() -> None:
    assert format_links([(10, 0), (2, 11), (2, 3)]) == "2-3 2-11 10-0"
    assert format_links([]) == ""


@given(links=st.frozensets(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=9))
def test_what_is_written_is_read_again(links: frozenset[tuple[int, int]]) -> None:
    assert parse_links(format_links(links)).sure == links


@pytest.mark.parametrize("word", ["0", "1-", "-1-2", "1–2", "a-b", "0-0-0", "1-2,", "1.0-2", "٣-٣", "1-9999999999"])
def test_what_is_no_link_is_shown(word: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_links(f"0-0 {word}")
    assert f"{word!r} is no link; links are written 0-0 1-2" in str(caught.value)


def test_a_file_names_every_line_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "gold.align"
    path.write_text("0-0 1?1\n\n0-0 x\n1:2\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_pharaoh(path)
    assert [problem.line for problem in caught.value.problems] == [3, 4]
    assert f"{path}:3: 'x' is no link" in str(caught.value)
    path.write_text("0-0 1?1\n\n2-3", encoding="utf-8")
    assert [len(each.possible) for each in read_pharaoh(path)] == [2, 0, 1]


def test_sure_links_that_are_not_possible_are_refused() -> None:
    with pytest.raises(DataError, match="but these are not: 1-1"):
        GoldLinks(frozenset({(1, 1)}), frozenset())
