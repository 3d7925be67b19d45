"""What a text is made of: its n-grams by rank, how its vocabulary grows, how long its lines are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from seqloom.core.errors import DataError
from seqloom.inspection.zipf import FEWEST_RANKS, ZipfFit, fit_line, fit_zipf, frequent

COVERED_BY = (1, 10, 100, 1000, 10_000, 100_000)
"""Numbers of most frequent words whose share of the text is told."""

GROWTH_POINTS = 60
RANK_POINTS = 120


@dataclass(frozen=True)
class NGram:
    """One of the most frequent n-grams."""

    text: str
    count: int


@dataclass(frozen=True)
class Fits:
    """Three curves through the same first ranks."""

    zipf: ZipfFit
    """n_i ∝ 1 / i^α, by maximum likelihood."""
    mandelbrot: ZipfFit
    """n_i ∝ 1 / (i + b)^α, by maximum likelihood."""
    line: ZipfFit
    """n_i ∝ 1 / i^α, by least squares of the logarithms."""


@dataclass(frozen=True)
class OrderStatistics:
    """The n-grams of one order."""

    order: int
    tokens: int
    """How many there are."""
    types: int
    """How many different ones."""
    singletons: int
    """How many of these are seen once."""
    top: tuple[NGram, ...]
    """The most frequent ones, equal counts in the order in which they first occur."""
    coverage: tuple[tuple[int, float], ...]
    """What share of the tokens the k most frequent types hold: pairs of k and share."""
    ranks: tuple[tuple[int, int], ...]
    """Rank and count, at ranks that are about evenly spaced in their logarithm."""
    fits: Fits | None
    """None where too few n-grams are frequent enough."""


@dataclass(frozen=True)
class Growth:
    """How the vocabulary grows as the text goes on (Heaps' law): types = scale · tokens^exponent."""

    points: tuple[tuple[int, int], ...]
    """Tokens read, and different ones among them."""
    exponent: float
    scale: float


@dataclass(frozen=True)
class LineLengths:
    """Tokens per line that holds any."""

    lines: int
    blank: int
    """Lines without a token, which are left out of the rest."""
    shortest: int
    mean: float
    median: float
    ninety_fifth: float
    """The length that 95% of the lines do not exceed."""
    longest: int


@dataclass(frozen=True)
class TextStatistics:
    """All that is told of a text."""

    orders: tuple[OrderStatistics, ...]
    growth: Growth
    lengths: LineLengths
    minimum_count: int
    """The least count of the n-grams that the curves were fitted to."""


def describe_text(
    ids: Int[np.ndarray, " tokens"],
    lengths: Int[np.ndarray, " lines"],
    *,
    name: Callable[[Sequence[int]], str],
    orders: Sequence[int] = (1, 2, 3),
    minimum_count: int = 10,
    top: int = 10,
) -> TextStatistics:
    """Count a text that is given as the ids of its tokens and the number of tokens of each line.

    An n-gram stays within its line. `name` gives the text of an n-gram's ids.
    """
    if len(ids) != lengths.sum():
        raise DataError(f"the lines are {lengths.sum():,} tokens long together, but {len(ids):,} tokens were given")
    if len(ids) == 0:
        raise DataError("the text has no words; give a file with text in it")
    if (ids == ids[0]).all():
        raise DataError(
            f"the text has a single word, {name([int(ids[0])])!r}, {len(ids):,} times; "
            "ranks need several different ones"
        )
    return TextStatistics(
        orders=tuple(
            _describe_order(ids, lengths, order=order, name=name, minimum_count=minimum_count, top=top)
            for order in orders
        ),
        growth=_growth(ids),
        lengths=_line_lengths(lengths),
        minimum_count=minimum_count,
    )


@dataclass(frozen=True, eq=False)
class NGramCounts:
    """Different n-grams, the most frequent first, equal ones in the order in which they first occur."""

    counts: Int[np.ndarray, " types"]
    places: Int[np.ndarray, " types"]
    """Where in the text each begins for the first time."""


def count_ngrams(ids: Int[np.ndarray, " tokens"], lengths: Int[np.ndarray, " lines"], order: int) -> NGramCounts:
    """Count the n-grams that lie within a line, by sorting one number per place.

    The number of an n-gram is that of its first n − 1 tokens, counted through the different ones of the text, times
    the number of symbols, plus its last token; so it stays below tokens × symbols for every order.
    """
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(ids))  # tokens from here to the end of the line
    starts = np.flatnonzero(left >= order)
    symbols = int(ids.max()) + 1 if len(ids) else 1
    numbers = ids[starts].astype(np.int64)
    for place in range(1, order):
        _, numbers = np.unique(numbers, return_inverse=True)
        numbers = numbers * symbols + ids[starts + place]
    _, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    by_rank = np.lexsort((first, -counts))
    return NGramCounts(counts[by_rank], starts[first[by_rank]])


def _describe_order(
    ids: Int[np.ndarray, " tokens"],
    lengths: Int[np.ndarray, " lines"],
    *,
    order: int,
    name: Callable[[Sequence[int]], str],
    minimum_count: int,
    top: int,
) -> OrderStatistics:
    found = count_ngrams(ids, lengths, order)
    counts, types = found.counts, len(found.counts)
    tokens = int(counts.sum())
    shares = np.cumsum(counts) / max(tokens, 1)
    shown = zip(found.places[:top].tolist(), counts[:top].tolist(), strict=True)
    ranks = _spread(types, RANK_POINTS)
    head = frequent(counts, minimum_count)
    return OrderStatistics(
        order=order,
        tokens=tokens,
        types=types,
        singletons=int((counts == 1).sum()),
        top=tuple(NGram(name(ids[place : place + order].tolist()), count) for place, count in shown),
        coverage=tuple((k, float(shares[k - 1])) for k in COVERED_BY if k <= types),
        ranks=tuple((int(rank), int(counts[rank - 1])) for rank in ranks),
        fits=Fits(fit_zipf(head), fit_zipf(head, has_shift=True), fit_line(head))
        if len(head) >= FEWEST_RANKS
        else None,
    )


def _spread(last: int, points: int) -> Int[np.ndarray, " points"]:
    """Whole numbers from 1 to `last`, about evenly spaced in their logarithm."""
    if last == 0:
        return np.zeros(0, dtype=np.int64)
    return np.unique(np.round(np.geomspace(1, last, points)).astype(np.int64))


def _growth(ids: Int[np.ndarray, " tokens"]) -> Growth:
    """Heaps' curve and, by least squares of the logarithms from 1% of the text on, its exponent."""
    _, first = np.unique(ids, return_index=True)
    tokens = _spread(len(ids), GROWTH_POINTS)
    types = np.searchsorted(np.sort(first), tokens, side="left")
    late = tokens >= min(len(ids) / 100, tokens[-2])
    slope, offset = np.polyfit(np.log(tokens[late]), np.log(types[late]), 1)
    points = tuple(zip(tokens.tolist(), types.tolist(), strict=True))
    return Growth(points, float(slope), float(np.exp(offset)))


def _line_lengths(lengths: Int[np.ndarray, " lines"]) -> LineLengths:
    filled = lengths[lengths > 0]
    return LineLengths(
        lines=len(filled),
        blank=len(lengths) - len(filled),
        shortest=int(filled.min()),
        mean=float(filled.mean()),
        median=float(np.median(filled)),
        ninety_fifth=float(np.quantile(filled, 0.95)),
        longest=int(filled.max()),
    )
