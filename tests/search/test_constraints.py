"""Constraints: what is let through step by step is what a look at the finished output lets through."""

from collections.abc import Callable, Sequence
from functools import cache, partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.outputs import END, LONGEST, SYMBOLS, A, B, C, Outputs, Separately, dead_ends, every_output, walked
from seqloom.core.errors import UsageError
from seqloom.search.constraints import (
    All,
    Constraint,
    Forbidden,
    Lengths,
    NoRepeat,
    OneOf,
    Phrases,
    Prefix,
    StopAt,
    StopText,
    check,
)
from seqloom.search.phrase_automata import Run, contains

# --- the same by looking at finished outputs -------------------------------------------------------------------------


@cache
def most_apart(output: Run, alternatives: tuple[Run, ...]) -> int:
    """The most occurrences of these runs that do not overlap, by trying all."""
    if not output:
        return 0
    taken = [1 + most_apart(output[len(way) :], alternatives) for way in alternatives if output[: len(way)] == way]
    return max([most_apart(output[1:], alternatives), *taken])


def holds(constraint: Constraint, output: Run) -> bool:
    """Whether an output is as a constraint asks, whatever it may be besides. Stops are looked at elsewhere."""
    match constraint:
        case Prefix():
            return output[: len(constraint.symbols)] == constraint.symbols
        case Phrases():
            demands = [frozenset(p.alternatives if isinstance(p, OneOf) else (p,)) for p in constraint.phrases]
            return all(
                most_apart(output, tuple(alternatives)) >= demands.count(alternatives) for alternatives in demands
            )
        case Forbidden():
            return not any(contains(output, phrase) for phrase in constraint.phrases)
        case NoRepeat():
            grams = [output[i : i + constraint.size] for i in range(len(output) - constraint.size + 1)]
            return len(grams) == len(set(grams))
        case Lengths():
            return constraint.least <= len(output) <= (LONGEST if constraint.most is None else constraint.most)
        case All():
            return all(holds(part, output) for part in constraint.parts)
        case _:
            return True


def finished(constraint: Constraint, longest: int = LONGEST) -> Outputs:
    return {output for output in every_output(longest) if holds(constraint, output)}


def forced(*demands: tuple[Run, ...]) -> Phrases:
    """Phrases of these alternatives."""
    return Phrases(
        tuple(alternatives[0] if len(alternatives) == 1 else OneOf(alternatives) for alternatives in demands), END
    )


# Strategies give what makes a constraint, which is then made by the test: the type check that tests run with draws
# random numbers, and a strategy must not.
Make = Callable[[], Constraint]
runs = st.lists(st.sampled_from(SYMBOLS), min_size=1, max_size=3).map(tuple)
some_runs = st.lists(runs, max_size=3).map(tuple)
demands = st.lists(st.lists(runs, min_size=1, max_size=2).map(tuple), max_size=3)
prefixes = st.lists(st.sampled_from(SYMBOLS), max_size=3).map(tuple)
bounds = st.tuples(st.integers(0, 3), st.one_of(st.none(), st.integers(3, 5)))
others = st.one_of(
    prefixes.map(lambda symbols: partial(Prefix, symbols)),
    some_runs.map(lambda found: partial(Forbidden, found)),
    st.integers(1, 3).map(lambda size: partial(NoRepeat, size)),
    bounds.map(lambda ends: partial(Lengths, *ends, END)),
)
phrases = demands.map(lambda found: partial(forced, *found))
several = st.tuples(st.lists(others, min_size=1, max_size=2), st.lists(phrases, max_size=1))


def all_of(makes: tuple[list[Make], list[Make]]) -> All:
    return All(tuple(make() for half in makes for make in half))


@given(st.one_of(phrases, others))
@settings(max_examples=25)
def test_outputs_let_through_step_by_step_are_those_that_are_right_as_a_whole(make: Make) -> None:
    assert walked(make()) == finished(make())


@given(several)
@settings(max_examples=15)
def test_several_constraints_let_through_what_all_of_them_let_through(makes: tuple[list[Make], list[Make]]) -> None:
    assert walked(all_of(makes)) == finished(all_of(makes))


@given(st.lists(runs, min_size=1, max_size=2), some_runs)
@settings(max_examples=20)
def test_an_output_stops_where_the_first_of_its_stops_is_complete(stops: list[Run], never: tuple[Run, ...]) -> None:
    def is_right(output: Run) -> bool:
        before = any(contains(output[:-1], stop) for stop in stops)
        return not before and holds(Forbidden(never), output)

    expected = {output for output in every_output(4) if is_right(output)}
    assert walked(All((StopAt(tuple(stops)), Forbidden(never))), 4) == expected
    texts = tuple("".join(map(str, stop)) for stop in stops)
    stop_text = StopText(lambda symbols: "".join(map(str, symbols)), texts)
    assert walked(All((Forbidden(never), stop_text)), 4) == expected


class RestartingPhrases(Constraint):
    """Phrases as they should not be: after a symbol that does not fit, the run is looked for from its beginning."""

    def __init__(self, phrase: Run) -> None:
        self.phrase = phrase

    def begin(self) -> int:
        return 0

    def after(self, place: int, symbol: int) -> int:
        if place == len(self.phrase):
            return place
        return place + 1 if symbol == self.phrase[place] else 0

    def forbidden(self, place: int) -> frozenset[int]:
        return frozenset() if place == len(self.phrase) else frozenset({END})


def test_the_comparison_tells_a_matcher_that_restarts_from_one_that_does_not() -> None:
    phrase = (A, A, B)
    assert (A, A, A, B) in finished(Phrases((phrase,), END)) - walked(RestartingPhrases(phrase))
    assert walked(RestartingPhrases((A, B))) != finished(Phrases(((A, B),), END))


def test_the_comparison_tells_overlapping_occurrences_from_separate_ones() -> None:
    twice = Phrases(((A, B, A), (A, B, A)), END)
    assert walked(twice) == set()  # six symbols are too many for LONGEST
    assert (A, B, A, B, A) in finished(Phrases(((A, B, A),), END))
    assert walked(Phrases(((A, A), (A, A)), END)) == finished(Phrases(((A, A), (A, A)), END)) != set()


# --- what is missing -------------------------------------------------------------------------------------------------


def places(constraint: Constraint, longest: int) -> dict[Run, object]:
    """Where every output stands, whether or not it is let through."""
    found: dict[Run, object] = {(): constraint.begin()}
    for output in every_output(longest):
        if output:
            found[output] = constraint.after(found[output[:-1]], output[-1])
    return found


def symbols_to_go(right: Outputs, longest: int) -> dict[Run, int]:
    """The fewest symbols after which each output is right, as far as that can be seen."""
    distances = dict.fromkeys(right, 0)
    for output in sorted(every_output(longest), key=len, reverse=True):
        if output and output in distances:
            before = output[:-1]
            distances[before] = min(distances.get(before, longest + 1), distances[output] + 1)
    return distances


def bound_is_kept(constraint: Phrases, missing: Callable[[object], int], longest: int) -> bool:
    distances = symbols_to_go(finished(constraint, longest), longest)
    return all(
        missing(place) <= distances[output]
        for output, place in places(constraint, longest).items()
        if output in distances
    )


@given(demands)
@settings(max_examples=25)
def test_what_is_missing_is_a_lower_bound_and_nothing_only_when_all_is_there(found: list[tuple[Run, ...]]) -> None:
    constraint = forced(*found)
    assert bound_is_kept(constraint, constraint.missing, 5)
    for output, place in places(constraint, 4).items():
        is_there = holds(constraint, output)
        assert (constraint.missing(place) == 0) == is_there == (END not in constraint.forbidden(place))


def test_a_sum_of_needs_is_no_lower_bound_where_phrases_overlap() -> None:
    constraint = Phrases(((A, B), (B, C)), END)
    assert not bound_is_kept(constraint, lambda place: sum(constraint.needs(place)), 5)
    assert bound_is_kept(constraint, constraint.missing, 5)


@pytest.mark.parametrize("found", [((A, B), (A, C)), ((A, B, B), (C,)), ((A, A, B),), ((A, B), (A, B)), ((C,), (C,))])
def test_what_is_missing_is_exact_where_phrases_cannot_overlap(found: tuple[Run, ...]) -> None:
    constraint = Phrases(found, END)
    distances = symbols_to_go(finished(constraint, 6), 6)
    for output, place in places(constraint, 2).items():
        assert constraint.missing(place) == distances[output]


@given(demands)
@settings(max_examples=60)
def test_wanted_symbols_bring_the_phrases_on_until_all_are_there(found: list[tuple[Run, ...]]) -> None:
    constraint = forced(*found)
    place = constraint.begin()
    for _ in range(12):
        if not constraint.missing(place):
            break
        wanted = constraint.wanted(place)
        assert wanted
        place = constraint.after(place, min(wanted))
    assert constraint.missing(place) == 0
    assert not constraint.wanted(place)


def test_symbols_that_only_restart_a_phrase_are_not_wanted() -> None:
    constraint = Phrases(((A, B), (C,)), END)
    begin = constraint.begin()
    assert constraint.wanted(begin) == {A, C}
    assert constraint.wanted(constraint.after(begin, A)) == {B}
    assert constraint.missing(begin) == 3


@given(prefixes, demands)
@settings(max_examples=40)
def test_a_prefix_may_bring_phrases_with_it(symbols: Run, found: list[tuple[Run, ...]]) -> None:
    needed = forced(*found)
    place = needed.begin()
    for symbol in symbols:
        place = needed.after(place, symbol)
    both = All((Prefix(symbols), needed))
    assert both.missing(both.begin()) == len(symbols) + needed.missing(place)


def test_a_phrase_within_the_prefix_is_counted_once() -> None:
    both = All((Prefix((A, B)), Phrases(((A, B),), END)))
    assert both.missing(both.begin()) == 2


# --- the last moment -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("found", [((A, B),), ((A, B), (C,)), ((A, B), (A, B)), ((A, B, C), OneOf(((A, A), (B,))))])
def test_no_output_runs_past_the_last_moment_at_which_its_phrases_fit(found: tuple[Run | OneOf, ...]) -> None:
    needed, bound = Phrases(found, END), Lengths(0, 5, END)
    assert walked(All((needed, bound)))
    assert dead_ends(All((needed, bound)), 6) == set()
    assert dead_ends(Separately((needed, bound)), 6) != set()


# --- values and messages ---------------------------------------------------------------------------------------------


def test_constraints_are_values() -> None:
    def make() -> All:
        return All((Prefix((A,)), Phrases(((A, B),), END), Forbidden(((C,),)), NoRepeat(2), Lengths(1, 4, END)))

    assert make() == make()
    assert hash(make()) == hash(make())
    assert make() != All((*make().parts[:-1], Lengths(1, 5, END)))
    assert All((All((Prefix((A,)),)), Constraint())) == All((Prefix((A,)), Constraint()))
    assert {make().after(make().begin(), A)} == {make().after(make().begin(), A)}


def test_wanted_symbols_that_another_constraint_forbids_are_not_offered() -> None:
    both = All((Phrases(((A, B), (C,)), END), Forbidden(((C,),))))
    assert both.wanted(both.begin()) == {A}
    led = All((Phrases(((A, B), (C,)), END), Prefix((C,))))
    assert led.wanted(led.begin()) == {C}


def spelled(symbols: Sequence[int]) -> str:
    return "".join("ab..c"[symbol - A] for symbol in symbols)


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (Prefix((A,) * 5), "the prefix aaaaa needs 5 symbols or more, but the output may have at most 4 symbols"),
        (Phrases(((A, B, C), (B, B)), END), "the forced phrase abc and the forced phrase bb need 5 symbols or more"),
        (All((Phrases(((A, B),), END), Lengths(0, 1, END))), "at most 1 symbols"),
        (Lengths(6, None, END), "at least 6 symbols are required, but the output may have at most 4"),
        (All((Prefix((A, B)), Prefix((A, C)))), "the prefix ab cannot come: the output must begin with ac"),
        (All((Prefix((A, B)), Forbidden(((B,),)))), "the prefix ab cannot come: something in it is forbidden (b)"),
        (
            All((Phrases(((A, B, C),), END), Forbidden(((B, C), (C, C))))),
            "the forced phrase abc cannot come: something in it is forbidden (bc, cc)",
        ),
        (All((NoRepeat(1), Phrases(((A, A),), END))), "phrase aa cannot come: no 1 symbols may be repeated"),
        (All((NoRepeat(2), Phrases(((A, B),) * 2, END))), "ab cannot come: it is required 2 times, but no 2 symbols"),
        (All((StopAt(((B,),)), Phrases(((A, B, C),), END))), "abc cannot come: the output stops within it (b)"),
        (All((StopText(spelled, ("ab",)), Prefix((A, B, C)))), "abc cannot come: the output stops within it ('ab')"),
        (
            All((Phrases((OneOf(((A, B), (B, C))),), END), Forbidden(((B,),)))),
            "the forced phrase ab or bc cannot come",
        ),
    ],
)
def test_contradictions_are_named_before_the_search(constraint: Constraint, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        check(constraint, most=4, show=spelled)
    assert message in str(refused.value)


@given(several)
@settings(max_examples=100)
def test_what_is_called_a_contradiction_lets_nothing_through(makes: tuple[list[Make], list[Make]]) -> None:
    constraint = all_of(makes)
    try:
        check(constraint, most=LONGEST)
    except UsageError:
        assert finished(constraint) == set()


@pytest.mark.parametrize(
    "constraint",
    [
        All((Phrases((OneOf(((A, B), (C, C))),), END), Forbidden(((B,),)))),
        All((Phrases(((A, B), (B, C), (C, A)), END), Prefix((A, B)))),
        All((StopAt(((B, C),)), Phrases(((A, B, C),), END))),
        All((Phrases(((A, B),) * 2, END), NoRepeat(3))),
        Constraint(),
    ],
)
def test_what_can_be_met_is_not_called_a_contradiction(constraint: Constraint) -> None:
    check(constraint, most=4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Phrases(((),), END), "a forced phrase has no symbols"),
        (lambda: Phrases(((A, END),), END), "a forced phrase holds the end symbol 2"),
        (lambda: OneOf(()), "OneOf has no alternatives"),
        (lambda: Forbidden(((A,), ())), "a forbidden phrase has no symbols"),
        (lambda: StopAt(((),)), "a run to stop at has no symbols"),
        (lambda: StopText(spelled, ("x", "")), "a stop string is empty"),
        (lambda: NoRepeat(0), "n-grams of 0 symbols"),
        (lambda: Lengths(-1, None, END), "the least length is -1"),
        (lambda: Lengths(4, 3, END), "at least 4 and at most 3 symbols"),
        (lambda: All((Phrases(((A,),), END), All((Phrases(((B,),), END),)))), "2 sets of forced phrases"),
    ],
)
def test_senseless_constraints_are_refused_with_a_sentence(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        make()
    assert message in str(refused.value)
