"""Constraints: what an output must or must not hold, as values that every search obeys.

A constraint is an automaton over output symbols: `begin` and `after` make states, hashable values that only the
constraint reads, and the other methods say what a state restricts. Nothing in a constraint changes, so one object
serves all hypotheses of a sentence. To write your own, derive from `Constraint`.

    Prefix      the output begins so                     Lengths   no fewer and no more symbols than these
    Phrases     these runs must occur                    StopAt    the output stops when one of these runs is there
    Forbidden   these runs must not occur                StopText  … when one of these strings is in its text
    NoRepeat    no n-gram occurs twice                   All       several of these at once

    ForbiddenText   these strings must not occur in the text of the output, however it is split into symbols
    Brackets        the output is a parse of given words

Constraints see the symbols before END; END itself is never fed to one. Those that forbid it get its id.
"""

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, ClassVar, NamedTuple, Protocol

from seqloom.core.errors import UsageError
from seqloom.search.phrase_automata import (
    ANYWHERE,
    ROOT,
    Anywhere,
    Automaton,
    Borders,
    Demand,
    DemandState,
    Run,
    automaton_of,
    code_of,
)

# ruff: noqa: ARG002 - a constraint answers every question, and most of its answers do not depend on the state


NOTHING: frozenset[int] = frozenset()
NO_SYMBOLS: Mapping[int, int] = {}


@dataclass(frozen=True)
class Constraint:
    """The interface of all constraints. As it is, it restricts nothing; a constraint overrides what it restricts.

    A search calls `after` only for symbols that are neither forbidden nor missing from `allowed`.
    """

    needs_limit: ClassVar[bool] = False
    """Whether something must come before the output ends, so that the maximum length has to be known in time."""
    can_stop: ClassVar[bool] = False
    """Whether `is_over` can be true."""

    def begin(self) -> Hashable:
        """The state of a hypothesis without symbols."""
        return ROOT

    def after(self, state: Any, symbol: int) -> Hashable:
        """The state one symbol later. END is never fed."""
        return ROOT

    def forbidden(self, state: Any) -> Collection[int]:
        """The symbols, END perhaps among them, that may not come next."""
        return NOTHING

    def allowed(self, state: Any) -> Collection[int] | None:
        """The only symbols that may come next; None for no such restriction."""
        return None

    def wanted(self, state: Any) -> Collection[int]:
        """The symbols that continue a forced run, to be offered even if they are improbable, while any are missing."""
        return NOTHING

    def missing(self, state: Any) -> int:
        """How many forced symbols are still to come, at least. While it is above 0, END must be forbidden."""
        return 0

    def unfinished(self, state: Any) -> Mapping[int, int]:
        """The symbols that may come but not be the last, with the fewest symbols that must then follow."""
        return NO_SYMBOLS

    def is_over(self, state: Any) -> bool:
        """Whether the output stops here although END has not come."""
        return False


Constraints = Sequence[Constraint | None]
"""What each sentence's output must obey, None where it is free."""


class ConstraintState(NamedTuple):  # a tuple, because one is made for each row at each step
    """How far a hypothesis has come with the constraint of its sentence."""

    constraint: Constraint
    state: Hashable

    def after(self, symbol: int) -> "ConstraintState":
        return ConstraintState(self.constraint, self.constraint.after(self.state, symbol))

    def is_missing_something(self) -> bool:
        """Whether forced symbols are still to come."""
        return self.constraint.missing(self.state) > 0


# --- what must be there ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prefix(Constraint):
    """The output begins with these symbols. A state is how many of them are there."""

    symbols: Run

    def begin(self) -> int:
        return 0

    def after(self, state: int, symbol: int) -> int:
        return min(state + 1, len(self.symbols))

    def allowed(self, state: int) -> Collection[int] | None:
        return frozenset(self.symbols[state : state + 1]) or None

    def wanted(self, state: int) -> Collection[int]:
        return frozenset(self.symbols[state : state + 1])

    def missing(self, state: int) -> int:
        return len(self.symbols) - state


@dataclass(frozen=True)
class OneOf:
    """Runs of which any one will do: the spellings of a term, for example."""

    alternatives: tuple[Run, ...]

    def __post_init__(self) -> None:
        if not self.alternatives:
            raise UsageError("OneOf has no alternatives; give at least one run of symbols")


@dataclass(frozen=True)
class Phrases(Constraint):
    """Every phrase must occur as a run between borders; END is forbidden until all do.

    A phrase that is given twice must occur twice, at states that do not overlap. Different phrases may share symbols:
    `a b c` holds both `a b` and `b c`. Behind a phrase that has come a border must come, by `borders`.
    """

    needs_limit: ClassVar[bool] = True
    phrases: tuple[Run | OneOf, ...]
    end: int
    borders: Borders = ANYWHERE

    def __post_init__(self) -> None:
        for runs in self._alternatives():
            _require_symbols(runs, name="a forced phrase")
            if any(self.end in run for run in runs):
                raise UsageError(f"a forced phrase holds the end symbol {self.end}: {runs}; leave it out")

    @cached_property
    def demands(self) -> tuple[Demand, ...]:
        """The different phrases, each with how often it must occur."""
        counts = Counter(tuple(sorted(set(runs))) for runs in self._alternatives())
        return tuple(Demand(runs, times, self.borders) for runs, times in counts.items())

    def _alternatives(self) -> list[tuple[Run, ...]]:
        return [phrase.alternatives if isinstance(phrase, OneOf) else (phrase,) for phrase in self.phrases]

    def begin(self) -> DemandState:
        return DemandState(self.borders.begin(), tuple((demand.times, ROOT) for demand in self.demands))

    def after(self, state: DemandState, symbol: int) -> DemandState:
        code = code_of(symbol, may_begin=self.borders.may_begin(state.at, symbol))
        before = self._settled(state) if self.borders.may_end(state.at, symbol) else state.parts
        places = zip(self.demands, before, strict=True)
        moved = tuple((left, demand.automaton.after(node, code) if left else ROOT) for demand, (left, node) in places)
        return DemandState(self.borders.after(state.at, symbol), moved)

    def forbidden(self, state: DemandState) -> Collection[int]:
        settled = self._settled(state)
        open_end = frozenset({self.end}) if any(left for left, _ in settled) else NOTHING
        # Where a run has just become complete, a border must follow, or it does not count.
        return open_end if settled == state.parts else open_end.union(self.borders.inner(state.at))

    def wanted(self, state: DemandState) -> Collection[int]:
        """The symbols after which less is missing (or, if there are none, after which one demand needs less)."""
        later = {symbol: self.after(state, symbol) for symbol in self._onward(state)}
        missing = self.missing(state)
        helpful = frozenset(symbol for symbol, place in later.items() if self.missing(place) < missing)
        if helpful or not later:
            return helpful
        needs = self.needs(state)
        return frozenset(
            symbol
            for symbol, place in later.items()
            if any(new < old for new, old in zip(self.needs(place), needs, strict=True))
        )

    def missing(self, state: DemandState) -> int:
        """A lower bound on the symbols still needed, 0 only when every demand is met.

            Σ_i left_i · own_i + min_f (next_f − own_f)

        Think of the occurrences that are still to come in the order of their ends. The first of them, f, needs the
        next_f symbols that its automaton is away from an end. Each later one adds at least own_i: the fewest symbols
        that it needs behind an occurrence of an open demand, with which it may share some. Where no two runs can
        overlap, the bound is exact. It is remembered, since a search needs it again and again.
        """
        if state in self._known:
            return self._known[state]
        settled = self._settled(state)
        still = [index for index, (left, _) in enumerate(settled) if left]
        own = {
            index: min(
                (self._added[other][index] for other in still if other != index or settled[index][0] > 1),
                default=self.demands[index].length,
            )
            for index in still
        }
        found = 0
        if still:
            first = min(self.demands[index].distance(state.at, settled[index][1]) - own[index] for index in still)
            together = sum(settled[index][0] * own[index] for index in still) + first
            # Runs within runs can leave nothing of the sum, but each demand alone needs what it needs.
            found = max(together, *self.needs(state))
        self._known[state] = found
        return found

    @cached_property
    def _known(self) -> dict[DemandState, int]:
        return {}

    @cached_property
    def _added(self) -> tuple[tuple[int, ...], ...]:
        """What an occurrence for one demand (row) leaves another one (column) to add."""
        return tuple(tuple(later.added(earlier) for later in self.demands) for earlier in self.demands)

    def _settled(self, state: DemandState) -> tuple[tuple[int, int], ...]:
        """How often each demand must still be met if a border comes now."""
        places = zip(self.demands, state.parts, strict=True)
        return tuple(
            (left - 1, ROOT) if demand.automaton.is_whole[node] else (left, node) for demand, (left, node) in places
        )

    def needs(self, state: DemandState) -> list[int]:
        """The fewest symbols that each demand would need if it were alone."""
        return [
            demand.distance(state.at, node) + (left - 1) * demand.length if left else 0
            for demand, (left, node) in zip(self.demands, self._settled(state), strict=True)
        ]

    def _onward(self, state: DemandState) -> frozenset[int]:
        """The symbols that begin or continue a run of an open demand."""
        places = zip(self.demands, self._settled(state), strict=True)
        codes = NOTHING.union(*(demand.automaton.onward(node) for demand, (left, node) in places if left))
        symbols, at = {code // 2 for code in codes}, state.at
        return frozenset(s for s in symbols if code_of(s, may_begin=self.borders.may_begin(at, s)) in codes)

    def fitting(self, state: DemandState, room: int) -> frozenset[int] | None:
        """The symbols after which what is missing still fits in `room` symbols, they themselves among these.

        None when any symbol will do; none at all where a border must come first. The worst is one that neither begins
        nor continues a run, and behind which the fewest may begin.
        """
        worst = DemandState(self.borders.inside(), tuple((left, ROOT) for left, _ in self._settled(state)))
        if self.missing(worst) < max(room, 1):
            return None
        return frozenset(symbol for symbol in self._onward(state) if self.missing(self.after(state, symbol)) < room)


# --- what must not be there ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Forbidden(Constraint):
    """No phrase may occur. A phrase of one symbol forbids the symbol. A state is a node of the automaton."""

    phrases: tuple[Run, ...]

    def __post_init__(self) -> None:
        _require_symbols(self.phrases, name="a forbidden phrase")

    def after(self, state: int, symbol: int) -> int:
        return self._automaton.after(state, symbol)

    def forbidden(self, state: int) -> Collection[int]:
        return self._automaton.completing[state]

    @cached_property
    def _automaton(self) -> Automaton:
        return automaton_of(self.phrases)


@dataclass(frozen=True)
class NoRepeat(Constraint):
    """No n-gram of `size` symbols occurs twice, overlapping or not. A state is all symbols so far."""

    size: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UsageError(f"NoRepeat got n-grams of {self.size} symbols; give a size of 1 or more")

    def begin(self) -> Run:
        return ()

    def after(self, state: Run, symbol: int) -> Run:
        return (*state, symbol)

    def forbidden(self, state: Run) -> Collection[int]:
        known = self.size - 1
        last = state[len(state) - known :]
        ends = range(known, len(state))
        return frozenset(state[end] for end in ends if state[end - known : end] == last)


@dataclass(frozen=True)
class Lengths(Constraint):
    """END comes after at least `least` and at most `most` symbols. A state is how many there are.

    Nothing is ever `missing` here: which symbols come does not matter.
    """

    least: int
    most: int | None
    end: int

    def __post_init__(self) -> None:
        if self.least < 0:
            raise UsageError(f"the least length is {self.least} symbols; give 0 or more")
        if self.most is not None and self.most < self.least:
            raise UsageError(f"at least {self.least} and at most {self.most} symbols exclude every length; swap them?")

    def begin(self) -> int:
        return 0

    def after(self, state: int, symbol: int) -> int:
        return state + 1

    def forbidden(self, state: int) -> Collection[int]:
        return frozenset({self.end}) if state < self.least else NOTHING

    def allowed(self, state: int) -> Collection[int] | None:
        return frozenset({self.end}) if self.most is not None and state >= self.most else None


class BracketState(NamedTuple):
    """How far a parse has come."""

    leaves: int
    """Words that are there."""
    depth: int
    """Brackets that are open."""
    opened: int
    """Brackets that were ever opened."""
    is_empty: bool
    """Whether the last symbol was an opening bracket, which must not be closed yet."""


@dataclass(frozen=True)
class Brackets(Constraint):
    """The output is a well-formed parse with these words as its leaves, in their order.

    There are at most as many brackets as words, each around at least one word. An opening bracket is let through while
    everything that must follow still fits:

        words left + open brackets + 1 ≤ room − 1
    """

    words: Run
    opening: frozenset[int]
    closing: frozenset[int]
    end: int
    most: int
    """Symbols that may come before END."""

    def __post_init__(self) -> None:
        if len(self.words) > self.most:
            raise UsageError(
                f"a parse of {len(self.words)} words has at least as many symbols, but the output may have at most "
                f"{self.most} before its end; raise search.length_factor"
            )

    def begin(self) -> BracketState:
        return BracketState(0, 0, 0, is_empty=False)

    def after(self, state: BracketState, symbol: int) -> BracketState:
        leaves, depth, opened, _ = state
        if symbol in self.opening:
            return BracketState(leaves, depth + 1, opened + 1, is_empty=True)
        if symbol in self.closing:
            return BracketState(leaves, depth - 1, opened, is_empty=False)
        return BracketState(leaves + 1, depth, opened, is_empty=False)

    def allowed(self, state: BracketState) -> Collection[int]:
        leaves, depth, opened, is_empty = state
        left, found = len(self.words) - leaves, frozenset[int]()
        if left:
            found |= {self.words[leaves]}
            room = self.most - (leaves + 2 * opened - depth)
            if opened < len(self.words) and left + depth + 1 <= room - 1:
                found |= self.opening
        if depth and not is_empty:
            found |= self.closing
        return found if left or depth else frozenset({self.end})


# --- when to stop ----------------------------------------------------------------------------------------------------

OVER = -1


@dataclass(frozen=True)
class StopAt(Constraint):
    """The output stops when one of these runs is complete. The run is part of the output."""

    can_stop: ClassVar[bool] = True
    phrases: tuple[Run, ...]

    def __post_init__(self) -> None:
        _require_symbols(self.phrases, name="a run to stop at")

    def after(self, state: int, symbol: int) -> int:
        if state == OVER or symbol in self._automaton.completing[state]:
            return OVER
        return self._automaton.after(state, symbol)

    def is_over(self, state: int) -> bool:
        return state == OVER

    @cached_property
    def _automaton(self) -> Automaton:
        return automaton_of(self.phrases)


@dataclass(frozen=True)
class StopText(Constraint):
    """The output stops when its text holds one of these strings, however it is cut into symbols.

    The string is part of the output, and so is what its last symbol brings with it.
    """

    can_stop: ClassVar[bool] = True
    decode: Callable[[Sequence[int]], str]
    strings: tuple[str, ...]

    def __post_init__(self) -> None:
        if "" in self.strings:
            raise UsageError("a stop string is empty, so every output would stop at once; leave it out")

    def begin(self) -> Run:
        return ()

    def after(self, state: Run, symbol: int) -> Run:
        return (*state, symbol)

    def is_over(self, state: Run) -> bool:
        text = self.decode(state)
        return any(string in text for string in self.strings)


# --- several at once -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class All(Constraint):
    """Several constraints, all of which hold.

        forbidden = ∪ forbidden_i        wanted  = ∪ wanted_i without what is forbidden
        only      = ∩ only_i             is_over = any is_over_i
        missing   = Σ missing_i, where a prefix comes first and may bring phrases with it

    Where a maximum length leaves just enough room for the phrases that are missing, only symbols that bring them on
    are let through, so that a hypothesis does not run past the last moment at which they fit.
    """

    parts: tuple[Constraint, ...]
    """Parts that are `All` themselves are taken apart."""

    def __post_init__(self) -> None:
        flat = [inner for part in self.parts for inner in (part.parts if isinstance(part, All) else (part,))]
        object.__setattr__(self, "parts", tuple(flat))
        forced = [part for part in flat if isinstance(part, Phrases)]
        if len(forced) > 1:
            raise UsageError(
                f"{len(forced)} sets of forced phrases leave open whether one occurrence serves several of them: "
                f"{forced[0].phrases} and {forced[1].phrases}; join them in one Phrases"
            )

    def begin(self) -> tuple[Hashable, ...]:
        return tuple(part.begin() for part in self.parts)

    def after(self, state: tuple[Hashable, ...], symbol: int) -> tuple[Hashable, ...]:
        return tuple([part.after(at, symbol) for part, at in zip(self.parts, state, strict=True)])

    def forbidden(self, state: tuple[Any, ...]) -> Collection[int]:
        # A prefix may continue where a forced phrase would have to end: its word is then another one.
        is_led, room = self._is_led(state), self._room(state)
        parts = list(zip(self.parts, state, strict=True))
        found = [part.forbidden(at) for part, at in parts if not (is_led and isinstance(part, Phrases))]
        unfinished = self.unfinished(state)
        # Symbols after which a text would have to continue without room to, or past a stop.
        if unfinished and room is not None and max(unfinished.values()) >= room:
            found.append(frozenset(symbol for symbol, more in unfinished.items() if more >= room))
        stops = [(part, at) for part, at in parts if part.can_stop] if unfinished else []
        if stops:
            over = (symbol for symbol in unfinished if any(part.is_over(part.after(at, symbol)) for part, at in stops))
            found.append(frozenset(over))
        # Symbols that are no border, where one must come now for the phrases to fit.
        if self._last_moment(state) == NOTHING:
            found += [part.borders.inner(state[at].at) for at, part in self._phrases]
        full = [each for each in found if each]
        return full[0] if len(full) == 1 else NOTHING.union(*full)  # a single one may be large

    def allowed(self, state: tuple[Hashable, ...]) -> frozenset[int] | None:
        named = [part.allowed(at) for part, at in zip(self.parts, state, strict=True)]
        choices = [frozenset(symbols) for symbols in (*named, self._last_moment(state) or None) if symbols is not None]
        return frozenset.intersection(*choices) if choices else None

    def wanted(self, state: tuple[Hashable, ...]) -> frozenset[int]:
        wanted = NOTHING.union(*(part.wanted(at) for part, at in zip(self.parts, state, strict=True)))
        if not wanted:
            return wanted
        wanted -= frozenset(self.forbidden(state))
        allowed = self.allowed(state)
        return wanted if allowed is None else wanted & allowed

    def missing(self, state: tuple[Any, ...]) -> int:
        # What the prefix brings comes anyway; only what is missing behind it comes on top.
        ahead = max((part.symbols[state[at] :] for at, part in self._prefixes), key=len, default=())
        for symbol in ahead:
            state = self.after(state, symbol)
        return len(ahead) + sum(part.missing(at) for part, at in zip(self.parts, state, strict=True))

    def unfinished(self, state: tuple[Hashable, ...]) -> Mapping[int, int]:
        named = [each for part, at in zip(self.parts, state, strict=True) if (each := part.unfinished(at))]
        if len(named) == 1:
            return named[0]
        found: dict[int, int] = {}
        for mapping in named:
            for symbol, more in mapping.items():
                found[symbol] = max(more, found.get(symbol, 0))
        return found

    def is_over(self, state: tuple[Hashable, ...]) -> bool:
        return any(part.is_over(at) for part, at in zip(self.parts, state, strict=True))

    @cached_property
    def _prefixes(self) -> list[tuple[int, Prefix]]:
        return [(at, part) for at, part in enumerate(self.parts) if isinstance(part, Prefix)]

    @cached_property
    def _phrases(self) -> list[tuple[int, Phrases]]:
        return [(at, part) for at, part in enumerate(self.parts) if isinstance(part, Phrases)]

    @cached_property
    def _bounds(self) -> list[tuple[int, int]]:
        parts = enumerate(self.parts)
        return [(at, part.most) for at, part in parts if isinstance(part, Lengths) and part.most is not None]

    # --- what holds only together ------------------------------------------------------------------------------------

    def _is_led(self, state: tuple[Any, ...]) -> bool:
        """Whether a prefix leaves no choice."""
        return any(part.missing(state[at]) for at, part in self._prefixes)

    def _room(self, state: tuple[Any, ...]) -> int | None:
        """The symbols that may still come before END, if there is a maximum."""
        return min((most - state[at] for at, most in self._bounds), default=None)

    def _last_moment(self, state: tuple[Any, ...]) -> Collection[int] | None:
        """The symbols after which the phrases still fit, once not any symbol will do; none if a border must come."""
        room = self._room(state)
        # A prefix may bring phrases that are not begun yet.
        if not self._phrases or room is None or self._is_led(state):
            return None
        at, part = self._phrases[0]
        return part.fitting(state[at], room)


def _require_symbols(runs: Sequence[Run], *, name: str) -> None:
    if () in runs:
        raise UsageError(f"{name} has no symbols: {list(runs)}; leave it out")


# Strings that must not occur in the text of an output, however it is split into symbols.


class Reader(Protocol):
    """Reads the text of an output symbol by symbol, by states as those of a constraint."""

    def begin(self) -> Hashable:
        """Before the first symbol."""
        ...

    def after(self, state: Any, symbol: int) -> Hashable | None:
        """The state one symbol later; None if the output then has a forbidden string, whatever follows."""
        ...

    def may_end(self, state: Any) -> bool:
        """Whether an output that ends here has no forbidden string."""
        ...


@dataclass(frozen=True)
class ForbiddenText(Constraint):
    """No phrase may occur in the text of the output, however it is split into symbols. A state is the reader's.

    Symbols are refused, too, after which the output could never end.
    """

    needs_limit: ClassVar[bool] = True
    reader: Reader
    strings: tuple[str, ...]
    """What is forbidden, for messages; the reader knows it."""
    symbols: int
    """Symbols there are."""
    end: int

    def begin(self) -> Hashable:
        return self.reader.begin()

    def after(self, state: Hashable, symbol: int) -> Hashable:
        # None stays None, for callers that look beyond what is allowed.
        return None if state is None else self.reader.after(state, symbol)

    def forbidden(self, state: Hashable) -> Collection[int]:
        return self._onward(state)[0]

    def unfinished(self, state: Hashable) -> Mapping[int, int]:
        return self._onward(state)[1]

    def _onward(self, state: Hashable) -> tuple[frozenset[int], Mapping[int, int]]:
        """Which symbols may not come next, and which may, but not as the last one, with what must follow them.

        Remembered for each state: there are few, and each is met again and again.
        """
        if state in self._known:
            return self._known[state]
        refused = set() if state is not None and self.reader.may_end(state) else {self.end}
        unfinished: dict[int, int] = {}
        for symbol in self._others:
            later = self.after(state, symbol)
            if later not in self._distances:
                self._distances[later] = self._distance(later)
            distance = self._distances[later]
            if distance is None:
                refused.add(symbol)
            elif distance:
                unfinished[symbol] = distance
        self._known[state] = frozenset(refused), unfinished
        return self._known[state]

    def _distance(self, state: Hashable) -> int | None:
        """The fewest symbols after which an output in this state may end, None if it never may."""
        if state is None or self.reader.may_end(state):
            return None if state is None else 0
        level: list[Hashable] = [state]
        reached, distance = {None, state}, 0
        while level:
            distance += 1
            further: list[Hashable] = []
            for later in (self.reader.after(each, symbol) for each in level for symbol in self._others):
                if later in reached:
                    continue
                if self.reader.may_end(later):  # found before the other thousands of symbols were looked at
                    return distance
                reached.add(later)
                further.append(later)
            level = further
        return None

    @cached_property
    def _known(self) -> dict[Hashable, tuple[frozenset[int], Mapping[int, int]]]:
        return {}

    @cached_property
    def _distances(self) -> dict[Hashable, int | None]:
        return {}

    @cached_property
    def _others(self) -> list[int]:
        return [symbol for symbol in range(self.symbols) if symbol != self.end]


# Constraints that cannot all hold, found before the search begins.

Show = Callable[[Sequence[int]], str]
"""How a run of symbols is written in a message."""


def check(constraint: Constraint, *, most: int, show: Show | None = None) -> None:
    """Raise a UsageError that names two constraints which exclude each other; `most` symbols may come before END.

    What is found: prefixes, phrases and least lengths that do not fit in the maximum length; prefixes that differ;
    prefixes and phrases in which something is forbidden or repeated, or in the middle of which the output would stop.
    What is not: contradictions that show only when phrases are put together, or that hang on the model.
    """
    parts = constraint.parts if isinstance(constraint, All) else (constraint,)
    write = show or (lambda symbols: str(list(symbols)))
    forced: list[_Forced] = []
    for part in parts:
        if isinstance(part, Prefix) and part.symbols:
            forced.append(_Forced(f"the prefix {write(part.symbols)}", (part.symbols,), 1, part, needs_border=True))
        for demand in part.demands if isinstance(part, Phrases) else ():
            name = f"the forced phrase {' or '.join(dict.fromkeys(write(run) for run in demand.alternatives))}"
            is_bound = isinstance(part, Phrases) and not isinstance(part.borders, Anywhere)
            forced.append(_Forced(name, demand.alternatives, demand.times, part, is_bound))
    lengths = [part for part in parts if isinstance(part, Lengths)]
    room = min([most, *(part.most for part in lengths if part.most is not None)])
    limit = f"the output may have at most {room} symbols before its end"
    least = max((part.least for part in lengths), default=0)
    if least > room:
        raise UsageError(f"at least {least} symbols are required, but {limit}; lower one or raise the other")
    together = All(tuple(part for part in parts if isinstance(part, Prefix | Phrases)))
    needed = together.missing(together.begin())
    if needed > room:
        names = " and ".join(f"{run.name}{f' ({run.times} times)' if run.times > 1 else ''}" for run in forced)
        verb = "needs" if len(forced) == 1 else "need"
        raise UsageError(f"{names} {verb} {needed} symbols or more, but {limit}; shorten one or raise the limit")
    for run, part in product(forced, parts):
        reason = _clash(part, run, write)
        if reason is not None:
            raise UsageError(f"{run.name} cannot come: {reason}; leave out one of the two")


@dataclass(frozen=True)
class _Forced:
    """A run that must come, as one of several alternatives, and its name in a message."""

    name: str
    alternatives: tuple[Run, ...]
    times: int
    owner: Constraint
    needs_border: bool = False
    """Whether what follows it is a border, as the end is. A prefix that ends in a word is taken to mean that word."""


def _clash(part: Constraint, run: _Forced, show: Show) -> str | None:
    """Why a run cannot come under a constraint, if it cannot, whichever alternative is written."""
    # Forced phrases wait until a prefix has come.
    if part is run.owner or isinstance(part, Phrases):
        return None
    if isinstance(run.owner, Prefix):
        return _reason(part, show) if _refuses(part, run.alternatives[0], with_end=run.needs_border) else None
    # What these refuse at the start of an output they refuse everywhere: what comes before can only add to it.
    if not isinstance(part, Forbidden | ForbiddenText | NoRepeat | StopAt):
        return None
    if all(_refuses(part, each, with_end=run.needs_border) for each in run.alternatives):
        return _reason(part, show)
    is_same = run.times > 1 and len(run.alternatives) == 1
    if is_same and isinstance(part, NoRepeat) and len(run.alternatives[0]) >= part.size:
        return f"it is required {run.times} times, but no {part.size} symbols may be repeated"
    return None


def _refuses(part: Constraint, run: Run, *, with_end: bool = False) -> bool:
    """Whether a run at the start of an output is broken off before it is complete, or cannot be followed by a border.

    In a text that may not end here, no border may come either.
    """
    state = part.begin()
    for symbol in run:
        only = part.allowed(state)
        is_shut_out = only is not None and symbol not in only
        if is_shut_out or symbol in part.forbidden(state) or part.is_over(state):
            return True
        state = part.after(state, symbol)
    return with_end and isinstance(part, ForbiddenText) and part.end in part.forbidden(state)


def _reason(part: Constraint, show: Show) -> str:
    """What a constraint requires, as the second half of a sentence."""
    match part:
        case Prefix():
            return f"the output must begin with {show(part.symbols)}"
        case Forbidden():
            return f"something in it is forbidden ({_several(part.phrases, show)})"
        case ForbiddenText():
            return f"something in it is forbidden ({', '.join(map(repr, part.strings[:5]))})"
        case NoRepeat():
            return f"no {part.size} symbols may be repeated"
        case StopAt():
            return f"the output stops within it ({_several(part.phrases, show)})"
        case StopText():
            return f"the output stops within it ({', '.join(map(repr, part.strings[:5]))})"
        case _:
            return f"{part} does not let it through"


def _several(runs: Sequence[Run], show: Show) -> str:
    return ", ".join(show(run) for run in runs[:5]) + (" …" if len(runs) > 5 else "")
