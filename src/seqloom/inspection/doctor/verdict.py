"""The verdict: what it all comes to, and what to mend first."""

from collections.abc import Sequence
from dataclasses import dataclass

from seqloom.inspection.doctor.faults import SEVERITIES, Fault, Severity, counted

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
