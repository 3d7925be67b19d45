"""Spans and their tags: there and back, and the legal steps against all sequences of a few tags."""

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.core.errors import DataError
from seqloom.text.spans import LabelledSpan, Scheme, find_scheme, is_span_tag, legal_steps, spans_of, tags_of

SCHEMES: tuple[Scheme, ...] = ("bio", "iob1", "bioes")


@st.composite
def _drawn(draw: st.DrawFn) -> tuple[list[LabelledSpan], int]:
    """Spans that do not overlap, of which many touch, and the length of their sentence."""
    spans, place = list[LabelledSpan](), draw(st.integers(0, 2))
    for _ in range(draw(st.integers(0, 4))):
        end = place + draw(st.integers(1, 3))
        spans.append(LabelledSpan(place, end, draw(st.sampled_from(["LOC", "PER", "a-b", ""]))))
        place = end + draw(st.integers(0, 1))
    return spans, place + draw(st.integers(0, 2))


@given(_drawn(), st.sampled_from(SCHEMES))
@settings(max_examples=100)
def test_spans_come_back_from_their_tags_by_legal_steps(drawn: tuple[list[LabelledSpan], int], scheme: Scheme) -> None:
    spans, length = drawn
    tags = tags_of(spans, length, scheme=scheme)
    assert len(tags) == length
    assert spans_of(tags) == spans
    names = sorted({*tags})
    legal, outside = legal_steps(names, scheme=scheme), len(names)
    path = [outside, *map(names.index, tags), outside]
    assert all(legal[step] for step in pairwise(path))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_sequences_of_legal_steps_are_those_that_their_spans_are_written_as(scheme: Scheme) -> None:
    names = ["O", "B-x", "I-x", "E-x", "S-x", "B-y", "I-y"]
    legal, outside = legal_steps(names, scheme=scheme), len(names)
    counts = [0, 0]
    for length in range(4):
        for path in product(range(len(names)), repeat=length):
            tags = [names[number] for number in path]
            is_legal = all(legal[step] for step in pairwise((outside, *path, outside)))
            assert is_legal == (tags_of(spans_of(tags), length, scheme=scheme) == tags), tags
            counts[is_legal] += 1
    assert min(counts) > 20


def test_the_example_of_the_page_is_read_and_written_in_every_scheme() -> None:
    spans = [LabelledSpan(1, 4, "LOC"), LabelledSpan(4, 5, "LOC")]
    written = {
        "bio": "O B-LOC I-LOC I-LOC B-LOC O",
        "iob1": "O I-LOC I-LOC I-LOC B-LOC O",
        "bioes": "O B-LOC I-LOC E-LOC S-LOC O",
    }
    for scheme in SCHEMES:
        assert " ".join(tags_of(spans, 6, scheme=scheme)) == written[scheme]
        assert spans_of(written[scheme].split()) == spans
        assert find_scheme([["O"], written[scheme].split()]) == scheme
    assert find_scheme([["O", "O"]]) is None
    assert find_scheme([["NOUN", "O"]]) is None
    assert find_scheme([["O", "I-LOC"], ["B-LOC", "O"]]) is None  # iob1 in one sentence, bio in the other
    assert [is_span_tag(tag) for tag in ("O", "B", "I-a", "NOUN", "B-", "O-a", "")] == [True] * 3 + [False] * 4


def test_what_cannot_be_tagged_is_refused() -> None:
    with pytest.raises(DataError, match="'NOUN' is not a tag of spans"):
        spans_of(["O", "NOUN"])
    for spans in (
        [LabelledSpan(0, 2, "a"), LabelledSpan(1, 3, "b")],
        [LabelledSpan(2, 5, "a")],
        [LabelledSpan(1, 1, "")],
    ):
        with pytest.raises(DataError, match="is empty, overlaps another or goes beyond the 4 words"):
            tags_of(spans, 4)
