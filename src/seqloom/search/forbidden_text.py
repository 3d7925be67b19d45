"""What an output must not say, however it is cut into symbols."""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from seqloom.search.constraints import Free


class Reader(Protocol):
    """Reads what an output says, symbol by symbol. Its places are asked about as a constraint's are."""

    def begin(self) -> Hashable:
        """Before the first symbol."""
        ...

    def after(self, place: Any, symbol: int) -> Hashable | None:
        """The place one symbol later; None if the output would then say what it must not, whatever follows."""
        ...

    def may_end(self, place: Any) -> bool:
        """Whether an output that ends here does not say what it must not."""
        ...


@dataclass(frozen=True)
class _Onward:
    """How a text may go on from a place."""

    refused: frozenset[int]
    """Symbols that may not come next, END perhaps among them."""
    unfinished: Mapping[int, int]
    """Symbols that may come, but after which the output may not end yet: the fewest symbols until it may."""


@dataclass(frozen=True)
class ForbiddenText(Free):
    """No phrase may stand in the text of the output, however it is cut into symbols. A place is the reader's.

    Symbols are refused, too, after which the output could never end.
    """

    reader: Reader
    strings: tuple[str, ...]
    """What is forbidden, for messages; the reader knows it."""
    symbols: int
    """Symbols there are."""
    end: int

    def begin(self) -> Hashable:
        return self.reader.begin()

    def after(self, place: Hashable, symbol: int) -> Hashable:
        # What has gone wrong stays wrong, where somebody looks beyond what is let through.
        return None if place is None else self.reader.after(place, symbol)

    def forbidden(self, place: Hashable) -> Collection[int]:
        return self._onward(place).refused

    def unfinished(self, place: Hashable) -> Mapping[int, int]:
        return self._onward(place).unfinished

    def _onward(self, place: Hashable) -> _Onward:
        """Remembered for each place: there are few, and each is met again and again."""
        if place not in self._known:
            self._known[place] = self._look(place)
        return self._known[place]

    def _look(self, place: Hashable) -> _Onward:
        refused = set() if place is not None and self.reader.may_end(place) else {self.end}
        unfinished: dict[int, int] = {}
        for symbol in self._others:
            later = self.after(place, symbol)
            if later not in self._distances:
                self._distances[later] = self._distance(later)
            distance = self._distances[later]
            if distance is None:
                refused.add(symbol)
            elif distance:
                unfinished[symbol] = distance
        return _Onward(frozenset(refused), unfinished)

    def _distance(self, place: Hashable) -> int | None:
        """The fewest symbols after which an output that stands here may end, None if it never may."""
        if place is None or self.reader.may_end(place):
            return None if place is None else 0
        level: list[Hashable] = [place]
        reached, distance = {None, place}, 0
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
    def _known(self) -> dict[Hashable, _Onward]:
        return {}

    @cached_property
    def _distances(self) -> dict[Hashable, int | None]:
        return {}

    @cached_property
    def _others(self) -> list[int]:
        return [symbol for symbol in range(self.symbols) if symbol != self.end]
