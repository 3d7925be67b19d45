"""Encoded texts for tests of n-gram models, and the readable edition of Kneser-Ney on them."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from seqloom.core.symbols import BEGIN, END, RESERVED
from seqloom.reference.kneser_ney import Gram, KneserNey
from seqloom.text.tokenizer import EncodedText


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


class KneserNeyTwin(KneserNey):
    """The readable edition for an encoded text; without continuations, lower orders use plain counts."""

    def __init__(
        self, text: EncodedText, order: int, *, prune: Sequence[int] = (), has_continuations: bool = True
    ) -> None:
        self.has_continuations = has_continuations
        super().__init__(sentences_of(text.ids), order, begin=BEGIN, outcomes=text.symbols - 2, prune=prune)

    def adjust(self, length: int) -> dict[Gram, int]:
        return super().adjust(length) if self.has_continuations else dict(self.counts[length])

    def log_probs(self, ids: np.ndarray) -> np.ndarray:
        """log P of each id, sentence by sentence."""
        return np.array([
            np.log(self.probability(sentence[place], sentence[:place]))
            for sentence in sentences_of(ids)
            for place in range(1, len(sentence))
        ])  # fmt: skip
