"""Copies: pairs whose target is the source, or nearly so.

J(x, y) = |T(x) ∩ T(y)| / |T(x) ∪ T(y)|     T are the runs of three characters of the words in small letters
"""

from seqloom.inspection.doctor.faults import Fault, grade, numbers_where, touched
from seqloom.inspection.doctor.survey import Survey
from seqloom.inspection.doctor.texts import trigrams

FEWEST_WORDS, FEWEST_LETTERS = 3, 10
"""Below these a copy may well be a translation: names, numbers, `OK`."""

NEAR = 0.7
"""The overlap of a near copy; translations between sister languages with shared names stay below."""


def is_copy(source: str, target: str, *, words: tuple[list[str], list[str]]) -> int:
    """0 for a translation, 1 for a copy, 2 for a near copy."""
    one, other = words
    if min(len(one), len(other)) < FEWEST_WORDS:
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
