"""Beam search in columns: the same hypotheses as one object per row gives, to the last bit."""

import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from search.steppers import Bigram, History, Shortlisted, sentences
from seqloom.core.errors import ModelError
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.search.beam import beam_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.plain_beam import plain_beam_search
from seqloom.search.settings import SearchConfig

STEPPERS = st.sampled_from(["bigram", "ties", "history", "listed"])


def stepper(kind: str, seed: int) -> Stepper:
    match kind:
        case "bigram":
            return Bigram(9, seed=seed)
        case "ties":
            return Bigram(9, seed=seed, levels=2)
        case "listed":
            return Shortlisted(History(9, seed=seed), [5, 2, 8])
        case _:
            return History(9, seed=seed)


@st.composite
def searches(draw: st.DrawFn) -> SearchConfig:
    beam = draw(st.integers(2, 6))
    return SearchConfig(
        beam=beam,
        nbest=draw(st.integers(1, beam)),
        stop=draw(st.sampled_from(["exact", "first", "k_finished"])),
        length_normalisation=draw(st.sampled_from(["none", "mean", "gnmt", "power"])),
        alpha=draw(st.sampled_from([0.0, 0.6, 1.2])),
        reward=draw(st.sampled_from([0.0, 0.3])),
        end_normalisation=draw(st.sampled_from([0.0, 1.0])),
        end_kind=draw(st.sampled_from(["multiply", "add"])),
        length_factor=draw(st.sampled_from([0.0, 1.5])),
        length_constant=draw(st.integers(1, 7)),
        length_overrun=draw(st.sampled_from([1.0, 2.5])),
    )


def same(one: Hypothesis, other: Hypothesis) -> bool:
    looked = (one.attention is None) == (other.attention is None) and (
        one.attention is None or torch.equal(one.attention, other.attention)  # type: ignore[arg-type]
    )
    return looked and all(
        getattr(one, name) == getattr(other, name)
        for name in ("symbols", "is_finished", "is_complete", "hit_limit", "score", "terms", "token_log_probs")
    )


@effort(max_examples=60)
@given(STEPPERS, st.integers(0, 1000), searches(), st.lists(st.integers(1, 6), min_size=1, max_size=7))
def test_both_find_the_same(kind: str, seed: int, chosen: SearchConfig, lengths: list[int]) -> None:
    source = sentences(lengths, seed=seed)
    found = plain_beam_search(stepper(kind, seed), source, chosen)
    expected = beam_search(stepper(kind, seed), source, chosen)
    for one, other in zip(found, expected, strict=True):
        assert len(one) == len(other)
        assert all(same(a, b) for a, b in zip(one, other, strict=True))


def test_other_settings_find_something_else() -> None:
    source, chosen = sentences([4, 2, 5], seed=3), SearchConfig(beam=4, length_factor=0.0, length_constant=6)
    (first, *_), (other, *_) = (
        plain_beam_search(History(9, seed=3), source, each)[0]
        for each in (chosen, chosen.model_copy(update={"reward": 3.0}))
    )
    assert same(first, first)
    assert not same(first, other)


def test_coverage_is_summed_along_the_way() -> None:
    chosen = SearchConfig(beam=4, nbest=4, coverage=0.3, length_factor=0.0, length_constant=6)
    source = sentences([4, 2, 5], seed=3)
    found, expected = (search(History(9, seed=3), source, chosen) for search in (plain_beam_search, beam_search))
    assert all(same(a, b) for one, other in zip(found, expected, strict=True) for a, b in zip(one, other, strict=True))
    assert all("coverage" in each.terms for one in found for each in one)


class Mute(Bigram):
    """Has nothing to say for sentences of an odd number."""

    def step(self, state: State, last: torch.Tensor) -> Step:
        return Step(torch.full((len(last), 9), float("-inf")), state)


def test_a_dead_end_is_told_by_both() -> None:
    source = sentences([2, 3], seed=1)
    for search in (plain_beam_search, beam_search):
        with pytest.raises(ModelError, match="sentence 0 of the batch cannot go on: at step 1"):
            search(Mute(9, seed=1), source, SearchConfig(beam=2))


def test_no_sentences_give_no_hypotheses() -> None:
    nothing = Source(torch.zeros(0, 0, dtype=torch.long), torch.zeros(0, dtype=torch.long))
    assert plain_beam_search(Bigram(9, seed=1), nothing, SearchConfig(beam=3)) == []
