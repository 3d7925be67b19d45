"""A metric: how long translations are, in words, relative to their references."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from seqloom.metrics.scoring import Statistics


@dataclass(frozen=True)
class LengthRatio:
    """length ratio = 100 · words of all translations / words of all references

    Parts: words of the translation, words of the reference.
    """

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        pairs = zip(hypotheses, references, strict=True)
        parts = np.array([[len(ours.split()), len(theirs.split())] for ours, theirs in pairs], dtype=np.float64)
        value = float(self.values(parts.sum(axis=0)[None])[0])
        return Statistics("length ratio", value, signature="nrefs:1|words:spaces", lines=parts)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        return np.asarray(100 * sums[:, 0] / np.maximum(sums[:, 1], 1))
