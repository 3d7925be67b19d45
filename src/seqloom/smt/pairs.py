"""What models that learn translation by counting are given, and what they offer.

Such a model learns from sentence pairs as ids of words, in a loop of its own, and searches in its own way. Everything
else (reading text, splitting long lines, placing tags, alignments, n-best lists, scores) is shared with other
translators, because its search returns ordinary hypotheses:

    symbols             ids of target words; UNKNOWN where a source word is copied
    terms               the weighted features of the best derivation; they add up to the score
    token_log_probs     shares of the score, one for each symbol and one for the end
    attention           1 for each link between a target word and a source word, so that each row adds up to 1
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from seqloom.classical.alignment import Bitext
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.text.tokenizer import Tokenizers


class SourceSentence(NamedTuple):
    """A sentence to translate."""

    ids: Sequence[int]
    """Ids of its words, END left out."""
    words: Sequence[str]
    """The words as they are written, also those that the vocabulary lacks; ￭ is where a mark touches its neighbour."""


@dataclass(frozen=True, eq=False)
class EncodedPairs:
    """Sentence pairs to learn from, as ids of words without END."""

    train: Bitext
    dev: Bitext
    """Held-out pairs, for what is tuned and not counted."""
    tokenizers: Tokenizers
    """Both are of kind word. The target vocabulary has each word also with a capital and with a small first letter."""
    dev_sentences: Sequence[SourceSentence] = ()
    """The sources of `dev`, with the words that the vocabulary lacks."""
    dev_references: Sequence[str] = ()
    """The targets of `dev` as text."""
    entries: Bitext | None = None
    """Words and phrases with translations, to learn from beside the sentences: they are no text of the target side."""


class SentenceSearch(Protocol):
    """A translator with a search of its own."""

    def search(
        self,
        sentences: Sequence[SourceSentence],
        settings: SearchConfig,
        *,
        threads: int = 1,
        is_cancelled: Callable[[int], bool] | None = None,
    ) -> list[list[Hypothesis]]:
        """The `settings.nbest` best translations of each sentence, best first, at least one.

        `settings.beam` hypotheses are kept where a search keeps several. The number of threads does not change the
        result. A sentence for whose index `is_cancelled` returns True has no hypotheses.
        """
        ...


class FittedTranslator(SentenceSearch, Protocol):
    """A translator that was fitted to sentence pairs by a loop of its own."""

    def arrays(self) -> Mapping[str, np.ndarray]:
        """Everything it consists of; they may be memory-mapped."""
        ...

    def score(self, sentences: Sequence[SourceSentence], targets: Sequence[Sequence[int]]) -> list[float]:
        """The score of each given translation, ids without END; −inf for one that the model cannot produce."""
        ...


def hard_attention(
    links: Sequence[Sequence[int]], source_length: int
) -> Float[Tensor, "targets_and_end sources_and_end"]:
    """Attention of target words to the source words that they are linked with; the ends look at each other.

    `links` has the source positions of each target word, counted from 0. A word without links has no attention.
    """
    attention = torch.zeros(len(links) + 1, source_length + 1)
    for row, positions in enumerate(links):
        for position in positions:
            attention[row, position] = 1 / len(positions)
    attention[-1, -1] = 1
    return attention
