"""Diverse beam search: a plain twin without shortcuts, its limits as laws, and what the penalty is for."""

from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from search.steppers import Bigram, Grammar, History, Masked, Shortlisted, sentences
from seqloom.core.errors import ModelError, UsageError
from seqloom.core.stepping import Source, State, Stepper
from seqloom.search.beam import beam_search
from seqloom.search.diverse import diverse_search
from seqloom.search.greedy import forced_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.scores import LengthNormalisation, length_penalty
from seqloom.search.settings import SearchConfig, Stop

seeds = st.integers(0, 10_000)
stops = st.sampled_from(["exact", "k_finished", "first"])
kinds = st.sampled_from(["none", "mean", "gnmt"])
Outline = tuple[tuple[int, ...], bool]


def diverse(
    stepper: Stepper, source: Source, chosen: SearchConfig, *, groups: int, diversity: float
) -> list[list[Hypothesis]]:
    return diverse_search(stepper, source, chosen.model_copy(update={"groups": groups, "diversity": diversity}))


def settings(
    beam: int, *, nbest: int = 1, kind: LengthNormalisation = "gnmt", stop: Stop = "exact", limit: int = 5
) -> SearchConfig:
    return SearchConfig(
        beam=beam, nbest=nbest, stop=stop, length_normalisation=kind, length_factor=0.0, length_constant=limit
    )


def outline(hypotheses: Sequence[Hypothesis]) -> list[Outline]:
    return [(hypothesis.symbols, hypothesis.is_finished) for hypothesis in hypotheses]


def plain_groups(
    stepper: Stepper, source: Source, chosen: SearchConfig, *, groups: int, diversity: float
) -> list[list[Outline]]:
    """The n best of each group for one sentence, to the maximum length: every candidate, no bound, no batch."""
    beam = chosen.beam // groups
    live: list[list[tuple[float, float, tuple[int, ...], State]]] = [
        [(0.0, 0.0, (), stepper.start(source))] for _ in range(groups)
    ]
    finished: list[list[tuple[float, tuple[int, ...]]]] = [[] for _ in range(groups)]
    for _ in range(chosen.limits(source)[0]):
        taken: list[int] = []
        for group in range(groups):
            candidates = []
            for log_prob, paid, symbols, state in live[group]:
                step = stepper.step(state, torch.tensor([symbols[-1] if symbols else stepper.begin]))
                for symbol, value in enumerate(step.log_probs[0].tolist()):
                    price = paid + diversity * taken.count(symbol)
                    candidates.append((log_prob + value, price, (*symbols, symbol), step.state))
            candidates.sort(key=lambda candidate: -(candidate[0] - candidate[1]))
            kept, live[group] = candidates[:beam], []
            taken += [symbols[-1] for _, _, symbols, _ in kept]
            for log_prob, paid, symbols, state in kept:
                if symbols[-1] == stepper.end:
                    penalty = length_penalty(chosen.length_normalisation, len(symbols), chosen.alpha)
                    finished[group].append((log_prob / penalty, symbols[:-1]))
                else:
                    live[group].append((log_prob, paid, symbols, state))
    found: list[list[Outline]] = []
    for group in range(groups):
        ranked = [(symbols, True) for _, symbols in sorted(finished[group], key=lambda pair: -pair[0])]
        ranked += [(symbols, False) for _, _, symbols, _ in live[group]]
        found.append(ranked[: min(chosen.nbest, beam)])
    return found


@effort(max_examples=25)
@given(seeds, st.sampled_from([(4, 2), (6, 3), (4, 4), (6, 2)]), st.sampled_from([0.0, 0.3, 1.5]), kinds)
def test_groups_find_what_their_plain_twin_finds(
    seed: int, sizes: tuple[int, int], diversity: float, kind: LengthNormalisation
) -> None:
    """With a list long enough for all that the groups find, so that what each has found is in it.

    The stop comes with the maximum length only, because a group that has stopped takes no symbols any more.
    """
    beam, groups = sizes
    stepper, source = EndsLate(7, seed=seed), sentences([2, 4], seed=seed)
    chosen = settings(beam, nbest=beam, kind=kind)
    found = diverse(stepper, source, chosen, groups=groups, diversity=diversity)
    for row, hypotheses in enumerate(found):
        alone = Source(source.ids[row : row + 1], source.lengths[row : row + 1])
        plain = plain_groups(stepper, alone, chosen, groups=groups, diversity=diversity)
        assert set(outline(hypotheses)) == {each for group in plain for each in group}


class EndsLate(History):
    """Ends are so improbable that no group has enough of them before the maximum length."""

    def __init__(self, symbols: int, *, seed: int):
        super().__init__(symbols, seed=seed)
        self.table[:, self.end] -= 3
        self.table = self.table.log_softmax(1)


@effort(max_examples=30)
@given(seeds, kinds, stops, st.integers(1, 5), st.sampled_from([0.0, 2.0]), st.sampled_from([None, 2]))
def test_one_group_is_beam_search(
    seed: int, kind: LengthNormalisation, stop: Stop, beam: int, diversity: float, levels: int | None
) -> None:
    stepper: Stepper = History(6, seed=seed) if levels is None else Bigram(6, seed=seed, levels=levels)
    source, chosen = sentences([3, 1, 6, 2], seed=seed), settings(beam, nbest=beam, kind=kind, stop=stop, limit=6)
    found = diverse(stepper, source, chosen, groups=1, diversity=diversity)
    assert found == beam_search(stepper, source, chosen)  # symbols, scores, terms and order, to the last bit


@pytest.mark.parametrize(
    "more",
    [{"end_normalisation": 0.8}, {"coverage": 0.5}, {"reward": 0.4}, {"end_normalisation": 2.0, "end_kind": "add"}],
)
def test_one_group_is_beam_search_under_every_term_of_the_score(more: dict[str, object]) -> None:
    stepper, source = History(6, seed=8), sentences([3, 1, 6, 2])
    plain = settings(3, nbest=3)
    chosen = plain.model_copy(update=more)
    found = diverse(stepper, source, chosen, groups=1, diversity=1.0)
    assert found == beam_search(stepper, source, chosen)
    assert found != beam_search(stepper, source, plain)


@effort(max_examples=25)
@given(seeds, stops, st.sampled_from([(4, 2), (6, 3), (3, 3)]))
def test_without_diversity_every_group_does_what_a_narrow_beam_does(
    seed: int, stop: Stop, sizes: tuple[int, int]
) -> None:
    beam, groups = sizes
    stepper, source = History(6, seed=seed), sentences([3, 1, 5], seed=seed)
    found = diverse(stepper, source, settings(beam, nbest=beam, stop=stop), groups=groups, diversity=0.0)
    narrow = settings(beam // groups, nbest=beam // groups, stop=stop)
    assert found == beam_search(stepper, source, narrow)


@effort(max_examples=25)
@given(seeds)
def test_groups_that_must_differ_begin_with_different_symbols(seed: int) -> None:
    """Four groups of one: whatever the first symbol of one is, the price keeps the others from it."""
    stepper, source = EndsLate(9, seed=seed), sentences([3, 1, 5], seed=seed)
    chosen = settings(4, nbest=4)
    for found in diverse(stepper, source, chosen, groups=4, diversity=1000.0):
        firsts = [(*hypothesis.symbols, stepper.end)[0] for hypothesis in found]
        assert len(set(firsts)) == len(found) == 4
    assert all(len(found) == 1 for found in diverse(stepper, source, chosen, groups=4, diversity=0.0))


def test_more_diversity_makes_more_different_first_symbols() -> None:
    stepper, source = History(12, seed=5), sentences([2, 3, 4, 5, 6])
    chosen = settings(6, nbest=6)

    def different(found: Sequence[Sequence[Hypothesis]]) -> int:
        return sum(len({(*hypothesis.symbols, stepper.end)[0] for hypothesis in part}) for part in found)

    counts = [
        different(diverse(stepper, source, chosen, groups=3, diversity=diversity)) for diversity in (0.0, 3.0, 9.0)
    ]
    assert counts == sorted(counts)
    assert counts[0] < counts[2]
    assert different(beam_search(stepper, source, chosen)) < counts[2]


@effort(max_examples=25)
@given(seeds, st.sampled_from([0.0, 0.5, 4.0]), st.integers(1, 6))
def test_the_list_is_sorted_without_duplicates_and_worth_what_the_model_says(
    seed: int, diversity: float, nbest: int
) -> None:
    stepper, source = History(6, seed=seed), sentences([3, 4], seed=seed)
    chosen = settings(6, nbest=nbest)
    for row, found in enumerate(diverse(stepper, source, chosen, groups=3, diversity=diversity)):
        assert 1 <= len(found) <= nbest
        assert max(Counter(hypothesis.symbols for hypothesis in found).values()) == 1
        ranks = [(not hypothesis.is_finished, -hypothesis.score) for hypothesis in found]
        assert ranks == sorted(ranks)
        alone = Source(source.ids[row : row + 1], source.lengths[row : row + 1])
        for hypothesis in [each for each in found if each.is_finished]:
            [fed] = forced_search(stepper, alone, [hypothesis.symbols], settings=chosen)
            assert fed == hypothesis
            assert sum(hypothesis.terms.values()) == pytest.approx(hypothesis.score, abs=1e-9)


def test_a_short_list_takes_the_best_of_each_group_before_the_second_of_any() -> None:
    """Two groups of two. The first finds a and ab, the second, which pays for them, c and something worse."""
    names = ["<s>", "</s>", "a", "b", "c", "d"]
    table = {
        "<s>": {"a": 0.5, "b": 0.4, "c": 0.06, "d": 0.04},
        **{name: {"</s>": 1.0} for name in "abcd"},
    }
    stepper = Grammar(names, table, begin="<s>", end="</s>")
    chosen = settings(4, nbest=2, kind="none")
    [found] = diverse(stepper, sentences([1]), chosen, groups=2, diversity=5.0)
    assert [[names[symbol] for symbol in hypothesis.symbols] for hypothesis in found] == [["a"], ["c"]]
    [close] = beam_search(stepper, sentences([1]), chosen)
    assert [[names[symbol] for symbol in hypothesis.symbols] for hypothesis in close] == [["a"], ["b"]]


def test_a_group_pays_once_for_each_hypothesis_before_it() -> None:
    """b is 3 nats below a: one group before that took a makes it cost 2, two of them 4."""
    names = ["<s>", "</s>", "a", "b"]
    high = 1 / (1 + 2.718281828459045**-3)
    table = {"<s>": {"a": high, "b": 1 - high}, "a": {"</s>": 1.0}, "b": {"</s>": 1.0}}
    stepper = Grammar(names, table, begin="<s>", end="</s>")

    def firsts(groups: int, diversity: float) -> list[str]:
        chosen = settings(groups, nbest=groups, kind="none")
        found = diverse(stepper, sentences([1]), chosen, groups=groups, diversity=diversity)[0]
        return [names[hypothesis.symbols[0]] for hypothesis in found]

    assert firsts(2, 2.0) == ["a"]
    assert firsts(3, 2.0) == ["a", "b"]
    assert firsts(2, 4.0) == ["a", "b"]


@effort(max_examples=25)
@given(seeds, st.lists(st.integers(1, 6), min_size=1, max_size=5), st.sampled_from([None, 2]))
def test_neighbours_and_padding_change_nothing(seed: int, lengths: list[int], levels: int | None) -> None:
    stepper: Stepper = History(6, seed=seed) if levels is None else Bigram(6, seed=seed, levels=levels)
    source = sentences(lengths, seed=seed)
    chosen = SearchConfig(beam=4, nbest=4, length_factor=1.0, length_constant=2)
    together = diverse(stepper, source, chosen, groups=2, diversity=0.7)
    padded = sentences(lengths, seed=seed, pad=9, extra=3)
    assert diverse(stepper, padded, chosen, groups=2, diversity=0.7) == together
    backwards = Source(source.ids.flip(0), source.lengths.flip(0))
    assert diverse(stepper, backwards, chosen, groups=2, diversity=0.7)[::-1] == together
    for row, length in enumerate(lengths):
        alone = Source(source.ids[row : row + 1, :length], source.lengths[row : row + 1])
        assert diverse(stepper, alone, chosen, groups=2, diversity=0.7) == [together[row]]


@effort(max_examples=20)
@given(seeds, st.permutations([2, 3, 5, 6, 7]))
def test_a_shortlist_in_any_order_equals_forbidding_the_others(seed: int, offered: list[int]) -> None:
    whole, source, chosen = Bigram(8, seed=seed, levels=3), sentences([3, 2], seed=seed), settings(4, nbest=4)
    short = diverse(Shortlisted(whole, offered), source, chosen, groups=2, diversity=0.5)
    full = diverse(Masked(whole, offered), source, chosen, groups=2, diversity=0.5)
    assert [outline(part) for part in short] == [outline(part) for part in full]


def test_attention_belongs_to_the_symbols() -> None:
    stepper, source = History(6, seed=5), sentences([3, 6])
    for row, found in enumerate(diverse(stepper, source, settings(4, nbest=4), groups=2, diversity=1.0)):
        alone = Source(source.ids[row : row + 1], source.lengths[row : row + 1])
        for hypothesis in [each for each in found if each.is_finished]:
            [fed] = forced_search(stepper, alone, [hypothesis.symbols], settings=settings(1))
            assert fed.attention is not None
            assert hypothesis.attention is not None
            torch.testing.assert_close(hypothesis.attention, fed.attention)


def test_requests_that_cannot_be_met_are_refused() -> None:
    stepper, source = Bigram(5, seed=0), sentences([2])
    with pytest.raises(UsageError, match="this model gives no attention"):
        diverse(stepper, source, settings(2).model_copy(update={"coverage": 0.2}), groups=2, diversity=0.5)
    stuck = Grammar(["<s>", "</s>", "a"], {"<s>": {"a": 1.0}}, begin="<s>", end="</s>")
    with pytest.raises(ModelError, match="sentence 0 of the batch cannot continue: at step 2"):
        diverse(stuck, source, settings(2), groups=2, diversity=0.5)
    assert diverse(stepper, sentences([]), settings(2), groups=2, diversity=0.5) == []
