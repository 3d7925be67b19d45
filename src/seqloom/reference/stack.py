"""Stack decoding to read: the best way to translate a sentence phrase by phrase (Koehn et al., 2003).

    score(o_1 … o_K) = Σ_k s(o_k) + Σ_k previous(o_k, d_k) + Σ_k next(o_k, d_(k+1))
                     + λ_lm log P(y END) + λ_d Σ_k ∣begin_k − end_(k−1)∣,   end_0 = 0

    d_k = 0  monotone         the phrase begins where the one before ends
        = 1  swap             it ends where the one before begins
        = 2  discontinuous    otherwise

    stack c    = hypotheses that have translated c source words
    rank       = score + future cost: the best that the spans not yet translated add, each by itself
    kept       = the `beam` hypotheses of highest rank; only they are extended
    recombined = of hypotheses that any continuation extends by the same score only the best is extended

A phrase may begin at most `limit` words from the end of the one before. If it leaves out the first untranslated word,
it ends at most `limit` words behind that, so that the word can be next. `seqloom.smt.stack` is the fast version, with
cube pruning and lists of the n best.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

Words = tuple[int, ...]
LanguageModel = Callable[[int, Words], float]
"""log P of a word after all words before it."""
Hypothesis = tuple[float, float, tuple[int, ...]]
"""Rank, score, and the numbers of the phrases so far."""


@dataclass(frozen=True)
class Phrase:
    """A translation option: source words begin … end − 1, their translation, and its scores."""

    begin: int
    end: int
    words: Words
    score: float
    previous: tuple[float, float, float] = (0.0, 0.0, 0.0)
    next: tuple[float, float, float] = (0.0, 0.0, 0.0)


@dataclass(frozen=True)
class StackDecoder:
    """The search; `begin` and `end` are the symbols of the language model for the borders of a sentence."""

    phrases: Sequence[Phrase]
    length: int
    language_model: LanguageModel
    order: int
    begin: int
    end: int
    beam: int
    limit: int
    """Below 0: none."""
    language_model_weight: float
    distortion_weight: float

    def decode(self) -> tuple[float, tuple[int, ...]] | None:
        """The best score with the numbers of its phrases; None if the phrases cannot cover the sentence."""
        future = self.future_costs()
        stacks: list[dict[object, Hypothesis]] = [{} for _ in range(self.length + 1)]
        stacks[0][()] = 0.0, 0.0, ()
        for stack in stacks[:-1]:
            for _, score, before in sorted(stack.values(), key=lambda each: -each[0])[: self.beam]:
                for number in range(len(self.phrases)):
                    if not self.may_follow(before, number):
                        continue
                    phrases = (*before, number)
                    covered, state = self.covered(phrases), self.state(phrases)
                    made = score + self.added(before, number)
                    rank = made + sum(future(*gap) for gap in gaps(covered, self.length))
                    same = stacks[len(covered)].get(state)
                    if rank > float("-inf") and (same is None or made > same[1]):
                        stacks[len(covered)][state] = rank, made, phrases
        whole = [(score + self.end_score(phrases), phrases) for _, score, phrases in stacks[-1].values()]
        return max(whole, key=lambda each: each[0], default=None)

    def future_costs(self) -> Callable[[int, int], float]:
        """The best that the source words between two places add by themselves; −inf if no phrases cover them."""

        @cache
        def future(begin: int, end: int) -> float:
            if begin == end:
                return 0.0
            inside = (each for each in self.phrases if each.begin == begin and each.end <= end)
            return max((self.alone(each) + future(each.end, end) for each in inside), default=float("-inf"))

        return future

    def alone(self, phrase: Phrase) -> float:
        """What a phrase adds at best, as far as it is known without its neighbours."""
        log_prob = sum(self.language_model(word, phrase.words[:place]) for place, word in enumerate(phrase.words))
        return phrase.score + max(phrase.previous) + max(phrase.next) + self.language_model_weight * log_prob

    def covered(self, phrases: Sequence[int]) -> frozenset[int]:
        """The source words of phrases."""
        spans = (range(self.phrases[each].begin, self.phrases[each].end) for each in phrases)
        return frozenset(place for span in spans for place in span)

    def may_follow(self, phrases: Sequence[int], number: int) -> bool:
        """Whether a phrase translates new words and is near enough."""
        phrase, covered = self.phrases[number], self.covered(phrases)
        if not covered.isdisjoint(range(phrase.begin, phrase.end)):
            return False
        first = gaps(covered, self.length)[0][0]
        is_near = abs(phrase.begin - self.last_span(phrases)[1]) <= self.limit
        return self.limit < 0 or (is_near and (phrase.begin == first or phrase.end - first <= self.limit))

    def last_span(self, phrases: Sequence[int]) -> tuple[int, int]:
        """The source span of the last phrase; before the first one, a span that nothing swaps with."""
        return (self.phrases[phrases[-1]].begin, self.phrases[phrases[-1]].end) if phrases else (-1, 0)

    def added(self, phrases: tuple[int, ...], number: int) -> float:
        """What a phrase adds to the score of those before it."""
        phrase, (_, last_end) = self.phrases[number], self.last_span(phrases)
        way = orientation(self.last_span(phrases), (phrase.begin, phrase.end))
        score = phrase.score + phrase.previous[way] + (self.phrases[phrases[-1]].next[way] if phrases else 0.0)
        context = self.context(phrases)
        for word in phrase.words:
            score += self.language_model_weight * self.language_model(word, context)
            context = (*context, word)
        return score + self.distortion_weight * abs(phrase.begin - last_end)

    def end_score(self, phrases: tuple[int, ...]) -> float:
        """What the end of the sentence adds."""
        way = orientation(self.last_span(phrases), (self.length, self.length + 1))
        score = self.language_model_weight * self.language_model(self.end, self.context(phrases))
        return score + (self.phrases[phrases[-1]].next[way] if phrases else 0.0)

    def context(self, phrases: Sequence[int]) -> Words:
        """The target words so far."""
        return (self.begin, *(word for each in phrases for word in self.phrases[each].words))

    def state(self, phrases: tuple[int, ...]) -> object:
        """Everything that the scores of continuations depend on."""
        words, last = self.context(phrases), self.phrases[phrases[-1]]
        return self.covered(phrases), words[max(0, len(words) - self.order + 1) :], last.begin, last.end, last.next


def orientation(before: tuple[int, int], span: tuple[int, int]) -> int:
    """0 for monotone, 1 for swap, 2 for discontinuous."""
    return 0 if span[0] == before[1] else 1 if span[1] == before[0] else 2


def gaps(covered: frozenset[int], length: int) -> list[tuple[int, int]]:
    """The spans of a sentence that are not covered, each as long as possible."""
    return [(one + 1, two) for one, two in pairwise([-1, *sorted(covered), length]) if one + 1 < two]
