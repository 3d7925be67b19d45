"""A text as ids: what models that are fitted by a loop of their own (n-grams, word vectors) learn from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64, Integer

from seqloom.core.errors import DataError
from seqloom.core.symbols import END, RESERVED

CHUNK = 1 << 24
"""Ids looked at together, so that a text larger than memory stays on the disk."""


@dataclass(frozen=True, eq=False)
class EncodedText:
    """Sentence after sentence in one row of ids, each sentence ended by END, and what the ids stand for."""

    ids: Integer[np.ndarray, " tokens"]
    """May be memory-mapped, and larger than memory."""
    vocabulary: Sequence[str]
    """The text of each symbol, the reserved ones first."""

    def __post_init__(self) -> None:
        begin = tuple(self.vocabulary[: len(RESERVED)])
        if begin != RESERVED:
            raise DataError(f"a vocabulary begins with {RESERVED}, but this one begins with {begin}")
        if not len(self.ids):
            raise DataError("there is no text to learn from: it has 0 tokens; give a file with some lines")
        if self.ids[-1] != END:
            raise DataError(
                f"the text ends with id {self.ids[-1]}, but each sentence ends with {END} ({RESERVED[END]})"
            )

    @property
    def symbols(self) -> int:
        """The number of symbols that ids can stand for, the reserved ones included."""
        return len(self.vocabulary)

    def counts(self) -> Int64[np.ndarray, " symbols"]:
        """How often each symbol comes; END comes once per sentence."""
        total = np.zeros(self.symbols, np.int64)
        for begin in range(0, len(self.ids), CHUNK):
            found = np.bincount(self.ids[begin : begin + CHUNK], minlength=self.symbols)
            if len(found) > self.symbols:
                raise DataError(f"id {len(found) - 1} is outside the vocabulary, whose ids are 0 to {self.symbols - 1}")
            total += found
        return total
