"""Markov chains of any order: the next state from the last τ, by counting.

    P(x_1 … x_T) = Π_t P(x_t ∣ x_(t−τ) … x_(t−1))           shorter contexts at the beginning of a sequence

    P(y ∣ c) = (n(c y) + κ P(y ∣ c')) / (n(c) + κ)          n: counts; c' is c without its first state
    P(y)     = (n(y) + κ / S) / (n + κ)                     S states

κ = 0 is maximum likelihood, and a context that never occurred is read as c'. With κ > 0 every state can follow every
context: κ is how many observations the shorter context is worth (MacKay and Peto, 1995).

    k steps     P_k(y ∣ c) = Σ_z P(z ∣ c) P_(k−1)(y ∣ c z)      the context c z without its first state

For order 1 the table of k steps is the k-th power of the transition matrix. `MarkovChain` has any hashable values as
states, in dense tables; `model.kind=markov` is the same model for text, whose tables would be too large: it is stored
as n-grams with back-off weights, as in `ngram.py`.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64, Int64
from pydantic import Field

from seqloom.classical.kneser_ney import Level
from seqloom.classical.ngram import MAX_ORDER, NGram, NGramConfig, build_trie, layers_of
from seqloom.classical.ngram_counts import Grams, count_ngrams
from seqloom.core.declaration import ModelSettings, ModelSizes, Pieces, Purpose, Reason, TaskKind, TextFacts
from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Listener, ignore, notice
from seqloom.core.symbols import BEGIN, PAD
from seqloom.text.tokenizer import EncodedText

MAX_TABLE = 1 << 26
"""Numbers in a dense table: half a gigabyte."""

# --- chains of any states ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MarkovChain:
    """A chain over any hashable values, such as numbers or strings, with dense tables."""

    states: tuple[Hashable, ...]
    transitions: Float64[np.ndarray, "contexts states"]
    """P(y ∣ c), a row for each context of τ states in the order of `contexts`."""
    beginnings: tuple[Float64[np.ndarray, "_ states"], ...]
    """The same for the first states of a sequence: after none, after one, …, after τ − 1."""

    @staticmethod
    def fit(
        sequences: Iterable[Sequence[Hashable]],
        *,
        order: int = 1,
        smoothing: float = 0.0,
        states: Sequence[Hashable] | None = None,
    ) -> "MarkovChain":
        """Count; `smoothing` is κ. Without a list of `states` they are those of the sequences, as they appear."""
        rows = [list(sequence) for sequence in sequences]
        if order < 0 or not smoothing >= 0:
            raise UsageError(f"order={order} and smoothing={smoothing}: neither may be below 0")
        known = dict.fromkeys(state for row in rows for state in row) if states is None else dict.fromkeys(states)
        numbers = {state: number for number, state in enumerate(known)}
        size = len(numbers)
        if not any(rows):
            raise DataError("the sequences are empty; give at least one state")
        if size ** (order + 1) > MAX_TABLE:
            raise UsageError(
                f"a chain of order {order} over {size:,} states has a table of {size}^{order + 1} numbers, more than "
                f"{MAX_TABLE:,}; lower the order, or train model.kind=markov for text"
            )
        encoded = [_numbered(row, numbers, place) for place, row in enumerate(rows)]
        shorter = np.full((1, size), 1 / size)
        tables, beginnings = [], []
        for length in range(order + 1):
            counts = _counts(encoded, length, size=size)
            lower = shorter if not length else np.tile(shorter, (size, 1))  # row c is that of c without its first state
            shorter = _smoothed(counts, lower, smoothing)
            tables.append(shorter)
            if length < order:
                first = _counts([row[: length + 1] for row in encoded], length, size=size)
                beginnings.append(_smoothed(first, shorter, smoothing))
        return MarkovChain(tuple(numbers), tables[-1], tuple(beginnings))

    @property
    def order(self) -> int:
        """τ: how many states the next one depends on."""
        return len(self.beginnings)

    def contexts(self) -> list[tuple[Hashable, ...]]:
        """The states that each row of a table follows, the newest last."""
        return list(product(self.states, repeat=self.order))

    def table(self, steps: int = 1) -> Float64[np.ndarray, "contexts states"]:
        """P(x_(t+k) = y ∣ c), where c ends at t and k is `steps`."""
        if steps < 1:
            raise UsageError(f"a table of {steps} steps: give 1 or more")
        size, order = len(self.states), self.order
        result = self.transitions
        for _ in range(steps - 1):
            if order == 0:
                break  # nothing depends on anything
            nexts = result.reshape(size ** (order - 1), size, size)  # rows by what is kept of c, and z
            moves = self.transitions.reshape(size, size ** (order - 1), size)
            result = np.einsum("abz,bzy->aby", moves, nexts, optimize=True).reshape(-1, size)
        return result

    def log_probs(self, sequence: Sequence[Hashable]) -> Float64[np.ndarray, " steps"]:
        """log P of each state given those before it; −∞ for what never happens."""
        numbers = _numbered(sequence, {state: number for number, state in enumerate(self.states)}, 0)
        found = np.array([self._row(numbers[:place])[number] for place, number in enumerate(numbers)])
        with np.errstate(divide="ignore"):
            result: np.ndarray = np.log(found)
        return result

    def sample(self, length: int, generator: np.random.Generator) -> list[Hashable]:
        """A sequence drawn from the chain."""
        numbers: list[int] = []
        for _ in range(length):
            numbers.append(int(generator.choice(len(self.states), p=self._row(np.array(numbers, np.int64)))))
        return [self.states[number] for number in numbers]

    def _row(self, before: Int64[np.ndarray, " _"]) -> Float64[np.ndarray, " states"]:
        """P of each state after these."""
        tables = [*self.beginnings, self.transitions]
        length = min(len(before), self.order)
        row = 0
        for number in before[len(before) - length :].tolist():
            row = row * len(self.states) + number
        found: np.ndarray = tables[length][row]
        return found


def _numbered(row: Sequence[Hashable], numbers: Mapping[Hashable, int], place: int) -> Int64[np.ndarray, " _"]:
    try:
        return np.array([numbers[state] for state in row], np.int64)
    except KeyError as error:
        known = ", ".join(map(repr, list(numbers)[:5]))
        raise DataError(
            f"sequence {place} has the state {error.args[0]!r}, which is not among the {len(numbers)} states "
            f"({known}{', …' if len(numbers) > 5 else ''})"
        ) from None


def _counts(
    sequences: Sequence[Int64[np.ndarray, " _"]], length: int, *, size: int
) -> Float64[np.ndarray, "contexts states"]:
    """How often each state follows each context of so many."""
    counts = np.zeros(size ** (length + 1))
    for row in sequences:
        if len(row) > length:
            keys = np.zeros(len(row) - length, np.int64)
            for back in range(length + 1):
                keys = keys * size + row[back : len(row) - length + back]
            counts += np.bincount(keys, minlength=len(counts))
    return counts.reshape(-1, size)


def _smoothed(
    counts: Float64[np.ndarray, "contexts states"], shorter: Float64[np.ndarray, "contexts states"], smoothing: float
) -> Float64[np.ndarray, "contexts states"]:
    totals = counts.sum(1, keepdims=True) + smoothing
    shares: np.ndarray = (counts + smoothing * shorter) / np.where(totals > 0, totals, 1.0)
    return np.where(totals > 0, shares, shorter)


# --- chains of text ---------------------------------------------------------------------------------------------------


class MarkovConfig(ModelSettings):
    """A Markov chain of the pieces of a text."""

    purpose: ClassVar[Purpose] = "language model"
    task_kind: ClassVar[TaskKind] = "fitting"
    pieces: ClassVar[Pieces] = "word"

    kind: Literal["markov"] = "markov"
    """Which model this is."""
    order: int = Field(default=2, ge=0, le=MAX_ORDER - 1)
    """τ: how many pieces the next one depends on. 2 suits words, 5 suits characters."""
    smoothing: float = Field(default=50.0, ge=0, allow_inf_nan=False)
    """κ: how many observations the shorter context is worth. 0 is maximum likelihood: what never occurred is
    impossible."""
    memory: int = Field(default=1 << 30, ge=1)
    """Bytes that sorting may hold at a time; larger texts go through files."""

    def sizes_for_text(self, facts: TextFacts, pieces: Pieces) -> ModelSizes:  # noqa: ARG002
        order = 5 if pieces == "char" else 2
        reason = Reason(("model.kind", "model.order"), f"a chain of order {order}: longer contexts hardly occur twice")
        return ModelSizes({"order": order}, (reason,))

    def fit(self, text: EncodedText, *, seed: int = 0, listener: Listener = ignore) -> NGram:  # noqa: ARG002
        """Count. Nothing here is random: the seed has no effect."""
        levels = count_ngrams(text.ids, self.order + 1, symbols=text.symbols, memory=self.memory, listener=listener)
        longest = sum(1 for grams in levels if len(grams)) - 1
        if longest < self.order:
            notice(
                listener,
                f"model.order={self.order} exceeds the longest line: the longest contexts have {longest} pieces, "
                f"including the begin symbol, so the chain has order {longest}",
            )
        smoothed = smooth_chain(levels, self.smoothing)
        return NGram(*build_trie(list(layers_of(levels, smoothed))), text.vocabulary)

    def restore(self, arrays: Mapping[str, np.ndarray], vocabulary: Sequence[str]) -> NGram:
        """The model whose `arrays` these are; refuses damaged ones."""
        return NGramConfig().restore(arrays, vocabulary)

    def describe(self, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
        """How many contexts and transitions the chain has."""
        sizes = np.diff(arrays["borders"]).tolist()
        return {
            "Chain": f"order {len(sizes) - 1}, {sizes[-2] if len(sizes) > 1 else 1:,} contexts, "
            f"{sizes[-1]:,} transitions that occurred"
        }


def smooth_chain(levels: Sequence[Grams], smoothing: float) -> list[Level]:
    """P(y ∣ c) in back-off form, where γ(c) = κ / (n(c) + κ); logarithms have base 10."""
    symbols = len(levels[0])
    shorter = np.full(1, 1 / (symbols - 2))  # all symbols but the two that are never predicted
    result: list[Level] = []
    for length, grams in enumerate(levels, 1):
        counts = grams.counts.astype(np.float64)
        if length == 1:
            counts[BEGIN] = 0.0  # given, never predicted
        totals = np.bincount(grams.contexts, weights=counts, minlength=len(shorter)) + smoothing
        with np.errstate(divide="ignore", invalid="ignore"):
            if result:
                is_context = np.zeros(len(shorter), np.bool_)
                is_context[grams.contexts] = True
                result[-1].backoffs[is_context] = np.log10(smoothing / totals[is_context])
            shorter = (counts + smoothing * shorter[grams.suffixes]) / totals[grams.contexts]
            if length == 1:
                shorter[[PAD, BEGIN]] = 0.0
            log_probs = np.log10(shorter)
        result.append(Level(log_probs, np.zeros(len(grams)), np.ones(len(grams), np.bool_)))
    return result
