"""A part of a corpus that is too large to be looked at as a whole: blocks of lines from all over it."""

import math
from collections.abc import Iterator

import numpy as np

from seqloom.core.seeds import seed_for
from seqloom.data.blocks import Line
from seqloom.data.corpus import Lines


def sample_lines(corpus: Lines, count: int, *, seed: int) -> Iterator[Line]:
    """About `count` lines of a corpus, in order: all of them if there are no more, else blocks at equal distances.

    Where plain files are read, nothing else of them is.
    """
    if len(corpus) <= count:
        yield from corpus
        return
    share = count / len(corpus)
    begin = np.random.default_rng(seed_for(seed, "sampled lines")).random()
    for at, block in enumerate(corpus.blocks()):
        if math.floor(begin + at * share) < math.floor(begin + (at + 1) * share):
            yield from block.lines()
