"""WER and CER: the shortest edits by recursion, parity with jiwer, and the bootstrap of all metrics."""

import random
from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nasty
from seqloom.core.errors import DataError
from seqloom.metrics.error_rate import ErrorRate, Unit, count_edits
from seqloom.metrics.scoring import Bootstrap, paired_bootstrap, score

units = st.lists(st.sampled_from("abc"), max_size=9)


def distance(hypothesis: Sequence[str], reference: Sequence[str]) -> int:
    """The Levenshtein distance as it is defined."""

    @cache
    def of(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        return min(of(i - 1, j) + 1, of(i, j - 1) + 1, of(i - 1, j - 1) + (reference[i - 1] != hypothesis[j - 1]))

    return of(len(reference), len(hypothesis))


@given(hypothesis=units, reference=units)
def test_edits_are_the_fewest_and_fit_the_lengths(hypothesis: list[str], reference: list[str]) -> None:
    found = count_edits(hypothesis, reference)
    assert found.edits == distance(hypothesis, reference)
    assert found.length == len(reference)
    assert found.hits + found.substitutions + found.insertions == len(hypothesis)
    assert found.hits >= 0
    back = count_edits(reference, hypothesis)
    assert back.edits == found.edits


def test_a_worked_case_names_each_kind_of_edit() -> None:
    found = ErrorRate().counts("the cat upon the mat there by now", "the cat sat on the mat there now")
    assert (found.substitutions, found.deletions, found.insertions, found.length) == (1, 1, 1, 8)
    assert score(ErrorRate(), ["Two"], references=["two"]).value == 100
    assert score(ErrorRate(lowercase=True), ["Two "], references=["two"]).value == 0
    assert score(ErrorRate("character"), ["to o"], references=["two"]).value == pytest.approx(200 / 3)


def test_the_corpus_is_counted_together_and_bootstrapped_like_other_metrics() -> None:
    references, hypotheses = ["one two three", "four", ""], ["one too three", "five four", ""]
    found = score(ErrorRate(), hypotheses, references=references, bootstrap=Bootstrap(seed=1, resamples=200))
    assert (found.name, found.value) == ("WER", 50.0)  # the mean of the lines would be 44
    assert found.signature == "nrefs:1|case:mixed|unit:word|bs:200|seed:1"
    assert found.interval is not None
    assert found.interval[0] < 50 < found.interval[1]
    same = paired_bootstrap(ErrorRate("character"), references, baseline=hypotheses, system=hypotheses, seed=1)
    assert same.p_value == 1
    with pytest.raises(DataError, match="2 hypotheses cannot be compared with 3 references"):
        score(ErrorRate(), hypotheses[:2], references=references)


@pytest.mark.parametrize("unit", ["word", "character"])
@pytest.mark.parity
def test_counts_and_rates_equal_jiwer(unit: Unit) -> None:
    jiwer = pytest.importorskip("jiwer")
    process = jiwer.process_words if unit == "word" else jiwer.process_characters
    draw = random.Random(4)
    words = ["one", "two", "oh", "Ten", "été", "九"]

    def lines(count: int) -> list[str]:
        return [" ".join(draw.choices(words, k=draw.randint(0, 14))) for _ in range(count)]

    references, hypotheses = lines(400), lines(400)
    metric = ErrorRate(unit)
    for one, other in zip(hypotheses, references, strict=True):
        theirs, ours = process(other, one), metric.counts(one, other)
        assert (ours.hits, ours.substitutions, ours.deletions, ours.insertions) == (
            theirs.hits,
            theirs.substitutions,
            theirs.deletions,
            theirs.insertions,
        )
        rate = theirs.wer if unit == "word" else theirs.cer
        parts = np.array([[ours.substitutions, ours.deletions, ours.insertions, ours.length]], float)
        assert metric.values(parts)[0] == pytest.approx(100 * rate, abs=1e-9)  # also of an empty reference
    whole = process(references, hypotheses)
    rate = whole.wer if unit == "word" else whole.cer
    assert score(metric, hypotheses, references=references).value == pytest.approx(100 * rate, abs=1e-9)


@given(one=nasty.line(), other=nasty.line())
def test_any_text_can_be_scored(one: str, other: str) -> None:
    for unit in ("word", "character"):
        found = score(ErrorRate(unit), [one], references=[other]).value
        assert found >= 0
        assert score(ErrorRate(unit), [one], references=[one]).value == 0
