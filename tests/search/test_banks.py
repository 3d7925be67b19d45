"""The share that each bank has of the beam: the same places as when they are handed out one by one."""

import math

from hypothesis import given
from hypothesis import strategies as st

from seqloom.search.beam import Banked, share_beam

pairs = st.lists(st.tuples(st.integers(0, 5), st.sampled_from([-math.inf, -4.0, -3.0, -2.5, -1.0, 0.0])), max_size=14)


def banked(found: list[tuple[int, float]]) -> list[Banked]:
    return [Banked(missing, log_prob) for missing, log_prob in found]


def by_log_prob(candidates: list[Banked], beam: int) -> list[int]:
    """What a beam search without banks takes."""
    possible = [index for index, candidate in enumerate(candidates) if candidate.log_prob > -math.inf]
    return sorted(possible, key=lambda index: -candidates[index].log_prob)[:beam]


def one_by_one(candidates: list[Banked], beam: int) -> list[int]:
    """The slow twin: every place is handed out by itself, to the bank for which it was meant or to one near to it."""
    waiting: dict[int, list[int]] = {}
    for index in by_log_prob(candidates, len(candidates)):
        waiting.setdefault(candidates[index].missing, []).append(index)
    banks = sorted(waiting)
    if not banks:
        return []
    if beam >= len(banks):
        meant = [banks[place % len(banks)] for place in range(beam)]
    elif beam == 1:
        meant = [banks[0]]
    else:
        meant = [banks[place * (len(banks) - 1) // (beam - 1)] for place in range(beam)]
    chosen, left_over = [], []
    for bank in meant:
        if waiting[bank]:
            chosen.append(waiting[bank].pop(0))
        else:
            left_over.append(bank)
    for bank in sorted(left_over):
        near = min((abs(other - bank), other) for other in banks if waiting[other]) if any(waiting.values()) else None
        if near is not None:
            chosen.append(waiting[near[1]].pop(0))
    return sorted(chosen, key=lambda index: (-candidates[index].log_prob, index))


@given(pairs, st.integers(1, 8))
def test_places_are_those_handed_out_one_by_one(found: list[tuple[int, float]], beam: int) -> None:
    candidates = banked(found)
    assert share_beam(candidates, beam) == one_by_one(candidates, beam)


@given(pairs, st.integers(1, 8))
def test_no_place_is_left_empty_and_none_is_given_twice(found: list[tuple[int, float]], beam: int) -> None:
    chosen = share_beam(banked(found), beam)
    assert len(chosen) == len(set(chosen)) == min(beam, sum(log_prob > -math.inf for _, log_prob in found))


@given(pairs, st.integers(1, 8))
def test_where_nothing_is_forced_the_best_are_taken(found: list[tuple[int, float]], beam: int) -> None:
    candidates = banked([(3, log_prob) for _, log_prob in found])
    assert share_beam(candidates, beam) == by_log_prob(candidates, beam)


@given(pairs, st.integers(1, 8))
def test_what_is_in_a_bank_is_its_best(found: list[tuple[int, float]], beam: int) -> None:
    candidates = banked(found)
    chosen = set(share_beam(candidates, beam))
    for missing in range(6):
        bank = [index for index in by_log_prob(candidates, len(found)) if candidates[index].missing == missing]
        taken = [index for index in bank if index in chosen]
        assert taken == bank[: len(taken)]


def test_an_improbable_candidate_with_a_forced_symbol_lives_on() -> None:
    candidates = banked([(2, -0.1), (2, -0.2), (2, -0.3), (1, -9.0)])
    assert share_beam(candidates, 2) == [0, 3]
    assert by_log_prob(candidates, 2) == [0, 1]


def test_a_beam_smaller_than_the_number_of_banks_keeps_both_ends() -> None:
    candidates = banked([(missing, -10.0 + missing) for missing in range(6)])
    assert share_beam(candidates, 2) == [5, 0]
    assert share_beam(candidates, 3) == [5, 2, 0]
    assert share_beam(candidates, 1) == [0]


def test_spare_places_go_to_the_nearest_bank_and_to_the_one_that_misses_less() -> None:
    fuller = [(0, -5.0), (0, -5.0), (0, -5.0), (2, -1.0), (2, -1.0), (2, -1.0)]
    assert share_beam(banked([*fuller, (1, -9.0)]), 6) == [3, 4, 0, 1, 2, 6]
    assert share_beam(banked([*fuller, (5, -9.0)]), 6) == [3, 4, 5, 0, 1, 6]
