"""Constraints that cannot all hold, found before the search begins."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from seqloom.core.errors import UsageError
from seqloom.search.automata import Anywhere, Run
from seqloom.search.constraints import (
    All,
    Constraint,
    Forbidden,
    Lengths,
    NoRepeat,
    Phrases,
    Prefix,
    StopAt,
    StopText,
)
from seqloom.search.forbidden_text import ForbiddenText

Show = Callable[[Sequence[int]], str]
"""How a run of symbols is written in a message."""


def check(constraint: Constraint, *, most: int, show: Show | None = None) -> None:
    """Raise a UsageError that names two constraints which exclude each other; `most` symbols may come before END.

    What is found: prefixes, phrases and least lengths that do not fit in the maximum length; prefixes that differ;
    prefixes and phrases in which something is forbidden or repeated, or in the middle of which the output would stop.
    What is not: contradictions that show only when phrases are put together, or that hang on the model.
    """
    parts = constraint.parts if isinstance(constraint, All) else (constraint,)
    forced = list(_forced(parts, show or _plainly))
    _check_lengths(parts, forced, most)
    for run, part in product(forced, parts):
        reason = _clash(part, run, show or _plainly)
        if reason is not None:
            raise UsageError(f"{run.name} cannot come: {reason}; leave out one of the two")


@dataclass(frozen=True)
class _Forced:
    """A run that must come, in one of several ways, and its name in a message."""

    name: str
    ways: tuple[Run, ...]
    times: int
    is_at_start: bool
    owner: Constraint
    needs_border: bool = False
    """Whether what follows it is a border, as the end is. A prefix that ends in a word is taken to mean that word."""


def _plainly(symbols: Sequence[int]) -> str:
    return str(list(symbols))


def _forced(parts: Sequence[Constraint], show: Show) -> Iterator[_Forced]:
    for part in parts:
        if isinstance(part, Prefix) and part.symbols:
            yield _Forced(f"the prefix {show(part.symbols)}", (part.symbols,), 1, True, part, needs_border=True)
        if isinstance(part, Phrases):
            for demand in part.demands.parts:
                name = " or ".join(dict.fromkeys(show(way) for way in demand.ways))
                is_bound = not isinstance(part.borders, Anywhere)
                yield _Forced(f"the forced phrase {name}", demand.ways, demand.times, False, part, is_bound)


def _check_lengths(parts: Sequence[Constraint], forced: Sequence[_Forced], most: int) -> None:
    bounds = [part.most for part in parts if isinstance(part, Lengths) and part.most is not None]
    room = min([most, *bounds])
    limit = f"the output may have at most {room} symbols before its end"
    least = max((part.least for part in parts if isinstance(part, Lengths)), default=0)
    if least > room:
        raise UsageError(f"at least {least} symbols are asked for, but {limit}; lower the one or raise the other")
    together = All(tuple(part for part in parts if isinstance(part, Prefix | Phrases)))
    needed = together.missing(together.begin())
    if needed > room:
        names = " and ".join(f"{run.name}{f' ({run.times} times)' if run.times > 1 else ''}" for run in forced)
        verb = "needs" if len(forced) == 1 else "need"
        raise UsageError(f"{names} {verb} {needed} symbols or more, but {limit}; shorten one or raise the limit")


def _clash(part: Constraint, run: _Forced, show: Show) -> str | None:
    """Why a run cannot come under a constraint, if it cannot, whichever way it is written."""
    # Forced phrases wait until a prefix has come.
    if part is run.owner or isinstance(part, Phrases):
        return None
    if run.is_at_start:
        return _reason(part, show) if _refuses(part, run.ways[0], with_end=run.needs_border) else None
    # What these refuse at the start of an output they refuse everywhere: what stands before can only add to it.
    if not isinstance(part, Forbidden | ForbiddenText | NoRepeat | StopAt):
        return None
    if all(_refuses(part, way, with_end=run.needs_border) for way in run.ways):
        return _reason(part, show)
    if isinstance(part, NoRepeat) and run.times > 1 and len(run.ways) == 1 and len(run.ways[0]) >= part.size:
        return f"it is asked for {run.times} times, but no {part.size} symbols may be repeated"
    return None


def _refuses(part: Constraint, run: Run, *, with_end: bool = False) -> bool:
    """Whether a run at the start of an output is broken off before it is complete, or cannot be followed by a border.

    In a text that may not end here, no border may come either.
    """
    place = part.begin()
    for symbol in run:
        only = part.only(place)
        is_shut_out = only is not None and symbol not in only
        if is_shut_out or symbol in part.forbidden(place) or part.is_over(place):
            return True
        place = part.after(place, symbol)
    return with_end and isinstance(part, ForbiddenText) and part.end in part.forbidden(place)


def _reason(part: Constraint, show: Show) -> str:
    """What a constraint says, as the second half of a sentence."""
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
