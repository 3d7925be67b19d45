"""When a search stops, what it can prove of what it found, and the terms that a score may have."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from search.steppers import Bigram, Grammar, History, sentences
from seqloom.core.errors import UsageError
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.search.beam import beam_search
from seqloom.search.diverse import diverse_search
from seqloom.search.exhaustive import exhaustive_search
from seqloom.search.greedy import greedy_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.search.trace import Recorder

seeds = st.integers(0, 10_000)
scores = st.fixed_dictionaries(
    {
        "length_normalisation": st.sampled_from(["none", "mean", "power", "gnmt"]),
        "alpha": st.sampled_from([0.0, 0.6, 1.5]),
        "reward": st.sampled_from([0.0, 0.4, -0.3]),
        "coverage": st.sampled_from([0.0, 0.5]),
        "end_normalisation": st.sampled_from([0.0, 0.3, 2.0]),
        "end_kind": st.sampled_from(["multiply", "add"]),
    }
)
stops = st.sampled_from(["first", "k_finished", "exact"])


def settings(beam: int, *, nbest: int = 1, limit: int = 4, **more: Any) -> SearchConfig:
    """Every sentence may have `limit` symbols."""
    return SearchConfig(beam=beam, nbest=nbest, length_factor=0.0, length_constant=limit, **more)


def outline(hypotheses: Sequence[Hypothesis]) -> list[tuple[int, ...]]:
    return [hypothesis.symbols for hypothesis in hypotheses]


@effort(max_examples=25)
@given(seeds, scores)
def test_a_beam_that_prunes_nothing_finds_what_the_oracle_finds(seed: int, score: dict[str, Any]) -> None:
    stepper, source = History(4, seed=seed), sentences([1, 4], seed=seed)
    wide = settings(64, nbest=5, limit=3, **score)
    for found, oracle in zip(beam_search(stepper, source, wide), exhaustive_search(stepper, source, wide), strict=True):
        assert [each.score for each in found] == pytest.approx([each.score for each in oracle[:5]], abs=1e-9)
        assert all(each.is_complete for each in found if each.is_finished)


@effort(max_examples=20)
@given(seeds, scores, stops, st.integers(1, 4))
def test_what_is_marked_complete_is_what_the_oracle_finds(
    seed: int, score: dict[str, Any], stop: str, beam: int
) -> None:
    stepper, source = History(5, seed=seed), sentences([2, 3], seed=seed)
    chosen = settings(beam, nbest=beam, stop=stop, **score)
    found = beam_search(stepper, source, chosen)
    for hypotheses, oracle in zip(found, exhaustive_search(stepper, source, chosen), strict=True):
        for place, hypothesis in enumerate(hypotheses):
            if hypothesis.is_complete:
                assert hypothesis.score == pytest.approx(oracle[place].score, abs=1e-9)


def test_some_are_marked_complete_and_some_are_not() -> None:
    """Without this the law above could hold because nothing is ever marked."""
    marks = [
        beam_search(History(5, seed=seed), sentences([2], seed=seed), settings(2, length_normalisation="none"))[0][0]
        for seed in range(40)
    ]
    complete = sum(mark.is_complete for mark in marks)
    assert 5 < complete < 40


GOOD = Grammar(
    ["<s>", "</s>", "go", "o", "od", "d"],
    {
        "<s>": {"go": 1.0},
        "go": {"o": 0.8, "d": 0.2},
        "o": {"od": 1.0},
        "od": {"</s>": 1.0},
        "d": {"</s>": 1.0},
    },
    begin="<s>",
    end="</s>",
)
"""The probable output has four symbols, the improbable one three."""


@pytest.mark.parametrize("search", [beam_search, diverse_search])
def test_a_search_continues_where_its_best_hypothesis_has_not_ended(search: Any) -> None:
    long, short = (2, 3, 4), (2, 5)
    (found,) = search(GOOD, sentences([2]), settings(2, limit=3, length_overrun=2.0))
    assert (found[0].symbols, found[0].is_finished, found[0].hit_limit) == (long, True, False)
    (cut,) = search(GOOD, sentences([2]), settings(2, nbest=2, limit=3))
    assert [(each.symbols, each.is_finished, each.hit_limit) for each in cut] == [
        (short, True, True),  # it has ended, but a better one had not
        (long, False, True),
    ]
    (enough,) = search(GOOD, sentences([2]), settings(2, limit=4))
    assert (enough[0].symbols, enough[0].hit_limit) == (long, False)


@effort(max_examples=30)
@given(seeds, scores, st.integers(1, 4))
def test_with_an_open_maximum_length_beam_one_is_greedy_and_complete_marks_hold(
    seed: int, score: dict[str, Any], beam: int
) -> None:
    stepper, source = History(5, seed=seed), sentences([1, 2], seed=seed)
    chosen = settings(beam, limit=3, length_overrun=2.0, **score)
    if beam == 1:
        one, greedy = beam_search(stepper, source, chosen), greedy_search(stepper, source, chosen)
        assert [(each[0], each[0].hit_limit) for each in one] == [(each, each.hit_limit) for each in greedy]
    wide = settings(64, limit=3, length_overrun=2.0, **score)
    for found, other in zip(beam_search(stepper, source, chosen), beam_search(stepper, source, wide), strict=True):
        assert found[0].score >= other[0].score - 1e-9 or not found[0].is_complete
        assert len(found[0].token_log_probs) <= 6


def test_greedy_is_marked_complete_nowhere() -> None:
    found = greedy_search(History(5, seed=1), sentences([2]), settings(1))
    assert not found[0].is_complete


@effort(max_examples=20)
@given(seeds, scores)
def test_beam_one_is_greedy_under_every_score(seed: int, score: dict[str, Any]) -> None:
    stepper, source, chosen = History(6, seed=seed), sentences([3, 1, 6], seed=seed), settings(1, limit=7, **score)
    assert [beam for [beam] in beam_search(stepper, source, chosen)] == greedy_search(stepper, source, chosen)


@effort(max_examples=20)
@given(seeds, scores, stops, st.integers(1, 4))
def test_terms_add_up_under_every_score(seed: int, score: dict[str, Any], stop: str, beam: int) -> None:
    chosen = settings(beam, nbest=beam, stop=stop, **score)
    for hypothesis in beam_search(History(6, seed=seed), sentences([4], seed=seed), chosen)[0]:
        assert sum(hypothesis.terms.values()) == pytest.approx(hypothesis.score, abs=1e-9)
        assert sum(hypothesis.token_log_probs) == pytest.approx(hypothesis.log_prob, abs=1e-9)


class Watched(Grammar):
    """Counts its steps."""

    steps = 0

    def step(self, state: State, last: torch.Tensor) -> Step:
        self.steps += 1
        return super().step(state, last)


def test_each_rule_stops_where_it_says() -> None:
    """a ends after one, two or three steps; what ends later is better, by a reward for each symbol."""
    table = {"<s>": {"a": 0.7, "b": 0.3}, "a": {"</s>": 0.5, "a": 0.5}, "b": {"b": 0.9, "</s>": 0.1}}
    steps = {}
    for stop in ("first", "k_finished", "exact"):
        stepper = Watched(["<s>", "</s>", "a", "b"], table, begin="<s>", end="</s>")
        chosen = settings(2, limit=8, length_normalisation="none", reward=0.5, stop=stop)
        found = beam_search(stepper, sentences([2]), chosen)[0]
        steps[stop] = (stepper.steps, len(found[0].symbols))
    assert steps["first"][0] == 2
    assert steps["first"][0] < steps["k_finished"][0] < steps["exact"][0]


def test_an_early_end_becomes_dearer_by_the_end_normalisation() -> None:
    table = {"<s>": {"</s>": 0.6, "a": 0.4}, "a": {"</s>": 0.9, "a": 0.1}}

    def length(**more: Any) -> int:
        stepper = Grammar(["<s>", "</s>", "a"], table, begin="<s>", end="</s>")
        chosen = settings(3, limit=5, length_normalisation="none", **more)
        return len(beam_search(stepper, sentences([6]), chosen)[0][0].symbols)

    assert length() == 0
    assert length(end_normalisation=1.0) == 1
    assert length(end_normalisation=1.0, end_kind="add") > 0
    # γ = 0 is off: it does not multiply log P(end) by nothing, which would make every end free
    assert length(end_normalisation=0.0) == 0


def test_coverage_prefers_what_reads_everything() -> None:
    """One word, then end: a looks at the first source position only, b at both alike, and is less probable."""

    class Looking(Grammar):
        def step(self, state: State, last: torch.Tensor) -> Step:
            step = super().step(state, last)
            looks = {0: [0.5, 0.5], 2: [1.0, 0.0], 3: [0.5, 0.5]}
            rows = torch.tensor([looks[int(symbol)] for symbol in last], dtype=torch.float64)
            return Step(step.log_probs, step.state, attention=rows)

    table = {"<s>": {"a": 0.6, "b": 0.4}, "a": {"</s>": 1.0}, "b": {"</s>": 1.0}}
    stepper = Looking(["<s>", "</s>", "a", "b"], table, begin="<s>", end="</s>")
    plain = beam_search(stepper, sentences([2]), settings(2, length_normalisation="none"))[0][0]
    covering = beam_search(stepper, sentences([2]), settings(2, length_normalisation="none", coverage=1.0))[0][0]
    assert (plain.symbols, covering.symbols) == ((2,), (3,))
    assert covering.terms["coverage"] == pytest.approx(0.0)


def test_coverage_without_attention_is_refused_with_a_sentence() -> None:
    for search, beam in ((beam_search, 2), (greedy_search, 1)):
        with pytest.raises(UsageError, match=r"gives no attention to the source; set search.coverage=0"):
            search(Bigram(5, seed=0), sentences([2]), settings(beam, coverage=0.5))


@effort(max_examples=15)
@given(seeds, scores, st.integers(1, 4))
def test_neighbours_and_padding_change_nothing_under_every_score(seed: int, score: dict[str, Any], beam: int) -> None:
    stepper: Stepper = History(6, seed=seed)
    chosen = settings(beam, nbest=beam, **score)
    lengths = [3, 1, 5]
    together = beam_search(stepper, sentences(lengths, seed=seed), chosen)
    assert beam_search(stepper, sentences(lengths, seed=seed, pad=9, extra=3), chosen) == together
    whole = sentences(lengths, seed=seed)
    for row, length in enumerate(lengths):
        alone = Source(whole.ids[row : row + 1, :length], whole.lengths[row : row + 1])
        assert beam_search(stepper, alone, chosen) == [together[row]]


@effort(max_examples=15)
@given(seeds, scores, stops, st.integers(1, 4))
def test_a_trace_holds_every_hypothesis_and_its_score(seed: int, score: dict[str, Any], stop: str, beam: int) -> None:
    stepper, source = History(6, seed=seed), sentences([3, 2], seed=seed)
    chosen, recorder = settings(beam, nbest=beam, stop=stop, **score), Recorder()
    found = beam_search(stepper, source, chosen, recorder=recorder)
    assert found == beam_search(stepper, source, chosen)  # looking changes nothing
    for hypotheses, trace in zip(found, recorder.traces(2), strict=True):
        ends = {
            tuple(each.symbol for each in trace.path(node)): node
            for node in trace.nodes
            if node.fate in ("finished", "cut")
        }
        for hypothesis in hypotheses:
            path = (*hypothesis.symbols, *([stepper.end] if hypothesis.is_finished else []))
            assert ends[path].score == pytest.approx(hypothesis.score, abs=1e-12)
        for node in trace.nodes:
            way = trace.path(node)
            assert node.terms["log_prob"] == pytest.approx(sum(each.token_log_prob for each in way), abs=1e-9)
            assert [each.step for each in way] == list(range(1, node.step + 1))
            assert all(each.fate == "kept" for each in way[:-1])
        kept = [sum(node.step == step and node.fate != "pruned" for node in trace.nodes) for step in range(1, 5)]
        assert max(kept) <= beam


def test_a_trace_tells_why_the_runner_up_lost() -> None:
    table = {"<s>": {"a": 0.6, "b": 0.4}, "a": {"</s>": 1.0}, "b": {"</s>": 1.0}}
    stepper, recorder = Grammar(["<s>", "</s>", "a", "b"], table, begin="<s>", end="</s>"), Recorder()
    beam_search(stepper, sentences([1]), settings(1, length_normalisation="none"), recorder=recorder)
    (trace,) = recorder.traces(1)
    fates = {(node.step, node.symbol): (node.fate, node.score) for node in trace.nodes}
    assert fates[1, 3] == ("pruned", pytest.approx(math.log(0.4)))
    assert fates[1, 2][0] == "kept"
    assert fates[2, 1][0] == "finished"
