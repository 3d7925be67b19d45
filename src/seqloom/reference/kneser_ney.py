"""Interpolated modified Kneser-Ney smoothing (Chen and Goodman, 1999), with dictionaries.

    P(w ∣ u) = (a(uw) − D(a(uw))) / Σ_v a(uv) + γ(u) P(w ∣ u')        u' is u without its first word
    γ(u)     = Σ_v D(a(uv)) / Σ_v a(uv)                               what the discounts have freed
    P(w)     = … + γ P_0,   P_0 = 1 / (number of words)               at the end of the recursion

    a(uw)    = how often uw occurs                                    for the longest n-grams, and those that begin a
                                                                      sentence
             = in front of how many different words uw is found       for all others: "Francisco" is frequent but only
                                                                      follows "San"
    D(1), D(2), D(3 and more) = a − (a + 1) y n_{a+1} / n_a,  y = n_1 / (n_1 + 2 n_2)
                                                                      n_a n-grams of this length have adjusted count a

The fast version, with counting in sorted blocks and a trie, is `seqloom.classical.kneser_ney` and
`seqloom.classical.ngram`.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

Gram = tuple[int, ...]


class KneserNey:
    """A model of sentences, each of which starts with the symbol `begin` and ends with a symbol for its end."""

    def __init__(
        self,
        sentences: Iterable[Gram],
        order: int,
        *,
        begin: int,
        outcomes: int,
        prune: Sequence[int] = (),
        fallback: tuple[float, float, float] = (0.5, 1.0, 1.5),
    ) -> None:
        """`outcomes` words can be predicted. N-grams of length k that occur at most `prune[k − 1]` times (the last
        number holds for longer ones) give all their count to γ; `fallback` are discounts where n_a is 0."""
        self.order, self.begin, self.outcomes, self.fallback = order, begin, outcomes, fallback
        self.prune = [prune[min(length, len(prune)) - 1] if prune else 0 for length in range(1, order + 1)]
        texts = list(sentences)
        self.counts = {length: count_grams(texts, length) for length in range(1, order + 1)}
        self.adjusted = {length: self.adjust(length) for length in range(1, order + 1)}
        self.adjusted[1].pop((begin,))  # given, never predicted
        self.discounts = {length: self.estimate(grams) for length, grams in self.adjusted.items()}
        self.followers: defaultdict[Gram, dict[int, int]] = defaultdict(dict)
        for grams in self.adjusted.values():
            for gram, count in grams.items():
                self.followers[gram[:-1]][gram[-1]] = count

    def adjust(self, length: int) -> dict[Gram, int]:
        """a of all n-grams of a length."""
        if length == self.order:
            return dict(self.counts[length])
        words_before = Counter(gram[1:] for gram in self.counts[length + 1])
        return {
            gram: count if gram[0] == self.begin else words_before[gram] for gram, count in self.counts[length].items()
        }

    def estimate(self, grams: dict[Gram, int]) -> tuple[float, float, float]:
        """D(1), D(2) and D(3 and more)."""
        n = Counter(grams.values())
        if not (n[1] and n[2] and n[3]):
            return self.fallback
        y = n[1] / (n[1] + 2 * n[2])
        found = 1 - 2 * y * n[2] / n[1], 2 - 3 * y * n[3] / n[2], 3 - 4 * y * n[4] / n[3]
        return found if all(0 <= d <= a for a, d in enumerate(found, 1)) else self.fallback

    def probability(self, word: int, context: Gram) -> float:
        """P(word ∣ context), of which the last `order` − 1 words are used."""
        context = context[max(0, len(context) - self.order + 1) :]
        shorter = self.probability(word, context[1:]) if context else 1 / self.outcomes
        followers = self.followers.get(context)
        if not followers:
            return shorter
        own = freed = 0.0
        for follower, count in followers.items():
            gram = (*context, follower)
            is_kept = self.counts[len(gram)][gram] > self.prune[len(gram) - 1] or len(gram) == 1
            discount = self.discounts[len(gram)][min(count, 3) - 1] if is_kept else count
            freed += discount
            own += count - discount if follower == word else 0.0
        total = sum(followers.values())
        return own / total + freed / total * shorter


def count_grams(sentences: Iterable[Gram], length: int) -> Counter[Gram]:
    """How often each n-gram of a length occurs."""
    grams: Counter[Gram] = Counter()
    for sentence in sentences:
        grams.update(sentence[start : start + length] for start in range(len(sentence) - length + 1))
    return grams
