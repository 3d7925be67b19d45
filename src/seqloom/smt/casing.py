"""Case by frequency: the first word of a sentence is written as it is usually written inside sentences.

    "The dog sees the cat. It runs."   →   the dog sees the cat. it runs.       before counting
    the dog sees the cat. it runs.     →   "The dog sees the cat. It runs."     in the output

Without it, "The" and "the" would be counted apart. A word that never occurs inside a sentence stays as it is. In the
output, the first words of sentences get their capitals back, if the training text has them there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Int32, Int64, UInt8

from seqloom.core.errors import ModelError
from seqloom.core.jit import compiled
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.text.marks import JOINER

END_MARKS = frozenset(".!?…。！？")
"""Marks after which a sentence begins."""

MARK, END_MARK, UNCASED, LOWER, UPPER = range(5)

Array = Any
"""numba infers types and shapes."""


@compiled()
def mark_initials(ids: Array, starts: Array, classes: Array, is_initial: Array) -> None:
    """Mark the first word of each sentence; marks before it do not count, a number is a word."""
    for k in range(len(starts) - 1):
        is_open = True
        for place in range(starts[k], starts[k + 1]):
            kind = classes[ids[place]]
            is_initial[place] = is_open and kind > END_MARK
            if kind == END_MARK:
                is_open = True
            elif kind != MARK:
                is_open = False


def class_of(word: str) -> int:
    """What a word is for the beginnings of sentences."""
    core = word.replace(JOINER, "")
    if not any(map(str.isalnum, core)):
        return END_MARK if core in END_MARKS else MARK
    first = next(character for character in core if character.isalnum())
    return UPPER if first.isupper() or first.istitle() else LOWER if first.islower() else UNCASED


@dataclass(frozen=True, eq=False)
class Casing:
    """The case of the words of one side."""

    vocabulary: Sequence[str]
    usual: Int32[np.ndarray, " symbols"]
    """The id of each word as it is written inside sentences."""
    begins_upper: bool
    """Whether sentences begin with a capital letter."""

    @staticmethod
    def learn(
        ids: Int32[np.ndarray, " tokens"], starts: Int64[np.ndarray, " borders"], vocabulary: Sequence[str]
    ) -> "Casing":
        """Count how words are written inside the sentences of a text."""
        classes = _classes(vocabulary)
        is_initial = _initials(ids, starts, classes)
        inside = np.bincount(ids[~is_initial], minlength=len(vocabulary))
        best: dict[str, int] = {}
        for number in range(len(RESERVED), len(vocabulary)):
            form = vocabulary[number].lower()
            if inside[number] > (inside[best[form]] if form in best else 0):
                best[form] = number
        usual = np.array([best.get(word.lower(), number) for number, word in enumerate(vocabulary)], np.int32)
        usual[: len(RESERVED)] = np.arange(len(RESERVED))
        firsts = classes[ids[is_initial]]
        return Casing(vocabulary, usual, bool((firsts == UPPER).sum() > (firsts == LOWER).sum()))

    @staticmethod
    def restore(
        usual: Int32[np.ndarray, " symbols"], begins_upper: Int32[np.ndarray, " _"], vocabulary: Sequence[str]
    ) -> "Casing":
        """From the arrays of a model; refuses those that do not fit the vocabulary."""
        fits = usual.dtype == np.int32 and usual.shape == (len(vocabulary),) and begins_upper.shape == (1,)
        if not fits or usual.min(initial=0) < 0 or usual.max(initial=0) >= len(vocabulary):
            raise ModelError(
                f"the casing of {usual.size:,} words does not fit a vocabulary of {len(vocabulary):,}; the files are "
                "damaged or belong to different models"
            )
        return Casing(vocabulary, usual, bool(begins_upper[0]))

    def fold(
        self, ids: Int32[np.ndarray, " tokens"], starts: Int64[np.ndarray, " borders"]
    ) -> Int32[np.ndarray, " tokens"]:
        """Sentences with the first words in their usual form."""
        return np.where(_initials(ids, starts, self.classes), self.usual[ids], ids).astype(np.int32)

    def fold_sentence(self, ids: Sequence[int], words: Sequence[str]) -> Int32[np.ndarray, " words"]:
        """A sentence to translate: folded, and unknown words in another case if they are known in it."""
        given = np.array(ids, np.int32)
        folded = self.fold(given, np.array([0, len(given)], np.int64))
        if len(words) == len(folded):
            for place in np.flatnonzero(folded == UNKNOWN).tolist():
                folded[place] = self.find(words[place])
        return folded

    def unfold(self, ids: Sequence[int]) -> tuple[int, ...]:
        """A sentence with capitals where sentences begin, as far as the vocabulary has such words."""
        if not self.begins_upper or not len(ids):
            return tuple(ids)
        given = np.array(ids, np.int32)
        is_initial = _initials(given, np.array([0, len(given)], np.int64), self.classes)
        return tuple(
            self.numbers.get(_titled(self.vocabulary[number]), number) if first and number != UNKNOWN else number
            for number, first in zip(ids, is_initial.tolist(), strict=True)
        )

    def find(self, word: str) -> int:
        """The id of an unknown word that is known in another case; UNKNOWN if there is none."""
        for form in (word.lower(), _titled(word.lower())):
            if form in self.numbers:
                return int(self.usual[self.numbers[form]])
        return UNKNOWN

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The ids of words."""
        return {word: number for number, word in enumerate(self.vocabulary) if number >= len(RESERVED)}

    @cached_property
    def classes(self) -> UInt8[np.ndarray, " symbols"]:
        """What each word is for the beginnings of sentences."""
        return _classes(self.vocabulary)


def _classes(vocabulary: Sequence[str]) -> UInt8[np.ndarray, " symbols"]:
    # An unknown word is a word without case.
    return np.array([UNCASED] * len(RESERVED) + [class_of(word) for word in vocabulary[len(RESERVED) :]], np.uint8)


def _initials(
    ids: Int32[np.ndarray, " tokens"], starts: Int64[np.ndarray, " borders"], classes: UInt8[np.ndarray, " symbols"]
) -> Bool[np.ndarray, " tokens"]:
    is_initial = np.zeros(len(ids), np.bool_)
    mark_initials(ids, starts, classes, is_initial)
    return is_initial


def _titled(word: str) -> str:
    """A word with a capital as its first letter, after marks."""
    for place, character in enumerate(word):
        if character.isalnum():
            return f"{word[:place]}{character.title()}{word[place + 1 :]}"
    return word
