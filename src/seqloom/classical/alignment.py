"""Word alignment by IBM model 1 (Brown et al., 1993), fitted by EM in both directions, and the joining of the two.

    P(y ∣ x) = Π_j Σ_i a_ij t(y_j ∣ x_i)                 i runs over the null word and the n source words
    a_ij = 1 / (n + 1)                                   or p₀ for the null word and (1 − p₀) / n for the others
    E:  c(y ∣ x) = Σ over all places of x and y  a_ij t(y ∣ x) / Σ_i' a_i'j t(y ∣ x_i')
    M:  t(y ∣ x) = c(y ∣ x) / Σ_y' c(y' ∣ x)             maximum likelihood
        t(y ∣ x) = exp(ψ(c + α) − ψ(Σ_y' (c + α)))       variational Bayes with a Dirichlet prior α on each row

The length of y is taken as given. The table holds the pairs of words that share a sentence and no others: 12 bytes
each. In addition, fitting needs 24 bytes per target token and 16 per source token, the text included.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float64, Int32, Int64, Integer
from pydantic import Field

from seqloom.core.config import Config
from seqloom.core.errors import DataError
from seqloom.core.jit import compiled
from seqloom.text.formats.pharaoh import GoldLinks, Link

# The loops of IBM model 1, compiled, in float64.
#
# The usual loop goes through a sentence pair and looks each pair of words up in the table, which costs a search per
# link. Here the E step goes word by word: the row of a source word is laid out over all target words once, and then
# every sentence that holds the word finds its probabilities by plain indexing. Twice over all links:
#
#     explain       z_j = Σ_i a_ij t(y_j ∣ x_i) of every target token, and Σ_j log z_j of every sentence
#     reestimate    c(y ∣ x) = t(y ∣ x) Σ a_ij / z_j over all places of x, and at once the new t(y ∣ x)
#
# Sentences belong to one call of `explain` and words to one call of `reestimate`, and each adds up in an order that
# does not depend on where its range begins. So ranges may be shared among threads in any way, and every bit stays the
# same. Compiled code takes its arguments by position.

Array = Any
"""numba infers types and shapes."""

INTERSECTION, UNION, GROW_DIAG, GROW_DIAG_FINAL_AND = 0, 1, 2, 3


Ids = Sequence[int] | Integer[np.ndarray, " _"]
"""The words of a sentence."""


class Bitext(NamedTuple):
    """Sentence pairs as ids, one after another: sentence k of a side lies between `starts[k]` and `starts[k + 1]`."""

    sources: Int32[np.ndarray, " source_tokens"]
    source_starts: Int64[np.ndarray, " borders"]
    targets: Int32[np.ndarray, " target_tokens"]
    target_starts: Int64[np.ndarray, " borders"]

    @staticmethod
    def from_sentences(sources: Iterable[Ids], targets: Iterable[Ids]) -> "Bitext":
        """Line n of one side translates line n of the other."""
        bitext = Bitext(*_flatten(sources, "source"), *_flatten(targets, "target"))
        one, other = len(bitext.source_starts) - 1, len(bitext.target_starts) - 1
        if one != other:
            raise DataError(f"{one:,} source sentences but {other:,} target sentences; each needs a partner")
        return bitext

    @property
    def pairs(self) -> int:
        """The number of sentence pairs."""
        return len(self.source_starts) - 1

    def turned(self) -> "Bitext":
        """The other direction."""
        return Bitext(self.targets, self.target_starts, self.sources, self.source_starts)

    def after(self, first: int) -> "Bitext":
        """The pairs from the pair `first` on."""
        begin, low = self.source_starts[first], self.target_starts[first]
        return Bitext(
            self.sources[begin:],
            self.source_starts[first:] - begin,
            self.targets[low:],
            self.target_starts[first:] - low,
        )

    def without_blanks(self) -> "Bitext":
        """The pairs that have words on both sides."""
        lengths = np.diff(self.source_starts), np.diff(self.target_starts)
        is_kept = (lengths[0] > 0) & (lengths[1] > 0)
        if is_kept.all():
            return self
        sources, targets = (
            ids[np.repeat(is_kept, length)] for ids, length in ((self.sources, lengths[0]), (self.targets, lengths[1]))
        )
        return Bitext(sources, _starts(lengths[0][is_kept]), targets, _starts(lengths[1][is_kept]))


class WordPositions(NamedTuple):
    """The positions of each source word, in the order of the text; the null word comes last, at position −1."""

    starts: Array
    sentences: Array
    positions: Array


class TranslationTable(NamedTuple):
    """t(y ∣ x) of the pairs of words that met: a row per source word, the last one for the null word.

    Row x lies between `starts[x]` and `starts[x + 1]`, by rising target id.
    """

    starts: Int64[np.ndarray, " rows_and_one"]
    columns: Int32[np.ndarray, " entries"]
    probabilities: Float64[np.ndarray, " entries"]

    @property
    def null(self) -> int:
        """The row of the null word."""
        return len(self.starts) - 2

    def row(self, source: int) -> tuple[Int32[np.ndarray, " partners"], Float64[np.ndarray, " partners"]]:
        """The target words that met a source word, and their probabilities."""
        inside = slice(*self.starts[source : source + 2]) if 0 <= source <= self.null else slice(0)
        return self.columns[inside], self.probabilities[inside]

    def probability(self, source: int, target: int) -> float:
        """t(target ∣ source); 0 where they never met."""
        return float(look_up(self, source, target))


class Prior(NamedTuple):
    """a_ij, the prior probability that source word i generates target word j.

    null word            p₀, or 1 / (n + 1) where `null_rate` is below 0
    each other word      (1 − p₀) / n, or 1 / (n + 1)
    with a tension λ     the same times exp(−λ ∣(i + 1)/n − (j + 1)/m∣), times the share that keeps the sum
    """

    null_rate: float
    tension: float
    shares: Array


class Fit(NamedTuple):
    """What the compiled loops fit: the text, where its words are, and the table of one direction."""

    places: WordPositions
    pairs: Bitext
    symbols: int
    """One more than the highest target id."""
    table: TranslationTable
    prior: Prior


# --- where links may go ----------------------------------------------------------------------------------------------


@compiled()
def base_weight(i: int, n: int, null_rate: float) -> float:
    """a_ij without a tension; i is −1 for the null word."""
    if null_rate < 0:
        return 1.0 / (n + 1)
    return null_rate if i < 0 else (1.0 - null_rate) / n


@compiled()
def nearness(i: int, n: int, j: int, m: int, tension: float) -> float:
    """1 on the diagonal, less elsewhere (Dyer et al., 2013)."""
    return math.exp(-tension * abs((i + 1) / n - (j + 1) / m))


@compiled()
def share_diagonal(source_starts: Array, target_starts: Array, tension: float, shares: Array) -> None:
    """n / Σ_i nearness(i, j) of each target token."""
    for k in range(len(source_starts) - 1):
        n, m = source_starts[k + 1] - source_starts[k], target_starts[k + 1] - target_starts[k]
        for j in range(m):
            total = 0.0
            for i in range(n):
                total += nearness(i, n, j, m, tension)
            shares[target_starts[k] + j] = n / total


# --- the table -------------------------------------------------------------------------------------------------------


@compiled()
def list_partners(
    first: int, last: int, places: WordPositions, pairs: Bitext, symbols: int, lengths: Array, starts: Array, out: Array
) -> None:
    """How many different target words occur in the sentences of each of these source words.

    Once `starts` says where the row of each word begins, also which ones, sorted.
    """
    seen = np.full(symbols, -1, np.int64)
    is_listed = len(starts) > 0
    for word in range(first, last):
        count = 0
        for place in range(places.starts[word], places.starts[word + 1]):
            k = places.sentences[place]
            for token in range(pairs.target_starts[k], pairs.target_starts[k + 1]):
                if seen[pairs.targets[token]] != word:
                    seen[pairs.targets[token]] = word
                    if is_listed:
                        out[starts[word] + count] = pairs.targets[token]
                    count += 1
        lengths[word] = count
        if is_listed:
            out[starts[word] : starts[word] + count].sort()


@compiled()
def first_not_below(values: Array, low: int, high: int, wanted: int) -> int:
    """The first place from `low` to `high` whose value is the wanted one or more, in sorted values."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low


@compiled()
def look_up(table: TranslationTable, row: int, column: int) -> float:
    """t(column ∣ row), which is 0 where the two never met."""
    if row < 0 or row >= len(table.starts) - 1:
        return 0.0
    end = table.starts[row + 1]
    entry = first_not_below(table.columns, table.starts[row], end, column)
    return table.probabilities[entry] if entry < end and table.columns[entry] == column else 0.0


# --- expectation and maximisation ------------------------------------------------------------------------------------


@compiled()
def explain(first: int, last: int, fit: Fit, sums: Array, log_likelihoods: Array) -> None:
    """z_j of the tokens of these sentences, left as 1 / z_j in `sums`; Σ_j log z_j of each sentence."""
    places, pairs, symbols, table, prior = fit
    row = np.zeros(symbols)
    sums[pairs.target_starts[first] : pairs.target_starts[last]] = 0.0
    for word in range(len(places.starts) - 1):
        end = places.starts[word + 1]
        begin = first_not_below(places.sentences, places.starts[word], end, first)
        if begin == end or places.sentences[begin] >= last:
            continue
        for entry in range(table.starts[word], table.starts[word + 1]):
            row[table.columns[entry]] = table.probabilities[entry]
        for place in range(begin, end):
            k, i = places.sentences[place], places.positions[place]
            if k >= last:
                break
            n = pairs.source_starts[k + 1] - pairs.source_starts[k]
            low, high = pairs.target_starts[k], pairs.target_starts[k + 1]
            weight = base_weight(i, n, prior.null_rate)
            if i < 0 or prior.tension == 0.0:
                for token in range(low, high):
                    sums[token] += weight * row[pairs.targets[token]]
            else:
                for token in range(low, high):
                    near = nearness(i, n, token - low, high - low, prior.tension) * prior.shares[token]
                    sums[token] += weight * near * row[pairs.targets[token]]
    for k in range(first, last):
        total = 0.0
        for token in range(pairs.target_starts[k], pairs.target_starts[k + 1]):
            total += math.log(sums[token])
            sums[token] = 1.0 / sums[token]
        log_likelihoods[k] = total


@compiled()
def reestimate(first: int, last: int, fit: Fit, inverse: Array, alpha: float) -> None:
    """The new rows of these words, from 1 / z_j of every token."""
    places, pairs, symbols, table, prior = fit
    counts = np.zeros(symbols)
    for word in range(first, last):
        begin, end = table.starts[word], table.starts[word + 1]
        for entry in range(begin, end):
            counts[table.columns[entry]] = 0.0
        for place in range(places.starts[word], places.starts[word + 1]):
            k, i = places.sentences[place], places.positions[place]
            n = pairs.source_starts[k + 1] - pairs.source_starts[k]
            low, high = pairs.target_starts[k], pairs.target_starts[k + 1]
            weight = base_weight(i, n, prior.null_rate)
            if i < 0 or prior.tension == 0.0:
                for token in range(low, high):
                    counts[pairs.targets[token]] += weight * inverse[token]
            else:
                for token in range(low, high):
                    near = nearness(i, n, token - low, high - low, prior.tension) * prior.shares[token]
                    counts[pairs.targets[token]] += weight * near * inverse[token]
        for entry in range(begin, end):
            counts[table.columns[entry]] *= table.probabilities[entry]
        normalise(begin, end, counts, table, alpha)


@compiled()
def normalise(begin: int, end: int, counts: Array, table: TranslationTable, alpha: float) -> None:
    """t = c / Σ c, or with a Dirichlet prior t = exp(ψ(c + α) − ψ(Σ (c + α))), of one row."""
    total = 0.0
    for entry in range(begin, end):
        total += counts[table.columns[entry]] + alpha
    if total == 0.0:  # a word that explains nothing any more keeps what it had
        return
    log_total = digamma(total) if alpha > 0.0 else 0.0
    for entry in range(begin, end):
        count = counts[table.columns[entry]]
        table.probabilities[entry] = math.exp(digamma(count + alpha) - log_total) if alpha > 0.0 else count / total


@compiled()
def digamma(x: float) -> float:
    """ψ(x) for x > 0: by ψ(x) = ψ(x + 1) − 1/x up to x ≥ 10, and there ln x − 1/2x − Σ_k B_2k / (2k x^2k)."""
    shift = 0.0
    while x < 10.0:
        shift += 1.0 / x
        x += 1.0
    u = 1.0 / (x * x)
    series = u * (1 / 12 - u * (1 / 120 - u * (1 / 252 - u * (1 / 240 - u * (1 / 132 - u * (691 / 32760 - u / 12))))))
    return math.log(x) - 0.5 / x - series - shift


# --- use of a fitted model -------------------------------------------------------------------------------------------


@compiled()
def fill_joint(pairs: Bitext, k: int, table: TranslationTable, prior: Prior, floor: float, out: Array) -> None:
    """a_ij t(y_j ∣ x_i) of sentence k; column 0 is the null word, column i + 1 the word at i."""
    begin, low = pairs.source_starts[k], pairs.target_starts[k]
    m, n = out.shape[0], out.shape[1] - 1
    null = len(table.starts) - 2
    for j in range(m):
        y = pairs.targets[low + j]
        for i in range(-1, n):
            row = null if i < 0 else pairs.sources[begin + i]
            value = base_weight(i, n, prior.null_rate) * max(floor, look_up(table, row, y))
            if i >= 0 and prior.tension != 0.0:
                value *= nearness(i, n, j, m, prior.tension) * prior.shares[low + j]
            out[j, i + 1] = value


@compiled()
def choose(first: int, last: int, pairs: Bitext, table: TranslationTable, prior: Prior, chosen: Array) -> None:
    """For each target token of these sentences the position of its likeliest source word, −1 for the null word.

    Words that occur twice in a sentence are equally likely in model 1: the one nearest to the diagonal is taken, then
    the first. A token that met no word of the sentence has none.
    """
    for k in range(first, last):
        low = pairs.target_starts[k]
        n, m = pairs.source_starts[k + 1] - pairs.source_starts[k], pairs.target_starts[k + 1] - low
        joint = np.empty((m, n + 1))
        fill_joint(pairs, k, table, prior, 0.0, joint)
        for j in range(m):
            highest, best, closest = joint[j, 0], -1, np.inf
            for i in range(n):
                value, distance = joint[j, i + 1], abs((i + 1) / n - (j + 1) / m)
                if value > highest or (value == highest and value > 0.0 and distance < closest):
                    highest, best, closest = value, i, distance
            chosen[low + j] = best


@compiled()
def join_directions(forward: Array, backward: Array, rule: int, links: Array) -> None:
    """Join the source place of each target token and the target place of each source token (−1: none) into links.

    grow-diag and final-and as in Koehn et al. (2005), target positions in the outer loop.
    """
    n, m = links.shape
    for j in range(m):
        if forward[j] >= 0 and (rule == UNION or backward[forward[j]] == j):
            links[forward[j], j] = True
    if rule == UNION:
        for i in range(n):
            if backward[i] >= 0:
                links[i, backward[i]] = True
    if rule <= UNION:
        return
    has_source, has_target = np.zeros(n, np.bool_), np.zeros(m, np.bool_)
    for i in range(n):
        for j in range(m):
            if links[i, j]:
                has_source[i] = has_target[j] = True
    # Links of either direction next to a link, if one of their words has none yet, until there are no more.
    neighbours = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))  # target, source
    is_growing = True
    while is_growing:
        is_growing = False
        for j in range(m):
            for i in range(n):
                if not links[i, j]:
                    continue
                for right, down in neighbours:
                    b, a = j + right, i + down
                    if not (0 <= a < n and 0 <= b < m) or links[a, b] or (has_source[a] and has_target[b]):
                        continue
                    if forward[b] == a or backward[a] == b:
                        links[a, b] = has_source[a] = has_target[b] = True
                        is_growing = True
    if rule == GROW_DIAG_FINAL_AND:
        for j in range(m):
            if forward[j] >= 0 and not has_source[forward[j]] and not has_target[j]:
                links[forward[j], j] = has_source[forward[j]] = has_target[j] = True
        for i in range(n):
            if backward[i] >= 0 and not has_source[i] and not has_target[backward[i]]:
                links[i, backward[i]] = has_source[i] = has_target[backward[i]] = True


Symmetrisation = Literal["forward", "backward", "intersection", "union", "grow-diag", "grow-diag-final-and"]
"""Which links are kept: those of one direction, of both, of either, or the intersection grown into the union."""

_RULES = ("intersection", "union", "grow-diag", "grow-diag-final-and")  # in the order of the numbers above
_RANGES = 8
"""Ranges of words for each thread, so that none waits long for the last one."""


class Model1Config(Config):
    """How IBM model 1 is fitted."""

    iterations: int = Field(default=5, ge=1)
    """How often all probabilities are re-estimated."""
    null_rate: float | None = Field(default=None, ge=0, lt=1)
    """The share of target words that come from no source word, before they are looked at; 0 leaves the null word out.
    Without it, the null word counts as one more word of the source sentence."""
    dirichlet_alpha: float = Field(default=0.0, ge=0)
    """The Dirichlet prior on each word's translations; 0 is maximum likelihood. 0.01 keeps rare words from explaining
    everything around them; the rows then add up to less than 1."""
    tension: float = Field(default=0.0, ge=0)
    """How strongly links keep to the diagonal: a_ij falls by exp(−tension · ∣(i + 1)/n − (j + 1)/m∣). 0 is model 1;
    4 suits languages of much the same word order."""


@dataclass(frozen=True, eq=False)
class Model1:
    """A fitted model of one direction."""

    config: Model1Config
    table: TranslationTable
    log_likelihoods: tuple[float, ...]
    """log P of the training text as each iteration found it; the first one begins with all words equally likely."""

    def links(self, source: Ids, target: Ids) -> set[tuple[int, int]]:
        """Each target word with its likeliest source word, as positions counted from 0; words of the null word not."""
        chosen = self.choose(Bitext.from_sentences([source], [target]))
        return {(int(i), j) for j, i in enumerate(chosen) if i >= 0}

    def choose(self, bitext: Bitext, *, threads: int = 1) -> Int32[np.ndarray, " target_tokens"]:
        """The position of each target token's likeliest source word, −1 for the null word (Viterbi alignment).

        Of the places of a repeated word, which model 1 finds equally likely, the one nearest to the diagonal is taken.
        """
        chosen = np.empty(len(bitext.targets), np.int32)
        prior = _prior(self.config, bitext)
        borders = _borders(bitext.target_starts, threads)
        _in_ranges(threads, choose, borders, bitext, self.table, prior, chosen)
        return chosen

    def posteriors(self, source: Ids, target: Ids) -> Float64[np.ndarray, "target source_and_null"]:
        """P(target word j comes from source word i); column 0 is the null word. Rows of words never met are 0."""
        joint = self._joint(source, target, floor=0.0)
        sums = joint.sum(axis=1, keepdims=True)
        return joint / np.where(sums > 0, sums, 1.0)

    def score(self, source: Ids, target: Ids, *, floor: float = 0.0) -> float:
        """log P(target ∣ source), the length of the target given. No t(y ∣ x) is taken as less than `floor`.

        Without a floor, a target word that met none of the source words makes it −inf.
        """
        sums = self._joint(source, target, floor=floor).sum(axis=1)
        with np.errstate(divide="ignore"):
            return float(np.log(sums).sum())

    def _joint(self, source: Ids, target: Ids, *, floor: float) -> Float64[np.ndarray, "target source_and_null"]:
        bitext = Bitext.from_sentences([source], [target])
        joint = np.empty((len(target), len(source) + 1))
        fill_joint(bitext, 0, self.table, _prior(self.config, bitext), floor, joint)
        return joint


@dataclass(frozen=True)
class WordAligner:
    """Both directions: `forward` explains target words by source words, `backward` the other way round."""

    forward: Model1
    backward: Model1

    def links(
        self, source: Ids, target: Ids, *, symmetrise: Symmetrisation = "grow-diag-final-and"
    ) -> set[tuple[int, int]]:
        """Pairs of source and target positions, counted from 0."""
        return set(*self.align(Bitext.from_sentences([source], [target]), symmetrise=symmetrise))

    def align(
        self, bitext: Bitext, *, symmetrise: Symmetrisation = "grow-diag-final-and", threads: int = 1
    ) -> Iterator[list[tuple[int, int]]]:
        """The same for each sentence pair of a text, sorted; a pair with a blank side has no links."""
        forward = self.forward.choose(bitext, threads=threads)
        backward = self.backward.choose(bitext.turned(), threads=threads)
        borders = zip(pairwise(bitext.source_starts), pairwise(bitext.target_starts), strict=True)
        for (first, last), (low, high) in borders:
            grid = np.zeros((last - first, high - low), np.bool_)
            sources, targets = forward[low:high], backward[first:last]  # of each target token, of each source token
            if symmetrise == "forward":
                grid[sources[sources >= 0], np.flatnonzero(sources >= 0)] = True
            elif symmetrise == "backward":
                grid[np.flatnonzero(targets >= 0), targets[targets >= 0]] = True
            else:
                join_directions(sources, targets, _RULES.index(symmetrise), grid)
            yield [(i, j) for i, j in np.argwhere(grid).tolist()]


def fit_aligner(
    bitext: Bitext,
    config: Model1Config | None = None,
    *,
    threads: int = 1,
    progress: Callable[[int], None] = lambda _done: None,
) -> WordAligner:
    """Fit both directions. `progress` receives how many of all 2 · iterations are done."""
    config = config or Model1Config()
    forward = fit_model1(bitext, config, threads=threads, progress=progress)
    backward = fit_model1(
        bitext.turned(), config, threads=threads, progress=lambda done: progress(config.iterations + done)
    )
    return WordAligner(forward, backward)


def fit_model1(
    bitext: Bitext,
    config: Model1Config | None = None,
    *,
    threads: int = 1,
    progress: Callable[[int], None] = lambda _done: None,
) -> Model1:
    """Fit t(target ∣ source) by EM, from t = 1 / (number of target words). The threads change no bit of the result.

    Pairs with a blank side teach nothing and are left out. `progress` receives how many iterations are done.
    """
    config = config or Model1Config()
    taught = bitext.without_blanks()
    if taught.pairs == 0:
        raise DataError(f"there is nothing to align: none of {bitext.pairs:,} pairs has words on both sides")
    # The places of each source word; the null word is in every sentence, if there is one.
    order = np.argsort(taught.sources, kind="stable")
    sentences = np.repeat(np.arange(taught.pairs, dtype=np.int32), np.diff(taught.source_starts))[order]
    nulls = taught.pairs if config.null_rate != 0 else 0
    places = WordPositions(
        _starts(np.append(np.bincount(taught.sources), nulls)),
        np.concatenate([sentences, np.arange(nulls, dtype=np.int32)]),
        np.concatenate([(order - taught.source_starts[sentences]).astype(np.int32), np.full(nulls, -1, np.int32)]),
    )
    of_words, of_sentences = _borders(places.starts, _RANGES * threads), _borders(taught.target_starts, threads)
    target_counts = np.bincount(taught.targets)
    shared = (places, taught, len(target_counts))
    lengths, nowhere = np.zeros(len(places.starts) - 1, np.int64), np.empty(0, np.int64)
    _in_ranges(threads, list_partners, of_words, *shared, lengths, nowhere, np.empty(0, np.int32))
    starts = _starts(lengths)
    columns, probability = np.empty(starts[-1], np.int32), 1 / np.count_nonzero(target_counts)
    _in_ranges(threads, list_partners, of_words, *shared, lengths, starts, columns)
    table = TranslationTable(starts, columns, np.full(starts[-1], probability))
    fit = Fit(*shared, table, _prior(config, taught))
    sums, log_likelihoods, history = np.empty(len(taught.targets)), np.empty(taught.pairs), []
    for iteration in range(config.iterations):
        _in_ranges(threads, explain, of_sentences, fit, sums, log_likelihoods)
        _in_ranges(threads, reestimate, of_words, fit, sums, config.dirichlet_alpha)
        history.append(float(log_likelihoods.sum()))
        progress(iteration + 1)
    return Model1(config, table, tuple(history))


def _prior(config: Model1Config, bitext: Bitext) -> Prior:
    shares = np.empty(len(bitext.targets) if config.tension else 0)
    if config.tension:
        share_diagonal(bitext.source_starts, bitext.target_starts, config.tension, shares)
    return Prior(-1.0 if config.null_rate is None else float(config.null_rate), float(config.tension), shares)


@dataclass(frozen=True)
class AlignmentScore:
    """How far found links are from those of annotators (Och and Ney, 2003); a rate is None where it is 0 / 0.

        precision = ∣A ∩ P∣ / ∣A∣        A found links, S sure links, P possible links, S ⊆ P
        recall    = ∣A ∩ S∣ / ∣S∣
        AER       = 1 − (∣A ∩ S∣ + ∣A ∩ P∣) / (∣A∣ + ∣S∣)         1 − F₁ where S = P

    Links are counted over all sentences, so long sentences weigh more. Links to the null word do not count.
    """

    found: int
    """∣A∣"""
    sure: int
    """∣S∣"""
    found_sure: int
    """∣A ∩ S∣"""
    found_possible: int
    """∣A ∩ P∣"""

    @property
    def precision(self) -> float | None:
        return self.found_possible / self.found if self.found else None

    @property
    def recall(self) -> float | None:
        return self.found_sure / self.sure if self.sure else None

    @property
    def error_rate(self) -> float | None:
        """AER: 0 is perfect, 1 is nothing right."""
        both = self.found + self.sure
        return 1 - (self.found_sure + self.found_possible) / both if both else None


def score_alignments(found: Sequence[Collection[Link]], gold: Sequence[GoldLinks]) -> AlignmentScore:
    """Score the links of sentence pairs, one collection for each line of the gold alignment."""
    if len(found) != len(gold):
        raise DataError(f"{len(found):,} alignments cannot be compared with {len(gold):,}; each line needs its partner")
    links = [frozenset(each) for each in found]
    return AlignmentScore(
        found=sum(map(len, links)),
        sure=sum(len(each.sure) for each in gold),
        found_sure=sum(len(each & right.sure) for each, right in zip(links, gold, strict=True)),
        found_possible=sum(len(each & right.possible) for each, right in zip(links, gold, strict=True)),
    )


# --- ranges and borders ----------------------------------------------------------------------------------------------


def _in_ranges(threads: int, kernel: Callable[..., None], borders: Sequence[int], *arguments: object) -> None:
    """Call a compiled loop for each range, several at the same time; it lets other threads run."""
    ranges = list(pairwise(borders))
    if threads == 1 or len(ranges) == 1:  # one sentence takes less time than starting a thread
        for first, last in ranges:
            kernel(first, last, *arguments)
        return
    with ThreadPoolExecutor(threads) as pool:
        for each in [pool.submit(kernel, first, last, *arguments) for first, last in ranges]:
            each.result()


def _borders(starts: Int64[np.ndarray, " borders"], ranges: int) -> list[int]:
    """Borders of ranges that hold about as many tokens each."""
    wanted = np.linspace(0, starts[-1], ranges + 1)[1:-1]
    inner = np.searchsorted(starts, wanted)
    return sorted({0, *inner.tolist(), len(starts) - 1})


def _starts(lengths: Integer[np.ndarray, " parts"]) -> Int64[np.ndarray, " borders"]:
    """Where each part begins when they are concatenated, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _flatten(sentences: Iterable[Ids], side: str) -> tuple[Int32[np.ndarray, " tokens"], Int64[np.ndarray, " borders"]]:
    kept = list(sentences)
    ids = np.fromiter(chain.from_iterable(kept), np.int64, count=sum(map(len, kept)))
    if len(ids) and not 0 <= ids.min() <= ids.max() < np.iinfo(np.int32).max:
        wrong = ids[(ids < 0) | (ids >= np.iinfo(np.int32).max)][0]
        raise DataError(f"{wrong} among the {side} ids is invalid; ids are whole numbers from 0")
    return ids.astype(np.int32), _starts(np.array([len(ids) for ids in kept], np.int64))
