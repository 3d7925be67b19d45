"""What an examination finds: a fault with its lines, how much it matters, and what can be done about it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int64

Severity = Literal["stop", "mend", "note"]
"""`stop`: training would fail or be worth nothing; `mend`: it would suffer; `note`: good to know."""

SEVERITIES: tuple[Severity, ...] = ("stop", "mend", "note")

Kind = Literal[
    "names",
    "sides",
    "misaligned",
    "unrelated",
    "swapped",
    "language",
    "foreign",
    "script",
    "copies",
    "header",
    "empty",
    "ratios",
    "long",
    "duplicates",
    "near-duplicates",
    "templates",
    "ambiguous",
    "leakage",
    "half-leakage",
    "near-leakage",
    "garbled",
    "invisible",
    "spelling",
    "accents",
    "cut",
    "boundaries",
    "markup",
    "one-sided",
    "numbers",
    "brackets",
    "unknown",
]
"""What sort of fault it is; records and repairs name it so."""

Describe = Callable[[str, str], str]
"""A few words on a line, from its two sides."""


def say_nothing(_source: str, _target: str) -> str:
    """For faults whose lines explain themselves."""
    return ""


@dataclass(frozen=True)
class Run:
    """Lines in a row with one fault, the last one included."""

    first: int
    last: int
    shift: int | None = None
    """Where the translations have gone: the target of line n stands in line n + shift. None if it is not near."""

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, eq=False)
class Fault:
    """One thing that is wrong with one split of the data."""

    kind: Kind
    severity: Severity
    title: str
    """A few words."""
    sentence: str
    """What was found, with the numbers."""
    advice: str
    """What to do about it."""
    split: str = "train"
    lines: Int64[np.ndarray, " lines"] = field(default_factory=lambda: np.empty(0, np.int64))
    """The numbers of the lines, rising; none where it is a fault of the whole."""
    runs: tuple[Run, ...] = ()
    """The lines in runs, where they come so."""
    describe: Describe = say_nothing


def numbers_where(is_so: Bool[np.ndarray, " lines"]) -> Int64[np.ndarray, " some"]:
    """The numbers of the lines of which something is true; lines are counted from 1."""
    return np.flatnonzero(is_so).astype(np.int64) + 1


def runs_of(lines: Int64[np.ndarray, " lines"], *, shortest: int = 5) -> tuple[Run, ...]:
    """The stretches of rising numbers without a gap, if they are not too short."""
    if len(lines) == 0:
        return ()
    borders = np.flatnonzero(np.diff(lines) > 1) + 1
    ends = zip([0, *borders], [*borders, len(lines)], strict=True)
    return tuple(Run(int(lines[first]), int(lines[end - 1])) for first, end in ends if end - first >= shortest)


def grade(count: int, total: int, *, mend: float, stop: float = 2.0) -> Severity:
    """By the share of lines that it touches: above `stop` the data are useless, above `mend` to be mended."""
    share = count / max(1, total)
    return "stop" if share > stop else "mend" if share > mend else "note"


def counted(count: int, singular: str, plural: str = "") -> str:
    """A number with its noun: "1 line", "1,200 lines"."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def percentage(count: int, total: int) -> str:
    """A share in percent, with as many digits as it takes to be more than nothing."""
    return in_percent(count / max(1, total))


def in_percent(share: float) -> str:
    """A share, likewise."""
    percent = 100 * share
    if 0 < percent < 0.01:
        return "less than 0.01 %"
    return f"{percent:.2f} %" if percent < 1 else f"{percent:.1f} %"


def touched(count: int, total: int, noun: str = "line") -> str:
    """A number of lines with their share: "24 lines (0.08 %)"."""
    return f"{counted(count, noun)} ({percentage(count, total)})"


# The verdict: what it all comes to, and what to mend first.

_FIRST = ("names", "sides", "swapped", "misaligned", "unrelated", "leakage", "script", "copies", "language", "garbled")
"""Faults of the same severity in the order in which they should be mended: those that hide others come first."""


@dataclass(frozen=True)
class Verdict:
    """What the examinations come to."""

    severity: Severity | None
    """That of the worst fault; None where there is none."""
    sentence: str
    first: tuple[str, ...]
    """What to mend, in order."""

    @property
    def is_fit(self) -> bool:
        """Whether one may train on this."""
        return self.severity != "stop"


def in_order(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """The worst first, and of these what should be mended first."""

    def rank(fault: Fault) -> tuple[int, int, int]:
        place = _FIRST.index(fault.kind) if fault.kind in _FIRST else len(_FIRST)
        return SEVERITIES.index(fault.severity), place, -len(fault.lines)

    return tuple(sorted(faults, key=rank))


def judge(faults: Sequence[Fault]) -> Verdict:
    """From all faults to one sentence."""
    by = {severity: [fault for fault in faults if fault.severity == severity] for severity in SEVERITIES}
    first = tuple(f"{fault.title}: {fault.advice}" for fault in in_order(faults) if fault.severity != "note")
    notes = f"; {counted(len(by['note']), 'note')} besides" if by["note"] else ""
    if by["stop"]:
        sentence = f"Do not train on this yet: {counted(len(by['stop']), 'fault')} would spoil the model"
        return Verdict("stop", f"{sentence}, {len(by['mend'])} more should be mended{notes}.", first)
    if by["mend"]:
        return Verdict(
            "mend", f"Fit to train on, but {counted(len(by['mend']), 'thing')} should be mended{notes}.", first
        )
    if by["note"]:
        return Verdict(
            "note", f"Fit to train on; {counted(len(by['note']), 'note')}, nothing that must be mended.", first
        )
    return Verdict(None, "Fit to train on: nothing was found.", first)
