"""Constraints that ask what symbols mean: what an output must not say, and where the words are that it must hold."""

from collections.abc import Hashable, Mapping

import pytest

from search.outputs import END, LONGEST, A, B, C, Separately, dead_ends, every_output, walked
from seqloom.search.constraints import All, ForbiddenText, Lengths, OneOf, Phrases, StopAt
from seqloom.search.phrase_automata import Run


class Spaced:
    """Reads A as a, B as b and C as a space, and does not want the word `ab`. A place is the word that has begun."""

    def begin(self) -> str:
        return ""

    def after(self, place: str, symbol: int) -> str | None:
        if symbol == C:
            return None if place == "ab" else ""
        return {A: f"{place}a", B: f"{place}b"}.get(symbol)

    def may_end(self, place: str) -> bool:
        return place != "ab"


def says_nothing_wrong(output: Run) -> bool:
    return "ab" not in "".join({A: "a", B: "b", C: " "}[symbol] for symbol in output).split(" ")


def test_what_must_not_be_said_is_not_said_and_no_output_is_left_before_it() -> None:
    never, bound = ForbiddenText(Spaced(), ("ab",), 10, END), Lengths(0, LONGEST, END)
    expected = {output for output in every_output() if says_nothing_wrong(output)}
    assert walked(never) == walked(All((never, bound))) == expected
    assert dead_ends(All((never, bound)), LONGEST + 1) == set()
    assert dead_ends(Apart((never, bound)), LONGEST + 1) != set()


class Apart(All):
    """`All` without its look at what a text still needs."""

    def unfinished(self, state: tuple[Hashable, ...]) -> Mapping[int, int]:
        return {}


def test_a_stop_does_not_end_an_output_in_what_must_not_be_said() -> None:
    never, stop = ForbiddenText(Spaced(), ("ab",), 10, END), StopAt(((A, B),))
    assert all(says_nothing_wrong(output) for output in walked(All((never, stop)), 4))
    assert (A, A, B) in walked(All((never, stop)), 4)


class NeverAgain(Spaced):
    """Nothing can follow a word that is there."""

    def after(self, place: str, symbol: int) -> str | None:
        return None if place == "ab" else super().after(place, symbol)


def test_symbols_after_which_no_end_is_in_reach_are_refused_at_once() -> None:
    never = ForbiddenText(NeverAgain(), ("ab",), 10, END)
    assert B in never.forbidden("a")
    assert not never.unfinished("a")
    assert ForbiddenText(Spaced(), ("ab",), 10, END).unfinished("a") == {B: 1}


class Counted:
    """Symbols from 2 on are words that must not stand alone; 1 is a letter that goes on with any. Counts its work."""

    def __init__(self) -> None:
        self.asked = 0

    def begin(self) -> int:
        return 1

    def after(self, place: int, symbol: int) -> int:
        self.asked += 1
        return symbol

    def may_end(self, place: int) -> bool:
        return place < 2


def test_thousands_of_words_are_not_looked_at_behind_each_of_them() -> None:
    reader, words = Counted(), 2_000
    never = ForbiddenText(reader, ("all of them",), 2 + words, 0)
    assert never.unfinished(never.begin()) == dict.fromkeys(range(2, 2 + words), 1)
    assert reader.asked < 3 * words


class Letters:
    """Borders where C, the space, stands: runs begin and end beside it."""

    def begin(self) -> int:
        return C

    def inside(self) -> int:
        return A

    def after(self, place: int, symbol: int) -> int:
        return symbol

    def may_begin(self, place: int, symbol: int) -> bool:
        return C in (place, symbol)

    def may_end(self, place: int, symbol: int) -> bool:
        return C in (place, symbol)

    def inner(self, place: int) -> frozenset[int]:
        return frozenset() if place == C else frozenset({A, B})


def words(output: Run) -> str:
    return f" {''.join({A: 'a', B: 'b', C: ' '}[symbol] for symbol in output)} "


@pytest.mark.parametrize("alternatives", [((A, B), (C, A, B)), ((A,), (C, A)), ((A, C, B), (C, A, C, B))])
@pytest.mark.parametrize("most", [3, 4, 5])
def test_phrases_between_borders_are_words_of_the_output(alternatives: tuple[Run, ...], most: int) -> None:
    constraint = All((Phrases((OneOf(alternatives),), END, Letters()), Lengths(0, most, END)))
    found, phrase = walked(constraint), words(alternatives[0])
    assert found
    assert all(phrase in words(output) for output in found)
    assert dead_ends(constraint, most + 1) == set()
    shortest = next(output for output in every_output(most) if phrase in words(output))
    assert shortest in found
    plain = Phrases((alternatives[0],), END)
    assert any(phrase not in words(output) for output in walked(plain))


@pytest.mark.parametrize(
    "found", [(((A, B), (C, A, B)),) * 2, (((A,), (C, A)), ((B,), (C, B))), (((A,), (C, A)),) * 3, (((A,),), ((B,),))]
)
def test_borders_between_phrases_need_room_of_their_own(found: tuple[tuple[Run, ...], ...]) -> None:
    needed, bound = (
        Phrases(tuple(OneOf(alternatives) for alternatives in found), END, Letters()),
        Lengths(0, LONGEST, END),
    )
    shortest = min(map(len, walked(needed)))
    assert (
        needed.missing(needed.begin())
        == shortest
        == sum(len(alternatives[0]) for alternatives in found) + len(found) - 1
    )
    assert dead_ends(All((needed, bound)), LONGEST + 1) == set()
    assert dead_ends(Separately((needed, bound)), LONGEST + 1) != set()
