"""Phrase extraction: equal to trying all pairs of spans, and to nltk's."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.classical.alignment import Bitext
from seqloom.core.errors import DataError
from seqloom.smt.extraction import DISCONTINUOUS, MONOTONE, SWAP, PhraseNumbers, WordLinks, extract_phrases

Pair = tuple[list[int], list[int], list[tuple[int, int]]]
Span = tuple[int, int, int, int]


@st.composite
def linked_pairs(draw: st.DrawFn) -> Pair:
    source, target = (draw(st.lists(st.integers(4, 7), max_size=6)) for _ in range(2))
    places = [(i, j) for i in range(len(source)) for j in range(len(target))]
    links = draw(st.lists(st.sampled_from(places), max_size=7, unique=True)) if places else []
    return source, target, sorted(links)


def consistent(pair: Pair, longest: int) -> list[Span]:
    """All spans a, b, c, d, by the definition."""
    source, target, links = pair
    spans = [
        (a, b, c, d)
        for a in range(len(source))
        for b in range(a + 1, min(len(source), a + longest) + 1)
        for c in range(len(target))
        for d in range(c + 1, min(len(target), c + longest) + 1)
    ]
    return [
        (a, b, c, d)
        for a, b, c, d in spans
        if any(a <= i < b and c <= j < d for i, j in links) and all((a <= i < b) == (c <= j < d) for i, j in links)
    ]


def orientations(span: Span, others: list[Span], pair: Pair) -> tuple[int, int]:
    """With the phrase pair before and after on the target side; the edges of the sentence are in order."""
    a, b, c, d = span
    ends = {(b, d) for _, b, _, d in others} | {(0, 0)}
    begins = {(a, c) for a, _, c, _ in others} | {(len(pair[0]), len(pair[1]))}
    before = MONOTONE if (a, c) in ends else SWAP if (b, c) in {(x, z) for x, _, _, z in others} else DISCONTINUOUS
    after = MONOTONE if (b, d) in begins else SWAP if (a, d) in {(y, z) for _, y, z, _ in others} else DISCONTINUOUS
    return before, after


@given(st.lists(linked_pairs(), min_size=1, max_size=5), st.integers(1, 7))
def test_extraction_equals_all_consistent_spans(pairs: list[Pair], longest: int) -> None:
    bitext = Bitext.from_sentences([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    found = extract_phrases(bitext, WordLinks.of(pair[2] for pair in pairs), longest=longest)
    counts: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
    ways: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    links: dict[tuple[tuple[int, ...], tuple[int, ...]], list[tuple[int, ...]]] = {}
    for pair in pairs:
        spans = consistent(pair, longest)
        for span in spans:
            a, b, c, d = span
            key = tuple(pair[0][a:b]), tuple(pair[1][c:d])
            counts[key] += 1
            before, after = orientations(span, spans, pair)
            row = ways.setdefault(key, [0] * 6)
            row[before] += 1
            row[3 + after] += 1
            masks = [sum(1 << (i - a) for i, j in pair[2] if j == place) for place in range(c, d)]
            links.setdefault(key, []).append(tuple(masks))
    assert len(found.counts) == len(counts)
    for row in range(len(found.counts)):
        key = found.sources.text(int(found.source[row])), found.targets.text(int(found.target[row]))
        assert found.counts[row] == counts[key]
        assert found.orientations[row].tolist() == ways[key]
        masks = found.links[found.link_starts[row] : found.link_starts[row + 1]].tolist()
        assert tuple(masks) in links[key]


def test_phrases_are_numbered_by_length_and_words() -> None:
    bitext = Bitext.from_sentences([[5, 4, 5, 4], [9]], [[4], [4]])
    numbers = PhraseNumbers.of(bitext.sources, bitext.source_starts, 3)
    phrases = [numbers.text(number) for number in range(len(numbers.words))]
    assert phrases == [(4,), (5,), (9,), (4, 5), (5, 4), (4, 5, 4), (5, 4, 5)]


def test_links_of_another_text_are_refused() -> None:
    bitext = Bitext.from_sentences([[4]], [[4]])
    with pytest.raises(DataError, match="2 lines of links for 1 sentence pairs"):
        extract_phrases(bitext, WordLinks.of([[(0, 0)], []]))


@pytest.mark.parity
@given(linked_pairs())
def test_extraction_equals_nltk(pair: Pair) -> None:
    theirs = pytest.importorskip("nltk.translate.phrase_based")
    source, target, links = pair
    if not links:
        return
    bitext = Bitext.from_sentences([source], [target])
    found = extract_phrases(bitext, WordLinks.of([links]), longest=6)
    ours = {
        (found.sources.text(int(f)), found.targets.text(int(e)))
        for f, e in zip(found.source, found.target, strict=True)
    }
    words = " ".join(map(str, source)), " ".join(map(str, target))
    expected = {
        (tuple(map(int, f.split())), tuple(map(int, e.split())))
        for _, _, f, e in theirs.phrase_extraction(*words, links, max_phrase_length=6)
    }
    assert ours == expected
