"""N-gram probabilities straight from the formulas, with dictionaries, in double precision: slow and plain."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from seqloom.core.symbols import BEGIN, END, RESERVED
from seqloom.text.tokenizer import EncodedText

Gram = tuple[int, ...]


def encoded(lines: Sequence[str], *, symbols: Sequence[str] = ()) -> EncodedText:
    """Lines of words between spaces; the vocabulary is theirs, and what is given besides."""
    words = dict.fromkeys([*RESERVED, *(word for line in lines for word in line.split()), *symbols])
    numbers = {word: number for number, word in enumerate(words)}
    ids = [number for line in lines for number in [*(numbers[word] for word in line.split()), END]]
    return EncodedText(np.array(ids, np.int32), list(words))


def sentences_of(ids: np.ndarray) -> Iterator[Gram]:
    """Each sentence with BEGIN and END."""
    ends = [-1, *np.flatnonzero(ids == END).tolist()]
    for before, end in pairwise(ends):
        yield (BEGIN, *ids[before + 1 : end + 1].tolist())


def count_grams(ids: np.ndarray, length: int) -> Counter[Gram]:
    """How often each n-gram occurs."""
    grams: Counter[Gram] = Counter()
    for sentence in sentences_of(ids):
        grams.update(sentence[start : start + length] for start in range(len(sentence) - length + 1))
    return grams


class KneserNeyTwin:
    """Interpolated modified Kneser-Ney, from its definition."""

    def __init__(
        self,
        text: EncodedText,
        order: int,
        *,
        prune: Sequence[int] = (),
        fallback: tuple[float, float, float] = (0.5, 1.0, 1.5),
        has_continuations: bool = True,
    ) -> None:
        self.order, self.outcomes, self.fallback = order, text.symbols - 2, fallback
        self.raw = {length: count_grams(text.ids, length) for length in range(1, order + 1)}
        self.prune = [prune[min(length, len(prune)) - 1] if prune else 0 for length in range(1, order + 1)]
        self.adjusted = {order: dict(self.raw[order])}
        for length in range(1, order):
            left: Counter[Gram] = Counter(gram[1:] for gram in self.raw[length + 1])
            self.adjusted[length] = {
                gram: count if gram[0] == BEGIN or not has_continuations else left[gram]
                for gram, count in self.raw[length].items()
            }
        self.adjusted[1].pop((BEGIN,))
        self.discounts = {length: self._estimate(self.adjusted[length]) for length in self.adjusted}
        self.followers: defaultdict[Gram, dict[int, int]] = defaultdict(dict)
        for grams in self.adjusted.values():
            for gram, count in grams.items():
                self.followers[gram[:-1]][gram[-1]] = count

    def _estimate(self, grams: dict[Gram, int]) -> tuple[float, float, float]:
        n = Counter(grams.values())
        if not (n[1] and n[2] and n[3]):
            return self.fallback
        y = n[1] / (n[1] + 2 * n[2])
        found = 1 - 2 * y * n[2] / n[1], 2 - 3 * y * n[3] / n[2], 3 - 4 * y * n[4] / n[3]
        return found if all(0 <= d <= k for k, d in enumerate(found, 1)) else self.fallback

    def discount(self, gram: Gram, count: int) -> float:
        return self.discounts[len(gram)][min(count, 3) - 1]

    def probability(self, word: int, context: Gram) -> float:
        """P(word ∣ context)."""
        context = context[max(0, len(context) - self.order + 1) :]
        lower = self.probability(word, context[1:]) if context else 1 / self.outcomes
        followers = self.followers.get(context)
        if not followers:
            return lower
        total, own, given = sum(followers.values()), 0.0, 0.0
        for follower, count in followers.items():
            gram = (*context, follower)
            is_kept = self.raw[len(gram)][gram] > self.prune[len(gram) - 1] or len(gram) == 1
            taken = self.discount(gram, count) if is_kept else count
            given += taken
            own += count - taken if follower == word else 0.0
        return own / total + given / total * lower

    def log_probs(self, ids: np.ndarray) -> np.ndarray:
        """log P of each id, sentence by sentence."""
        return np.array([
            np.log(self.probability(sentence[place], sentence[:place]))
            for sentence in sentences_of(ids)
            for place in range(1, len(sentence))
        ])  # fmt: skip
