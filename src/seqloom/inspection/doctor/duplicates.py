"""Duplicates: pairs that come again, as they stand or but for capitals, spaces and punctuation."""

import numpy as np
from jaxtyping import Bool, UInt64

from seqloom.inspection.doctor.faults import Fault, counted, grade, numbers_where, touched
from seqloom.inspection.doctor.survey import Survey

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
