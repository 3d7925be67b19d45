"""A parallel corpus of any size: made-up words that follow Zipf's law, twelve to a line on average.

Words are syllables put together, the frequent ones short, as in a language; a sentence ends with a full stop. The two
sides have nothing to do with one another, which costs a tokeniser the same.
"""

from itertools import chain
from pathlib import Path

import numpy as np

from harness.progress import say

WORDS = 100_000
"""Different words of a side."""
MEAN = 12
"""Words of a line."""
SPREAD = 0.5
"""Deviation of the logarithm of the number of words."""
SHIFT = 2.7
"""Frequencies fall as 1 / (rank + SHIFT)."""
BLOCK = 50_000
"""Lines made at a time."""

ONSETS = ("b", "d", "f", "g", "h", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "z", "st", "tr", "pl", "br", "")
VOWELS = ("a", "e", "i", "o", "u", "ä", "ö", "ei", "au", "ie")
ENDS = ("", "", "", "n", "r", "l", "s", "t", "ng", "ch", "nd")


def write_corpus(folder: Path, pairs: int, *, seed: int = 1) -> tuple[Path, Path]:
    """Write `corpus.xx` and `corpus.yy`."""
    paths = folder / "corpus.xx", folder / "corpus.yy"
    for side, path in enumerate(paths):
        generator = np.random.default_rng([seed, side])
        words = np.array(_words(generator), dtype=object)
        shares = 1 / (np.arange(len(words)) + SHIFT)
        borders = np.cumsum(shares / shares.sum())
        with path.open("w", encoding="utf-8") as file:
            for begin in range(0, pairs, BLOCK):
                file.write(_lines(generator, words, borders, min(BLOCK, pairs - begin)))
        say(f"{path.name}: {pairs:,} lines, {path.stat().st_size / 1e6:,.0f} MB")
    return paths


def _words(generator: np.random.Generator) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < WORDS:
        parts = (generator.choice(sounds, (WORDS, 4)) for sounds in (ONSETS, VOWELS, ENDS))
        counts = generator.integers(1, 5, WORDS).tolist()
        for onsets, vowels, ends, count in zip(*parts, counts, strict=True):
            syllables = zip(onsets[:count], vowels, ends, strict=False)
            found["".join(chain.from_iterable(syllables))] = None
    words = list(found)[:WORDS]
    length = np.array([len(word) for word in words]) + generator.uniform(0, 6, WORDS)
    return [words[at] for at in np.argsort(length)]


def _lines(generator: np.random.Generator, words: np.ndarray, borders: np.ndarray, count: int) -> str:
    logs = generator.normal(np.log(MEAN) - SPREAD**2 / 2, SPREAD, count)
    ends = np.cumsum(np.clip(np.round(np.exp(logs)), 1, 80).astype(np.int64))
    drawn = words[np.searchsorted(borders, generator.random(int(ends[-1])))].tolist()
    begins = [0, *ends.tolist()[:-1]]
    return "".join(f"{' '.join(drawn[begin:end])}.\n" for begin, end in zip(begins, ends.tolist(), strict=True))
