"""Scores, settings, and the choice of the best symbols."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError, ModelError
from seqloom.core.stepping import Source, Step
from seqloom.search.candidates import MIN_BLOCK_COLUMNS, top_symbols, topk_by_blocks
from seqloom.search.scores import (
    CombinedScore,
    EndNormalisation,
    LengthNormalisation,
    ScoreInputs,
    coverage_penalty,
    length_penalty,
    score_of,
)
from seqloom.search.settings import SearchConfig

KINDS: tuple[LengthNormalisation, ...] = ("none", "mean", "power", "gnmt")
lengths = st.integers(1, 500)
alphas = st.floats(0, 3)
log_probs = st.floats(-1000, 0)


def test_length_penalties_by_hand() -> None:
    assert length_penalty("none", 7, 0.6) == 1
    assert length_penalty("mean", 7, 0.6) == 7
    assert length_penalty("power", 9, 0.5) == 3
    assert length_penalty("gnmt", 7, 1.0) == 2
    assert length_penalty("gnmt", 19, 0.5) == 2  # |Y| = 19 counts end: (24/6)^0.5


@given(alphas, lengths)
def test_gnmt_of_one_symbol_is_one_and_alpha_zero_has_no_effect(alpha: float, length: int) -> None:
    assert length_penalty("gnmt", 1, alpha) == 1
    assert length_penalty("gnmt", length, 0.0) == 1


@given(st.sampled_from(KINDS), alphas, log_probs, lengths)
def test_terms_add_up_to_the_formula(kind: LengthNormalisation, alpha: float, log_prob: float, length: int) -> None:
    terms = CombinedScore(kind, alpha).terms(ScoreInputs(log_prob, length))
    assert terms["log_prob"] == log_prob
    assert math.isclose(score_of(terms), log_prob / length_penalty(kind, length, alpha), abs_tol=1e-9)


def test_the_combined_score_by_hand() -> None:
    """|X| = 4, |Y| = 7, so lp = 2 and ep = 0.5 · 4 / 7; the second source word got 0.25, the third nothing."""
    score = CombinedScore("gnmt", 1.0, reward=0.1, coverage=0.2, end=EndNormalisation(0.5))
    outcome = ScoreInputs(-6.0, 7, source_length=4, end_log_prob=-2.0, coverage=(1.5, 0.25, 0.0, 1.0))
    terms = score.terms(outcome)
    ended = -4.0 + -2.0 * (0.5 * 4 / 7)
    covered = 0.2 * (math.log(0.25) + math.log(1e-4))
    assert score_of(terms) == pytest.approx(ended / 2 + covered + 0.7, abs=1e-12)
    assert set(terms) == {"log_prob", "end", "length", "coverage", "reward"}
    added = CombinedScore("gnmt", 1.0, end=EndNormalisation(0.5, "add"))
    assert score_of(added.terms(outcome)) == pytest.approx((-6.0 - 0.5 * 4 / 7) / 2, abs=1e-12)


def test_an_output_that_was_cut_has_no_end_to_change() -> None:
    score = CombinedScore("none", end=EndNormalisation(3.0))
    assert score.terms(ScoreInputs(-6.0, 7, source_length=4)) == {"log_prob": -6.0, "length": 0.0}


def test_coverage_counts_no_position_more_than_once_and_none_as_the_floor() -> None:
    assert coverage_penalty((1.0, 3.0, 1.1), floor=1e-4) == 0
    assert coverage_penalty((0.0,), floor=1e-4) == pytest.approx(math.log(1e-4))
    assert coverage_penalty((), floor=1e-4) == 0


@given(
    st.sampled_from(KINDS),
    st.floats(0, 3),
    st.floats(-2, 2),
    st.sampled_from([None, EndNormalisation(0.3), EndNormalisation(2.0), EndNormalisation(1.0, "add")]),
    log_probs,
    lengths,
    st.lists(st.floats(-5, 0), min_size=1, max_size=30),
)
def test_no_continuation_beats_the_bound(
    kind: LengthNormalisation,
    alpha: float,
    reward: float,
    end: EndNormalisation | None,
    log_prob: float,
    length: int,
    further: list[float],
) -> None:
    score = CombinedScore(kind, alpha, reward=reward, coverage=0.3, end=end)
    bound = score.bound(log_prob, length, limit=length + len(further) + 3)
    for steps in range(1, len(further) + 1):
        outcome = ScoreInputs(
            log_prob + sum(further[:steps]),
            length + steps,
            source_length=9,
            end_log_prob=further[steps - 1],
            coverage=(0.4, 1.7),
        )
        assert score_of(score.terms(outcome)) <= bound + 1e-9


@given(st.lists(st.lists(st.integers(-3, 0), min_size=6, max_size=6), min_size=1, max_size=5), st.integers(1, 7))
def test_top_symbols_are_those_of_a_stable_sort(values: list[list[int]], best: int) -> None:
    table = torch.tensor(values, dtype=torch.float32).masked_fill(torch.tensor(values) == -3, float("-inf"))
    top = top_symbols(Step(table, Unused()), best)
    expected, columns = table.sort(dim=1, descending=True, stable=True)
    assert torch.equal(top.log_probs, expected[:, :best])
    allowed = top.log_probs.isfinite()
    assert torch.equal(top.symbols[allowed], columns[:, :best][allowed])


@pytest.mark.parametrize("columns", [1, 31, 32, 33, 500])
@pytest.mark.parametrize("best", [1, 2, 6, 64])
def test_loops_find_what_a_stable_sort_puts_first(columns: int, best: int) -> None:
    values = torch.randint(-6, 0, (39, columns)).float()
    values = values.masked_fill(values == -6, float("-inf"))
    values[3] = float("-inf")
    top = top_symbols(Step(values, Unused()), best)
    expected, order = values.sort(dim=1, descending=True, stable=True)
    assert torch.equal(top.values, expected[:, :best])
    assert torch.equal(top.symbols, order[:, :best])
    few = top_symbols(Step(values[:5], Unused()), best)  # by sorting
    assert torch.equal(few.values, top.values[:5])
    assert torch.equal(few.symbols[few.values.isfinite()], top.symbols[:5][few.values.isfinite()])


@pytest.mark.parametrize("rows", [5, 32])
@pytest.mark.parametrize("column", [0, 40, 99])
def test_no_number_is_found_by_both_ways(rows: int, column: int) -> None:
    values = torch.arange(100.0).neg().repeat(rows, 1)
    values[2, column] = float("nan")
    with pytest.raises(ModelError, match=f"first in row 2 of {rows}"):
        top_symbols(Step(values, Unused()), 3)


@pytest.mark.parametrize("columns", [64, 65, 200, MIN_BLOCK_COLUMNS, MIN_BLOCK_COLUMNS + 63])
@pytest.mark.parametrize("best", [1, 2, 5, 64])
def test_topk_by_blocks_equals_topk(columns: int, best: int) -> None:
    values = torch.randn(7, columns).masked_fill(torch.rand(7, columns) < 0.5, float("-inf"))
    found, places = topk_by_blocks(values, best)
    assert torch.equal(found, values.topk(best, dim=1).values)
    assert torch.equal(values.gather(1, places), found)
    assert all(len(set(row)) == best for row in places.tolist())


def test_ties_among_many_symbols_go_to_the_lower_symbol() -> None:
    values = torch.randint(3, (5, 3 * MIN_BLOCK_COLUMNS)).double()
    top = top_symbols(Step(values, Unused()), 4)
    assert torch.equal(top.symbols, values.sort(dim=1, descending=True, stable=True).indices[:, :4])


@given(st.permutations(range(6)), st.lists(st.integers(-2, 0), min_size=6, max_size=6))
def test_ties_on_a_shortlist_go_to_the_lower_symbol(order: list[int], values: list[int]) -> None:
    row = torch.tensor([values], dtype=torch.float64)
    whole = top_symbols(Step(row, Unused()), 3)
    short = top_symbols(Step(row[:, order], Unused(), symbols=torch.tensor(order)), 3)
    assert torch.equal(whole.symbols, short.symbols)


class Unused:
    """A state that nobody looks at."""

    def select(self, rows: torch.Tensor) -> "Unused":
        return self


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("beam=0", "0 is too small; give 1 or more"),
        ("nbest=5", "nbest 5 is more hypotheses than beam 4 keeps; give search.beam=5 or search.nbest=4"),
        ("alpha=-0.5", "-0.5 is out of range; give 0 or more"),
        ("tokens_per_batch=0", "0 is too small"),
        ("length_normalisation=lengthy", "lengthy"),
    ],
)
def test_wrong_settings_are_refused_with_a_sentence(setting: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        resolve(SearchConfig, overrides=[setting])
    assert message in str(refused.value)
    assert setting.partition("=")[0] in str(refused.value)


def test_a_maximum_length_of_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="no room for any output"):
        SearchConfig(length_factor=0.0, length_constant=0)


def test_the_maximum_length_is_a_sentences_own() -> None:
    source = Source(torch.zeros(3, 9, dtype=torch.long), torch.tensor([9, 1, 4]))
    assert SearchConfig(length_factor=1.5, length_constant=2).limits(source) == [15, 3, 8]
    assert SearchConfig(length_factor=0.1, length_constant=0).limits(source) == [1, 1, 1]
