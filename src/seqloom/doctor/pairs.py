"""Lengths: pairs of which one side is blank, much longer than the other, or longer than a model is trained on.

r = log (target characters + 1) / (source characters + 1)
σ = 1.4826 · median |r − median r|         what the standard deviation of a normal distribution would be
"""

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, UInt64

from seqloom.data.overview import DEVIATIONS, usual_ratio
from seqloom.doctor.faults import Fault, Run, counted, grade, numbers_where, touched
from seqloom.doctor.survey import Survey
from seqloom.text.scripts import trigrams

# Copies: pairs whose target is the source, or nearly so.
#
# J(x, y) = |T(x) ∩ T(y)| / |T(x) ∪ T(y)| T are the runs of three characters of the words in small letters

MIN_COPIED_WORDS, FEWEST_LETTERS = 3, 10
"""Below these a copy may well be a translation: names, numbers, `OK`."""

NEAR = 0.7
"""The overlap of a near copy; translations between sister languages with shared names stay below."""


def is_copy(source: str, target: str, *, words: tuple[list[str], list[str]]) -> int:
    """0 for a translation, 1 for a copy, 2 for a near copy."""
    one, other = words
    if min(len(one), len(other)) < MIN_COPIED_WORDS:
        return 0
    if one == other:
        return int(sum(map(len, one)) >= FEWEST_LETTERS and any(map(str.isalpha, one)))
    # Near copies share most of their words; asking for that first spares the rest.
    shared = len(set(one) & set(other))
    if 2 * shared < min(len(one), len(other)):
        return 0
    return 2 if similarity(" ".join(one), " ".join(other)) >= NEAR and source != target else 0


def similarity(one: str, other: str) -> float:
    """The overlap J of the runs of three characters of two texts."""
    first, second = trigrams(one), trigrams(other)
    return len(first & second) / max(1, len(first | second))


def examine_copies(survey: Survey) -> list[Fault]:
    """Pairs that teach a model to copy."""
    lines = numbers_where(survey.copies > 0)
    if len(lines) == 0:
        return []
    near = int((survey.copies == 2).sum())
    parts = f"; {near:,} of them nearly so" if near else ""
    return [
        Fault(
            "copies",
            grade(len(lines), len(survey), mend=0.001, stop=0.5),
            "Copies instead of translations",
            f"{touched(len(lines), len(survey))} where the target is the source{parts}",
            "--fix copies drops them; a model learns to copy from surprisingly few",
            survey.split,
            lines,
        )
    ]


# Duplicates: pairs that come again, as they stand or but for capitals, spaces and punctuation.

MANY = 5
"""Different translations from which on a source is told."""


FEWEST_WORDS = 4
"""Shorter pairs with another number are no form: `Chapter 3`."""


def examine_duplicates(survey: Survey) -> list[Fault]:
    """Pairs seen before, and sources with many translations. Blank pairs are none."""
    is_full = survey.blank == 0
    is_again = is_repeated(survey.exact) & is_full
    is_near = is_repeated(survey.pairs) & is_full & ~is_again
    is_template = is_repeated(survey.shapes) & (survey.shapes != 0) & is_full & ~is_again & ~is_near
    is_template &= survey.source.words >= FEWEST_WORDS
    total, faults = len(survey), []
    if is_again.any():
        lines = numbers_where(is_again)
        faults.append(
            Fault(
                "duplicates",
                grade(len(lines), total, mend=0.02, stop=0.95),
                "Duplicate pairs",
                f"{touched(len(lines), total, 'pair')} stood in the text before, to the letter",
                "they weigh more than others and make a held-out part worthless; --fix duplicates keeps the first",
                survey.split,
                lines,
            )
        )
    if is_near.any():
        lines = numbers_where(is_near)
        faults.append(
            Fault(
                "near-duplicates",
                grade(len(lines), total, mend=0.05),
                "Nearly duplicate pairs",
                f"{touched(len(lines), total, 'pair')} stood in the text before but for "
                "capitals, spaces or punctuation",
                "--fix near-duplicates keeps the first",
                survey.split,
                lines,
            )
        )
    if is_template.any():
        lines = numbers_where(is_template)
        faults.append(
            Fault(
                "templates",
                grade(len(lines), total, mend=0.05),
                "Pairs that differ in numbers only",
                f"{touched(len(lines), total, 'pair')} stood in the text before with other numbers",
                "a form that was filled in many times; --fix templates keeps the first",
                survey.split,
                lines,
            )
        )
    return faults + _examine_ambiguous(survey)


def _examine_ambiguous(survey: Survey) -> list[Fault]:
    """Sources that come with many different translations: often a menu text or a line that was never translated."""
    is_first = ~is_repeated(survey.pairs) & (survey.blank == 0) & (survey.source.words > 0)
    sources = survey.source.keys[is_first]
    keys, counts = np.unique(sources, return_counts=True)
    many = keys[counts >= MANY]
    if len(many) == 0:
        return []
    is_many = np.isin(survey.source.keys, many) & is_first
    lines = numbers_where(is_many)
    return [
        Fault(
            "ambiguous",
            grade(len(lines), len(survey), mend=0.05),
            "One source, many translations",
            f"{counted(len(many), 'source')} with {MANY} or more different translations each, {int(counts.max()):,} at "
            f"most; {touched(len(lines), len(survey))} in all",
            "look at them: short phrases may well have many, long ones point at bad alignment",
            survey.split,
            lines,
        )
    ]


def is_repeated(keys: UInt64[np.ndarray, " lines"]) -> Bool[np.ndarray, " lines"]:
    """True from the second time on that a key comes."""
    _, firsts = np.unique(keys, return_index=True)
    found = np.ones(len(keys), bool)
    found[firsts] = False
    return found


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
