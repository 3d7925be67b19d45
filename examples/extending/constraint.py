"""At most so many occurrences of a symbol in an output, for example of the unknown word."""

from collections.abc import Collection
from dataclasses import dataclass

from seqloom.search.constraints import Constraint


@dataclass(frozen=True)
class AtMost(Constraint):
    symbol: int
    times: int

    def begin(self) -> int:
        return 0  # a state is how often the symbol has occurred

    def after(self, state: int, symbol: int) -> int:
        return state + (symbol == self.symbol)

    def forbidden(self, state: int) -> Collection[int]:
        return {self.symbol} if state >= self.times else ()
