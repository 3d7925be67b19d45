"""The embedded corpus: one abstract grammar with a linearisation per language.

`sample_pairs("en", "de", count=1000, seed=7)` gives sentence pairs with gold word alignments; the same seed gives the
same pairs on every machine. The splits are disjoint, and `unseen` holds combinations of known words that no other
split contains.
"""

from seqloom.data.phrasebook.pairs import (
    LANGUAGES,
    PhrasePair,
    note_pairs,
    sample_pairs,
    sample_sentences,
)
from seqloom.data.phrasebook.splits import Split

__all__ = ["LANGUAGES", "PhrasePair", "Split", "note_pairs", "sample_pairs", "sample_sentences"]
