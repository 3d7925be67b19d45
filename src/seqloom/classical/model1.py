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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int32
from pydantic import Field

from seqloom.classical.bitext import (
    RANGES,
    Array,
    Bitext,
    Ids,
    TranslationTable,
    WordPositions,
    borders_of,
    cell_starts,
    first_not_below,
    in_ranges,
    look_up,
    partners,
    require_pairs,
    word_positions,
)
from seqloom.core.config import Config
from seqloom.core.jit import compiled

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


class LinkPrior(NamedTuple):
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
    prior: LinkPrior


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
def fill_joint(pairs: Bitext, k: int, table: TranslationTable, prior: LinkPrior, floor: float, out: Array) -> None:
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
def choose(first: int, last: int, pairs: Bitext, table: TranslationTable, prior: LinkPrior, chosen: Array) -> None:
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
def fill_links(
    first: int, last: int, pairs: Bitext, table: TranslationTable, prior: LinkPrior, starts: Array, out: Array
) -> None:
    """P(target word j comes from source word i) of these sentences, in cells by source position, then by target."""
    for k in range(first, last):
        n = pairs.source_starts[k + 1] - pairs.source_starts[k]
        m = pairs.target_starts[k + 1] - pairs.target_starts[k]
        joint = np.empty((m, n + 1))
        fill_joint(pairs, k, table, prior, 0.0, joint)
        for j in range(m):
            total = 0.0
            for i in range(n + 1):
                total += joint[j, i]
            for i in range(n):
                out[starts[k] + i * m + j] = joint[j, i + 1] / total if total > 0.0 else 0.0


class Model1Config(Config):
    """How IBM model 1 is fitted."""

    kind: Literal["model1"] = "model1"
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
        prior = prior_of(self.config, bitext)
        borders = borders_of(bitext.target_starts, threads)
        in_ranges(threads, choose, borders, bitext, self.table, prior, chosen)
        return chosen

    def link_probabilities(self, bitext: Bitext, *, threads: int = 1) -> Float32[np.ndarray, " cells"]:
        """P(target word j comes from source word i), all pairs in one array: by pair, source and target position."""
        starts = cell_starts(bitext)
        found = np.empty(starts[-1], np.float32)
        prior, borders = prior_of(self.config, bitext), borders_of(bitext.target_starts, threads)
        in_ranges(threads, fill_links, borders, bitext, self.table, prior, starts, found)
        return found

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, for `restore`."""
        return {**self.table._asdict(), "tension": np.array([self.config.tension])}

    @staticmethod
    def restore(config: Model1Config, arrays: Mapping[str, np.ndarray]) -> "Model1":
        """The model that `arrays` came from; its likelihoods are not kept."""
        config = config.model_copy(update={"tension": float(arrays["tension"][0])})
        return Model1(config, TranslationTable.restore(arrays), ())

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
        fill_joint(bitext, 0, self.table, prior_of(self.config, bitext), floor, joint)
        return joint


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
    fit, of_words, of_sentences = begin_fit(bitext, config, threads=threads)
    sums, log_likelihoods, history = np.empty(len(fit.pairs.targets)), np.empty(fit.pairs.pairs), []
    for iteration in range(config.iterations):
        in_ranges(threads, explain, of_sentences, fit, sums, log_likelihoods)
        in_ranges(threads, reestimate, of_words, fit, sums, config.dirichlet_alpha)
        history.append(float(log_likelihoods.sum()))
        progress(iteration + 1)
    return Model1(config, fit.table, tuple(history))


def begin_fit(bitext: Bitext, config: Model1Config, *, threads: int) -> tuple[Fit, list[int], list[int]]:
    """The table with all target words equally likely, and borders of ranges of words and of sentences."""
    taught = require_pairs(bitext)
    places = word_positions(taught, has_null=config.null_rate != 0)
    of_words, of_sentences = borders_of(places.starts, RANGES * threads), borders_of(taught.target_starts, threads)
    starts, columns = partners(taught, places, borders=of_words, threads=threads)
    target_counts = np.bincount(taught.targets)
    table = TranslationTable(starts, columns, np.full(starts[-1], 1 / np.count_nonzero(target_counts)))
    return Fit(places, taught, len(target_counts), table, prior_of(config, taught)), of_words, of_sentences


def prior_of(config: Model1Config, bitext: Bitext) -> LinkPrior:
    """a_ij of a text."""
    shares = np.empty(len(bitext.targets) if config.tension else 0)
    if config.tension:
        share_diagonal(bitext.source_starts, bitext.target_starts, config.tension, shares)
    return LinkPrior(-1.0 if config.null_rate is None else float(config.null_rate), float(config.tension), shares)
