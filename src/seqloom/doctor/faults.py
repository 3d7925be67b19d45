"""What an examination finds: a fault with its lines, how much it matters, and what can be done about it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Bool, Int64

from seqloom.doctor.survey import Survey

Severity = Literal["stop", "fix", "note"]
"""`stop`: training would fail or be useless; `fix`: quality would suffer; `note`: for information."""

SEVERITIES: tuple[Severity, ...] = ("stop", "fix", "note")

# fmt: off
Kind = Literal[
    "names", "sides", "misaligned", "unrelated", "swapped", "language", "foreign", "script", "copies", "header",
    "empty", "ratios", "long", "duplicates", "near-duplicates", "templates", "ambiguous", "leakage", "half-leakage",
    "near-leakage", "garbled", "invisible", "spelling", "accents", "cut", "boundaries", "markup", "one-sided",
    "numbers", "brackets", "unknown",
]
"""What sort of fault it is; records and repairs name it so."""
# fmt: on

Describe = Callable[[str, str], str]
"""Returns a short description of a line, given its two sides."""


def say_nothing(_source: str, _target: str) -> str:
    """For faults whose lines need no description."""
    return ""


@dataclass(frozen=True)
class LineRun:
    """Consecutive lines with one fault, from `first` to `last` inclusive."""

    first: int
    last: int
    shift: int | None = None
    """The target of line n is in line n + shift. None if it was not found nearby."""

    def __len__(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, eq=False)
class Fault:
    """One thing that is wrong with one split of the data."""

    kind: Kind
    severity: Severity
    title: str
    """A short title."""
    sentence: str
    """What was found, with the numbers."""
    advice: str
    """What to do about it."""
    split: str = "train"
    lines: Int64[np.ndarray, " lines"] = field(default_factory=lambda: np.empty(0, np.int64))
    """The line numbers in ascending order; empty if the whole split is affected."""
    runs: tuple[LineRun, ...] = ()
    """The lines as runs, if they are consecutive."""
    describe: Describe = say_nothing


def numbers_where(is_so: Bool[np.ndarray, " lines"]) -> Int64[np.ndarray, " some"]:
    """The numbers of the lines where `is_so` is True, counted from 1."""
    return np.flatnonzero(is_so).astype(np.int64) + 1


def runs_of(lines: Int64[np.ndarray, " lines"], *, shortest: int = 5) -> tuple[LineRun, ...]:
    """Runs of consecutive numbers of at least `shortest` lines."""
    if len(lines) == 0:
        return ()
    borders = np.flatnonzero(np.diff(lines) > 1) + 1
    ends = zip([0, *borders], [*borders, len(lines)], strict=True)
    return tuple(LineRun(int(lines[first]), int(lines[end - 1])) for first, end in ends if end - first >= shortest)


def grade(count: int, total: int, *, fix: float, stop: float = 2.0) -> Severity:
    """Severity by the share of affected lines; `fix` and `stop` are thresholds."""
    share = count / max(1, total)
    return "stop" if share > stop else "fix" if share > fix else "note"


def counted(count: int, singular: str, plural: str = "") -> str:
    """A number with its noun: "1 line", "1,200 lines"."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def percentage(count: int, total: int) -> str:
    """`count / total` in percent, with enough digits to be nonzero."""
    return in_percent(count / max(1, total))


def in_percent(share: float) -> str:
    """A share in percent, with enough digits to be nonzero."""
    percent = 100 * share
    if 0 < percent < 0.01:
        return "less than 0.01 %"
    return f"{percent:.2f} %" if percent < 1 else f"{percent:.1f} %"


def touched(count: int, total: int, noun: str = "line") -> str:
    """A number of lines with their share: "24 lines (0.08 %)"."""
    return f"{counted(count, noun)} ({percentage(count, total)})"


def find_fault(
    survey: Survey,
    kind: Kind,
    is_so: Bool[np.ndarray, " lines"],
    title: str,
    *,
    what: str,
    advice: str,
    fix: float,
    stop: float = 2.0,
    noun: str = "line",
    runs: tuple[LineRun, ...] = (),
    describe: Describe = say_nothing,
) -> list[Fault]:
    """The fault of the lines where `is_so` is True, if there are any; `what` follows their number in the sentence."""
    lines = numbers_where(is_so)
    if len(lines) == 0:
        return []
    severity = grade(len(lines), len(survey), fix=fix, stop=stop)
    sentence = f"{touched(len(lines), len(survey), noun)} {what}"
    return [Fault(kind, severity, title, sentence, advice, survey.split, lines, runs, describe)]


# The verdict: the overall result, and what to fix first.

_FIRST = ("names", "sides", "swapped", "misaligned", "unrelated", "leakage", "script", "copies", "language", "garbled")
"""Order in which faults of the same severity should be fixed: those that hide others come first."""


@dataclass(frozen=True)
class Verdict:
    """The overall result of the examinations."""

    severity: Severity | None
    """The severity of the worst fault; None if there is no fault."""
    sentence: str
    first: tuple[str, ...]
    """What to fix, in order."""

    @property
    def is_fit(self) -> bool:
        """Whether the text is usable for training."""
        return self.severity != "stop"


def in_order(faults: Sequence[Fault]) -> tuple[Fault, ...]:
    """Faults by severity, then in the order in which they should be fixed."""

    def rank(fault: Fault) -> tuple[int, int, int]:
        place = _FIRST.index(fault.kind) if fault.kind in _FIRST else len(_FIRST)
        return SEVERITIES.index(fault.severity), place, -len(fault.lines)

    return tuple(sorted(faults, key=rank))


def judge(faults: Sequence[Fault]) -> Verdict:
    """From all faults to one sentence."""
    by = {severity: [fault for fault in faults if fault.severity == severity] for severity in SEVERITIES}
    first = tuple(f"{fault.title}: {fault.advice}" for fault in in_order(faults) if fault.severity != "note")
    notes = f"; {counted(len(by['note']), 'note')}" if by["note"] else ""
    if by["stop"]:
        sentence = f"Not ready for training: {counted(len(by['stop']), 'fault')} would ruin the model or its scores"
        return Verdict("stop", f"{sentence}, {len(by['fix'])} more should be fixed{notes}.", first)
    if by["fix"]:
        return Verdict(
            "fix", f"Ready for training, but {counted(len(by['fix']), 'fault')} should be fixed{notes}.", first
        )
    if by["note"]:
        return Verdict(
            "note", f"Ready for training: {counted(len(by['note']), 'note')}, nothing that must be fixed.", first
        )
    return Verdict(None, "Ready for training: no faults found.", first)
