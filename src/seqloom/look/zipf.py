"""Zipf's law: how fast counts fall with their rank, by maximum likelihood and as a line through the logarithms.

n_i ∝ 1 / i^α                  Zipf: the i-th most frequent word is seen n_i times
n_i ∝ 1 / (i + b)^α            Mandelbrot: the first ranks fall more slowly
log n_i = −α log(i + b) + c    the same as a line
"""

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from pydantic import Field

from seqloom.core.config import Config
from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Event, Listener, ignore
from seqloom.core.files import require_file
from seqloom.data.plain_text import read_one_language
from seqloom.drawing.figures import INK, QUIET, SERIES, tidy
from seqloom.text.marks import JOINER, split_words
from seqloom.text.normalise import Normaliser
from seqloom.text.tokenizer import DESCRIPTION, Tokenizer

MIN_RANKS = 5
"""Minimum number of ranks to report an exponent."""

_PRECISION = 1e-9
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class ZipfFit:
    """A curve n_i = exp(log_scale) / (i + shift)^exponent through the first ranks of a text."""

    exponent: float
    """α: how fast counts fall."""
    shift: float
    """b: how many ranks it takes until they fall so fast; 0 is Zipf's own law."""
    log_scale: float
    """c: the logarithm of the constant before the power."""
    ranks: int
    """How many ranks it was fitted to, from the first on."""
    gap: float
    """The largest difference between the shares of the tokens that the first k ranks hold, in the text and here."""

    def counts(self, ranks: Int[np.ndarray, " ranks"]) -> Float[np.ndarray, " ranks"]:
        """The counts that the curve gives these ranks, which are counted from 1."""
        return np.exp(self.log_scale - self.exponent * np.log(ranks + self.shift))


def frequent(counts: Int[np.ndarray, " types"], minimum_count: int) -> Int[np.ndarray, " ranks"]:
    """The counts of the first ranks, in falling order, down to `minimum_count`.

    Ranks of rare words are chance: sorting puts those first that luck has favoured, and those never seen have no rank
    at all. An exponent fitted to all of them is therefore off, by 0.1 and more in a short text.
    """
    return np.sort(counts[counts >= minimum_count])[::-1]


def fit_zipf(counts: Int[np.ndarray, " ranks"], *, has_shift: bool = False) -> ZipfFit:
    """The exponent (and shift) under which the counts of these ranks, in falling order, are the most likely.

        p_i = (i + b)^−α / Σ_j (j + b)^−α,   i, j = 1 … ranks
        log L(α, b) = Σ_i n_i log p_i

    This is the likelihood of the ranks given that a token is among them, so what lies beyond needs no model. In α it
    is concave, and Newton's method finds its maximum, where Σ p_i log(i + b) = Σ n_i log(i + b) / Σ n_i. The shift is
    found by golden sections of log(1 + b) between 0 and the number of ranks.
    """
    _require_counts(counts)
    shift = _best_shift(counts) if has_shift else 0.0
    exponent, _ = _maximise(counts, shift)
    ranks = np.arange(1, len(counts) + 1)
    log_weights = -exponent * np.log(ranks + shift)
    log_scale = math.log(counts.sum()) - _log_sum(log_weights)
    return ZipfFit(exponent, shift, log_scale, len(counts), _gap(counts, np.exp(log_weights)))


def fit_line(counts: Int[np.ndarray, " ranks"]) -> ZipfFit:
    """The line log n_i = −α log i + c with the least squares, as one draws it by eye: all ranks weigh the same."""
    _require_counts(counts)
    log_ranks, log_counts = np.log(np.arange(1, len(counts) + 1)), np.log(counts)
    centred = log_ranks - log_ranks.mean()
    exponent = -float(centred @ log_counts / (centred @ centred))
    log_scale = float(log_counts.mean() + exponent * log_ranks.mean())
    return ZipfFit(exponent, 0.0, log_scale, len(counts), _gap(counts, np.exp(-exponent * log_ranks)))


def _require_counts(counts: Int[np.ndarray, " ranks"]) -> None:
    if len(counts) < MIN_RANKS:
        raise DataError(
            f"an exponent needs {MIN_RANKS} ranks at least, but there are {len(counts)}; "
            "give more text, or let rarer words count"
        )
    if counts[-1] < 1 or (np.diff(counts) > 0).any():
        raise DataError("counts by rank are positive and never rise; sort them in falling order and leave out zeros")


def _maximise(counts: Int[np.ndarray, " ranks"], shift: float, *, start: float = 1.0) -> tuple[float, float]:
    """The best exponent for a shift, and the mean log-likelihood per token that it reaches."""
    logs = np.log(np.arange(1, len(counts) + 1) + shift)
    observed = float(counts @ logs / counts.sum())
    exponent = start
    for _ in range(200):
        weights = np.exp(-exponent * (logs - logs[0]))
        shares = weights / weights.sum()
        expected = float(shares @ logs)
        variance = float(shares @ (logs - expected) ** 2)
        # A full step can leave the region in which the curve is near its parabola.
        step = min(1.0, max(-0.5, (expected - observed) / max(variance, 1e-300)))
        exponent += step
        if abs(step) < _PRECISION * (1 + abs(exponent)):
            break
    return exponent, -exponent * observed - _log_sum(-exponent * logs)


def _best_shift(counts: Int[np.ndarray, " ranks"]) -> float:
    low, high = 0.0, math.log1p(len(counts))
    exponent = 1.0

    def likelihood(place: float) -> float:
        nonlocal exponent  # the best one of a shift nearby is a good start
        exponent, reached = _maximise(counts, math.expm1(place), start=exponent)
        return reached

    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = likelihood(left), likelihood(right)
    while high - low > 1e-5:
        if at_left >= at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = likelihood(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = likelihood(right)
    # A section never reaches the border itself, which is Zipf's own law.
    return 0.0 if likelihood(0.0) >= likelihood((low + high) / 2) else math.expm1((low + high) / 2)


def _log_sum(logs: Float[np.ndarray, " ranks"]) -> float:
    largest = float(logs.max())
    return largest + math.log(float(np.exp(logs - largest).sum()))


def _gap(counts: Int[np.ndarray, " ranks"], weights: Float[np.ndarray, " ranks"]) -> float:
    seen, fitted = np.cumsum(counts) / counts.sum(), np.cumsum(weights) / weights.sum()
    return float(np.abs(seen - fitted).max())


# Statistics of a text: its n-grams by rank, how its vocabulary grows, how long its lines are.

COVERED_BY = (1, 10, 100, 1000, 10_000, 100_000)
"""Numbers of most frequent words whose share of the text is reported."""

GROWTH_POINTS = 60
RANK_POINTS = 120


@dataclass(frozen=True)
class CountedNGram:
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
    top: tuple[CountedNGram, ...]
    """The most frequent ones, equal counts in the order in which they first occur."""
    coverage: tuple[tuple[int, float], ...]
    """What share of the tokens the k most frequent types hold: pairs of k and share."""
    ranks: tuple[tuple[int, int], ...]
    """Rank and count, at ranks that are about evenly spaced in their logarithm."""
    fits: Fits | None
    """None where too few n-grams are frequent enough."""


@dataclass(frozen=True)
class Growth:
    """Vocabulary growth (Heaps' law): types = scale · tokens^exponent."""

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
    """The statistics of a text."""

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
    described = []
    for order in orders:
        counts, places = count_ngrams(ids, lengths, order)
        types, total = len(counts), int(counts.sum())
        shares = np.cumsum(counts) / max(total, 1)
        head = frequent(counts, minimum_count)
        fits = Fits(fit_zipf(head), fit_zipf(head, has_shift=True), fit_line(head)) if len(head) >= MIN_RANKS else None
        shown = zip(places[:top].tolist(), counts[:top].tolist(), strict=True)
        described.append(
            OrderStatistics(
                order=order,
                tokens=total,
                types=types,
                singletons=int((counts == 1).sum()),
                top=tuple(CountedNGram(name(ids[place : place + order].tolist()), count) for place, count in shown),
                coverage=tuple((k, float(shares[k - 1])) for k in COVERED_BY if k <= types),
                ranks=tuple((int(rank), int(counts[rank - 1])) for rank in _spread(types, RANK_POINTS)),
                fits=fits,
            )
        )
    # Heaps' curve and, by least squares of the logarithms from 1% of the text on, its exponent.
    _, first = np.unique(ids, return_index=True)
    tokens = _spread(len(ids), GROWTH_POINTS)
    different = np.searchsorted(np.sort(first), tokens, side="left")
    late = tokens >= min(len(ids) / 100, tokens[-2])
    slope, offset = np.polyfit(np.log(tokens[late]), np.log(different[late]), 1)
    growth = tuple(zip(tokens.tolist(), different.tolist(), strict=True))
    filled = lengths[lengths > 0]
    return TextStatistics(
        orders=tuple(described),
        growth=Growth(growth, float(slope), float(np.exp(offset))),
        lengths=LineLengths(
            lines=len(filled),
            blank=len(lengths) - len(filled),
            shortest=int(filled.min()),
            mean=float(filled.mean()),
            median=float(np.median(filled)),
            ninety_fifth=float(np.quantile(filled, 0.95)),
            longest=int(filled.max()),
        ),
        minimum_count=minimum_count,
    )


def count_ngrams(
    ids: Int[np.ndarray, " tokens"], lengths: Int[np.ndarray, " lines"], order: int
) -> tuple[Int[np.ndarray, " types"], Int[np.ndarray, " types"]]:
    """The counts of the n-grams that lie within a line, and where each first occurs; the most frequent first, equal
    ones in the order in which they first occur.

    They are counted by sorting one number per place.
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
    return counts[by_rank], starts[first[by_rank]]


def _spread(last: int, points: int) -> Int[np.ndarray, " points"]:
    """Whole numbers from 1 to `last`, about evenly spaced in their logarithm."""
    if last == 0:
        return np.zeros(0, dtype=np.int64)
    return np.unique(np.round(np.geomspace(1, last, points)).astype(np.int64))


# The picture of a text's counts: rank against frequency for each order, and how the vocabulary grows.


def draw_zipf(found: TextStatistics, *, unit: str) -> Figure:
    """Left, counts by rank in logarithms with Mandelbrot's curve (line) and Zipf's (dashes) through the fitted ranks;
    right, different tokens by tokens read, with Heaps' law.

    `unit` is what a token is called, in the singular.
    """
    figure = Figure(figsize=(10.4, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    for axes in (left, right):
        tidy(axes)
        axes.set_xscale("log")
        axes.set_yscale("log")
    for order, colour in zip(found.orders, SERIES, strict=False):
        if not order.ranks:
            continue
        ranks, counts = np.array(order.ranks).T
        label = f"{unit}s" if order.order == 1 else f"{unit} {order.order}-grams"
        if order.fits is not None:
            shifted, plain = order.fits.mandelbrot, order.fits.zipf
            label += f": α = {plain.exponent:.2f};  α = {shifted.exponent:.2f}, b = {shifted.shift:.1f}"
            fitted = _spread(plain.ranks, 80)
            left.plot(fitted, plain.counts(fitted), color=colour, linewidth=1.2, linestyle="--")
            left.plot(fitted, shifted.counts(fitted), color=INK, linewidth=0.9)
        left.plot(ranks, counts, color=colour, marker="o", ms=3, linestyle="none", label=label, zorder=1)
    left.set_xlabel("rank")
    left.set_ylabel("count")
    left.legend(frameon=False, fontsize=8, loc="upper right", title="Zipf (dashes);  Mandelbrot (line)")
    growth = found.growth
    tokens, types = np.array(growth.points).T
    right.plot(tokens, types, color=SERIES[0], marker="o", ms=3, linestyle="none")
    late = tokens[tokens >= tokens[-1] / 100]
    label = f"{growth.scale:.3g} · tokens$^{{{growth.exponent:.2f}}}$"
    right.plot(late, growth.scale * late**growth.exponent, color=INK, linewidth=1, label=label)
    right.plot(tokens, tokens, color=QUIET, linewidth=0.8, linestyle=":", label="every token new")
    right.set_ylim(top=types[-1] * 3)
    right.set_xlabel(f"{unit}s read")
    right.set_ylabel(f"different {unit}s")
    right.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


# Zipf: from text files to statistics and a figure.

PROGRESS_INTERVAL = 100_000
"""Lines between two progress events."""


class ZipfConfig(Config):
    """What is counted."""

    unit: Literal["words", "spaces", "characters"] = "words"
    """What a token is: a word or punctuation mark (`words`), text between spaces (`spaces`), or a character."""
    lowercase: bool = True
    """Whether capital letters and small ones are the same."""
    punctuation: bool = False
    """Whether tokens without a letter or a digit count; for characters, spaces as well. Otherwise n-grams reach over
    them."""
    orders: int = Field(default=3, ge=1, le=6)
    """The longest n-grams."""
    minimum_count: int = Field(default=10, ge=1)
    """How often an n-gram must be seen for its rank to take part in the fit: ranks of rare ones are chance."""
    top: int = Field(default=10, ge=0)
    """How many of the most frequent n-grams are listed."""
    encoding: str = "utf-8"
    """The encoding of the files."""
    language: str | None = None
    """Of translators' files (.tmx, .po, .xlf, .jsonl), the language whose texts are counted."""


@dataclass(frozen=True)
class ZipfFindings:
    """What was found, and what a token is called."""

    statistics: TextStatistics
    unit: Literal["word", "token", "character", "piece"]

    def draw(self) -> Figure:
        """Rank against frequency, and the growth of the vocabulary."""
        return draw_zipf(self.statistics, unit=self.unit)


def look_at_counts(
    paths: Sequence[Path],
    config: ZipfConfig | None = None,
    *,
    tokenizer: Tokenizer | None = None,
    listener: Listener = ignore,
) -> ZipfFindings:
    """Count the n-grams of text files, a line being a sentence; of a tokeniser's pieces where one is given."""
    chosen = config or ZipfConfig()
    if not paths:
        raise UsageError("name at least one text file")
    for path in paths:  # all of them before the first is read
        require_file(path)
    normalise = Normaliser(lowercase=chosen.lowercase)

    def cut(line: str) -> list[str]:
        if tokenizer is not None:
            return tokenizer.pieces(line)
        text = normalise(line)
        if chosen.unit == "characters":
            tokens = list(text)
        elif chosen.unit == "spaces":
            tokens = text.split()
        else:
            tokens = [word.strip(JOINER) or word for word in split_words(text)]
        return tokens if chosen.punctuation else [token for token in tokens if any(map(str.isalnum, token))]

    known: dict[str, int] = {}
    ids, lengths = array("q"), array("q")
    for number, path in enumerate(paths, start=1):
        # Another encoding is a setting here, not the flag that messages would offer.
        encoding = None if chosen.encoding == "utf-8" else chosen.encoding
        for line in read_one_language(path, encoding=encoding, language=chosen.language, setting="language"):
            tokens = cut(line)
            ids.extend(known.setdefault(token, len(known)) for token in tokens)
            lengths.append(len(tokens))
            if len(lengths) % PROGRESS_INTERVAL == 0:
                listener(Event("progress", {"what": f"reading {path.name}", "done": number - 1, "all": len(paths)}))
    words, joint = list(known), "" if chosen.unit == "characters" else " "
    try:
        statistics = describe_text(
            np.frombuffer(ids, dtype=np.int64),
            np.frombuffer(lengths, dtype=np.int64),
            name=lambda numbers: joint.join(words[number] for number in numbers),
            orders=range(1, chosen.orders + 1),
            minimum_count=chosen.minimum_count,
            top=chosen.top,
        )
    except DataError as error:
        raise DataError(f"{', '.join(map(str, paths))}: {error}") from error
    names: dict[str, Literal["word", "token", "character"]]
    names = {"words": "word", "spaces": "token", "characters": "character"}
    return ZipfFindings(statistics, "piece" if tokenizer is not None else names[chosen.unit])


def find_tokenizer(folder: Path) -> Tokenizer:
    """The tokeniser of a run, of a model, or in this very folder."""
    for place in (folder, folder / "model" / "text", folder / "text"):
        # A run and its model both hold tokenisers; the first folder that has any is used.
        found = sorted(path.parent for path in [place / DESCRIPTION, *place.glob(f"*/{DESCRIPTION}")] if path.is_file())
        if len(found) > 1:
            raise UsageError(f"{folder} has a tokeniser for each side; name one of {', '.join(map(str, found))}")
        if found:
            return Tokenizer.load(found[0])
    raise UsageError(f"{folder}: no tokeniser found; name a run, a model, or the folder that has {DESCRIPTION}")
