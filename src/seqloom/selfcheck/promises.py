"""What is promised of a model, in a sentence each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from seqloom.search.settings import SearchConfig
from seqloom.selfcheck.cases import Case

Outcome = Literal["holds", "broken", "not applicable"]
Figure = int | float | str

TIE = 1e-4
"""Two candidates whose scores lie within this are as good as equal: float32 may rank them in either order."""

LONGEST_SHOWN = 160
"""Characters of a line that an example shows."""


@dataclass(frozen=True)
class CheckResult:
    """What a check has found."""

    outcome: Outcome
    sentence: str
    """What was seen, with its numbers."""
    figures: Mapping[str, Figure] = field(default_factory=dict)
    worst: str | None = None
    """The case that comes nearest to breaking the promise, or breaks it most."""


@dataclass(frozen=True)
class Check:
    """A promise that can be checked."""

    name: str
    promise: str
    run: Callable[[], CheckResult]
    passes: int = 1
    """Approximate passes over the lines; the unit of progress."""


@dataclass(frozen=True)
class Checked:
    """A check that was run."""

    name: str
    promise: str
    finding: CheckResult
    seconds: float


def judged(
    is_kept: bool,
    sentence: str,
    *,
    figures: Mapping[str, Figure] | None = None,
    worst: str | None = None,
) -> CheckResult:
    """A finding about a promise that applies."""
    return CheckResult("holds" if is_kept else "broken", sentence, figures or {}, worst)


def out_of_place(name: str, promise: str, reason: str) -> Check:
    """A promise that does not apply to the model."""
    return Check(name, promise, lambda: CheckResult("not applicable", reason), passes=0)


def checks_of(found: Mapping[str, Callable[[], CheckResult]], *, reason: str) -> list[Check]:
    """The checks by the names of their promises, in the order of the report; the reason is that of all others."""
    return [
        Check(name, promise, found[name]) if name in found else out_of_place(name, promise, reason)
        for name, promise in PROMISES.items()
        if name not in ("files", "features")
    ]


def counted(number: int, noun: str) -> str:
    """1 line, 2 lines."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shown(text: str) -> str:
    """A text in quotes, cut where it is long."""
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…")


def within(difference: float) -> str:
    """How near numbers are that should be the same."""
    return "to the last bit" if difference == 0 else f"within {difference:.0e}"


SearchCheck = Callable[[Sequence[Case], SearchConfig], CheckResult]

PROMISES: Mapping[str, str] = {
    "files": "every file is what was written, by its SHA-256",
    "saved": "writing and reading the model changes nothing",
    "lines": "N lines in, N lines out, in their order",
    "blank": "a blank line gives an empty line",
    "batch": "batch size and padding change no token",
    "batch-int8": "nor do they in eight bits",
    "greedy": "beam 1 is greedy search",
    "fast": "the fast search is the readable one",
    "plan": "the decoder's plan is its layers",
    "complete": "no wider beam beats a search that is marked complete",
    "terms": "the terms of a score add up to it",
    "score": "scoring an output gives the score of the search",
    "seed": "the same seed gives the same texts",
    "features": "neighbours change no contextual vector",
}
