"""Markov chains: tables of several steps, counting by hand, and chains of text as n-gram models."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from classical.ngram_twin import encoded
from laws.stepping import LAWS, make_case
from seqloom.classical.markov import MarkovChain, MarkovConfig
from seqloom.classical.steppers import NGramStepper
from seqloom.core.errors import DataError, UsageError
from seqloom.core.stepping import Source

LINES = ["a b c d", "a b d", "c d a b", "b b a", "d", "a b c"]


def test_counts_become_shares() -> None:
    chain = MarkovChain.fit([["sunny", "sunny", "rain"], ["rain", "sunny"]])
    assert chain.states == ("sunny", "rain")
    assert chain.transitions.tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert chain.log_probs(["rain", "sunny", "sunny"]).tolist() == pytest.approx(np.log([0.5, 1.0, 0.5]).tolist())
    assert MarkovChain.fit([[3, 1, 3]], states=[1, 2, 3]).transitions.tolist() == [
        [0, 0, 1],
        [1 / 3, 0, 2 / 3],
        [1, 0, 0],
    ]
    assert MarkovChain.fit([["x", "y"]], order=0).table(5).tolist() == [[0.5, 0.5]]


@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=5),
    order=st.integers(1, 3),
    steps=st.integers(1, 4),
    smoothing=st.sampled_from([0.0, 0.5]),
)
def test_a_table_of_k_steps_is_the_sum_over_all_ways(
    rows: list[list[int]], order: int, steps: int, smoothing: float
) -> None:
    chain = MarkovChain.fit(rows, order=order, smoothing=smoothing)
    size, contexts = len(chain.states), chain.contexts()
    number = {context: place for place, context in enumerate(contexts)}
    expected = np.zeros((len(contexts), size))
    for context, way in product(contexts, product(range(size), repeat=steps)):
        chance, past = 1.0, context
        for state in way:
            chance *= chain.transitions[number[past], state]
            past = (*past[1:], chain.states[state])
        expected[number[context], way[-1]] += chance
    table = chain.table(steps)
    np.testing.assert_allclose(table, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(table.sum(1), 1, rtol=0, atol=1e-12)
    if order == 1:
        power = np.linalg.matrix_power(chain.transitions, steps)
        np.testing.assert_allclose(table, power, rtol=0, atol=1e-12)


def test_two_steps_are_the_squared_matrix() -> None:
    generator = np.random.default_rng(1)
    chain = MarkovChain.fit([generator.integers(30, size=5000).tolist()], smoothing=1.0)
    np.testing.assert_allclose(chain.table(2), chain.transitions @ chain.transitions, rtol=0, atol=1e-12)
    assert np.abs(chain.table(2) - chain.transitions).max() > 1e-3  # the control


def test_drawn_sequences_follow_the_chain() -> None:
    chain = MarkovChain.fit([list("aabababbbaab"), list("bba")], order=2)
    again = MarkovChain.fit([chain.sample(2000, np.random.default_rng(3))], order=2, states=chain.states)
    np.testing.assert_allclose(again.transitions, chain.transitions, atol=0.06)


@pytest.mark.parametrize("order", [0, 1, 2, 4])
@pytest.mark.parametrize("smoothing", [0.0, 2.0])
def test_a_chain_of_text_has_the_same_probabilities(order: int, smoothing: float) -> None:
    text = encoded(LINES)
    model = MarkovConfig(order=order, smoothing=smoothing).fit(text)
    chain = MarkovChain.fit(
        [[*line.split(), "</s>"] for line in LINES],
        order=order,
        smoothing=smoothing,
        states=["</s>", "<unk>", *text.vocabulary[4:]],
    )
    ids = {word: number for number, word in enumerate(text.vocabulary)}
    for line in [*LINES, "d c b a", "b b b b"]:
        words = [*line.split(), "</s>"]
        got = model.log_probs(np.array([ids[word] for word in words]))
        np.testing.assert_allclose(got, chain.log_probs(words), rtol=1e-5)
    restored = MarkovConfig(order=order).restore(model.arrays(), text.vocabulary)
    assert (restored.log_probs(text.ids) == model.log_probs(text.ids)).all()


@pytest.mark.parametrize("law", LAWS)
def test_the_laws_of_stepping_hold(law: str) -> None:
    model = MarkovConfig(order=2, smoothing=1.0).fit(encoded(LINES))

    def forward(source: Source, prefix: Tensor) -> Tensor:
        rows = [model.distribution([row[: end + 1] for end in range(len(row))]) for row in prefix.tolist()]
        return torch.from_numpy(np.log(np.array(rows)))

    with np.errstate(divide="ignore"):
        LAWS[law](make_case(lambda: NGramStepper(model), model.symbols, target_symbols=model.symbols,
                            teacher_forced=forward, tolerance=1e-6))  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: MarkovChain.fit([[]]), DataError, "the sequences are empty"),
        (lambda: MarkovChain.fit([["a", "x"]], states=["a"]), DataError, "sequence 0 has the state 'x', which is not"),
        (lambda: MarkovChain.fit([["a"]], order=-1), UsageError, "order=-1"),
        (
            lambda: MarkovChain.fit([range(3000)], order=2),
            UsageError,
            r"3000\^3 numbers, more than .* model.kind=markov",
        ),
        (lambda: MarkovChain.fit([["a"]]).table(0), UsageError, "a table of 0 steps: give 1 or more"),
    ],
)
def test_errors_name_the_value_and_the_remedy(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
