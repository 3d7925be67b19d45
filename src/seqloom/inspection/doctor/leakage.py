"""Leakage: lines of a dev or test set that stand in the training text too, so that scores tell of memory."""

import numpy as np
from jaxtyping import Bool

from seqloom.inspection.doctor.faults import Fault, counted, grade, numbers_where, percentage
from seqloom.inspection.doctor.survey import Survey

FEWEST_WORDS = 5
"""Shorter lines come again by chance: `Yes.` and `Thank you.` leak nothing."""


def examine_leakage(train: Survey, other: Survey) -> list[Fault]:
    """Pairs, sources and targets of another split that the training text holds; capitals and marks do not count."""
    pair, half = leaks(train, other)
    total, faults = len(other), []
    if pair.any():
        lines = numbers_where(pair)
        exact = int((pair & np.isin(other.exact, train.exact)).sum())
        faults.append(
            Fault(
                "leakage",
                grade(len(lines), total, mend=0.0, stop=0.5),
                f"Lines of {other.split} in the training text",
                f"{counted(len(lines), 'pair')} of {other.split} ({percentage(len(lines), total)}) "
                f"{_stands(len(lines), exact)}",
                "--fix leakage takes them out of the training text",
                other.split,
                lines,
            )
        )
    if half.any():
        lines = numbers_where(half)
        source = int((half & np.isin(other.source.keys, train.source.keys)).sum())
        faults.append(
            Fault(
                "half-leakage",
                grade(len(lines), total, mend=0.02),
                f"One side of {other.split} in the training text",
                f"{counted(len(lines), 'line')} of {other.split} ({percentage(len(lines), total)}) with a source "
                f"({source:,}) or a target ({len(lines) - source:,}) that the training text has, in another pair",
                "fine in small numbers; many of them mean that both were cut from the same text",
                other.split,
                lines,
            )
        )
    return faults


def _stands(count: int, exact: int) -> str:
    if count == 1:
        how = "to the letter" if exact else "but for capitals, spaces or punctuation"
        return f"stands in the training text too, {how}: its score measures memory"
    return f"stand in the training text too, {exact:,} of them to the letter: scores on them measure memory"


def leaks(train: Survey, other: Survey) -> tuple[Bool[np.ndarray, " lines"], Bool[np.ndarray, " lines"]]:
    """Which lines of another split stand in the training text: as pairs, and with one side only."""
    is_full = (other.blank == 0) & (np.maximum(other.source.words, other.target.words) >= FEWEST_WORDS)
    pair = np.isin(other.pairs, train.pairs) & is_full
    source = np.isin(other.source.keys, train.source.keys) & (other.source.words >= FEWEST_WORDS)
    target = np.isin(other.target.keys, train.target.keys) & (other.target.words >= FEWEST_WORDS)
    return pair, (source | target) & is_full & ~pair


def leaked_into(train: Survey, others: list[Survey]) -> Bool[np.ndarray, " lines"]:
    """Which lines of the training text stand in another split as well, so that they should go."""
    found = np.zeros(len(train), bool)
    for other in others:
        pair, _ = leaks(train, other)
        found |= np.isin(train.pairs, other.pairs[pair])
    return found
