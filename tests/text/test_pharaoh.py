"""Word links as Pharaoh lines and as .wa lines: read, written, and refused with their place."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.errors import DataError
from seqloom.text.formats.pharaoh import GoldLinks, format_links, parse_links, read_gold


def test_sure_and_possible_links_are_told_apart() -> None:
    found = parse_links(" 0-0  1?2\t10-3 ")
    assert found == GoldLinks(frozenset({(0, 0), (10, 3)}), frozenset({(0, 0), (10, 3), (1, 2)}))
    assert parse_links("") == GoldLinks(frozenset(), frozenset())
    assert parse_links("1?2 1-2").sure == {(1, 2)}
    assert parse_links("0-0 1p2") == parse_links("0-0 1?2")


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
    assert str(caught.value) == f"{word!r} is not a link"


def test_a_file_names_every_line_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "gold.align"
    path.write_text("0-0 1?1\n\n0-0 x\n1:2\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_gold(path, 4)
    assert [problem.line for problem in caught.value.problems] == [3, 4]
    assert f"{path}:3: 'x' is not a link\n{path}:4: '1:2' is not a link" in str(caught.value)
    assert str(caught.value).count("source position first") == 1
    path.write_text("0-0 1?1\n\n2-3", encoding="utf-8")
    assert [len(each.possible) for each in read_gold(path, 3).links] == [2, 0, 1]


def test_sure_links_that_are_not_possible_are_refused() -> None:
    with pytest.raises(DataError, match="but these are not: 1-1"):
        GoldLinks(frozenset({(1, 1)}), frozenset())


def test_wa_links_are_numbered_from_one_and_are_sure_unless_marked(tmp_path: Path) -> None:
    path = tmp_path / "gold.wa"
    path.write_text("0001 1 1 S\n0001 2 3 P 0.7\n\n3 2 1\n3 1 2 0.25\n3 0 3 S\n3 1 1 P\n3 1 1 S\n", encoding="utf-8")
    gold = read_gold(path, 3)
    assert (gold.form, gold.null_links) == ("wa", 1)
    assert gold.links == [parse_links("0-0 1?2"), parse_links(""), parse_links("1-0 0-1 0-0")]


def test_wa_lines_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "gold.wa"
    path.write_text("1 1 1 S\n1 1 S\n0 1 1\n3 1 1\n1 1 1 X\n1 1 1 S 0.5 7\n1 2 2 0.5.5\n1 1 1 S .\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        read_gold(path, 2)
    assert [problem.line for problem in caught.value.problems] == [2, 3, 4, 5, 6, 7, 8]
    assert f"{path}:2: '1 1 S' is not a link `sentence source target S|P`" in str(caught.value)
    assert f"{path}:4: sentence 3, but the 2 sentence pairs that are aligned are numbered from 1" in str(caught.value)


@pytest.mark.parametrize("name", ["gold.wa", "gold.wa.gz", "gold.txt"])
def test_a_broken_first_line_does_not_hide_the_form(name: str, tmp_path: Path) -> None:
    path, text = tmp_path / name, b"1 1 X\n1 1 1 S\n2 2 1 P 1e-3\n"
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    with pytest.raises(DataError) as caught:
        read_gold(path, 2)
    assert [problem.line for problem in caught.value.problems] == [1]
