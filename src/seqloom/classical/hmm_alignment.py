"""Word alignment by a hidden Markov model (Vogel et al., 1996) whose two directions learn from each other.

    P(y ∣ x) = Σ_a Π_j p(a_j ∣ a_j-1) t(y_j ∣ x_a_j)     a_j is the source position of target word j
    p(i ∣ i') = (1 − p₀) w(i − i') / Σ_i'' w(i'' − i')   w is learned; widths beyond a limit share one weight
    p(null) = p₀                                         and the position before it is kept (Och and Ney, 2003)

The first jump, from before the sentence, has weights of its own. The posterior q_ij = P(a_j = i ∣ x, y) comes from
forward and backward sums. The two directions have q and q' on the same pair of words:

    c(x, y) = Σ q_ij                                     each direction by itself: EM
    c(x, y) = Σ q_ij q'_ij                               agreement (Liang et al., 2006): only what both of them find
    t(y ∣ x) = (c(x, y) + α) / (Σ_y' c(x, y') + α V)     V target words; α = 0 is maximum likelihood

With a prior α the model is integrated over t, approximately (collapsed variational Bayes, Asuncion et al., 2009): the
E step leaves what a link has contributed out of the counts that judge this link. So a rare word cannot explain
everything around it by having done so before. Model 1, w = 1, comes first.

The weights of jumps have no closed form, because the positions on offer differ. One step of minorisation (Hunter,
2004) raises the likelihood as well:

    w(d) = Σ expected jumps by d / Σ_i' (expected jumps from i') · (positions at d from i') / Σ_i'' w(i'' − i')

Fitting needs 12 bytes for each pair of words in a sentence pair, and 28 for each pair of words that ever meet.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float32, Float64, Int32, Int64
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
    in_ranges,
    look_up,
    partners,
    require_pairs,
    starts_of,
    word_positions,
)
from seqloom.core.config import Config
from seqloom.core.errors import ModelError
from seqloom.core.jit import compiled

LEAST = 1e-12
"""What is added to each t(y ∣ x) where sentences are judged, so that none of them is impossible."""
LEAST_JUMP = 1e-8
"""The least weight of a jump, as a part of the highest one."""
SMALLEST = 1e-300
"""What totals are at least where they divide."""
MAX_JUMPING_WORDS = 500
"""Pairs with a longer sentence are explained by model 1: the sums over jumps take time by the cube of the length."""
RANGE = 512
"""Sentence pairs whose jumps are counted together."""
LEAST_COUNT = 1e-5
"""Pairs of words that were expected less often are left out of the fitted table."""


class HmmAlignmentConfig(Config):
    """How the hidden Markov model is fitted."""

    kind: Literal["hmm"] = "hmm"
    iterations: int = Field(default=5, ge=1)
    """How often all probabilities are re-estimated with jumps."""
    model1_iterations: int = Field(default=8, ge=0)
    """How often they are re-estimated before that, by model 1, where all jumps are equally likely."""
    null_rate: float = Field(default=0.1, gt=0, lt=1)
    """The share of target words that come from no source word, before they are looked at."""
    dirichlet_alpha: float = Field(default=0.0003, ge=0)
    """The Dirichlet prior on each word's translations; 0 is maximum likelihood."""
    jump_limit: int = Field(default=7, ge=1)
    """Jumps of this width and all wider ones have the same weight."""
    agreement: bool = True
    """Whether the two directions learn from the links that both of them find likely."""


class TranslationCounts(NamedTuple):
    """c(x, y) + α of the pairs of words that meet, Σ_y (c(x, y) + α) of each x, and t(y ∣ null word)."""

    weights: Float64[np.ndarray, " entries"]
    totals: Float64[np.ndarray, " rows"]
    """The last one is that of the null word."""
    null: Float64[np.ndarray, " symbols"]

    @staticmethod
    def of(
        counts: Float64[np.ndarray, " entries"],
        rows: Int32[np.ndarray, " entries"],
        targets: Int32[np.ndarray, " tokens"],
        nulls: Float64[np.ndarray, " tokens"],
        *,
        alpha: float,
    ) -> "TranslationCounts":
        """From expected counts; `nulls` says how likely each target token comes from the null word."""
        is_seen = np.bincount(targets) > 0
        words = np.count_nonzero(is_seen)
        null = np.bincount(targets, weights=nulls) + alpha * is_seen
        totals = np.append(np.bincount(rows, weights=counts) + alpha * words, max(null.sum(), SMALLEST))
        return TranslationCounts(counts + alpha, totals, null / totals[-1])

    def table(
        self,
        rows: Int32[np.ndarray, " entries"],
        columns: Int32[np.ndarray, " entries"],
        *,
        alpha: float,
        order: Int64[np.ndarray, " entries"] | None = None,
    ) -> TranslationTable:
        """t(y ∣ x); `order` sorts the entries by row."""
        order = np.arange(len(rows)) if order is None else order
        order = order[self.weights[order] >= alpha + LEAST_COUNT]
        of_null = np.flatnonzero(self.null).astype(np.int32)
        lengths = np.bincount(rows[order], minlength=len(self.totals) - 1)
        return TranslationTable(
            starts_of(np.append(lengths, len(of_null))),
            np.concatenate([columns[order], of_null]),
            np.concatenate([self.weights[order] / self.totals[rows[order]], self.null[of_null]]),
        )


class JumpChain(NamedTuple):
    """p₀ and the weights of jumps by width, −limit … limit: row 0 for the first jump, row 1 for the others."""

    null_rate: float
    jumps: Float64[np.ndarray, "2 widths"]

    @staticmethod
    def even(config: "HmmAlignmentConfig") -> "JumpChain":
        """Before anything is learned: to the next word, or near it."""
        widths = np.abs(np.arange(-config.jump_limit, config.jump_limit + 1) - 1)
        return JumpChain(config.null_rate, np.tile(np.exp(-0.7 * widths), (2, 1)))

    def learned(self, counted: Float64[np.ndarray, "taken_offered 2 widths"]) -> "JumpChain":
        """The weights that jumps taken and offered give; those never offered keep theirs."""
        taken, offered = counted
        jumps = np.where(offered > 0, taken / np.where(offered > 0, offered, 1.0), self.jumps)
        jumps /= jumps.max(axis=1, keepdims=True)
        return JumpChain(self.null_rate, np.maximum(jumps, LEAST_JUMP))


class FittedDirection(NamedTuple):
    """A direction as compiled loops take it."""

    table: TranslationTable
    totals: Float64[np.ndarray, " rows"]
    alpha: float
    chain: JumpChain


class EStep(NamedTuple):
    """What an E step does."""

    is_mixture: bool
    """Model 1, without jumps."""
    is_agreeing: bool
    leaves_own: bool
    """Whether counts are taken without the share of the link that they judge."""


class LinkCells(NamedTuple):
    """All pairs of words inside sentence pairs: by pair, source position and target position."""

    pairs: Bitext
    starts: Int64[np.ndarray, " borders"]
    entries: Int32[np.ndarray, " cells"]
    """Which entry of the table each of them is."""


# --- one sentence pair -----------------------------------------------------------------------------------------------


@compiled()
def forward_backward(
    emissions: Array, null: Array, chain: JumpChain, links: Array, nulls: Array, taken: Array, offered: Array
) -> float:
    """Fill `links` with q_ij and `nulls` with P(a_j = null), add to the jumps taken and offered; log P(y ∣ x).

    Position 0 is before the sentence, position i + 1 at source word i. `at[j]` is the chance of each position after j
    target words, given these words.
    """
    m, n = emissions.shape
    limit = chain.jumps.shape[1] // 2
    moves, sums = np.empty((n + 1, n)), np.empty(n + 1)
    for here in range(n + 1):
        total = 0.0
        for i in range(n):
            width = min(max(i + 1 - here, -limit), limit)
            moves[here, i] = chain.jumps[min(here, 1), width + limit]
            total += moves[here, i]
        sums[here] = total
        for i in range(n):
            moves[here, i] *= (1.0 - chain.null_rate) / total
    at, scales = np.zeros((m + 1, n + 1)), np.empty(m)
    at[0, 0] = 1.0
    arriving = np.empty(n)
    log_likelihood = 0.0
    for j in range(m):
        for i in range(n):
            arriving[i] = 0.0
        for here in range(n + 1):
            chance = at[j, here]
            for i in range(n):
                arriving[i] += chance * moves[here, i]
        staying = chain.null_rate * null[j]
        total = staying * at[j, 0]
        at[j + 1, 0] = total
        for i in range(n):
            links[j, i] = arriving[i] * emissions[j, i]
            at[j + 1, i + 1] = links[j, i] + staying * at[j, i + 1]
            total += at[j + 1, i + 1]
        scales[j] = 1.0 / total
        log_likelihood += math.log(total)
        for i in range(n):
            links[j, i] *= scales[j]
        for here in range(n + 1):
            at[j + 1, here] *= scales[j]
    later, before = np.ones(n + 1), np.empty(n + 1)  # the chance of the words still to come, by position
    flows, coming = np.zeros((n + 1, n)), np.empty(n)
    for j in range(m - 1, -1, -1):
        staying = chain.null_rate * null[j] * scales[j]
        total = 0.0
        for i in range(n):
            links[j, i] *= later[i + 1]
            coming[i] = emissions[j, i] * scales[j] * later[i + 1]
        for here in range(n + 1):
            total += at[j, here] * staying * later[here]
            chance, sum_here = at[j, here], 0.0
            for i in range(n):
                sum_here += moves[here, i] * coming[i]
                flows[here, i] += chance * coming[i]
            before[here] = sum_here + staying * later[here]
        nulls[j] = total
        later, before = before, later
    for here in range(n + 1):
        leaving = 0.0
        for i in range(n):
            flow = flows[here, i] * moves[here, i]
            taken[min(here, 1), min(max(i + 1 - here, -limit), limit) + limit] += flow
            leaving += flow
        for i in range(n):
            offered[min(here, 1), min(max(i + 1 - here, -limit), limit) + limit] += leaving / sums[here]
    return log_likelihood


@compiled()
def mix(emissions: Array, null: Array, null_rate: float, links: Array, nulls: Array) -> float:
    """The same for model 1, where all positions are equally likely."""
    m, n = emissions.shape
    log_likelihood = 0.0
    for j in range(m):
        nulls[j] = null_rate * null[j]
        total = nulls[j]
        for i in range(n):
            links[j, i] = (1.0 - null_rate) / n * emissions[j, i]
            total += links[j, i]
        nulls[j] /= total
        for i in range(n):
            links[j, i] /= total
        log_likelihood += math.log(total)
    return log_likelihood


# --- fitting ---------------------------------------------------------------------------------------------------------


@compiled()
def index_cells(
    first: int, last: int, places: WordPositions, cells: LinkCells, symbols: int, row_starts: Array, columns: Array
) -> None:
    """Fill in the entry of each cell that these source words have."""
    pairs = cells.pairs
    entry_of = np.empty(symbols, np.int32)
    for word in range(first, last):
        for entry in range(row_starts[word], row_starts[word + 1]):
            entry_of[columns[entry]] = entry
        for place in range(places.starts[word], places.starts[word + 1]):
            k = places.sentences[place]
            low, high = pairs.target_starts[k], pairs.target_starts[k + 1]
            begin = cells.starts[k] + places.positions[place] * (high - low)
            for token in range(low, high):
                cells.entries[begin + token - low] = entry_of[pairs.targets[token]]


@compiled()
def expect(
    first: int,
    last: int,
    cells: LinkCells,
    emissions: tuple[TranslationCounts, TranslationCounts],
    chains: tuple[JumpChain, JumpChain],
    how: EStep,
    shares: tuple[Array, Array],
    nulls: tuple[Array, Array],
    jumps: Array,
    log_likelihoods: Array,
) -> None:
    """The posteriors of these sentences in both directions; `shares` holds those of the iteration before.

    `jumps` are counted by range of sentences: [range, direction, taken or offered, first or other, width].
    """
    pairs = cells.pairs
    for k in range(first, last):
        begin, low, cell = pairs.source_starts[k], pairs.target_starts[k], cells.starts[k]
        n, m = pairs.source_starts[k + 1] - begin, pairs.target_starts[k + 1] - low
        given, turned = np.empty((m, n)), np.empty((n, m))
        for i in range(n):
            source_total = emissions[0].totals[pairs.sources[begin + i]]
            for j in range(m):
                here = cell + i * m + j
                entry = cells.entries[here]
                own, own_turned = (shares[0][here], shares[1][here]) if how.leaves_own else (0.0, 0.0)
                total = emissions[1].totals[pairs.targets[low + j]]
                # Rounding may leave a little less than nothing, and a word without links has a total of 0.
                rest, rest_turned = max(source_total - own, SMALLEST), max(total - own_turned, SMALLEST)
                given[j, i] = max(emissions[0].weights[entry] - own, 0.0) / rest + LEAST
                turned[i, j] = max(emissions[1].weights[entry] - own_turned, 0.0) / rest_turned + LEAST
        null, null_turned = np.empty(m), np.empty(n)
        for j in range(m):
            null[j] = emissions[0].null[pairs.targets[low + j]]
        for i in range(n):
            null_turned[i] = emissions[1].null[pairs.sources[begin + i]]
        links, links_turned = np.empty((m, n)), np.empty((n, m))
        out, out_turned = nulls[0][low : low + m], nulls[1][begin : begin + n]
        if how.is_mixture or max(n, m) > MAX_JUMPING_WORDS:
            log_likelihoods[0, k] = mix(given, null, chains[0].null_rate, links, out)
            log_likelihoods[1, k] = mix(turned, null_turned, chains[1].null_rate, links_turned, out_turned)
        else:
            counted = jumps[first // RANGE]
            log_likelihoods[0, k] = forward_backward(given, null, chains[0], links, out, counted[0, 0], counted[0, 1])
            log_likelihoods[1, k] = forward_backward(
                turned, null_turned, chains[1], links_turned, out_turned, counted[1, 0], counted[1, 1]
            )
        for i in range(n):
            for j in range(m):
                here = cell + i * m + j
                if how.is_agreeing:
                    shares[0][here] = shares[1][here] = links[j, i] * links_turned[i, j]
                else:
                    shares[0][here] = links[j, i]
                    shares[1][here] = links_turned[i, j]


@compiled()
def add_shares(first: int, last: int, places: WordPositions, cells: LinkCells, shares: Array, counts: Array) -> None:
    """c(x, y) of these source words."""
    pairs = cells.pairs
    for word in range(first, last):
        for place in range(places.starts[word], places.starts[word + 1]):
            k = places.sentences[place]
            m = pairs.target_starts[k + 1] - pairs.target_starts[k]
            begin = cells.starts[k] + places.positions[place] * m
            for cell in range(begin, begin + m):
                counts[cells.entries[cell]] += shares[cell]


def fit_hmms(
    bitext: Bitext,
    config: HmmAlignmentConfig | None = None,
    *,
    threads: int = 1,
    progress: Callable[[int], None] = lambda _done: None,
) -> tuple["HmmAlignment", "HmmAlignment"]:
    """Fit both directions, the one of the bitext first. The threads change no bit of the result.

    Pairs with a blank side teach nothing and are left out. `progress` receives how many iterations are done.
    """
    config = config or HmmAlignmentConfig()
    taught, alpha = require_pairs(bitext), config.dirichlet_alpha
    places = word_positions(taught, has_null=False)
    of_words = borders_of(places.starts, RANGES * threads)
    of_sentences = [*range(0, taught.pairs, RANGE), taught.pairs]
    row_starts, columns = partners(taught, places, borders=of_words, threads=threads)
    rows = np.repeat(np.arange(len(row_starts) - 1, dtype=np.int32), np.diff(row_starts))
    cells = LinkCells(taught, cell_starts(taught), np.empty(cell_starts(taught)[-1], np.int32))
    symbols = int(taught.targets.max()) + 1
    in_ranges(threads, index_cells, of_words, places, cells, symbols, row_starts, columns)

    # Model 1 begins with all words equally likely, so that each link has an equal share.
    lengths = np.diff(taught.source_starts), np.diff(taught.target_starts)
    shares = tuple(np.repeat((1 / (each + 1)).astype(np.float32), lengths[0] * lengths[1]) for each in lengths)
    nulls = np.repeat(1 / (lengths[0] + 1), lengths[1]), np.repeat(1 / (lengths[1] + 1), lengths[0])
    chains = JumpChain.even(config), JumpChain.even(config)
    log_likelihoods = np.empty((2, taught.pairs))
    histories: tuple[list[float], list[float]] = [], []

    def count() -> tuple[TranslationCounts, TranslationCounts]:
        counts = [np.zeros(len(columns)) for _ in shares]
        for each, share in zip(counts, shares, strict=True):
            in_ranges(threads, add_shares, of_words, places, cells, share, each)
        return (
            TranslationCounts.of(counts[0], rows, taught.targets, nulls[0], alpha=alpha),
            TranslationCounts.of(counts[1], columns, taught.sources, nulls[1], alpha=alpha),
        )

    for iteration in range(rounds(config)):
        is_mixture = iteration < config.model1_iterations
        jumps = np.zeros((len(of_sentences) - 1, 2, 2, *chains[0].jumps.shape))
        how = EStep(is_mixture, config.agreement and not is_mixture, alpha > 0)
        in_ranges(threads, expect, of_sentences, cells, count(), chains, how, shares, nulls, jumps, log_likelihoods)
        if not is_mixture:
            chains = chains[0].learned(jumps[:, 0].sum(0)), chains[1].learned(jumps[:, 1].sum(0))
        for history, each in zip(histories, log_likelihoods, strict=True):
            history.append(float(each.sum()))
        progress(iteration + 1)
    emissions = count()
    turned = np.argsort(columns, kind="stable")
    tables = (
        emissions[0].table(rows, columns, alpha=alpha),
        emissions[1].table(columns, rows, alpha=alpha, order=turned),
    )
    forward, backward = (
        HmmAlignment(config, table, each.totals, chain, tuple(history))
        for table, each, chain, history in zip(tables, emissions, chains, histories, strict=True)
    )
    return forward, backward


def rounds(config: HmmAlignmentConfig) -> int:
    """The iterations of both models."""
    return config.model1_iterations + config.iterations


# --- use of a fitted model -------------------------------------------------------------------------------------------


@compiled()
def explain_pair(k: int, pairs: Bitext, model: FittedDirection, links: Array, nulls: Array, jumps: Array) -> float:
    """Fill `links` with q_ij of sentence pair k and `nulls` with P(a_j = null); log P(y ∣ x)."""
    table, totals, alpha, chain = model
    begin, low = pairs.source_starts[k], pairs.target_starts[k]
    m, n = links.shape
    null = len(table.starts) - 2
    words = table.starts[null + 1] - table.starts[null]
    emissions, null_emissions = np.empty((m, n)), np.empty(m)
    for i in range(n):
        x = pairs.sources[begin + i]
        # Of a word that is not in the table, all translations are equally likely.
        never = alpha / totals[x] if x < null and totals[x] > 0.0 else 1.0 / words
        for j in range(m):
            emissions[j, i] = max(look_up(table, x, pairs.targets[low + j]) if x < null else 0.0, never) + LEAST
    for j in range(m):
        null_emissions[j] = max(look_up(table, null, pairs.targets[low + j]), alpha / totals[null]) + LEAST
    if max(n, m) > MAX_JUMPING_WORDS:
        return mix(emissions, null_emissions, chain.null_rate, links, nulls)
    return forward_backward(emissions, null_emissions, chain, links, nulls, jumps, jumps)


@compiled()
def fill_links(
    first: int, last: int, pairs: Bitext, model: FittedDirection, starts: Array, links: Array, nulls: Array
) -> None:
    """q_ij of these sentences, by source position, then by target position, and P(a_j = null) of their tokens."""
    jumps = np.zeros(model.chain.jumps.shape)
    for k in range(first, last):
        low = pairs.target_starts[k]
        n, m = pairs.source_starts[k + 1] - pairs.source_starts[k], pairs.target_starts[k + 1] - low
        found, found_nulls = np.empty((m, n)), np.empty(m)
        explain_pair(k, pairs, model, found, found_nulls, jumps)
        for j in range(m):
            nulls[low + j] = found_nulls[j]
            for i in range(n):
                links[starts[k] + i * m + j] = found[j, i]


@compiled()
def choose(pairs: Bitext, starts: Array, links: Array, nulls: Array, chosen: Array) -> None:
    """The likeliest position of each target token, −1 for the null word; of equally likely ones the first."""
    for k in range(len(starts) - 1):
        low = pairs.target_starts[k]
        n, m = pairs.source_starts[k + 1] - pairs.source_starts[k], pairs.target_starts[k + 1] - low
        for j in range(m):
            highest, chosen[low + j] = nulls[low + j], -1
            for i in range(n):
                if links[starts[k] + i * m + j] > highest:
                    highest, chosen[low + j] = links[starts[k] + i * m + j], i


@dataclass(frozen=True, eq=False)
class HmmAlignment:
    """A fitted model of one direction."""

    config: HmmAlignmentConfig
    table: TranslationTable
    """t(y ∣ x), without pairs of words that were hardly ever expected."""
    totals: Float64[np.ndarray, " rows"]
    """Σ_y (c(x, y) + α) of each row of the table."""
    chain: JumpChain
    log_likelihoods: tuple[float, ...]
    """log P of the training text as each iteration found it. It never falls within model 1 and within the iterations
    with jumps if the prior is 0 and the directions need not agree."""

    def links(self, source: Ids, target: Ids) -> set[tuple[int, int]]:
        """Each target word with its likeliest source word, as positions counted from 0; words of the null word not."""
        chosen = self.choose(Bitext.from_sentences([source], [target]))
        return {(int(i), j) for j, i in enumerate(chosen) if i >= 0}

    def choose(self, bitext: Bitext, *, threads: int = 1) -> Int32[np.ndarray, " target_tokens"]:
        """The likeliest position of each target token by itself, −1 for the null word."""
        chosen = np.empty(len(bitext.targets), np.int32)
        choose(bitext, cell_starts(bitext), *self._posteriors(bitext, threads), chosen)
        return chosen

    def link_probabilities(self, bitext: Bitext, *, threads: int = 1) -> Float32[np.ndarray, " cells"]:
        """P(target word j comes from source word i), all pairs in one array: by pair, source and target position."""
        return self._posteriors(bitext, threads)[0]

    def posteriors(self, source: Ids, target: Ids) -> Float64[np.ndarray, "target source_and_null"]:
        """P(target word j comes from source word i); column 0 is the null word."""
        links, nulls = self._posteriors(Bitext.from_sentences([source], [target]), 1)
        return np.column_stack([nulls, links.reshape(len(source), len(target)).T]).astype(np.float64)

    def score(self, source: Ids, target: Ids) -> float:
        """log P(target ∣ source), the length of the target given."""
        bitext = Bitext.from_sentences([source], [target])
        links, nulls = np.empty((len(target), len(source))), np.empty(len(target))
        jumps = np.zeros_like(self.chain.jumps)
        return float(explain_pair(0, bitext, self._fitted(), links, nulls, jumps))

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that was learned, for `restore`."""
        return {**self.table._asdict(), "totals": self.totals, "jumps": self.chain.jumps}

    @staticmethod
    def restore(config: HmmAlignmentConfig, arrays: Mapping[str, np.ndarray]) -> "HmmAlignment":
        """The model that `arrays` came from; its likelihoods are not kept."""
        table = TranslationTable.restore(arrays)
        shapes = {"totals": (table.null + 1,), "jumps": (2, 2 * config.jump_limit + 1)}
        for name, shape in shapes.items():
            if name not in arrays or arrays[name].shape != shape or arrays[name].dtype != np.float64:
                found = f"{arrays[name].dtype} {arrays[name].shape}" if name in arrays else "missing"
                raise ModelError(
                    f"the aligner is damaged: {name} must be float64 {shape}, but is {found}; fit it again"
                )
        if not (arrays["jumps"] > 0).all() or (config.dirichlet_alpha > 0 and not (arrays["totals"] > 0).all()):
            raise ModelError("the aligner is damaged: not all jumps and totals are above 0; fit it again")
        return HmmAlignment(config, table, arrays["totals"], JumpChain(config.null_rate, arrays["jumps"]), ())

    def _fitted(self) -> FittedDirection:
        return FittedDirection(self.table, self.totals, self.config.dirichlet_alpha, self.chain)

    def _posteriors(
        self, bitext: Bitext, threads: int
    ) -> tuple[Float32[np.ndarray, " cells"], Float32[np.ndarray, " target_tokens"]]:
        starts = cell_starts(bitext)
        links, nulls = np.empty(starts[-1], np.float32), np.empty(len(bitext.targets), np.float32)
        borders = borders_of(bitext.target_starts, RANGES * threads)
        in_ranges(threads, fill_links, borders, bitext, self._fitted(), starts, links, nulls)
        return links, nulls
