"""What word2vec's compiled loops are given: the text, the tables of vectors, the settings as numbers.

Apart from the loops, so that whoever only reads settings or vectors need not wait for the compiler.
"""

from typing import Any, NamedTuple

Array = Any
"""numba finds out types and shapes by itself."""

LANES = 8
"""Numbers in a block of a row: what one instruction of most processors works on."""
SENTENCE_END, LEFT_OUT = -1, -2
"""What stands in place of the row of a word: a sentence ends here, or the word is too rare."""
SKIPGRAM, SAMPLED, CBOW = 0, 1, 2
MEAN, SUM, PRODUCT = 0, 1, 2
NEGATIVE, HIERARCHICAL = 0, 1
LOSS_EVERY = 8
"""The loss is that of every eighth window: a logarithm costs as much as many products."""


class Text(NamedTuple):
    """Ids, the row of each symbol (or SENTENCE_END, LEFT_OUT), and the chance of each row to stay, in units of 2⁻³²."""

    ids: Array
    row_of: Array
    keep: Array


class Tables(NamedTuple):
    """Input vectors (of words, then of character n-grams) and output vectors (of words or of inner nodes)."""

    inputs: Array
    outputs: Array


class Noise(NamedTuple):
    """An alias table: entry e is taken with a chance of thresholds[e] · 2⁻³², else aliases[e]."""

    thresholds: Array
    aliases: Array


class Lists(NamedTuple):
    """A list for each word, from `starts[word]` up to `starts[word + 1]`: nodes of its path, or rows of its parts."""

    starts: Array
    members: Array
    codes: Array
    """Of a path: which way it goes at each node; empty for parts."""


class Plan(NamedTuple):
    """The settings, as numbers."""

    architecture: int
    pooling: int
    output: int
    window: int
    negatives: int
    contexts: int
    is_shared: bool
    has_parts: bool


class Space(NamedTuple):
    """Room for one block: vectors, their steps, scores, and which rows they belong to."""

    inputs: Array
    input_steps: Array
    outputs: Array
    output_steps: Array
    scores: Array
    input_rows: Array
    output_rows: Array
    labels: Array
    contexts: Array
    random: Array
    """The state of the generator."""
    losses: Array
    """Minus the sum of log-probabilities, and how many there were."""
