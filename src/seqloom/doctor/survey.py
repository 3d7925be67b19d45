"""What is known of a parallel text after the first reading: a few numbers for every pair, kept in columns."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, UInt8, UInt64


@dataclass(frozen=True, eq=False)
class Side:
    """What was seen of one side of a text; entry n belongs to line n + 1."""

    characters: Int[np.ndarray, " lines"]
    words: Int[np.ndarray, " lines"]
    keys: UInt64[np.ndarray, " lines"]
    """Hashes of the words: texts that differ in capitals, spaces and punctuation only have the same one."""
    scripts: UInt8[np.ndarray, " lines"]
    """The script of more than half of the words, as a place in `Survey.script_names`; 0 if there is none."""
    letters: Counter[str]
    """Letters by script in the whole text."""


@dataclass(frozen=True, eq=False)
class Survey:
    """The columns of a text."""

    split: str
    source: Side
    target: Side
    exact: UInt64[np.ndarray, " lines"]
    """Hashes of the pairs as they stand."""
    shapes: UInt64[np.ndarray, " lines"]
    """Hashes of the pairs in which all numbers are one number; 0 where there is none."""
    odd: Int[np.ndarray, " lines"]
    """Oddities of characters, as bits."""
    copies: UInt8[np.ndarray, " lines"]
    """0, or 1 where the target is the source, or 2 where it nearly is."""
    blank: UInt8[np.ndarray, " lines"]
    """Bit 1: nothing to be seen in the source; bit 2: nothing in the target."""
    script_names: tuple[str, ...]
    headers: tuple[int, ...] = ()
    """The numbers of first lines of files that name the columns."""

    def __len__(self) -> int:
        return len(self.exact)

    @property
    def pairs(self) -> UInt64[np.ndarray, " lines"]:
        """Hashes of the words of both sides."""
        mixed: UInt64[np.ndarray, " lines"] = self.source.keys * np.uint64(0x9E3779B97F4A7C15) + self.target.keys
        return mixed

    @property
    def log_ratios(self) -> Float[np.ndarray, " lines"]:
        """log (target characters + 1) / (source characters + 1)."""
        ratios: Float[np.ndarray, " lines"] = np.log((self.target.characters + 1) / (self.source.characters + 1))
        return ratios
