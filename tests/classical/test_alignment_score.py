"""Alignment error rate: by hand, at its ends, and refused where lines have no partners."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.classical.alignment import AlignmentScore, score_alignments
from seqloom.core.errors import DataError
from seqloom.text.formats.pharaoh import GoldLinks, parse_links

links = st.frozensets(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=8)


def test_the_rates_of_a_worked_example() -> None:
    gold = [parse_links("0-0 1-1 1?2"), parse_links("0-1 2?2")]
    found = [{(0, 0), (1, 2), (3, 3)}, {(0, 1)}]
    score = score_alignments(found, gold)
    assert score == AlignmentScore(found=4, sure=3, found_sure=2, found_possible=3)
    assert score.precision == 3 / 4
    assert score.recall == 2 / 3
    assert score.error_rate == pytest.approx(1 - (2 + 3) / (4 + 3))


@given(found=links, sure=links)
def test_with_sure_links_only_it_is_one_minus_f1(
    found: frozenset[tuple[int, int]], sure: frozenset[tuple[int, int]]
) -> None:
    score = score_alignments([found], [GoldLinks(sure, sure)])
    precision, recall = score.precision or 0.0, score.recall or 0.0
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    assert score.error_rate == (pytest.approx(1 - f1) if found or sure else None)


@given(sure=links, possible=links)
def test_links_between_the_sure_and_the_possible_ones_are_perfect(
    sure: frozenset[tuple[int, int]], possible: frozenset[tuple[int, int]]
) -> None:
    gold = [GoldLinks(sure, sure | possible)]
    for found in (sure, sure | possible):
        score = score_alignments([found], gold)
        assert (score.error_rate or 0.0, score.precision or 1.0) == (0.0, 1.0)
        assert score.recall == (1.0 if sure else None)
    assert score_alignments([sure | {(9, 9)}], gold).error_rate > 0


def test_a_rate_of_no_links_is_undefined() -> None:
    none = score_alignments([[]], [parse_links("0-0")])
    assert (none.precision, none.recall, none.error_rate) == (None, 0.0, 1.0)
    blank = score_alignments([[]], [parse_links("")])
    assert (blank.precision, blank.recall, blank.error_rate) == (None, None, None)
    possible = score_alignments([[(0, 0), (1, 1)]], [parse_links("0?0")])
    assert (possible.precision, possible.recall, possible.error_rate) == (0.5, None, 0.5)


def test_lines_without_partners_are_refused() -> None:
    with pytest.raises(DataError, match="2 alignments cannot be compared with 1; each line needs its partner"):
        score_alignments([[], []], [parse_links("0-0")])
