"""Known words in place of a word that the training text lacks: its stem, or the words that it is made of.

    Schneemobilen   →   Schneemobil             a known word with the same beginning and another short ending
    Ledertasche     →   Leder + Tasche          a compound (Koehn and Knight, 2003): of all ways to cut it, the one
                                                whose parts are most frequent on (geometric) average
    Papiermasken    →   Papier + Maske          both

Between the parts of a compound may be the letters that German, Dutch or Swedish put there. The parts are looked up in
any case.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Int64

MIN_STEM, MAX_ENDING = 5, 2
"""Letters that words of one stem share at the beginning, and letters that may follow in each of them."""

MIN_PART, MAX_PARTS = 4, 3
"""Letters of the parts of a compound, and the number of parts."""

MIN_PART_COUNT = 3
"""How often a part must have been seen: rare words cut other words by chance."""

FILLERS = ("", "s", "es", "n", "en", "e", "-")
"""Letters between the parts of a compound."""

NEIGHBOURS = 20
"""Words before and after a word in the sorted vocabulary among which its stem is searched."""


class KnownWords:
    """The words of a vocabulary that have translations, by how often they were seen."""

    def __init__(self, vocabulary: Sequence[str], counts: Int64[np.ndarray, " symbols"]) -> None:
        """Words with a count of 0 are not used."""
        best: dict[str, int] = {}
        for number in np.flatnonzero(counts).tolist():
            form = vocabulary[number].lower()
            if form.isalpha() and counts[number] > (counts[best[form]] if form in best else 0):
                best[form] = number
        self._numbers: Mapping[str, int] = best
        self._counts = {form: int(counts[number]) for form, number in best.items()}
        self._sorted = sorted(best)

    @lru_cache(maxsize=10_000)  # noqa: B019 - as long-lived as the model
    def parts(self, word: str) -> tuple[int, ...]:
        """The ids of the known words to translate instead; none for a word that is to be copied."""
        form = word.lower()
        if not form.replace("-", "").isalpha():
            return ()
        if (stem := self.stem(form)) is not None:
            return (self._numbers[stem],)
        cuts = [cut for cut in self._cuts(form, MAX_PARTS) if len(cut) > 1]
        if not cuts:
            return ()
        means = [np.mean([np.log(self._counts[part]) for part in cut]) for cut in cuts]
        return tuple(self._numbers[part] for part in cuts[int(np.argmax(means))])

    def stem(self, form: str) -> str | None:
        """The known word that shares the longest beginning; of several, the most frequent."""
        place = bisect_left(self._sorted, form)
        found: list[tuple[int, int, str]] = []
        for other in self._sorted[max(0, place - NEIGHBOURS) : place + NEIGHBOURS]:
            shared = _shared(form, other)
            if shared >= MIN_STEM and max(len(form), len(other)) - shared <= MAX_ENDING:
                found.append((shared, self._counts[other], other))
        return max(found)[2] if found else None

    def _cuts(self, form: str, most: int) -> Iterator[list[str]]:
        """All ways to make a word of at most so many known ones; the last may have another ending."""
        if len(form) < MIN_PART:
            return
        last = form if form in self._counts else self.stem(form)
        if last is not None and self._counts[last] >= MIN_PART_COUNT:
            yield [last]
        if most == 1:
            return
        for end in range(MIN_PART, len(form) - MIN_PART + 1):
            first = form[:end]
            if self._counts.get(first, 0) < MIN_PART_COUNT:
                continue
            for filler in FILLERS:
                if form.startswith(filler, end):
                    for rest in self._cuts(form[end + len(filler) :], most - 1):
                        yield [first, *rest]


def _shared(one: str, other: str) -> int:
    """Letters that two words share at the beginning."""
    most = min(len(one), len(other))
    return next((place for place in range(most) if one[place] != other[place]), most)
