"""Searches over CTC frames, compared with all paths of all labellings."""

import math
from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby, product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from search.steppers import Bigram, Grammar, History, Shortlisted, sentences
from seqloom.core.errors import ConfigError, ModelError, UsageError
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.core.symbols import BEGIN, END
from seqloom.models.gpt import GptConfig
from seqloom.nn.embeddings import Symbols
from seqloom.search.ctc import CtcLanguageModel, CtcStepper, ctc_beam_search, greedy_ctc_search
from seqloom.search.hypothesis import Hypothesis

WIDE = 1000
Labelling = tuple[int, ...]


def frames(times: list[int], symbols: int, *, seed: int, fill: float = 0.0) -> tuple[Tensor, Tensor]:
    """Random log-probabilities of sequences of these lengths; padding holds `fill`."""
    padded = torch.full((len(times), max(times) + 1, symbols), fill, dtype=torch.float64)
    for row, time in enumerate(times):
        generator = torch.Generator().manual_seed(100 * seed + row)
        padded[row, :time] = (2 * torch.randn(time, symbols, generator=generator).double()).log_softmax(1)
    return padded, torch.tensor(times)


def collapse(path: Labelling, blank: int) -> Labelling:
    return tuple(symbol for symbol, _ in groupby(path) if symbol != blank)


def every_labelling(log_probs: Tensor, blank: int) -> dict[Labelling, float]:
    """log P of each labelling: the sum over its paths."""
    time, symbols = log_probs.shape
    table = log_probs.exp().tolist()
    sums: dict[Labelling, list[float]] = defaultdict(list)
    for path in product(range(symbols), repeat=time):
        sums[collapse(path, blank)].append(math.prod(table[t][symbol] for t, symbol in enumerate(path)))
    return {labelling: math.log(math.fsum(terms)) for labelling, terms in sums.items()}


def language_model_score(stepper: Stepper, labelling: Labelling, source: Source) -> float:
    """log P_lm(y, end), symbol by symbol."""
    state, total = stepper.start(source), 0.0
    for last, symbol in zip((stepper.begin, *labelling), (*labelling, stepper.end), strict=True):
        step = stepper.step(state, torch.tensor([last]))
        state = step.state
        columns = list(range(step.log_probs.shape[1])) if step.symbols is None else step.symbols.tolist()
        total += float(step.log_probs[0, columns.index(symbol)]) if symbol in columns else -math.inf
    return total


def exhaustive(
    log_probs: Tensor, blank: int, stepper: Stepper | None, weight: float, reward: float, source: Source
) -> list[tuple[float, Labelling]]:
    """Every labelling that is possible with its score, best first."""
    scored = []
    for labelling, value in every_labelling(log_probs, blank).items():
        score = value + reward * len(labelling)
        if stepper is not None:
            if {stepper.begin, stepper.end} & {*labelling}:
                continue
            score += weight * language_model_score(stepper, labelling, source)
        if score > -math.inf:
            scored.append((score, labelling))
    return sorted(scored, reverse=True)


def check_ledger(hypothesis: Hypothesis) -> None:
    assert abs(sum(hypothesis.terms.values()) - hypothesis.score) < 1e-9
    assert abs(sum(hypothesis.token_log_probs) - hypothesis.terms["log_prob"]) < 1e-9
    assert len(hypothesis.token_log_probs) == len(hypothesis.symbols) + 1
    assert max(hypothesis.token_log_probs) < 1e-9


models = st.sampled_from(("none", "bigram", "history", "shortlisted"))


def make_model(kind: str, symbols: int, seed: int) -> Stepper | None:
    match kind:
        case "bigram":
            return Bigram(symbols, seed=seed)
        case "history":
            return History(symbols, seed=seed)
        case "shortlisted":
            return Shortlisted(History(symbols, seed=seed), [3, 2])
    return None


@given(
    times=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    blank=st.sampled_from((0, 4)),
    kind=models,
    weight=st.sampled_from((0.3, 1.5)),
    reward=st.sampled_from((0.0, 0.8, -0.5)),
    beam=st.sampled_from((1, 2, 4, WIDE)),
    seed=st.integers(0, 99),
)
def test_a_wide_beam_is_exhaustive_and_a_proof_of_a_narrow_one_holds(
    times: list[int], blank: int, kind: str, weight: float, reward: float, beam: int, seed: int
) -> None:
    """Neighbours are there, padding holds what would win if it were read, and the ledger adds up."""
    log_probs, lengths = frames(times, 5, seed=seed, fill=50.0)
    stepper = make_model(kind, 5, seed)
    model = None if stepper is None else CtcLanguageModel(stepper, weight)
    found = ctc_beam_search(log_probs, lengths, blank=blank, beam=beam, nbest=beam, language_model=model, reward=reward)
    for row, (own, time) in enumerate(zip(found, times, strict=True)):
        source = Source(torch.tensor([[2]]), torch.tensor([1]))
        every = exhaustive(log_probs[row, :time], blank, stepper, weight, reward, source)
        scores = {labelling: score for score, labelling in every}
        if beam == WIDE:
            assert len(own) == len(every)
        for place, hypothesis in enumerate(own):
            check_ledger(hypothesis)
            assert abs(hypothesis.score - scores[hypothesis.symbols]) < 1e-9  # whatever the beam dropped
            assert hypothesis.is_finished
            assert hypothesis.is_complete or beam < WIDE
            if hypothesis.is_complete:
                assert abs(hypothesis.score - every[place][0]) < 1e-9
        assert [each.score for each in own] == sorted((each.score for each in own), reverse=True)
        alone = ctc_beam_search(
            log_probs[row : row + 1, :time],
            lengths[row : row + 1],
            blank=blank,
            beam=beam,
            nbest=beam,
            language_model=model,
            reward=reward,
        )
        assert alone == [own]


def test_a_narrow_beam_can_prove_its_result_and_does_not_claim_a_wrong_one() -> None:
    log_probs, lengths = frames([5] * 12, 4, seed=3)
    wide = ctc_beam_search(log_probs, lengths, beam=WIDE)
    narrow = ctc_beam_search(log_probs, lengths, beam=2)
    is_same = [one[0].symbols == other[0].symbols for one, other in zip(narrow, wide, strict=True)]
    is_proved = [one[0].is_complete for one in narrow]
    assert any(is_proved)
    assert not all(is_same)
    assert all(same for same, proved in zip(is_same, is_proved, strict=True) if proved)


def test_a_beam_of_one_adds_up_what_greedy_search_does_not() -> None:
    """Two ways to stay by "a" are worth more than the best symbol of the frame."""
    log_probs = torch.tensor([[[0.3, 0.6, 0.1], [0.3, 0.3, 0.4]]], dtype=torch.float64).log()
    (greedy,) = greedy_ctc_search(log_probs, torch.tensor([2]))
    ((beam,),) = ctc_beam_search(log_probs, torch.tensor([2]), beam=1)
    assert (greedy.symbols, beam.symbols) == ((1, 2), (1,))
    assert math.isclose(math.exp(greedy.score), 0.6 * 0.4, abs_tol=1e-12)
    assert math.isclose(math.exp(beam.score), 0.6 * 0.6 + 0.3 * 0.3, abs_tol=1e-12)


@given(times=st.lists(st.integers(1, 5), min_size=1, max_size=3), blank=st.integers(0, 2), seed=st.integers(0, 99))
def test_greedy_search_is_the_best_path(times: list[int], blank: int, seed: int) -> None:
    log_probs, lengths = frames(times, 3, seed=seed, fill=9.0)
    for row, (hypothesis, time) in enumerate(
        zip(greedy_ctc_search(log_probs, lengths, blank=blank), times, strict=True)
    ):
        own = log_probs[row, :time]
        best = max(product(range(3), repeat=time), key=lambda path: sum(own[t, s].item() for t, s in enumerate(path)))
        assert hypothesis.symbols == collapse(best, blank)
        assert abs(hypothesis.score - every_labelling(own, blank)[hypothesis.symbols]) < 1e-9
        check_ledger(hypothesis)
        assert not hypothesis.is_complete


def test_token_log_probs_are_those_of_the_chain_rule() -> None:
    log_probs, lengths = frames([4], 4, seed=5)
    every = every_labelling(log_probs[0, :4], 0)
    hypothesis = ctc_beam_search(log_probs, lengths, beam=WIDE)[0][0]
    y = hypothesis.symbols
    assert len(y) >= 2

    def begins(prefix: Labelling) -> float:
        return math.fsum(math.exp(value) for labelling, value in every.items() if labelling[: len(prefix)] == prefix)

    expected = [math.log(begins(y[: k + 1]) / begins(y[:k])) for k in range(len(y))]
    expected.append(every[y] - math.log(begins(y)))
    assert hypothesis.token_log_probs == pytest.approx(expected, abs=1e-9)


def test_a_model_with_a_cache_reads_each_prefix_as_if_it_were_alone() -> None:
    """States of a Transformer share their cache: prefixes that branch late must not change those that went on."""
    symbols = 7
    gpt = GptConfig(width=8, heads=2, layers=2).build(Symbols(symbols, symbols, is_shared=True), seed=1)
    gpt = gpt.double().eval()
    for parameter in gpt.parameters():
        torch.nn.init.normal_(parameter, std=0.7)  # so that what was read makes a difference
    log_probs, lengths = frames([9, 6, 12], symbols, seed=2)
    log_probs[:, :, 1:3] = -math.inf
    found = ctc_beam_search(
        log_probs / 3, lengths, beam=12, nbest=12, language_model=CtcLanguageModel(gpt.stepper(), 0.5)
    )
    source = Source(torch.tensor([[2]]), torch.tensor([1]))
    with torch.inference_mode():
        for hypothesis in (each for own in found for each in own):
            expected = 0.5 * language_model_score(gpt.stepper(), hypothesis.symbols, source)
            assert hypothesis.terms["language_model"] == pytest.approx(expected, abs=1e-9)


@dataclass(frozen=True)
class Notebook:
    """All that rows have read, in a table that steps write into: a state that is stepped twice is spoilt."""

    table: Tensor  # [rows, room]
    length: int = 0

    def select(self, rows: Tensor) -> "Notebook":
        is_same = rows.tolist() == list(range(len(self.table)))
        return self if is_same else Notebook(self.table[rows], self.length)


class NotebookStepper:
    """log P(y ∣ all symbols so far), read from the notebook at each step."""

    begin, end = 1, 2

    def __init__(self, symbols: int) -> None:
        self.logits = torch.randn(97, symbols, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    def start(self, source: Source) -> Notebook:
        return Notebook(torch.zeros(len(source.lengths), 20, dtype=torch.long))

    def step(self, state: State, last: Tensor) -> Step:
        assert isinstance(state, Notebook)
        state.table[:, state.length] = last
        read = state.table[:, : state.length + 1]
        number = (read * torch.arange(1, state.length + 2) ** 2).sum(1) % 97
        return Step(self.logits[number].log_softmax(1), Notebook(state.table, state.length + 1))


def test_no_state_is_stepped_twice() -> None:
    """A sequence alone often needs all rows of a state, again and again; `select` may return that state itself."""
    stepper = NotebookStepper(5)
    source = Source(torch.tensor([[2]]), torch.tensor([1]))
    for seed in range(20):
        log_probs, lengths = frames([8], 5, seed=seed)
        log_probs = log_probs / 2
        (found,) = ctc_beam_search(log_probs, lengths, beam=2, nbest=2, language_model=CtcLanguageModel(stepper, 0.5))
        for hypothesis in found:
            expected = 0.5 * language_model_score(stepper, hypothesis.symbols, source)
            assert hypothesis.terms["language_model"] == pytest.approx(expected, abs=1e-9)


def test_a_source_reaches_the_language_model() -> None:
    log_probs, lengths = frames([4, 4], 5, seed=1)
    source = sentences([3, 5])
    found = ctc_beam_search(
        log_probs, lengths, beam=WIDE, language_model=CtcLanguageModel(Bigram(5, seed=8), 1.0, source)
    )
    for row, (hypothesis,) in enumerate(found):
        own = Source(source.ids[row : row + 1], source.lengths[row : row + 1])
        score, symbols = exhaustive(log_probs[row, :4], 0, Bigram(5, seed=8), 1.0, 0.0, own)[0]
        assert hypothesis.symbols == symbols
        assert hypothesis.score == pytest.approx(score, abs=1e-9)


def test_errors_name_the_value_and_the_remedy() -> None:
    log_probs, lengths = frames([3], 5, seed=1)
    with pytest.raises(UsageError, match="nbest=5 and beam=4"):
        ctc_beam_search(log_probs, lengths, beam=4, nbest=5)
    with pytest.raises(UsageError, match="blank=5 is not one of 5 symbols"):
        greedy_ctc_search(log_probs, lengths, blank=5)
    with pytest.raises(UsageError, match="sequence 0 has 5 of 4 frames"):
        greedy_ctc_search(log_probs, torch.tensor([5]))
    with pytest.raises(ConfigError, match=r"the weight -1.0 of the language model"):
        CtcLanguageModel(Bigram(5, seed=1), -1.0)
    with pytest.raises(ModelError, match="must have the 5 symbols of the frames, but it has 6 symbols"):
        ctc_beam_search(log_probs, lengths, language_model=CtcLanguageModel(Bigram(6, seed=1)))
    with pytest.raises(UsageError, match="got 2 sources of the language model for 1 sequences"):
        ctc_beam_search(
            log_probs, lengths, language_model=CtcLanguageModel(Bigram(5, seed=1), source=sentences([2, 2]))
        )
    never_ends = Grammar(list("_bexy"), {"b": {"x": 1.0}, "x": {"x": 1.0}}, begin="b", end="e")
    with pytest.raises(ModelError, match="no output of 3 frames is possible"):
        ctc_beam_search(log_probs, lengths, language_model=CtcLanguageModel(never_ends))
    log_probs[0, 1] = math.nan
    with pytest.raises(ModelError, match="frame 1 of sequence 0 has no probabilities"):
        ctc_beam_search(log_probs, lengths)


def test_symbol_by_symbol_the_frames_give_the_probabilities_of_labellings() -> None:
    """log P(y ∣ x) of each labelling by the chain rule; what follows a prefix sums to one, padding or not."""
    log_probs, lengths = frames([4, 2], 6, seed=7, fill=3.0)
    stepper = CtcStepper(log_probs, lengths)
    for row, length in enumerate(lengths.tolist()):
        real = log_probs[row, :length].clone()
        real[:, [BEGIN, END]] = -math.inf
        expected = every_labelling(real.log_softmax(1)[:, [0, 3, 4, 5]], 0)
        source = Source(torch.full((2, 1), END), torch.ones(2, dtype=torch.long))
        for labelling, value in expected.items():
            symbols = [2 + symbol for symbol in labelling]
            state: State = stepper.start(source)
            total = 0.0
            for last, symbol in zip((BEGIN, *symbols), (*symbols, END), strict=True):
                step = stepper.step(state, torch.tensor([last, last]))
                assert float(step.log_probs[row].logsumexp(0)) == pytest.approx(0, abs=1e-12)
                total, state = total + float(step.log_probs[row, symbol]), step.state.select(torch.tensor([0, 1]))
            assert total == pytest.approx(value, abs=1e-10)
