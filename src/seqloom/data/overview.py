"""What is unusual in a store of pairs: repeated pairs, copies, lopsided pairs, unfamiliar pieces.

All of it is read off the ids, many pairs at a time, so that it costs a second where encoding took a minute. Pairs are
compared as the model sees them: what differs in spaces or unknown words alone is the same to it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, UInt64

from seqloom.data.store import Side, Store

MAX_PAIRS = 1_000_000
"""Pairs from the beginning that are examined; `seqloom doctor` examines all."""

PAIRS_PER_CHUNK = 1 << 15

LOPSIDED_RATIO, LOPSIDED_MIN_TOKENS = 4, 12
"""A pair is lopsided if one side has so many times the tokens that are usual for the other, and so many at least."""

DEVIATIONS = 6.0
"""Standard deviations of the logarithm of the ratio that are not lopsided, however large: some languages vary more."""


@dataclass(frozen=True)
class Overview:
    """Counts among the pairs that were examined."""

    pairs: int
    repeated: int
    """Pairs that occur earlier, with the same source and the same target."""
    copied: int | None
    """Pairs whose target is their source; None where the sides have separate vocabularies."""
    lopsided: int
    unfamiliar: tuple[float, float]
    """The share of tokens of each side that are unknown or spelled in bytes."""
    letters: tuple[float, float] = (0.0, 0.0)
    """The share of tokens of each side that are single letters."""
    tokens: tuple[int, int] = (0, 0)
    """Tokens of each side, without the ends."""


Ids = tuple[Sequence[int], Sequence[int]]
"""Ids of the source and of the target vocabulary."""


def look_over(store: Store, *, is_shared: bool, unfamiliar: Ids, letters: Ids = ((), ())) -> Overview:
    """Examine the first pairs of a store.

    `unfamiliar` are the ids for what a vocabulary does not have, `letters` those of single letters.
    """
    pairs = min(len(store), MAX_PAIRS)
    source, target = (_keys(side, pairs) for side in (store.sources, store.targets))
    both = source * np.uint64(0x9E3779B97F4A7C15) + target
    sides = (store.sources, store.targets)
    one, other = (_share(side, pairs, ids) for side, ids in zip(sides, unfamiliar, strict=True))
    first, second = (_share(side, pairs, ids) for side, ids in zip(sides, letters, strict=True))
    # A pair is lopsided if its ratio of lengths is far from the usual one: letters paired with words are not a fault.
    lengths = [side.lengths[:pairs].astype(np.int64) - 1 for side in sides]
    ratios = np.log((lengths[1] + 1.0) / (lengths[0] + 1.0))
    usual, deviation = usual_ratio(ratios)
    is_far = np.abs(ratios - usual) > max(math.log(LOPSIDED_RATIO), DEVIATIONS * deviation)
    return Overview(
        pairs=pairs,
        repeated=pairs - len(np.unique(both)),
        copied=int(np.count_nonzero(source == target)) if is_shared else None,
        lopsided=int(np.count_nonzero(is_far & (np.maximum(*lengths) >= LOPSIDED_MIN_TOKENS))),
        unfamiliar=(one, other),
        letters=(first, second),
        tokens=(_end(store.sources, pairs) - pairs, _end(store.targets, pairs) - pairs),
    )


def usual_ratio(log_ratios: Float[np.ndarray, " pairs"]) -> tuple[float, float]:
    """The median of some logarithms of ratios, and σ = 1.4826 · median |r − median|; 0 and 1 where there are none."""
    if len(log_ratios) == 0:
        return 0.0, 1.0
    usual = float(np.median(log_ratios))
    return usual, 1.4826 * float(np.median(np.abs(log_ratios - usual)))


def _keys(side: Side, pairs: int) -> UInt64[np.ndarray, " pairs"]:
    """A number of 64 bits for each sentence, which equal ones share: Σ_k r(id_k) · p_k with random r and odd p."""
    highest = int(side.ids[: _end(side, pairs)].max(initial=0))
    longest = int(side.lengths[:pairs].max(initial=0))
    # The same for both sides, so that a sentence has one key on either side.
    values = np.random.default_rng(1).integers(1 << 63, size=highest + 1, dtype=np.uint64)
    factors = np.random.default_rng(2).integers(1 << 63, size=longest, dtype=np.uint64) | np.uint64(1)
    keys = np.empty(pairs, dtype=np.uint64)
    for begin, end in pairwise([*range(0, pairs, PAIRS_PER_CHUNK), pairs]):
        known = side.borders(begin, end)
        first, last = int(known[0]), int(known[-1])
        starts = known[:-1] - first
        places = np.arange(last - first) - np.repeat(starts, side.lengths[begin:end].astype(np.int64))
        keys[begin:end] = np.add.reduceat(values[side.ids[first:last]] * factors[places], starts)
    return keys


def _end(side: Side, pairs: int) -> int:
    """Where the text of the first pairs ends."""
    return int(side.borders(pairs, pairs)[0])


def _share(side: Side, pairs: int, ids: Sequence[int]) -> float:
    last = _end(side, pairs)
    count = 0
    for begin, end in pairwise([*range(0, last, 1 << 22), last]):
        count += int(np.isin(side.ids[begin:end], ids).sum())
    return count / max(1, last - pairs)  # the end of each sentence is not counted
