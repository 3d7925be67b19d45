"""Statistics of a parallel text after the first pass: a few numbers per pair, stored in columns."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, UInt8, UInt64


@dataclass(frozen=True, eq=False)
class SideSurvey:
    """Statistics of one side of a text; entry n belongs to line n + 1."""

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
    source: SideSurvey
    target: SideSurvey
    exact: UInt64[np.ndarray, " lines"]
    """Hashes of the unmodified pairs."""
    shapes: UInt64[np.ndarray, " lines"]
    """Hashes of the pairs with all numbers replaced by 0; 0 if a pair has no number."""
    odd: Int[np.ndarray, " lines"]
    """Oddities of characters, as bits of `Odd`."""
    copies: UInt8[np.ndarray, " lines"]
    """1 if the target equals the source, 2 if it nearly does, else 0."""
    blank: UInt8[np.ndarray, " lines"]
    """Bit 1: the source is blank; bit 2: the target is blank."""
    script_names: tuple[str, ...]
    headers: tuple[int, ...] = ()
    """Line numbers of header lines."""

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
