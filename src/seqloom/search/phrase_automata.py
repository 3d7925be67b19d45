# ruff: noqa: ARG002 - where runs may begin and end anywhere, no answer depends on the place
"""Runs of symbols, found while the symbols come, and how many symbols a set of them still needs.

The node of an automaton (Aho and Corasick, 1975) is the longest end of what was read that begins one of its runs.
A symbol that does not continue it is tried from the next shorter end that begins a run, and so on, so that no
occurrence is missed: `a a b` is found in `a a a b`.
"""

import math
from collections.abc import Collection, Hashable, Mapping, Sequence
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
    whole = set(runs)
    beginnings = {run[:length] for run in whole for length in range(len(run) + 1)} | {()}
    ordered = sorted(beginnings, key=lambda run: (len(run), run))
    numbers = {run: number for number, run in enumerate(ordered)}
    children: list[dict[int, int]] = [{} for _ in ordered]
    for run in ordered[1:]:
        children[numbers[run[:-1]]][run[-1]] = numbers[run]
    is_last = [run in whole for run in ordered]
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
    """Where runs may begin and end, by what symbols mean. Places are states, as those of a constraint.

    As it is, runs may begin and end between any two symbols.
    """

    def begin(self) -> Hashable:
        """Before the first symbol."""
        return ROOT

    def inside(self) -> Hashable:
        """The place at which the fewest runs may begin."""
        return ROOT

    def after(self, place: Any, symbol: int) -> Hashable:
        """The place one symbol later."""
        return ROOT

    def may_begin(self, place: Any, symbol: int) -> bool:
        """Whether a run that begins with this symbol may begin here."""
        return True

    def may_end(self, place: Any, symbol: int) -> bool:
        """Whether a run that is complete may have ended here, before this symbol. END may come after any run."""
        return True

    def inner(self, place: Any) -> Collection[int]:
        """All symbols before which no run may have ended."""
        return ()


@dataclass(frozen=True)
class Anywhere(Borders):
    """Runs may begin and end between any two symbols."""


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
        return automaton_of([codes for codes, _ in self._read])

    @cached_property
    def _read(self) -> tuple[tuple[Run, Hashable], ...]:
        """The codes of each alternative, which do not depend on what comes before it, and the place behind it."""
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
        pairs = product(zip(self.alternatives, self._read, strict=True), earlier._read)
        return min(
            len(run) - shared(before, codes) if earlier is not self and shared(before, codes) else self._fresh(run, at)
            for (run, (codes, _)), (before, at) in pairs
        )


def code_of(symbol: int, *, may_begin: bool) -> int:
    """A symbol and whether a run may begin with it there, as one number."""
    return 2 * symbol + may_begin
