"""Peer modes: worked cases in which they differ from each other, golden cases of OpenNMT-py, laws and messages."""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st
from torch import Tensor

from search.steppers import Grammar, History, Rows, numbered, sentences
from seqloom.core.errors import ModelError
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.core.symbols import BEGIN, END
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.peers.rules import RULES, rules_of
from seqloom.search.peers.search import peer_search
from seqloom.search.settings import PeerMode

MODES: tuple[PeerMode, ...] = get_args(PeerMode)
NAMES = ["<pad>", "<s>", "</s>", "<unk>", "a", "b"]
AFTER_END = {"a": 0.55, "b": 0.45}


class Said(NamedTuple):
    """A hypothesis of a worked case: the probability of all its symbols, and what its logarithm is divided by."""

    symbols: str
    is_finished: bool
    probability: float
    divisor: float = 1.0


class Case(NamedTuple):
    """P(next ∣ last), the maximum length with its end, and what each peer says with beam 2, 2-best and α = 1."""

    table: Mapping[str, Mapping[str, float]]
    limit: int
    found: Mapping[PeerMode, list[Said]]


# Ends at once: first a .7, end .2, b .1; then ab .42, a + end .245, aa .035; then ab + end .336, aba .063.
EMPTY = Case(
    {
        "<s>": {"a": 0.7, "</s>": 0.2, "b": 0.1},
        "a": {"b": 0.6, "</s>": 0.35, "a": 0.05},
        "b": {"</s>": 0.8, "a": 0.15, "b": 0.05},
    },
    4,
    {
        # The empty output is dropped; a + end waits until ab + end is better than anything alive.
        "opennmt-lua": [Said("ab", True, 0.336, 9 / 6), Said("a", True, 0.245, 8 / 6)],
        # The empty output is third: log .2 / 2. Begin is counted.
        "opennmt-py": [Said("ab", True, 0.336, 4), Said("a", True, 0.245, 3)],
        # No end as first symbol. Ends at the second place, then at the first: over.
        "joeynmt": [Said("ab", True, 0.336, 8 / 6), Said("a", True, 0.245, 7 / 6)],
        # log .2 of the empty output loses its place to log .42 and log .245.
        "sockeye": [Said("ab", True, 0.336, 3), Said("a", True, 0.245, 2)],
        "fairseq": [Said("ab", True, 0.336, 3), Said("a", True, 0.245, 2)],
        # The empty output takes its place away: from then on the beam is 1 wide, and a + end is never seen.
        "marian": [Said("ab", True, 0.336, 3), Said("", True, 0.2)],
        # The empty output is in the pool, until the better ab + end comes.
        "huggingface": [Said("ab", True, 0.336, 3), Said("a", True, 0.245, 2)],
        # No end as first symbol, and what is left sums to one: .7 / .8, .1 / .8.
        "ctranslate2": [Said("ab", True, 0.336 / 0.8, 3), Said("a", True, 0.245 / 0.8, 2)],
    },
)
# First a .6, b .3; then a + end .24, aa .198, b + end .18, ab .162; then ab + end .0972, aa + end .0792.
REFILL = Case(
    {
        "<s>": {"a": 0.6, "b": 0.3, "</s>": 0.1},
        "a": {"</s>": 0.4, "a": 0.33, "b": 0.27},
        "b": {"</s>": 0.6, "a": 0.35, "b": 0.05},
    },
    3,
    {
        "opennmt-lua": [Said("a", True, 0.24, 8 / 6), Said("aa", True, 0.0792, 9 / 6)],
        "opennmt-py": [Said("a", True, 0.24, 3), Said("aa", True, 0.0792, 4)],
        # After its end a goes on as a + end + a .132 and a + end + b .108, which leave no place to aa + end .0792.
        "joeynmt": [Said("a", True, 0.24, 7 / 6)],
        # a + end keeps its place, so aa alone goes on.
        "sockeye": [Said("a", True, 0.24, 2), Said("aa", True, 0.0792, 3)],
        # The place of a + end is refilled with ab.
        "fairseq": [Said("a", True, 0.24, 2), Said("ab", True, 0.0972, 3)],
        "marian": [Said("a", True, 0.24, 2), Said("aa", True, 0.0792, 3)],
        "huggingface": [Said("a", True, 0.24, 2), Said("ab", True, 0.0972, 3)],
        "ctranslate2": [Said("a", True, 0.24 / 0.9, 2), Said("ab", True, 0.0972 / 0.9, 3)],
    },
)
# First a .6, b .4; then aa .3, ba .24; then, at the limit, aaa .15, baa .12 or aa + end .06, ba + end .048.
LIMIT = Case(
    {"<s>": {"a": 0.6, "b": 0.4}, "a": {"a": 0.5, "b": 0.3, "</s>": 0.2}, "b": {"a": 0.6, "b": 0.25, "</s>": 0.15}},
    3,
    {
        "opennmt-lua": [Said("aa", False, 0.15, 9 / 6), Said("ba", False, 0.12, 9 / 6)],
        "opennmt-py": [Said("aaa", False, 0.15, 4), Said("baa", False, 0.12, 4)],
        "joeynmt": [Said("aaa", False, 0.15, 8 / 6), Said("baa", False, 0.12, 8 / 6)],
        "sockeye": [Said("aa", True, 0.06, 3), Said("ba", True, 0.048, 3)],
        "fairseq": [Said("aa", True, 0.06, 3), Said("ba", True, 0.048, 3)],
        "marian": [Said("aaa", False, 0.15, 3), Said("baa", False, 0.12, 3)],
        "huggingface": [Said("aaa", False, 0.15, 3), Said("baa", False, 0.12, 3)],
        "ctranslate2": [Said("aaa", False, 0.15, 3), Said("baa", False, 0.12, 3)],
    },
)
CASES = {"empty": EMPTY, "refill": REFILL, "limit": LIMIT}


def grammar(table: Mapping[str, Mapping[str, float]]) -> Grammar:
    return Grammar(NAMES, {**table, "</s>": AFTER_END}, begin="<s>", end="</s>")


def spelled(hypothesis: Hypothesis) -> str:
    return "".join(NAMES[symbol] for symbol in hypothesis.symbols)


def search(
    stepper: Stepper,
    *,
    mode: PeerMode,
    limit: int,
    beam: int = 2,
    nbest: int = 2,
    alpha: float | None = 1.0,
    **options: Any,
) -> list[Hypothesis]:
    rules = replace(rules_of(mode, alpha), **options)
    return peer_search(stepper, sentences([1]), rules, limits=[limit], beam=beam, nbest=nbest)[0]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", CASES)
def test_worked_case(name: str, mode: PeerMode) -> None:
    case = CASES[name]
    found, expected = search(grammar(case.table), mode=mode, limit=case.limit), case.found[mode]
    assert [(spelled(each), each.is_finished) for each in found] == [
        (said.symbols, said.is_finished) for said in expected
    ]
    scores = [math.log(said.probability) / said.divisor for said in expected]
    assert [each.score for each in found] == pytest.approx(scores, abs=1e-6)


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(MODES, 2)))
def test_every_two_modes_differ_in_some_worked_case(one: PeerMode, other: PeerMode) -> None:
    assert any(case.found[one] != case.found[other] for case in CASES.values())


def test_a_symbol_that_lua_drops_at_the_limit_stays_in_the_score() -> None:
    first = search(grammar(LIMIT.table), mode="opennmt-lua", limit=3)[0]
    assert spelled(first) == "aa"
    assert first.log_prob == pytest.approx(math.log(0.6 * 0.5), abs=1e-6)
    assert first.terms["dropped"] == pytest.approx(math.log(0.5), abs=1e-6)
    assert len(first.token_log_probs) == 2


@pytest.mark.parametrize(
    ("early", "expected"),
    [
        # Full after two steps: () and a + end.
        (True, ["a", ""]),
        # ab + end comes in the third step; then aba, log .063 / 3, is no better than a + end, log .245 / 2.
        (False, ["ab", "a"]),
        # With the length it could reach, log .063 / 8, aba is; abab + end, .03024 in all, log / 5, becomes second.
        ("never", ["ab", "abab"]),
    ],
)
def test_early_stopping_of_huggingface(early: bool | Literal["never"], expected: list[str]) -> None:
    found = search(grammar(EMPTY.table), mode="huggingface", limit=8, early_stopping=early)
    assert [spelled(each) for each in found][:2] == expected


def test_a_forced_end_of_huggingface_costs_nothing() -> None:
    found = search(grammar(LIMIT.table), mode="huggingface", limit=3, free_end=True)
    assert [(spelled(each), each.is_finished) for each in found] == [("aa", True), ("ba", True)]
    assert [each.score for each in found] == pytest.approx([math.log(0.3) / 3, math.log(0.24) / 3], abs=1e-6)


def test_ctranslate2_stops_early_without_a_length_penalty_only() -> None:
    """In REFILL the best candidate of the second step is finished: enough for one hypothesis, if α = 0."""
    stepper = grammar(REFILL.table)
    assert spelled(search(stepper, mode="ctranslate2", limit=9, nbest=1, alpha=0.0)[0]) == "a"
    # With α = 2 it waits for a second one: log .108 / 9 of ab + end is better than log .2667 / 4 of a + end.
    assert spelled(search(stepper, mode="ctranslate2", limit=9, nbest=1, alpha=2.0)[0]) == "ab"


def test_patience_of_ctranslate2_waits_for_more() -> None:
    found = search(grammar(REFILL.table), mode="ctranslate2", limit=9, nbest=4, patience=2.0)
    assert len(found) == 4
    assert len(search(grammar(REFILL.table), mode="ctranslate2", limit=9, nbest=4)) < 4


def test_word_penalty_of_marian_is_taken_before_dividing() -> None:
    found = search(grammar(EMPTY.table), mode="marian", limit=4, word_penalty=0.5)
    assert found[0].score == pytest.approx((math.log(0.336) - 0.5 * 3) / 3, abs=1e-6)
    assert found[0].terms["words"] == -1.5


def test_length_offset_of_sockeye() -> None:
    found = search(grammar(EMPTY.table), mode="sockeye", limit=4, offset=5.0)
    assert found[0].score == pytest.approx(math.log(0.336) / (8 / 6), abs=1e-6)


class Timed:
    """log P(y ∣ step, last): a table for each step, so that no two outputs are equally probable."""

    begin, end = BEGIN, END

    def __init__(self, logits: Sequence[Sequence[Sequence[float]]]):
        self.table = torch.tensor(logits, dtype=torch.float64).log_softmax(2)

    def start(self, source: Source) -> State:
        return replace(numbered(source), number=torch.zeros_like(source.lengths))

    def step(self, state: State, last: Tensor) -> Step:
        assert isinstance(state, Rows)
        return Step(self.table[state.number, last], replace(state, number=state.number + 1))


GOLDEN = json.loads((Path(__file__).parent / "golden_peers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("number", range(len(GOLDEN["cases"])))
def test_opennmt_py_as_it_ran(number: int) -> None:
    """Its own search, run on tables of log-probabilities; its sequences hold the end symbol."""
    case = GOLDEN["cases"][number]
    found = search(
        Timed(GOLDEN["logits"][case["table"]]),
        mode="opennmt-py",
        limit=case["max_length"],
        beam=case["beam"],
        nbest=case["nbest"],
        alpha=case["alpha"],
        min_length=case["min_length"],
        offset=0.0 if case["length"] == "avg" else 5.0,
    )
    assert [[*each.symbols, *([GOLDEN["end"]] if each.is_finished else [])] for each in found] == [
        symbols for symbols, _ in case["found"]
    ]
    assert [each.score for each in found] == pytest.approx([score for _, score in case["found"]], abs=1e-5)


def greedy(stepper: Stepper, limit: int) -> tuple[int, ...] | None:
    """What the most probable symbols say, if they come to an end."""
    state, last = stepper.start(sentences([1])), stepper.begin
    said: list[int] = []
    for _ in range(limit):
        step = stepper.step(state, torch.tensor([last]))
        state, last = step.state, int(step.log_probs[0].argmax())
        if last == stepper.end:
            return tuple(said)
        said.append(last)
    return None


@pytest.mark.parametrize("mode", MODES)
@effort(max_examples=10)
@given(st.integers(0, 1000))
def test_a_beam_of_one_is_greedy_search(mode: PeerMode, seed: int) -> None:
    stepper = History(5, seed=seed)
    said = greedy(stepper, 8)
    if said:
        rules = replace(RULES[mode], min_length=0, never=frozenset())
        found = peer_search(stepper, sentences([1]), rules, limits=[8], beam=1)
        assert found[0][0].symbols == said


@pytest.mark.parametrize("mode", MODES)
@effort(max_examples=5)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.6, 1.0]))
def test_neighbours_change_nothing_and_terms_add_up(mode: PeerMode, seed: int, alpha: float) -> None:
    stepper, lengths, limits = History(9, seed=seed), [3, 1, 5], [6, 3, 8]

    def run(rows: Sequence[int]) -> list[list[Hypothesis]]:
        source = sentences(lengths, seed=seed)
        part = type(source)(source.ids[list(rows)], source.lengths[list(rows)])
        chosen = [limits[row] for row in rows]
        return peer_search(stepper, part, rules_of(mode, alpha), limits=chosen, beam=3, nbest=3)

    together = run([0, 1, 2])
    assert together == [run([row])[0] for row in range(3)]
    for hypothesis in itertools.chain(*together):
        assert hypothesis.score == pytest.approx(sum(hypothesis.terms.values()), abs=1e-9)
        assert hypothesis.log_prob == pytest.approx(sum(hypothesis.token_log_probs), abs=1e-9)
    for found in together:
        assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


@pytest.mark.parametrize("mode", ["joeynmt", "fairseq", "ctranslate2"])
def test_a_sentence_that_can_only_end_too_early_is_an_error(mode: PeerMode) -> None:
    stepper = grammar({"<s>": {"</s>": 1.0}})
    with pytest.raises(ModelError, match="sentence 0 of the batch cannot continue: at step 1 every symbol"):
        search(stepper, mode=mode, limit=4)
    assert search(stepper, mode=mode, limit=4, min_length=0)[0].symbols == ()


def test_no_sentences_give_no_lists() -> None:
    assert peer_search(History(5, seed=1), sentences([]), RULES["marian"], limits=[], beam=2) == []
