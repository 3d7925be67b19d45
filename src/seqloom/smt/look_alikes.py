"""Words of two languages that are spelled alike: names, loan words, and the common stock of related languages.

    similarity(x, y) = 1 − d(x, y) / max(|x|, |y|)        d: letters to insert, delete or replace (Levenshtein)

Accents and case do not count. In unrelated languages, words look alike by chance; so a dictionary decides whether
spelling says anything: its pairs must look alike much more often than the same words paired at random.
"""

import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int64

from seqloom.core.jit import compiled

MIN_LETTERS = 4
"""Shorter words look like too many others."""

MIN_SIMILARITY = 0.7
"""Of words that look alike."""

MAX_FOUND = 3
"""Words that look like a word, at most: the most similar ones."""

MIN_SHARE, MIN_RATIO = 0.03, 3.0
"""Spelling counts if this share of the pairs of a dictionary look alike, and so many times as many as by chance."""

Array = Any
"""numba infers types and shapes."""


def look_alikes(sources: Sequence[str], targets: Sequence[str]) -> dict[str, dict[str, float]]:
    """For words of one language, those of the other that begin with the same letter and look like them, best first."""
    ours, theirs = ([word for word in words if _is_usable(word)] for words in (sources, targets))
    by_letter: dict[str, list[int]] = {}
    for number, word in enumerate(theirs):
        by_letter.setdefault(_plain(word)[0], []).append(number)
    letters, starts = _letters(theirs)
    found: dict[str, dict[str, float]] = {}
    for word in ours:
        plain = _plain(word)
        near = np.array(by_letter.get(plain[0], ()), np.int64)
        similar = np.zeros(len(near))
        compare(np.array([ord(letter) for letter in plain]), letters, starts, near, similar)
        order = np.argsort(-similar, kind="stable")[:MAX_FOUND]
        best = {theirs[near[at]]: float(similar[at]) for at in order.tolist() if similar[at] >= MIN_SIMILARITY}
        if best:
            found[word] = best
    return found


def are_related(pairs: Sequence[tuple[str, str]], *, seed: int) -> bool:
    """Whether words and their translations look alike more often than by chance."""
    usable = [(one, other) for one, other in pairs if _is_usable(one) and _is_usable(other)]
    if not usable:
        return False
    shuffled = np.random.default_rng(seed).permutation(len(usable))
    share = float(np.mean([similarity(one, other) >= MIN_SIMILARITY for one, other in usable]))
    chance = float(
        np.mean([similarity(usable[k][0], usable[at][1]) >= MIN_SIMILARITY for k, at in enumerate(shuffled)])
    )
    return share >= MIN_SHARE and share >= MIN_RATIO * chance


def similarity(one: str, other: str) -> float:
    """1 for words that are spelled alike, 0 for words without a common letter."""
    letters, starts = _letters([other])
    found = np.zeros(1)
    compare(np.array([ord(letter) for letter in _plain(one)]), letters, starts, np.zeros(1, np.int64), found)
    return float(found[0])


def _plain(word: str) -> str:
    """Without case and accents."""
    return "".join(c for c in unicodedata.normalize("NFKD", word.casefold()) if not unicodedata.combining(c))


def _is_usable(word: str) -> bool:
    return len(word) >= MIN_LETTERS and word.isalpha()


def _letters(words: Sequence[str]) -> tuple[Int64[np.ndarray, " letters"], Int64[np.ndarray, " words_and_one"]]:
    plain = [_plain(word) for word in words]
    letters = np.array([ord(letter) for word in plain for letter in word], np.int64)
    return letters, np.cumsum([0, *map(len, plain)], dtype=np.int64)


@compiled()
def compare(word: Array, letters: Array, starts: Array, numbers: Array, similar: Array) -> None:
    """The similarity of a word to the words of these numbers; a row of Levenshtein's table at a time."""
    longest = 0
    for number in numbers:
        longest = max(longest, starts[number + 1] - starts[number])
    row = np.zeros(longest + 1, np.int64)
    for place, number in enumerate(numbers):
        begin, length = starts[number], starts[number + 1] - starts[number]
        for j in range(length + 1):
            row[j] = j
        for i in range(len(word)):
            diagonal, row[0] = row[0], i + 1
            for j in range(length):
                changed = diagonal + (word[i] != letters[begin + j])
                diagonal = row[j + 1]
                row[j + 1] = min(changed, row[j] + 1, row[j + 1] + 1)
        similar[place] = 1 - row[length] / max(1, max(len(word), length))
