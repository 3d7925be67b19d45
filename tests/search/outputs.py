"""All short outputs of three symbols, and those of them that a constraint lets through."""

from collections.abc import Iterator
from itertools import product

from seqloom.search.constraints import All, Constraint
from seqloom.search.phrase_automata import Run

END = 2
A, B, C = SYMBOLS = (5, 6, 9)
LONGEST = 5
Outputs = set[Run]


def every_output(longest: int = LONGEST) -> Iterator[Run]:
    for length in range(longest + 1):
        yield from product(SYMBOLS, repeat=length)


def walked(constraint: Constraint, longest: int = LONGEST) -> Outputs:
    """The outputs that a search can return: those that end where END may come, and those that are over."""
    outputs: Outputs = set()
    live = {(): constraint.begin()}
    for _ in range(longest + 1):
        going = {}
        for output, place in live.items():
            if constraint.is_over(place):
                outputs.add(output)
                continue
            allowed = set(allowed_at(constraint, place))
            if END in allowed:
                outputs.add(output)
            for symbol in allowed - {END}:
                going[(*output, symbol)] = constraint.after(place, symbol)
        live = going
    return outputs


def allowed_at(constraint: Constraint, place: object) -> list[int]:
    only, forbidden = constraint.allowed(place), constraint.forbidden(place)
    return [s for s in (END, *SYMBOLS) if s not in forbidden and (only is None or s in only)]


def dead_ends(constraint: Constraint, longest: int) -> Outputs:
    """Outputs that are let through but can neither go on nor end."""
    dead: Outputs = set()
    live = {(): constraint.begin()}
    for _ in range(longest + 1):
        going = {}
        for output, place in live.items():
            allowed = allowed_at(constraint, place)
            if not allowed:
                dead.add(output)
            for symbol in allowed:
                if symbol != END:
                    going[(*output, symbol)] = constraint.after(place, symbol)
        live = going
    return dead


class Separately(All):
    """`All` without its look at the last moment."""

    def _last_moment(self, place: tuple[object, ...]) -> None:
        return None
