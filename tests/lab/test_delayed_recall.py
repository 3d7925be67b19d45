"""The task is what it says, the search finds the longest lag, and gates carry further than a plain RNN."""

from functools import partial
from statistics import median

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.lab.horizon import (
    RecallBudget,
    draw_recall,
    horizon_at_once,
    horizon_growing,
    longest_solved,
)
from seqloom.nn.cells.gru import GRUCell
from seqloom.nn.cells.lstm import LSTMCell
from seqloom.nn.cells.rnn import ElmanCell


def test_the_answer_is_the_marked_symbol_of_the_first_step() -> None:
    inputs, answers = draw_recall(5, sequences=40, symbols=3, generator=torch.Generator().manual_seed(1))
    assert inputs.shape == (40, 6, 5)
    assert torch.equal(inputs[:, 0, :3].argmax(1), answers)
    assert torch.equal(inputs[:, :, 4], torch.eye(6)[0].expand(40, 6))  # the mark
    assert torch.equal(inputs[:, :, 3], torch.eye(6)[5].expand(40, 6))  # "recall now"
    assert torch.equal(inputs[:, :5, :3].sum(2), torch.ones(40, 5))
    assert len(answers.unique()) == 3


def test_symbols_in_between_say_nothing_about_the_answer() -> None:
    inputs, answers = draw_recall(2, sequences=4000, symbols=2, generator=torch.Generator().manual_seed(2))
    agree = (inputs[:, 1, :2].argmax(1) == answers).float().mean()
    assert abs(float(agree) - 0.5) < 4 * 0.5 / 4000**0.5


@given(horizon=st.integers(0, 300), longest=st.integers(1, 300))
def test_the_search_ends_within_a_quarter_of_the_longest_lag(horizon: int, longest: int) -> None:
    tried: list[int] = []

    def is_solved(lag: int) -> bool:
        tried.append(lag)
        return lag <= horizon

    found = longest_solved(is_solved, longest=longest)
    true = min(horizon, longest)
    assert found <= true <= max(found, 1.25 * found + 0.5)
    assert len(tried) == len(set(tried)) <= 14
    assert max(tried) <= longest


def test_a_budget_is_kept_and_a_seed_gives_one_result() -> None:
    budget = RecallBudget(width=8, symbols=2, sequences=16, updates=40, longest=6, learning_rate=0.02)
    first, second = (horizon_growing(GRUCell, budget, seed=3) for _ in range(2))
    assert first == second
    assert sum(attempt.updates for attempt in first.attempts) <= 40
    assert first.lag == max((attempt.lag for attempt in first.attempts if attempt.is_solved), default=0)
    again = horizon_at_once(GRUCell, budget, seed=3)
    assert all(attempt.updates <= 40 for attempt in again.attempts)
    assert again.is_capped == (again.lag == 6)


@pytest.mark.parametrize(
    "seeds", [(1,), pytest.param((1, 2, 3), marks=pytest.mark.slow)], ids=["one seed", "three seeds"]
)
def test_an_lstm_is_taught_longer_lags_than_a_plain_rnn(seeds: tuple[int, ...]) -> None:
    budget = RecallBudget(updates=150, longest=200, learning_rate=0.01)

    def middle(kind: str) -> float:
        make = LSTMCell if kind == "lstm" else partial(ElmanCell, start="xavier")
        return median(horizon_growing(make, budget, seed=seed).lag for seed in seeds)

    assert middle("rnn") < middle("lstm")
