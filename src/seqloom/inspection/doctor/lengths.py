"""Lengths: pairs of which one side is blank, much longer than the other, or longer than a model is trained on.

r = log (target characters + 1) / (source characters + 1)
σ = 1.4826 · median |r − median r|         what the standard deviation of a normal distribution would be
"""

import math
from collections.abc import Sequence

import numpy as np

from seqloom.data.overview import DEVIATIONS, usual_ratio
from seqloom.inspection.doctor.faults import Fault, Run, grade, numbers_where, touched
from seqloom.inspection.doctor.survey import Survey

LARGEST_RATIO = 2.5
"""How many times the usual ratio is never too much, however alike most pairs are."""

FEWEST_MORE = 25
"""Characters that must be missing or too many: "Yes." may well become a polite phrase."""

LONGEST_CHARACTERS, LONGEST_WORDS = 1_000, 200
"""Longer lines are rarely one sentence, and 256 tokens are the most that training takes unless it is told."""


def examine_blanks(survey: Survey) -> list[Fault]:
    """Pairs with nothing on one side or on both."""
    lines = numbers_where(survey.blank > 0)
    if len(lines) == 0:
        return []
    one = int((survey.blank == 1).sum()), int((survey.blank == 2).sum())
    both = len(lines) - sum(one)
    severity = "stop" if len(lines) == len(survey) else grade(len(lines), len(survey), mend=0.01)
    return [
        Fault(
            "empty",
            severity,
            "Empty lines",
            f"{touched(len(lines), len(survey))} with nothing in the source "
            f"({one[0]:,}), in the target ({one[1]:,}) or in both ({both:,})",
            "training leaves them out; where only one side is empty, look whether lines have shifted after it",
            survey.split,
            lines,
        )
    ]


def examine_ratios(survey: Survey, reference: Survey, *, runs: Sequence[Run] = ()) -> list[Fault]:
    """Pairs of which one side is much longer than the other, by what is usual in the reference.

    Shifted lines among the `runs` are left out: their lengths are those of pairs that are none.
    """
    usual, border = ratio_border(reference)
    ratios = survey.log_ratios
    # What a source of this length would have, against what it has.
    missing = np.abs(survey.target.characters - (survey.source.characters + 1) * math.exp(usual))
    is_odd = (np.abs(ratios - usual) > border) & (missing >= FEWEST_MORE) & (survey.blank == 0)
    for run in runs:
        if run.shift is not None:
            is_odd[run.first - 1 : run.last] = False
    lines = numbers_where(is_odd)
    if len(lines) == 0:
        return []
    longer = int((ratios[is_odd] > usual).sum())
    return [
        Fault(
            "ratios",
            grade(len(lines), len(survey), mend=0.002, stop=0.5),
            "One side much longer than the other",
            f"{touched(len(lines), len(survey))} where the target is more than "
            f"{math.exp(border):.1f} times longer ({longer:,}) or shorter ({len(lines) - longer:,}) than usual; a "
            f"target has {math.exp(usual):.2f} characters for one of the source",
            "often a sentence that was cut or joined on one side only; --fix ratios drops them",
            survey.split,
            lines,
            describe=_tell_lengths,
        )
    ]


def ratio_border(survey: Survey) -> tuple[float, float]:
    """The median of r over pairs that are not blank, and how far from it a ratio is told."""
    usual, deviation = usual_ratio(survey.log_ratios[survey.blank == 0])
    return usual, max(math.log(LARGEST_RATIO), DEVIATIONS * deviation)


def examine_long(survey: Survey) -> list[Fault]:
    """Lines that are no single sentence any more."""
    sides = survey.source, survey.target
    is_long = np.zeros(len(survey), bool)
    for side in sides:
        is_long |= (side.characters > LONGEST_CHARACTERS) | (side.words > LONGEST_WORDS)
    lines = numbers_where(is_long)
    if len(lines) == 0:
        return []
    longest = max(int(side.characters.max()) for side in sides)
    return [
        Fault(
            "long",
            grade(len(lines), len(survey), mend=0.01),
            "Very long lines",
            f"{touched(len(lines), len(survey))} with more than "
            f"{LONGEST_CHARACTERS:,} characters or {LONGEST_WORDS} words; the longest has {longest:,} characters",
            "training leaves out what is longer than data.longest tokens; split them into sentences, or --fix long",
            survey.split,
            lines,
            describe=_tell_lengths,
        )
    ]


def _tell_lengths(source: str, target: str) -> str:
    return f"{len(source):,} against {len(target):,} characters"
