"""Word alignment by IBM model 1 (Brown et al., 1993), fitted by EM in both directions, and the joining of the two.

    P(y ∣ x) = Π_j Σ_i a_ij t(y_j ∣ x_i)                 i runs over the null word and the n source words
    a_ij = 1 / (n + 1)                                   or p₀ for the null word and (1 − p₀) / n for the others
    E:  c(y ∣ x) = Σ over all places of x and y  a_ij t(y ∣ x) / Σ_i' a_i'j t(y ∣ x_i')
    M:  t(y ∣ x) = c(y ∣ x) / Σ_y' c(y' ∣ x)             maximum likelihood
        t(y ∣ x) = exp(ψ(c + α) − ψ(Σ_y' (c + α)))       variational Bayes with a Dirichlet prior α on each row

The length of y is taken as given. The table holds the pairs of words that share a sentence and no others: 12 bytes
each. Beside it, fitting needs 24 bytes per target token and 16 per source token, the text included.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64, Integer
from pydantic import Field

from seqloom.classical import alignment_kernels as kernels
from seqloom.classical.alignment_kernels import Pairs, Places, Prior, Table
from seqloom.core.config import Config
from seqloom.core.errors import DataError

Symmetrisation = Literal["forward", "backward", "intersection", "union", "grow-diag", "grow-diag-final-and"]
"""Which links are kept: those of one direction, of both, of either, or the intersection grown into the union."""

_RULES = {
    "intersection": kernels.INTERSECTION,
    "union": kernels.UNION,
    "grow-diag": kernels.GROW_DIAG,
    "grow-diag-final-and": kernels.GROW_DIAG_FINAL_AND,
}
_RANGES = 8
"""Ranges of words for each thread, so that none waits long for the last one."""


class Model1Config(Config):
    """How IBM model 1 is fitted."""

    iterations: int = Field(default=5, ge=1)
    """How often all probabilities are estimated anew."""
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
class Bitext:
    """Sentence pairs as ids, one after another: sentence k of a side lies between `starts[k]` and `starts[k + 1]`."""

    sources: Int32[np.ndarray, " source_tokens"]
    source_starts: Int64[np.ndarray, " source_borders"]
    targets: Int32[np.ndarray, " target_tokens"]
    target_starts: Int64[np.ndarray, " target_borders"]

    @staticmethod
    def from_sentences(
        sources: Iterable[Sequence[int] | Integer[np.ndarray, " _"]],
        targets: Iterable[Sequence[int] | Integer[np.ndarray, " _"]],
    ) -> "Bitext":
        """Line n of one side translates line n of the other."""
        return Bitext(*_flatten(sources, "source"), *_flatten(targets, "target"))

    def __post_init__(self) -> None:
        if len(self.source_starts) != len(self.target_starts):
            one, other = len(self.source_starts) - 1, len(self.target_starts) - 1
            raise DataError(f"{one:,} source sentences and {other:,} target sentences are no pairs; drop what is alone")

    def __len__(self) -> int:
        return len(self.source_starts) - 1

    @property
    def target_symbols(self) -> int:
        """One more than the highest target id."""
        return int(self.targets.max(initial=-1)) + 1

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

    def as_pairs(self) -> Pairs:
        """For the compiled loops."""
        return Pairs(self.sources, self.source_starts, self.targets, self.target_starts)


@dataclass(frozen=True, eq=False)
class TranslationTable:
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
        return float(kernels.look_up(self.as_table(), source, target))

    def as_table(self) -> Table:
        """For the compiled loops."""
        return Table(self.starts, self.columns, self.probabilities)


@dataclass(frozen=True, eq=False)
class Model1:
    """A fitted model of one direction."""

    config: Model1Config
    table: TranslationTable
    log_likelihoods: tuple[float, ...]
    """log P of the training text as each iteration found it; the first one begins with all words equally likely."""

    def links(
        self,
        source: Sequence[int] | Integer[np.ndarray, " source"],
        target: Sequence[int] | Integer[np.ndarray, " target"],
    ) -> set[tuple[int, int]]:
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
        _in_ranges(threads, kernels.choose, borders, bitext.as_pairs(), self.table.as_table(), prior, chosen)
        return chosen

    def posteriors(
        self,
        source: Sequence[int] | Integer[np.ndarray, " source"],
        target: Sequence[int] | Integer[np.ndarray, " target"],
    ) -> Float64[np.ndarray, "target source_and_null"]:
        """P(target word j comes from source word i); column 0 is the null word. Rows of words never met are 0."""
        joint = self._joint(source, target, floor=0.0)
        sums = joint.sum(axis=1, keepdims=True)
        return joint / np.where(sums > 0, sums, 1.0)

    def score(
        self,
        source: Sequence[int] | Integer[np.ndarray, " source"],
        target: Sequence[int] | Integer[np.ndarray, " target"],
        *,
        floor: float = 0.0,
    ) -> float:
        """log P(target ∣ source), the length of the target given. No t(y ∣ x) is taken as less than `floor`.

        Without a floor, a target word that met none of the source words makes it −inf.
        """
        sums = self._joint(source, target, floor=floor).sum(axis=1)
        with np.errstate(divide="ignore"):
            return float(np.log(sums).sum())

    def _joint(
        self,
        source: Sequence[int] | Integer[np.ndarray, " source"],
        target: Sequence[int] | Integer[np.ndarray, " target"],
        *,
        floor: float,
    ) -> Float64[np.ndarray, "target source_and_null"]:
        bitext = Bitext.from_sentences([source], [target])
        joint = np.empty((len(target), len(source) + 1))
        kernels.fill_joint(bitext.as_pairs(), 0, self.table.as_table(), _prior(self.config, bitext), floor, joint)
        return joint


@dataclass(frozen=True)
class WordAligner:
    """Both directions: `forward` explains target words by source words, `backward` the other way round."""

    forward: Model1
    backward: Model1

    def links(
        self,
        source: Sequence[int] | Integer[np.ndarray, " source"],
        target: Sequence[int] | Integer[np.ndarray, " target"],
        *,
        symmetrise: Symmetrisation = "grow-diag-final-and",
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
            _join(forward[low:high], backward[first:last], grid, symmetrise)
            yield [(i, j) for i, j in np.argwhere(grid).tolist()]


def _tell_nobody(done: int) -> None:
    """The progress of those whom nobody watches."""


def fit_aligner(
    bitext: Bitext,
    config: Model1Config | None = None,
    *,
    threads: int = 1,
    progress: Callable[[int], None] = _tell_nobody,
) -> WordAligner:
    """Fit both directions. `progress` is told how many of all 2 · iterations are done."""
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
    progress: Callable[[int], None] = _tell_nobody,
) -> Model1:
    """Fit t(target ∣ source) by EM, from t = 1 / (number of target words). The threads change no bit of the result.

    Pairs with a blank side teach nothing and are left out. `progress` is told how many iterations are done.
    """
    config = config or Model1Config()
    taught = bitext.without_blanks()
    if len(taught) == 0:
        raise DataError(f"there is nothing to align: none of {len(bitext):,} pairs has words on both sides")
    places, pairs, symbols = _find_places(taught, config), taught.as_pairs(), taught.target_symbols
    prior = _prior(config, taught)
    sums, log_likelihoods = np.empty(len(taught.targets)), np.empty(len(taught))
    words, sentences = _borders(places.starts, _RANGES * threads), _borders(taught.target_starts, threads)
    table = _uniform_table(threads, words, places, pairs, symbols)
    shared = (places, pairs, symbols, table, prior, sums)
    history = []
    for iteration in range(config.iterations):
        _in_ranges(threads, kernels.explain, sentences, *shared, log_likelihoods)
        _in_ranges(threads, kernels.reestimate, words, *shared, config.dirichlet_alpha)
        history.append(float(log_likelihoods.sum()))
        progress(iteration + 1)
    return Model1(config, TranslationTable(*table), tuple(history))


def _find_places(bitext: Bitext, config: Model1Config) -> Places:
    """Where each source word stands; the null word stands in every sentence, if there is one."""
    pairs = len(bitext) if config.null_rate != 0 else 0
    sentence_of = np.repeat(np.arange(len(bitext), dtype=np.int32), np.diff(bitext.source_starts))
    order = np.argsort(bitext.sources, kind="stable")
    sentences = sentence_of[order]
    positions = (order - bitext.source_starts[sentences]).astype(np.int32)
    counts = np.append(np.bincount(bitext.sources), pairs)
    return Places(
        _starts(counts),
        np.concatenate([sentences, np.arange(pairs, dtype=np.int32)]),
        np.concatenate([positions, np.full(pairs, -1, np.int32)]),
    )


def _uniform_table(threads: int, borders: Sequence[int], places: Places, pairs: Pairs, symbols: int) -> Table:
    lengths = np.zeros(len(places.starts) - 1, np.int64)
    _in_ranges(threads, kernels.count_partners, borders, places, pairs, symbols, lengths)
    starts = _starts(lengths)
    probability = 1 / np.count_nonzero(np.bincount(pairs.targets))
    table = Table(starts, np.empty(starts[-1], np.int32), np.full(starts[-1], probability))
    _in_ranges(threads, kernels.list_partners, borders, places, pairs, symbols, table)
    return table


def _prior(config: Model1Config, bitext: Bitext) -> Prior:
    shares = np.empty(len(bitext.targets) if config.tension else 0)
    if config.tension:
        kernels.share_diagonal(bitext.source_starts, bitext.target_starts, config.tension, shares)
    return Prior(-1.0 if config.null_rate is None else float(config.null_rate), float(config.tension), shares)


def _join(
    forward: Int32[np.ndarray, " target"],
    backward: Int32[np.ndarray, " source"],
    grid: Bool[np.ndarray, "source target"],
    rule: Symmetrisation,
) -> None:
    """Write the links of a sentence pair into its grid."""
    if rule == "forward":
        grid[forward[forward >= 0], np.flatnonzero(forward >= 0)] = True
    elif rule == "backward":
        grid[np.flatnonzero(backward >= 0), backward[backward >= 0]] = True
    else:
        kernels.symmetrise(forward, backward, _RULES[rule], grid)


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
    """Where each part begins when they stand one after another, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _flatten(
    sentences: Iterable[Sequence[int] | Integer[np.ndarray, " _"]], side: str
) -> tuple[Int32[np.ndarray, " tokens"], Int64[np.ndarray, " borders"]]:
    kept = list(sentences)
    ids = np.fromiter(chain.from_iterable(kept), np.int64, count=sum(map(len, kept)))
    if len(ids) and not 0 <= ids.min() <= ids.max() < np.iinfo(np.int32).max:
        wrong = ids[(ids < 0) | (ids >= np.iinfo(np.int32).max)][0]
        raise DataError(f"{wrong} among the {side} ids is no id; ids are whole numbers from 0")
    return ids.astype(np.int32), _starts(np.array([len(ids) for ids in kept], np.int64))
