"""Parses that a search is bound to: exactly those that are well formed, by brute force, and always in time."""

import random
from itertools import product

import pytest

from seqloom.core.errors import UsageError
from seqloom.core.symbols import END
from seqloom.metrics.brackets import Parse
from seqloom.search.constraints import Brackets

OPEN, CLOSE, WORDS = 8, 9, (10, 11, 10)
SIGNS = {OPEN: "(", CLOSE: ")"}


def bracket_constraint(words: tuple[int, ...], most: int) -> Brackets:
    return Brackets(words, frozenset({OPEN}), frozenset({CLOSE}), END, most)


def outputs(constraint: Brackets) -> set[tuple[int, ...]]:
    """All symbol sequences that the constraint lets end."""
    ended, going = set(), [((), constraint.begin())]
    while going:
        symbols, state = going.pop()
        for symbol in constraint.allowed(state):
            if symbol == END:
                ended.add(symbols)
            else:
                going.append(((*symbols, symbol), constraint.after(state, symbol)))
    return ended


def is_parse(symbols: tuple[int, ...]) -> bool:
    found = Parse.of(" ".join(SIGNS.get(symbol, str(symbol)) for symbol in symbols))
    return found is not None and found.words == tuple(map(str, WORDS)) and len(found.spans) <= len(WORDS)


@pytest.mark.parametrize("most", [3, 4, 6, 8, 30])
def test_every_parse_that_fits_can_come_and_nothing_else(most: int) -> None:
    expected = set()
    for length in range(min(most, 3 * len(WORDS)) + 1):
        for places in product((OPEN, CLOSE, 0), repeat=length):  # 0 is the next word
            if places.count(0) == len(WORDS):
                words = iter(WORDS)
                expected.add(tuple(next(words) if place == 0 else place for place in places))
    assert outputs(bracket_constraint(WORDS, most)) == set(filter(is_parse, expected))


def test_a_search_never_gets_stuck_before_the_limit() -> None:
    draw = random.Random(1)
    for _ in range(300):
        words = tuple(draw.choices((10, 11, 12), k=draw.randint(0, 8)))
        constraint = bracket_constraint(words, len(words) + draw.randint(0, 20))
        state, symbols = constraint.begin(), list[int]()
        while (symbol := draw.choice(sorted(constraint.allowed(state)))) != END:
            symbols.append(symbol)
            state = constraint.after(state, symbol)
        assert len(symbols) <= constraint.most
        assert tuple(symbol for symbol in symbols if symbol not in SIGNS) == words


def test_words_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match=r"a parse of 3 words has at least as many symbols, .* at most 2"):
        bracket_constraint(WORDS, 2)
