"""Distinct-n of outputs (Li et al., 2016): how rarely a system repeats itself.

    distinct-n = 100 · different n-grams / n-grams            over all lines together

The more text, the lower it is, so it is compared with that of the references, which are as many lines. It does not
depend on the lines through a sum over them: it has no interval here.
"""

from collections.abc import Sequence

from seqloom.metrics.scoring import CorpusScore
from seqloom.text.marks import split_words


def distinct(lines: Sequence[str], order: int, *, name: str = "") -> CorpusScore:
    """Distinct-n of lines, lower-cased, in words with marks apart; 0 where no line has n words. `name` says whose."""
    words = [split_words(line.lower()) for line in lines]
    grams = [gram for each in words for gram in zip(*(each[at:] for at in range(order)), strict=False)]
    value = 100 * len(set(grams)) / len(grams) if grams else 0.0
    return CorpusScore(f"distinct-{order}{name}", value, f"case:lc|ngrams:{len(grams)}")
