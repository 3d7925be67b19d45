"""Beam search, greedy search and the oracle: parity, laws and a worked case."""

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from torch import Tensor

from laws.stepping import check_stepper_laws
from search.steppers import Bigram, Grammar, History, Masked, Shortlisted, sentences
from seqloom.core.errors import ModelError, UsageError
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.reference.beam import beam_search as reference_beam
from seqloom.search import exhaustive
from seqloom.search.beam import beam_search
from seqloom.search.constraints import NoRepeat
from seqloom.search.exhaustive import exhaustive_search
from seqloom.search.greedy import greedy_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.scores import LengthNormalisation, ScoreInputs, length_penalty, score_of
from seqloom.search.settings import SearchConfig

KINDS: tuple[LengthNormalisation, ...] = ("none", "mean", "gnmt")
seeds = st.integers(0, 10_000)
kinds = st.sampled_from(KINDS)


def settings(
    beam: int = 1, *, nbest: int = 1, kind: LengthNormalisation = "gnmt", alpha: float = 0.6, limit: int = 5
) -> SearchConfig:
    """Every sentence may have `limit` symbols."""
    return SearchConfig(
        beam=beam,
        nbest=nbest,
        length_normalisation=kind,
        alpha=alpha,
        length_factor=0.0,
        length_constant=limit,
    )


def outline(hypotheses: Sequence[Hypothesis]) -> list[tuple[tuple[int, ...], bool]]:
    return [(hypothesis.symbols, hypothesis.is_finished) for hypothesis in hypotheses]


def test_the_table_steppers_keep_the_laws_of_stepping() -> None:
    check_stepper_laws(lambda: Bigram(9, seed=1), 20, target_symbols=9)
    check_stepper_laws(lambda: History(9, seed=1), 20, target_symbols=9)
    check_stepper_laws(lambda: Shortlisted(History(9, seed=1), [5, 2, 8]), 20, target_symbols=9)


def apples_and_aunts() -> Grammar:
    aunts = {"象": 0.1, "人": 0.08, "妈": 0.12, "便": 0.05, "军": 0.05, "米": 0.08, "姐": 0.07}
    table = {
        "<s>": {"我": 1.0},
        "我": {"爱": 1.0},
        "爱": {"苹": 0.45, "大": 0.55},
        "苹": {"果": 1.0},
        "大": {name: part / 0.55 for name, part in aunts.items()},
        "果": {"</s>": 1.0},
        **{name: {"</s>": 1.0} for name in aunts},
    }
    return Grammar(["<s>", "</s>", "我", "爱", "大", "苹", "果", *aunts], table, begin="<s>", end="</s>")


def test_greedy_says_aunts_and_beam_two_says_apples() -> None:
    stepper = apples_and_aunts()
    source = sentences([1])

    def say(hypothesis: Hypothesis) -> str:
        return "".join(stepper.names[symbol] for symbol in hypothesis.symbols)

    greedy = greedy_search(stepper, source, settings(kind="none"))[0]
    best = beam_search(stepper, source, settings(2, kind="none"))[0][0]
    assert (say(greedy), say(best)) == ("我爱大妈", "我爱苹果")
    assert math.exp(greedy.score) == pytest.approx(0.12, abs=1e-6)
    assert math.exp(best.score) == pytest.approx(0.45, abs=1e-6)
    oracle = exhaustive_search(stepper, source, settings(kind="none"))[0]
    assert say(oracle[0]) == "我爱苹果"
    assert len(oracle) == 8
    assert sum(math.exp(hypothesis.log_prob) for hypothesis in oracle) == pytest.approx(1, abs=1e-6)


@effort(max_examples=40)
@given(seeds, kinds, st.sampled_from([0.0, 0.6, 1.0, 2.0]))
def test_a_wide_enough_beam_finds_what_the_oracle_finds(seed: int, kind: LengthNormalisation, alpha: float) -> None:
    stepper, source = History(4, seed=seed), sentences([1, 4], seed=seed)
    wide = settings(64, nbest=10, kind=kind, alpha=alpha, limit=3)
    for found, oracle in zip(beam_search(stepper, source, wide), exhaustive_search(stepper, source, wide), strict=True):
        assert outline(found) == outline(oracle[:10])
        assert [h.score for h in found] == pytest.approx([h.score for h in oracle[:10]], abs=1e-12)


@effort(max_examples=40)
@given(seeds, kinds, st.sampled_from([None, 2, 3]))
def test_beam_one_is_greedy_token_for_token(seed: int, kind: LengthNormalisation, levels: int | None) -> None:
    stepper = Bigram(6, seed=seed, levels=levels, dtype=torch.float32)
    source, chosen = sentences([3, 1, 6, 2, 2], seed=seed), settings(kind=kind, limit=8)
    beams, greedy = beam_search(stepper, source, chosen), greedy_search(stepper, source, chosen)
    assert [beam for [beam] in beams] == greedy  # symbols, scores, terms and log-probabilities, to the last bit


@effort(max_examples=60)
@given(seeds, st.sampled_from(["bigram", "ties", "history", "listed"]), kinds, st.integers(1, 5))
def test_beam_search_equals_the_reference(seed: int, name: str, kind: LengthNormalisation, beam: int) -> None:
    stepper: Stepper = {
        "bigram": Bigram(6, seed=seed),
        "ties": Bigram(6, seed=seed, levels=2),
        "history": History(6, seed=seed),
        "listed": Shortlisted(History(9, seed=seed), [5, 2, 8]),
    }[name]
    source = sentences([2, 1, 5, 3, 3, 4, 1, 6], seed=seed)
    chosen = settings(beam, nbest=1 + seed % beam, kind=kind, limit=6)
    score = chosen.score()
    expected = reference_beam(
        stepper,
        source,
        beam=chosen.beam,
        nbest=chosen.nbest,
        limits=chosen.limits(source),
        score=lambda log_prob, length: score_of(score.terms(ScoreInputs(log_prob, length))),
        bound=lambda log_prob, length, limit: score.bound(log_prob, length, limit=limit),
    )
    found = beam_search(stepper, source, chosen)
    assert [[(h.symbols, h.is_finished, h.score) for h in part] for part in found] == expected
    never = [NoRepeat(99)] * len(found)
    assert beam_search(stepper, source, chosen, constraints=never) == found  # what forbids nothing changes nothing


@effort(max_examples=40)
@given(seeds, kinds, st.integers(1, 6))
def test_terms_and_token_log_probs_add_up(seed: int, kind: LengthNormalisation, beam: int) -> None:
    stepper, source = History(7, seed=seed), sentences([3, 5], seed=seed)
    chosen = settings(beam, nbest=beam, kind=kind, alpha=0.8)
    for hypothesis in [h for found in beam_search(stepper, source, chosen) for h in found]:
        length = len(hypothesis.symbols) + hypothesis.is_finished
        assert len(hypothesis.token_log_probs) == length
        assert sum(hypothesis.terms.values()) == pytest.approx(hypothesis.score, abs=1e-9)
        assert sum(hypothesis.token_log_probs) == pytest.approx(hypothesis.log_prob, abs=1e-9)
        assert hypothesis.log_prob / length_penalty(kind, length, 0.8) == pytest.approx(hypothesis.score, abs=1e-9)
        assert _score_by_feeding(stepper, source, hypothesis) is not None


def _score_by_feeding(stepper: Stepper, source: Source, hypothesis: Hypothesis) -> int | None:
    """The sentence for which feeding the hypothesis gives its token log-probabilities."""
    path = [*hypothesis.symbols, *([stepper.end] if hypothesis.is_finished else [])]
    state, last = stepper.start(source), stepper.begin
    columns = []
    for symbol in path:
        step = stepper.step(state, torch.full((len(source.lengths),), last))
        columns.append(step.log_probs[:, symbol])
        state, last = step.state, symbol
    fed = torch.stack(columns, 1)
    wanted = torch.tensor(hypothesis.token_log_probs, dtype=torch.float64)
    fits = ((fed - wanted).abs() < 1e-12).all(1).nonzero().flatten().tolist()
    return fits[0] if fits else None


@effort(max_examples=40)
@given(seeds, st.integers(1, 4), st.lists(st.integers(1, 6), min_size=1, max_size=6), st.sampled_from([None, 2]))
def test_neighbours_and_padding_change_nothing(seed: int, beam: int, lengths: list[int], levels: int | None) -> None:
    stepper: Stepper = History(6, seed=seed) if levels is None else Bigram(6, seed=seed, levels=levels)
    chosen = SearchConfig(beam=beam, nbest=beam, length_factor=1.0, length_constant=2)
    together = beam_search(stepper, sentences(lengths, seed=seed), chosen)
    assert beam_search(stepper, sentences(lengths, seed=seed, pad=9, extra=3), chosen) == together
    backwards = sentences(lengths, seed=seed)
    backwards = Source(backwards.ids.flip(0), backwards.lengths.flip(0))
    assert beam_search(stepper, backwards, chosen)[::-1] == together
    for row, length in enumerate(lengths):
        whole = sentences(lengths, seed=seed)
        alone = Source(whole.ids[row : row + 1, :length], whole.lengths[row : row + 1])
        assert beam_search(stepper, alone, chosen) == [together[row]]


@effort(max_examples=40)
@given(seeds, st.integers(1, 4), st.permutations([2, 3, 5, 6]))
def test_a_shortlist_in_any_order_equals_forbidding_the_others(seed: int, beam: int, offered: list[int]) -> None:
    whole, source = Bigram(8, seed=seed, levels=2), sentences([3, 2], seed=seed)
    chosen = settings(beam, nbest=beam)
    short, full = Shortlisted(whole, offered), Masked(whole, offered)
    found = beam_search(short, source, chosen)
    assert [outline(part) for part in found] == [outline(part) for part in beam_search(full, source, chosen)]
    assert {symbol for part in found for h in part for symbol in h.symbols} <= {3, 5, 6}
    assert outline(greedy_search(short, source, chosen)) == outline(greedy_search(full, source, chosen))


@effort(max_examples=40)
@given(seeds, kinds, st.integers(2, 6))
def test_the_n_best_are_sorted_distinct_and_begin_with_the_best(
    seed: int, kind: LengthNormalisation, beam: int
) -> None:
    stepper, source = Bigram(6, seed=seed), sentences([3, 1], seed=seed)
    one = beam_search(stepper, source, settings(beam, kind=kind))
    for found, [best] in zip(beam_search(stepper, source, settings(beam, nbest=beam, kind=kind)), one, strict=True):
        assert len(set(outline(found))) == len(found) == beam
        ranks = [(not h.is_finished, -h.score) for h in found]
        assert ranks == sorted(ranks)
        assert found[0] == best


def test_attention_has_a_row_per_symbol_and_a_column_per_source_position() -> None:
    stepper, source = History(6, seed=5), sentences([3, 1, 6])
    chosen = settings(3, nbest=3)
    for length, found in zip([3, 1, 6], beam_search(stepper, source, chosen), strict=True):
        for hypothesis in found:
            assert hypothesis.attention is not None
            assert hypothesis.attention.shape == (len(hypothesis.token_log_probs), length)
            torch.testing.assert_close(hypothesis.attention, _attention_by_feeding(stepper, source, hypothesis, length))
    greedy = greedy_search(stepper, source, chosen)[2]
    assert greedy.attention is not None
    torch.testing.assert_close(greedy.attention, _attention_by_feeding(stepper, source, greedy, 6))


def _attention_by_feeding(stepper: Stepper, source: Source, hypothesis: Hypothesis, length: int) -> Tensor:
    row = source.lengths.tolist().index(length)
    state, rows = stepper.start(source).select(torch.tensor([row])), []
    for symbol in [stepper.begin, *hypothesis.symbols][: len(hypothesis.token_log_probs)]:
        step = stepper.step(state, torch.tensor([symbol]))
        assert step.attention is not None
        rows.append(step.attention[0, :length])
        state = step.state
    return torch.stack(rows)


def test_hypotheses_without_an_end_are_returned_cut_at_the_maximum_length() -> None:
    endless = Grammar(["<s>", "</s>", "a"], {"<s>": {"a": 1.0}, "a": {"a": 1.0}}, begin="<s>", end="</s>")
    source, chosen = sentences([2, 4]), SearchConfig(beam=3, length_factor=1.5, length_constant=1)
    greedy = greedy_search(endless, source, chosen)
    assert outline(greedy) == [((2,) * 4, False), ((2,) * 7, False)]
    assert [beam for [beam] in beam_search(endless, source, chosen)] == greedy
    assert exhaustive_search(endless, source, chosen)[0][0].symbols == (2,) * 4


def test_a_finished_hypothesis_comes_before_a_better_cut_one() -> None:
    table = {"<s>": {"a": 0.9, "</s>": 0.1}, "a": {"a": 1.0}}
    stepper = Grammar(["<s>", "</s>", "a"], table, begin="<s>", end="</s>")
    found = beam_search(stepper, sentences([1]), settings(2, nbest=2))[0]
    assert outline(found) == [((), True), ((2,) * 5, False)]
    assert found[0].score < found[1].score


def test_an_empty_batch_gives_an_empty_list() -> None:
    for search in (greedy_search, beam_search, exhaustive_search):
        assert search(Bigram(5, seed=0), sentences([]), settings()) == []


class Counting(Bigram):
    """Counts the rows it was asked for at each step."""

    def __init__(self, symbols: int, *, seed: int) -> None:
        super().__init__(symbols, seed=seed)
        self.rows: list[int] = []

    def step(self, state: State, last: Tensor) -> Step:
        self.rows.append(len(last))
        return super().step(state, last)


def test_finished_sentences_leave_the_batch() -> None:
    stepper, source = Counting(6, seed=4), sentences([2, 3, 4, 5, 6])
    greedy = greedy_search(stepper, source, settings(limit=9))
    lengths = [len(h.token_log_probs) for h in greedy]
    assert len(set(lengths)) > 1
    assert stepper.rows == [sum(length > step for length in lengths) for step in range(max(lengths))]


def test_a_search_stops_when_nothing_live_can_win() -> None:
    """After </s> with 0.6 the best live way has 0.4 at most: one step is enough without a normalisation."""
    table = {"<s>": {"</s>": 0.6, "a": 0.4}, "a": {"a": 0.9, "</s>": 0.1}}

    class Watched(Grammar):
        steps = 0

        def step(self, state: State, last: Tensor) -> Step:
            Watched.steps += 1
            return super().step(state, last)

    stepper = Watched(["<s>", "</s>", "a"], table, begin="<s>", end="</s>")
    assert outline(beam_search(stepper, sentences([1]), settings(2, kind="none"))[0]) == [((), True)]
    assert Watched.steps == 1
    beam_search(stepper, sentences([1]), settings(2, nbest=2, kind="none"))
    assert Watched.steps > 2


def test_a_batch_in_which_all_end_at_once_takes_one_step() -> None:
    stepper = Grammar(["<s>", "</s>"], {"<s>": {"</s>": 1.0}}, begin="<s>", end="</s>")
    found = beam_search(stepper, sentences([1, 2, 3]), settings(4, nbest=4))
    assert [outline(part) for part in found] == [[((), True)]] * 3


def test_a_dead_end_and_a_nan_are_errors_with_a_sentence() -> None:
    stuck = Grammar(["<s>", "</s>", "a"], {"<s>": {"a": 1.0}}, begin="<s>", end="</s>")
    for search in (greedy_search, beam_search):
        with pytest.raises(ModelError, match="sentence 0 of the batch cannot continue: at step 2"):
            search(stuck, sentences([2]), settings(2))
    broken = Bigram(5, seed=0)
    broken.table[:, broken.begin, 3] = float("nan")
    for search in (greedy_search, beam_search):
        with pytest.raises(ModelError, match=r"\(NaN\), first in row 0 of 2"):
            search(broken, sentences([2, 3]), settings(2))


def test_the_oracle_refuses_what_it_cannot_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exhaustive, "MAX_SEQUENCES", 2_000)
    with pytest.raises(UsageError, match="over 60 symbols and up to 9 steps has more than 2000 sequences"):
        exhaustive_search(Bigram(60, seed=0), sentences([2]), settings(limit=9))
