"""Comparing how two libraries cut texts with one unigram model."""

import math
from collections.abc import Mapping, Sequence

Pieces = Sequence[str]


def assert_same_cuts(
    ours: Sequence[Pieces], theirs: Sequence[Pieces], scores: Mapping[str, float], *, ties: int = 3
) -> None:
    """Fail unless all texts are cut alike, but for a few with two cuts that are equally likely.

    Of two such cuts rounding decides: sentencepiece adds log probabilities in float32, tokenizers in float64.
    """
    differing = [(left, right) for left, right in zip(ours, theirs, strict=True) if list(left) != list(right)]
    for left, right in differing:
        assert "".join(left) == "".join(right)
        sums = [math.fsum(scores[piece] for piece in cut) for cut in (left, right)]
        assert math.isclose(*sums, rel_tol=1e-6, abs_tol=1e-4), (left, right, sums)
    assert len(differing) <= ties, differing
