"""The score of a given pair."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from search.steppers import Bigram, History, Shortlisted, sentences
from seqloom.core.errors import DataError
from seqloom.search.beam import beam_search
from seqloom.search.exhaustive import exhaustive_search
from seqloom.search.greedy import forced_search
from seqloom.search.settings import SearchConfig

SHORT = SearchConfig(beam=4, length_factor=0.0, length_constant=3)


@effort(max_examples=30)
@given(st.integers(0, 1000))
def test_what_a_search_found_scores_the_same_when_forced(seed: int) -> None:
    stepper, source = History(6, seed=seed), sentences([3, 1, 5, 2], seed=seed)
    found = [best for [best] in beam_search(stepper, source, SearchConfig(beam=3, length_constant=40))]
    forced = forced_search(stepper, source, [best.symbols for best in found], settings=SearchConfig())
    for given_back, best in zip(forced, found, strict=True):
        assert best.is_finished
        assert given_back == best
        assert given_back.attention is not None
        assert best.attention is not None
        assert torch.equal(given_back.attention, best.attention)


def test_every_sequence_of_the_oracle_is_scored_alike_on_a_shortlist_too() -> None:
    source = sentences([3])
    for stepper in (Bigram(5, seed=1), Shortlisted(Bigram(7, seed=1), [5, 2, 3])):
        oracle = [h for h in exhaustive_search(stepper, source, SHORT)[0] if h.is_finished]
        for hypothesis in oracle:
            assert forced_search(stepper, source, [hypothesis.symbols], settings=SHORT) == [hypothesis]


def test_what_is_not_offered_is_impossible() -> None:
    stepper = Shortlisted(Bigram(7, seed=1), [5, 2, 3])
    [hypothesis] = forced_search(stepper, sentences([3]), [[5, 4]], settings=SearchConfig())
    assert hypothesis.token_log_probs[1] == -math.inf
    assert hypothesis.log_prob == hypothesis.score == -math.inf


def test_each_sentence_needs_a_target() -> None:
    assert forced_search(Bigram(5, seed=0), sentences([]), [], settings=SHORT) == []
    with pytest.raises(DataError, match="got 1 targets for 2 sentences"):
        forced_search(Bigram(5, seed=0), sentences([1, 2]), [[3]], settings=SHORT)
