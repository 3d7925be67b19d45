"""Scores of tags against conlleval's own rules, brute force and a count by hand."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.core.errors import DataError
from seqloom.metrics.scoring import Bootstrap
from seqloom.metrics.tagging import FoundCounts, count_spans, count_tags, score_spans, score_tags, total

_bio = st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y"])
_pairs = st.lists(st.lists(st.tuples(_bio, _bio), max_size=8), min_size=1, max_size=4).filter(any)


def plain_conlleval(found: list[list[str]], right: list[list[str]]) -> Counter[str]:
    """conlleval.pl, line by line: its rules for where chunks begin and end, and how it counts while reading."""
    counts: Counter[str] = Counter()
    for guessed, correct in zip(found, right, strict=True):
        last_guessed, last_correct, is_in_correct = ("O", ""), ("O", ""), False
        for one, other in zip([*guessed, "O"], [*correct, "O"], strict=True):
            (letter, _, label), (its_letter, _, its_label) = one.partition("-"), other.partition("-")
            ends = _ends(*last_correct, its_letter, its_label), _ends(*last_guessed, letter, label)
            begins = _begins(*last_correct, its_letter, its_label), _begins(*last_guessed, letter, label)
            if is_in_correct:
                if all(ends) and last_guessed[1] == last_correct[1]:
                    is_in_correct = False
                    counts["right"] += 1
                elif ends[0] != ends[1] or label != its_label:
                    is_in_correct = False
            if all(begins) and label == its_label:
                is_in_correct = True
            counts["expected"] += begins[0]
            counts["predicted"] += begins[1]
            last_guessed, last_correct = (letter, label), (its_letter, its_label)
    return counts


def _ends(before: str, its_label: str, now: str, label: str) -> bool:
    is_end = (before, now) in {("B", "B"), ("B", "O"), ("I", "B"), ("I", "O")}
    return is_end or (before != "O" and its_label != label)


def _begins(before: str, its_label: str, now: str, label: str) -> bool:
    is_begin = (before, now) in {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")}
    return is_begin or (now != "O" and its_label != label)


def _split(pairs: list[list[tuple[str, str]]]) -> tuple[list[list[str]], list[list[str]]]:
    return [[one for one, _ in each] for each in pairs], [[other for _, other in each] for each in pairs]


@given(_pairs)
@settings(max_examples=100)
def test_spans_are_counted_as_conlleval_counts_them(pairs: list[list[tuple[str, str]]]) -> None:
    found, right = _split(pairs)
    theirs = plain_conlleval(found, right)
    ours = total(count_spans(found, right))
    assert ours == FoundCounts(theirs["right"], theirs["predicted"], theirs["expected"])
    precision, recall = theirs["right"] / max(1, theirs["predicted"]), theirs["right"] / max(1, theirs["expected"])
    f1 = 200 * precision * recall / (precision + recall) if theirs["right"] else 0.0
    assert score_spans(found, right).value == pytest.approx(f1)
    assert ours.f1 == pytest.approx(f1)
    assert (ours.precision, ours.recall) == pytest.approx((100 * precision, 100 * recall))


@given(_pairs)
def test_tags_are_counted_word_by_word(pairs: list[list[tuple[str, str]]]) -> None:
    found, right = _split(pairs)
    words = [pair for each in pairs for pair in each]
    assert score_tags(found, right).value == pytest.approx(100 * sum(a == b for a, b in words) / len(words))
    expected = {
        tag: FoundCounts(
            sum(one == other == tag for one, other in words),
            sum(one == tag for one, _ in words),
            sum(other == tag for _, other in words),
        )
        for tag in sorted({tag for pair in words for tag in pair})
    }
    assert count_tags(found, right) == expected


def test_a_case_counted_by_hand() -> None:
    right = [["O", "B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "I-LOC"], []]
    found = [["O", "B-PER", "I-PER", "B-PER", "B-LOC"], ["B-LOC", "O"], []]
    assert count_spans(found, right) == {"LOC": FoundCounts(1, 2, 2), "PER": FoundCounts(1, 2, 1)}
    score = score_spans(found, right, bootstrap=Bootstrap(seed=1, resamples=40))
    assert (score.name, score.value) == ("span F1", pytest.approx(200 * 2 / 7))
    assert score.signature == "nrefs:1|spans:conlleval|average:micro|bs:40|seed:1"
    assert score.interval is not None
    assert score.interval[0] <= score.value <= score.interval[1]
    accuracy = score_tags(found, right)
    assert (accuracy.name, accuracy.value, accuracy.signature) == (
        "accuracy",
        pytest.approx(500 / 7),
        "nrefs:1|labels:5",
    )
    # A span that is one word too short is wrong, though most of its tags are right: a score of tags would not see it.
    assert total(count_spans([["B-x", "I-x", "O"]], [["B-x", "I-x", "I-x"]])).f1 == 0
    assert total({}) == FoundCounts(0, 0, 0)


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(DataError, match="1 tagged sentences cannot be compared with 2 references"):
        score_tags([["O"]], [["O"], ["O"]])
    with pytest.raises(DataError, match="sentence 2 has 1 tags, but its reference has 2"):
        count_spans([["O"], ["O"]], [["O"], ["O", "O"]])
    with pytest.raises(DataError, match="nothing to score"):
        score_spans([[]], [[]])
