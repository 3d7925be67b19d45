"""The one door to all searches: which one the settings lead to, and what they ask of every output."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from search.steppers import History, sentences
from seqloom.core.errors import UsageError
from seqloom.core.symbols import END
from seqloom.search.beam import beam_search
from seqloom.search.constraints import All, Forbidden, Phrases, Prefix, StopAt
from seqloom.search.decode import constraints_for, decode
from seqloom.search.diverse import diverse_search
from seqloom.search.greedy import greedy_search
from seqloom.search.sampling import sample_search
from seqloom.search.settings import SearchConfig

seeds = st.integers(0, 10_000)


def test_the_settings_choose_the_search() -> None:
    stepper, source = History(6, seed=3), sentences([3, 2, 5])
    one, four = SearchConfig(beam=1), SearchConfig(beam=4, nbest=2)
    assert [best for [best] in decode(stepper, source, one)] == greedy_search(stepper, source, one)
    assert decode(stepper, source, four) == beam_search(stepper, source, four)
    grouped = SearchConfig(beam=4, nbest=2, groups=2, diversity=1.0)
    assert decode(stepper, source, grouped) == diverse_search(stepper, source, grouped)
    drawn = SearchConfig(method="sample", nbest=3, beam=1, temperature=0.7, top_k=4, seed=5)
    assert decode(stepper, source, drawn) == sample_search(stepper, source, drawn)
    assert decode(stepper, source, drawn) != decode(stepper, source, drawn.model_copy(update={"seed": 6}))


def test_without_any_rule_nobody_is_bound() -> None:
    assert constraints_for(sentences([3, 2]), SearchConfig(), None, end=END) is None
    assert constraints_for(sentences([3, 2]), SearchConfig(), [None, None], end=END) is None
    free, bound = constraints_for(sentences([3, 2]), SearchConfig(), [None, Prefix((4,))], end=END) or ()
    assert free is None
    assert bound is not None


@effort(max_examples=15)
@given(seeds, st.integers(1, 4), st.sampled_from(["beam", "sample"]))
def test_minimum_length_and_repetitions_are_kept(seed: int, beam: int, method: str) -> None:
    stepper, source = History(6, seed=seed), sentences([2, 4], seed=seed)
    chosen = SearchConfig(
        beam=beam, shortest_factor=1.0, shortest_constant=2, no_repeat=2, length_factor=3.0, method=method, seed=seed
    )
    for length, [best, *_] in zip([2, 4], decode(stepper, source, chosen), strict=True):
        assert len(best.symbols) + 1 >= length + 2
        pairs = list(pairwise(best.symbols))
        assert len(set(pairs)) == len(pairs)


@effort(max_examples=15)
@given(seeds, st.integers(1, 5))
def test_forced_phrases_come_and_forbidden_ones_do_not(seed: int, beam: int) -> None:
    stepper, source = History(7, seed=seed), sentences([3, 1], seed=seed)
    constraints = [Phrases(((5, 4), (6,)), END), Forbidden(((4,), (5,)))]
    first, second = decode(stepper, source, SearchConfig(beam=beam), constraints=constraints)
    symbols = first[0].symbols
    assert 6 in symbols
    assert (5, 4) in list(pairwise(symbols))
    assert not {4, 5} & set(second[0].symbols)


@effort(max_examples=15)
@given(seeds, st.integers(1, 4))
def test_forcing_the_best_output_as_a_prefix_gives_it_back(seed: int, beam: int) -> None:
    stepper, source, chosen = History(6, seed=seed), sentences([3], seed=seed), SearchConfig(beam=beam)
    [[best]] = decode(stepper, source, chosen)
    [[again]] = decode(stepper, source, chosen, constraints=[Prefix(best.symbols[:2])])
    assert again.symbols[:2] == best.symbols[:2]
    assert again.score >= best.score or again.symbols == best.symbols


def test_contradictions_and_groups_are_refused_with_a_sentence() -> None:
    stepper, source = History(6, seed=1), sentences([2])
    with pytest.raises(UsageError, match="leave out one of the two"):
        decode(stepper, source, SearchConfig(), constraints=[All((Phrases(((4, 5),), END), Forbidden(((5,),))))])
    with pytest.raises(UsageError, match=r"search.groups=2 divides the beam"):
        decode(stepper, source, SearchConfig(groups=2, no_repeat=2))
    with pytest.raises(UsageError, match="got 2 constraints for 1 sentences"):
        decode(stepper, source, SearchConfig(), constraints=[None, None])


def test_an_output_that_stops_before_its_phrases_came_is_cut() -> None:
    stepper, source = History(6, seed=1), sentences([2])
    [[best]] = decode(stepper, source, SearchConfig(beam=3))
    first = best.symbols[0]
    other = next(symbol for symbol in (3, 4, 5) if symbol != first)
    constraint = All((Prefix((first,)), StopAt(((first,),)), Phrases(((other,),), END)))
    with pytest.raises(UsageError, match="leave out one of the two"):
        decode(stepper, source, SearchConfig(beam=3), constraints=[All((StopAt(((first,),)), Prefix((first, other))))])
    [[cut]] = beam_search(stepper, source, SearchConfig(beam=3), constraints=[constraint])
    assert (cut.symbols, cut.is_finished) == ((first,), False)
