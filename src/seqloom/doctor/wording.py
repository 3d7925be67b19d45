"""Wording: oddities visible in the words of a line: another language, and lost accents.

A line is in a third language if it has several function words of that language and hardly any of its own side.
A line has lost its accents if it has none, but has words that its side nearly always writes with them: `Madchen` or
`Mdchen` for `Mädchen`.
A line has the words of the other side if it has several that the other side has far more often than its own.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntFlag

import numpy as np
from jaxtyping import UInt8

from seqloom.doctor.characters import Odd, has_question_inside
from seqloom.doctor.faults import Fault, find_fault
from seqloom.doctor.survey import Survey
from seqloom.text.languages import FUNCTION_WORDS, recognise
from seqloom.text.scripts import script_of, words_of

MIN_FUNCTION_WORDS, FUNCTION_WORD_SHARE, AHEAD = 2, 0.2, 3
"""Minimum number of function words of a third language, their share, and their ratio to those of the own side."""

COMMON = 0.01
"""Words above this share belong to a side even if they are function words of another language."""

MIN_ACCENTED, USUAL, MIN_LETTERS = 3, 30, 3
"""Minimum count of an accented word, its minimum ratio to the bare form, and minimum length of the bare form."""

MIN_SEEN, RATIO = 3, 2
"""Minimum count of a word on a side, and ratio to the other side, for the word to be typical of it.

A ratio of two still holds where a third of the pairs is swapped."""

MIN_OTHER_WORDS, LEAD = 2, 2
"""Minimum number of different words of the other side in a line, and their ratio to those of its own side.

One is enough in lines of fewer than four words."""


class Odds(IntFlag):
    """Oddities of the words of a line."""

    THIRD_LANGUAGE = 1
    LOST_ACCENTS = 2
    OTHER_SIDE = 4


@dataclass(frozen=True)
class Wording:
    """Typical words of one side."""

    others: Mapping[str, tuple[int, ...]]
    """The languages of each function word: 0 for the side's own, the rest for languages of neither side."""
    lost: frozenset[str]
    """Accented words without their accents."""
    own: frozenset[str]
    """Words typical of this side."""
    across: frozenset[str]
    """Words typical of the other side."""

    @staticmethod
    def of(words: Mapping[str, int], other: Mapping[str, int]) -> "Wording":
        """From the words of a side and those of the other one."""
        own, across = recognise(words), recognise(other)
        typical = _typical(words, other), _typical(other, words)
        if own is None:
            return Wording({}, _lost_forms(words), *typical)
        small, total = _small_words(own[0], across[0] if across else ""), sum(words.values())
        common = {word: (0,) for word in small if words.get(word, 0) > COMMON * total}
        # Untranslated and swapped lines are found by the character models.
        shared = dict.fromkeys((word for word in small if other.get(word, 0) > COMMON * sum(other.values())), ())
        return Wording({**small, **shared, **common}, _lost_forms(words), *typical)

    def look(self, text: str) -> int:
        """The oddities of a line, as bits of `Odds`."""
        words = words_of(text)
        different = set(words)
        # Function words of a third language, and hardly any of the own side.
        counts = Counter(code for word in different if word in self.others for code in self.others[word])
        own = counts.pop(0, 0)
        third = max(counts.values(), default=0)
        found = Odds(0)
        if third >= max(MIN_FUNCTION_WORDS, FUNCTION_WORD_SHARE * len(words), AHEAD * own):
            found |= Odds.THIRD_LANGUAGE
        if text.isascii() and not self.lost.isdisjoint(words):
            found |= Odds.LOST_ACCENTS
        fewest = MIN_OTHER_WORDS if len(different) > 3 else 1
        if len(different & self.across) >= max(fewest, LEAD * len(different & self.own)):
            found |= Odds.OTHER_SIDE
        return int(found)


def _typical(words: Mapping[str, int], other: Mapping[str, int]) -> frozenset[str]:
    """Words that one side has far more often than the other, by their shares of all words; numbers are excluded."""
    scale = RATIO * sum(words.values()) / max(1, sum(other.values()))
    return frozenset(
        word
        for word, count in words.items()
        if count >= MIN_SEEN and count > scale * other.get(word, 0) and any(map(str.isalpha, word))
    )


def _small_words(own: str, across: str) -> dict[str, tuple[int, ...]]:
    codes = [own, *(code for code in FUNCTION_WORDS if code not in (own, across))]
    found: dict[str, list[int]] = {}
    for at, code in enumerate(codes):
        for word in FUNCTION_WORDS[code]:
            found.setdefault(word, []).append(at)
    return {word: tuple(places) for word, places in found.items()}


def _lost_forms(words: Mapping[str, int]) -> frozenset[str]:
    accented: Counter[str] = Counter()
    for word, count in words.items():
        if not word.isascii() and all(script_of(sign) in ("LATIN", "") for sign in word):
            bare = "".join(sign for sign in unicodedata.normalize("NFD", word) if not unicodedata.combining(sign))
            for form in {bare, "".join(filter(str.isascii, word))}:
                if form.isascii() and len(form) >= MIN_LETTERS:
                    accented[form] += count
    return frozenset(
        # A count of one may be the line that is being judged.
        form
        for form, count in accented.items()
        if count >= MIN_ACCENTED and (count >= USUAL * words.get(form, 0) or words[form] == 1)
    )


def examine_accents(
    survey: Survey, wording: UInt8[np.ndarray, " lines"], sides: tuple[Wording, Wording]
) -> list[Fault]:
    """Lines whose accents are missing or were replaced by question marks."""
    lost, question = (wording & Odds.LOST_ACCENTS) != 0, (survey.odd & Odd.QUESTION) != 0

    def describe(source: str, target: str) -> str:
        found = [
            name
            for name, text, side in (("source", source, sides[0]), ("target", target, sides[1]))
            if has_question_inside(text) or side.look(text) & Odds.LOST_ACCENTS
        ]
        return ", ".join(found)

    return find_fault(
        survey,
        "accents",
        lost | question,
        "Characters lost in conversion",
        what=f"without their accents ({int(lost.sum()):,}) or with question marks inside words "
        f"({int(question.sum()):,})",
        advice="find an undamaged copy of these lines; --fix accents drops them",
        fix=0.002,
        describe=describe,
    )
