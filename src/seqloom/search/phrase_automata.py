# ruff: noqa: ARG002 - where runs may begin and end anywhere, no answer depends on the place
"""Runs of symbols, found while the symbols come, and how many symbols a set of them still needs.

The node of an automaton (Aho and Corasick, 1975) is the longest end of what was read that begins one of its runs.
A symbol that does not continue it is tried from the next shorter end that begins a run, and so on, so that no
occurrence is missed: `a a b` is found in `a a a b`.
"""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple, Protocol

Run = tuple[int, ...]
"""Consecutive symbols."""

ROOT = 0
"""The node where no run has begun."""


@dataclass(frozen=True)
class Automaton:
    """Finds runs. Nodes are numbered so that a shorter end has a smaller number than a longer one."""

    children: tuple[Mapping[int, int], ...]
    """Where each symbol leads that continues a run."""
    failures: tuple[int, ...]
    """The next shorter end that begins a run."""
    completing: tuple[frozenset[int], ...]
    """The symbols with which some run is complete."""
    is_whole: tuple[bool, ...]
    """Whether some run ends here."""
    distances: tuple[float, ...]
    """The fewest symbols after which some run that has begun is complete; ∞ where none has."""

    def after(self, node: int, symbol: int) -> int:
        """The node one symbol later."""
        while symbol not in self.children[node] and node != ROOT:
            node = self.failures[node]
        return self.children[node].get(symbol, ROOT)

    def onward(self, node: int) -> frozenset[int]:
        """The symbols that begin or continue a run."""
        symbols = set(self.children[ROOT])
        while node != ROOT:
            symbols |= self.children[node].keys()
            node = self.failures[node]
        return frozenset(symbols)


def automaton_of(runs: Sequence[Run]) -> Automaton:
    """The automaton that finds these runs, none of which may be empty."""
    children, is_last = _beginnings(runs)
    nodes = range(len(children))
    failures = [ROOT] * len(children)
    for node in nodes[1:]:
        for symbol, child in children[node].items():
            shorter = failures[node]
            while symbol not in children[shorter] and shorter != ROOT:
                shorter = failures[shorter]
            failures[child] = children[shorter].get(symbol, ROOT)

    distances = [0.0 if whole else math.inf for whole in is_last]
    for node in reversed(nodes):
        if not is_last[node]:
            distances[node] = min((distances[child] + 1 for child in children[node].values()), default=math.inf)
    distances[ROOT] = math.inf
    completing: list[frozenset[int]] = []
    for node in nodes:
        own = frozenset(symbol for symbol, child in children[node].items() if is_last[child])
        if node != ROOT:
            shorter = failures[node]
            is_last[node] = is_last[node] or is_last[shorter]
            distances[node] = min(distances[node], distances[shorter])
            # Nodes that add nothing share one set: thousands of forbidden words are then held once.
            own = own | completing[shorter] if own else completing[shorter]
        completing.append(own)
    return Automaton(tuple(children), tuple(failures), tuple(completing), tuple(is_last), tuple(distances))


def _beginnings(runs: Sequence[Run]) -> tuple[list[dict[int, int]], list[bool]]:
    """The beginnings of all runs as a tree, shorter ones first, and whether each is a whole run."""
    whole = set(runs)
    ordered = sorted({run[:length] for run in whole for length in range(len(run) + 1)} | {()}, key=_by_length)
    numbers = {run: number for number, run in enumerate(ordered)}
    children: list[dict[int, int]] = [{} for _ in ordered]
    for run in ordered[1:]:
        children[numbers[run[:-1]]][run[-1]] = numbers[run]
    return children, [run in whole for run in ordered]


def _by_length(run: Run) -> tuple[int, Run]:
    return len(run), run


def contains(run: Run, part: Run) -> bool:
    """Whether a run holds another one."""
    return any(run[start : start + len(part)] == part for start in range(len(run) - len(part) + 1))


def shared(earlier: Run, later: Run) -> int:
    """How many symbols of `later` an occurrence of `earlier`, which ends no later than it, can bring at most."""
    if contains(earlier, later):
        return len(later)
    lengths = range(min(len(earlier), len(later)) - 1, 0, -1)
    return next((length for length in lengths if earlier[-length:] == later[:length]), 0)


# --- runs that must come ---------------------------------------------------------------------------------------------


class Borders(Protocol):
    """Where runs may begin and end, by what symbols mean. A place is asked about as a constraint's is."""

    def begin(self) -> Hashable:
        """Before the first symbol."""
        ...

    def inside(self) -> Hashable:
        """The place at which the fewest runs may begin."""
        ...

    def after(self, place: Any, symbol: int) -> Hashable:
        """The place one symbol later."""
        ...

    def may_begin(self, place: Any, symbol: int) -> bool:
        """Whether a run that begins with this symbol may begin here."""
        ...

    def may_end(self, place: Any, symbol: int) -> bool:
        """Whether a run that is complete may have ended here, before this symbol. END may come after any run."""
        ...

    def inner(self, place: Any) -> Collection[int]:
        """All symbols before which no run may have ended."""
        ...


@dataclass(frozen=True)
class Anywhere:
    """Runs may begin and end between any two symbols."""

    def begin(self) -> Hashable:
        return ROOT

    def inside(self) -> Hashable:
        return ROOT

    def after(self, place: Any, symbol: int) -> Hashable:
        return ROOT

    def may_begin(self, place: Any, symbol: int) -> bool:
        return True

    def may_end(self, place: Any, symbol: int) -> bool:
        return True

    def inner(self, place: Any) -> Collection[int]:
        return ()


ANYWHERE = Anywhere()


class DemandState(NamedTuple):
    """The place between borders and, for each demand, how often it must still be met and the node of its automaton."""

    at: Hashable
    parts: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Demand:
    """Runs of which one must occur between borders, whichever it is, `times` times at places that do not overlap.

    The occurrence that ends first is taken, which leaves the most room for the others, and the search starts again
    behind it; so counting never has to be taken back. It counts once the next symbol shows that it ends at a border.
    """

    alternatives: tuple[Run, ...]
    times: int
    borders: Borders

    @cached_property
    def automaton(self) -> Automaton:
        """What finds the next occurrence, in codes that distinguish symbols before which a run may begin."""
        return automaton_of(self.codes)

    @cached_property
    def codes(self) -> tuple[Run, ...]:
        """The alternatives in codes. Within one these do not depend on what comes before it."""
        return tuple(codes for codes, _ in self._read)

    @cached_property
    def _read(self) -> tuple[tuple[Run, Hashable], ...]:
        """The codes of each alternative, and the place behind it."""
        read = []
        for run in self.alternatives:
            at, codes = self.borders.begin(), []
            for symbol in run:
                codes.append(code_of(symbol, may_begin=self.borders.may_begin(at, symbol)))
                at = self.borders.after(at, symbol)
            read.append((tuple(codes), at))
        return tuple(read)

    @cached_property
    def length(self) -> int:
        """The symbols of the shortest alternative."""
        return min(map(len, self.alternatives))

    def distance(self, at: Hashable, node: int) -> int:
        """The fewest symbols after which a run is complete; one that may not begin here needs a border first."""
        return int(min(self.automaton.distances[node], *(self._fresh(run, at) for run in self.alternatives)))

    def _fresh(self, run: Run, at: Hashable) -> int:
        return len(run) + (not self.borders.may_begin(at, run[0]))

    def added(self, earlier: "Demand") -> int:
        """The fewest symbols that an occurrence adds to one for an earlier demand, which ends no later than it.

        Occurrences for the same demand share nothing, and what shares nothing needs a border between.
        """
        pairs = product(zip(self.alternatives, self.codes, strict=True), earlier._read)
        return min(
            len(run) - shared(before, codes) if earlier is not self and shared(before, codes) else self._fresh(run, at)
            for (run, codes), (before, at) in pairs
        )


def code_of(symbol: int, *, may_begin: bool) -> int:
    """A symbol and whether a run may begin with it there, as one number."""
    return 2 * symbol + may_begin


@dataclass(frozen=True)
class Demands:
    """Several demands at once. Occurrences for different demands may share symbols."""

    parts: tuple[Demand, ...]
    borders: Borders

    @staticmethod
    def of(alternatives: Iterable[Sequence[Run]], borders: Borders) -> "Demands":
        """One demand for each set of alternatives; a set that is given twice must be met twice."""
        counts = Counter(tuple(sorted(set(runs))) for runs in alternatives)
        return Demands(tuple(Demand(runs, times, borders) for runs, times in counts.items()), borders)

    def begin(self) -> DemandState:
        """Before the first symbol."""
        return DemandState(self.borders.begin(), tuple((part.times, ROOT) for part in self.parts))

    def after(self, state: DemandState, symbol: int) -> DemandState:
        """One symbol later."""
        code = code_of(symbol, may_begin=self.borders.may_begin(state.at, symbol))
        before = self._settled(state) if self.borders.may_end(state.at, symbol) else state.parts
        places = zip(self.parts, before, strict=True)
        moved = tuple((left, part.automaton.after(node, code) if left else ROOT) for part, (left, node) in places)
        return DemandState(self.borders.after(state.at, symbol), moved)

    def is_met(self, state: DemandState) -> bool:
        """Whether nothing is missing if the output ends here."""
        return not any(left for left, _ in self._settled(state))

    def is_complete(self, state: DemandState) -> bool:
        """Whether a run that is still to be counted has just become complete."""
        return self._settled(state) != state.parts

    def _settled(self, state: DemandState) -> tuple[tuple[int, int], ...]:
        """How often each must still be met if a border comes now."""
        places = zip(self.parts, state.parts, strict=True)
        return tuple(
            (left - 1, ROOT) if part.automaton.is_whole[node] else (left, node) for part, (left, node) in places
        )

    def needs(self, state: DemandState) -> list[int]:
        """The fewest symbols that each demand would need if it were alone."""
        return [
            part.distance(state.at, node) + (left - 1) * part.length if left else 0
            for part, (left, node) in zip(self.parts, self._settled(state), strict=True)
        ]

    def missing(self, state: DemandState) -> int:
        """A lower bound on the symbols still needed, 0 only when every demand is met.

            Σ_i left_i · own_i + min_f (next_f − own_f)

        Think of the occurrences that are still to come in the order of their ends. The first of them, f, needs the
        next_f symbols that its automaton is away from an end. Each later one adds at least own_i: the fewest symbols
        that it needs behind an occurrence of an open demand, with which it may share some. Where no two runs can
        overlap, the bound is exact. It is remembered, since a search asks for it again and again.
        """
        if state not in self._known:
            self._known[state] = self._missing(state)
        return self._known[state]

    @cached_property
    def _known(self) -> dict[DemandState, int]:
        return {}

    def _missing(self, state: DemandState) -> int:
        settled = self._settled(state)
        still = [index for index, (left, _) in enumerate(settled) if left]
        if not still:
            return 0
        own = {index: self._own(index, still, is_last=settled[index][0] == 1) for index in still}
        first = min(self.parts[index].distance(state.at, settled[index][1]) - own[index] for index in still)
        together = sum(settled[index][0] * own[index] for index in still) + first
        # Runs within runs can leave nothing of the sum, but each demand alone needs what it needs.
        return max(together, *self.needs(state))

    def wanted(self, state: DemandState) -> frozenset[int]:
        """The symbols after which less is missing (or, if there are none, after which one demand needs less)."""
        onward = self._onward(state)
        later = {symbol: self.after(state, symbol) for symbol in onward}
        missing = self.missing(state)
        helpful = frozenset(symbol for symbol, place in later.items() if self.missing(place) < missing)
        if helpful or not onward:
            return helpful
        needs = self.needs(state)
        return frozenset(
            symbol
            for symbol, place in later.items()
            if any(new < old for new, old in zip(self.needs(place), needs, strict=True))
        )

    def fitting(self, state: DemandState, room: int) -> frozenset[int] | None:
        """The symbols after which what is missing still fits in `room` symbols, they themselves among these.

        None when any symbol will do; none at all where a border must come first. The worst is one that neither begins
        nor continues a run, and behind which the fewest may begin.
        """
        worst = DemandState(self.borders.inside(), tuple((left, ROOT) for left, _ in self._settled(state)))
        if self.missing(worst) < max(room, 1):
            return None
        onward = self._onward(state)
        return frozenset(symbol for symbol in onward if self.missing(self.after(state, symbol)) < room)

    def _onward(self, state: DemandState) -> frozenset[int]:
        """The symbols that begin or continue a run of an open demand."""
        places = zip(self.parts, self._settled(state), strict=True)
        codes = frozenset[int]().union(*(part.automaton.onward(node) for part, (left, node) in places if left))
        symbols = {code // 2 for code in codes}
        at = state.at
        return frozenset(s for s in symbols if code_of(s, may_begin=self.borders.may_begin(at, s)) in codes)

    def _own(self, index: int, still: Sequence[int], *, is_last: bool) -> int:
        """What an occurrence for a demand adds at least to one that comes before it, for any that is still open."""
        earlier = [other for other in still if other != index or not is_last]
        return min((self._added[other][index] for other in earlier), default=self.parts[index].length)

    @cached_property
    def _added(self) -> tuple[tuple[int, ...], ...]:
        """What an occurrence for one demand (row) leaves another one (column) to add."""
        return tuple(tuple(later.added(earlier) for later in self.parts) for earlier in self.parts)
