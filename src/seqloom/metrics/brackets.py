"""Bracket F1 of parses that are written as text: `( ( the cat ) sat )`, or with labels `(S (NP the cat) sat)`.

    P = matches / brackets of the output,  R = matches / brackets of the reference,  F1 = 200 · P R / (P + R)

over all lines together. A bracket is the span of words that it is around; labels are ignored, and two brackets around
the same words are two. An output that is not well formed, or has another number of words than its reference, matches
nothing.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from seqloom.metrics.scoring import Statistics

Span = tuple[int, int]

_tokens = re.compile(r"\([^\s()]*|\)|[^\s()]+")
"""An opening bracket with its label, a closing one, a word."""


@dataclass(frozen=True)
class Parse:
    """The brackets of a line: the words inside each, from the first up to and without the last."""

    words: tuple[str, ...]
    spans: tuple[Span, ...]

    @staticmethod
    def of(line: str) -> "Parse | None":
        """The parse that a line writes; None if its brackets do not match, or one has no words."""
        words: list[str] = []
        spans: list[Span] = []
        opened: list[int] = []
        for token in _tokens.findall(line):
            if token.startswith("("):
                opened.append(len(words))
            elif token != ")":
                words.append(token)
            elif not opened or opened[-1] == len(words):
                return None
            else:
                spans.append((opened.pop(), len(words)))
        return None if opened else Parse(tuple(words), tuple(spans))


@dataclass(frozen=True)
class BracketF1:
    """Unlabelled bracket F1. Parts: matches, brackets of the output, brackets of the reference."""

    def statistics(self, hypotheses: Sequence[str], references: Sequence[str]) -> Statistics:
        pairs = zip(hypotheses, references, strict=True)
        parts = np.array([self._counts(ours, theirs) for ours, theirs in pairs], float)
        signature = "nrefs:1|labels:no|level:corpus"
        return Statistics("bracket F1", float(self.values(parts.sum(axis=0)[None])[0]), signature, parts)

    def values(self, sums: Float[np.ndarray, "corpora parts"]) -> Float[np.ndarray, " corpora"]:
        matches, both = sums[:, 0], sums[:, 1] + sums[:, 2]
        # Where neither side has a bracket, all of them are right.
        return np.asarray(np.divide(200 * matches, both, out=np.full_like(both, 100.0), where=both > 0))

    def _counts(self, hypothesis: str, reference: str) -> tuple[int, int, int]:
        ours, theirs = Parse.of(hypothesis), Parse.of(reference)
        counts = hypothesis.count("("), reference.count("(")
        if ours is None or theirs is None or len(ours.words) != len(theirs.words):
            return 0, *counts
        return (Counter(ours.spans) & Counter(theirs.spans)).total(), *counts


def right_branching(words: Sequence[str]) -> str:
    """The parse in which each word has the rest of the sentence after it, which suits English: `( a ( b c ) )`."""
    if len(words) < 2:
        return " ".join(words)
    return "( " + " ( ".join([*words[:-2], f"{words[-2]} {words[-1]}"]) + " )" * (len(words) - 1)


def are_parses(lines: Sequence[str]) -> bool:
    """Whether nine of ten lines are parses with a bracket around the whole line."""
    found = [Parse.of(line) for line in lines]
    whole = [each is not None and (0, len(each.words)) in each.spans for each in found]
    return bool(whole) and sum(whole) >= 0.9 * len(whole)
