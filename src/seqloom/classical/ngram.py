"""N-gram language models: the next word from the last few, by counting.

    P(w_1 … w_T) = Π_t P(w_t ∣ w_(t−N+1) … w_(t−1))      each sentence begins with <s> and ends with </s>

`smoothing` says what becomes of words that never followed a context: impossible ("mle"), a little for each ("laplace"),
or what the shorter context says ("kneser_ney"). Whichever it was, the model keeps one probability per n-gram and one
back-off weight per context, and answers from these alone.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float, Float64, Int32, Int64, Integer
from pydantic import Field, model_validator

from seqloom.classical import ngram_kernels as kernels
from seqloom.classical.kneser_ney import (
    FALLBACK,
    Discounts,
    Level,
    check_discounts,
    check_thresholds,
    kneser_ney,
    laplace,
    maximum_likelihood,
)
from seqloom.classical.ngram_counts import Grams, count_ngrams
from seqloom.classical.ngram_kernels import NODE, Trie
from seqloom.classical.ngram_words import WordFinder
from seqloom.core.declaration import ModelSettings, ModelSizes, Pieces, Purpose, Reason, TaskKind, TextFacts
from seqloom.core.errors import ConfigError, DataError, ModelError, UsageError
from seqloom.core.events import Listener, ignore, notice
from seqloom.core.reading import TextReader
from seqloom.core.symbols import BEGIN, END
from seqloom.text.tokenizer import EncodedText

# The n-grams of a model as one array of nodes and a hash table: 32 bytes each, ready to be memory-mapped.
#
# `seqloom.classical.ngram_kernels` says what a node holds and how questions walk along nodes.

MOST = np.iinfo(np.uint32).max
"""Nodes that four bytes can number."""

HIGHEST_BACKOFF = 100.0
"""log10 of a weight, far above those of any text: beyond it sums of logarithms give no numbers."""


@dataclass(frozen=True, eq=False)
class Layer:
    """The n-grams of one length as a model keeps them, by rising context and word."""

    contexts: Int64[np.ndarray, " grams"]
    """The number of each n-gram without its last word, in the layer before."""
    words: Int32[np.ndarray, " grams"]
    log_probs: Float[np.ndarray, " grams"]
    """log10 P(last word ∣ the words before)."""
    backoffs: Float[np.ndarray, " grams"]
    """log10 γ; 0 in the last layer."""
    suffixes: Int64[np.ndarray, " grams"]
    """The number of each n-gram without its first word, in the layer before."""


def layers_of(levels: Sequence[Grams], smoothed: Sequence[Level]) -> Iterator[Layer]:
    """The n-grams that are kept of those counted, renumbered. Whatever ends or begins a kept n-gram is kept too."""
    numbers: np.ndarray | None = None  # of each counted n-gram among the kept ones; None where all are kept
    for grams, level in zip(levels, smoothed, strict=True):
        rows = slice(None) if level.is_kept.all() else np.flatnonzero(level.is_kept)
        contexts, suffixes = grams.contexts[rows], grams.suffixes[rows]
        yield Layer(
            contexts if numbers is None else numbers[contexts],
            grams.words[rows],
            level.log_probs[rows],
            level.backoffs[rows],
            suffixes if numbers is None else numbers[suffixes],
        )
        numbers = None if isinstance(rows, slice) else np.cumsum(level.is_kept) - 1


def build_trie(layers: Sequence[Layer]) -> tuple[Trie, Int64[np.ndarray, " borders"]]:
    """The trie, and where the nodes of each length begin; the last border is their number."""
    borders = np.cumsum([0, *(len(layer.words) for layer in layers)])
    if borders[-1] > MOST:
        raise DataError(f"{borders[-1]:,} n-grams are more than {MOST:,}; lower model.order or raise model.prune")
    nodes = np.zeros(int(borders[-1]) + 1, NODE)
    for layer, (begin, end) in zip(layers, pairwise(borders), strict=True):
        part = nodes[begin:end]
        part["word"], part["log_prob"], part["backoff"] = layer.words, layer.log_probs, layer.backoffs
    _set_first_children(nodes, layers, borders)
    return Trie(nodes, _slots(layers, borders)), borders


def require_sound(trie: Trie, *, symbols: int) -> None:
    """Refuse a trie from a file if the compiled loops could leave its arrays: they trust every number in it.

    Words and nodes must be there, children must lie in order, and a table without an empty slot has no end.
    """
    nodes, slots = trie
    last = len(nodes) - 1
    wrong = {
        "words": ((nodes["word"] < 0) | (nodes["word"] >= symbols)).any(),
        "children": (nodes["first"][1:] < nodes["first"][:-1]).any() or nodes["first"][-1] != last,
        "slots": (slots & kernels.HALF).max() >= max(1, last) or (slots != 0).all(),
        "probabilities": not (nodes["log_prob"] <= 1).all(),  # 0 and what rounding adds; NaN is none either
        "back-off weights": not (nodes["backoff"] <= HIGHEST_BACKOFF).all(),
    }
    found = [name for name, is_wrong in wrong.items() if is_wrong]
    if found:
        raise ModelError(f"not the arrays of an n-gram model: {' and '.join(found)} out of range; fit it again")


def _set_first_children(nodes: np.ndarray, layers: Sequence[Layer], borders: np.ndarray) -> None:
    nodes["first"] = borders[-1]
    for layer, (begin, end) in zip(layers[1:], pairwise(borders[:-1]), strict=True):
        children = np.bincount(layer.contexts, minlength=end - begin)
        nodes["first"][begin:end] = end + np.cumsum(children) - children


def _slots(layers: Sequence[Layer], borders: np.ndarray) -> Int64[np.ndarray, " slots"]:
    """A table that is half full, since most questions are for n-grams that are not there."""
    slots = np.zeros(int(2 * (borders[-1] - borders[1])) + 1, np.int64)
    first_words = layers[0].words
    hashes = first_words.astype(np.int64)
    for layer, begin in zip(layers[1:], borders[1:-1], strict=True):
        first_words = first_words[layer.contexts]
        longer = np.empty(len(layer.words), np.int64)
        kernels.hash_layer(hashes, layer.suffixes, first_words, longer)
        kernels.fill_slots(slots, longer, int(begin))
        hashes = longer
    return slots


LONGEST = 64
"""The highest order that the compiled loops walk through."""

_LN10 = math.log(10)


class NGramConfig(ModelSettings):
    """How an n-gram model is counted and smoothed."""

    purpose: ClassVar[Purpose] = "language model"
    task_kind: ClassVar[TaskKind] = "fitting"
    pieces: ClassVar[Pieces] = "word"

    kind: Literal["ngram"] = "ngram"
    order: int = Field(default=5, ge=1, le=LONGEST)
    """N: words looked at together, the predicted one included. 5 suits words, 6 or more suit characters."""
    smoothing: Literal["mle", "laplace", "kneser_ney"] = "kneser_ney"
    """Where the probability of unseen words comes from."""
    alpha: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """What Laplace smoothing adds to each count."""
    prune: tuple[int, ...] = ()
    """Counts up to which n-grams of length 1, 2, … are left out by Kneser-Ney; the last number holds for all longer
    ones. It begins with 0 and never falls: [0, 0, 1] leaves out what occurs once from three words on."""
    discount_fallback: Discounts | None = FALLBACK
    """Kneser-Ney discounts for n-grams counted once, twice and more often where the text is too small to estimate them;
    null makes that an error."""
    memory: int = Field(default=1 << 30, ge=1)
    """Bytes that sorting may hold at a time; larger texts go through files."""

    @model_validator(mode="after")
    def _is_sound(self) -> "NGramConfig":
        # The smoothing looks at these too, but here they are refused before a text is read.
        try:
            check_thresholds(self.prune)
            if self.discount_fallback is not None:
                check_discounts(self.discount_fallback)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self

    def sizes_for_text(self, facts: TextFacts, pieces: Pieces) -> ModelSizes:  # noqa: ARG002
        order = 8 if pieces == "char" else 5
        reason = Reason(("model.kind", "model.order"), f"n-grams up to order {order}: longer ones hardly occur twice")
        return ModelSizes({"order": order}, (reason,))

    def fit(self, text: EncodedText, *, seed: int = 0, listener: Listener = ignore) -> "NGram":  # noqa: ARG002 - all fits take one
        """Count and smooth. Nothing here is random: the seed changes nothing."""
        levels = count_ngrams(text.ids, self.order, symbols=text.symbols, memory=self.memory, listener=listener)
        longest = sum(1 for grams in levels if len(grams))
        if longest < self.order:
            notice(
                listener,
                f"model.order={self.order} is more than any line has: the longest n-grams have {longest} words, with "
                f"the beginning and the end of a line counted, so the model is one of order {longest}",
            )
        return NGram.from_layers(list(layers_of(levels, self._smooth(levels, listener))), text.vocabulary)

    def restore(self, arrays: Mapping[str, np.ndarray], vocabulary: Sequence[str]) -> "NGram":
        """The model whose `arrays` these are; they may be mapped files."""
        return NGram.from_arrays(arrays, vocabulary)

    def describe(self, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
        """The number of n-grams of each length."""
        sizes = enumerate(np.diff(arrays["borders"]).tolist(), start=1)
        return {"N-grams": ", ".join(f"{count:,} of length {length}" for length, count in sizes)}

    def _smooth(self, levels: Sequence[Grams], listener: Listener) -> list[Level]:
        match self.smoothing:
            case "mle":
                return maximum_likelihood(levels)
            case "laplace":
                return laplace(levels, alpha=self.alpha)
            case "kneser_ney":
                return kneser_ney(levels, prune=self.prune, fallback=self.discount_fallback, listener=listener)


@dataclass(frozen=True, eq=False)
class NGram:
    """A fitted model. Logarithms in its answers are natural ones."""

    trie: Trie
    borders: Int64[np.ndarray, " borders"]
    """Where the nodes of each length begin, and where the last ones end."""
    vocabulary: Sequence[str]

    @staticmethod
    def from_layers(layers: Sequence[Layer], vocabulary: Sequence[str]) -> "NGram":
        """The model that holds these n-grams; single words are the whole vocabulary in its order."""
        return NGram(*build_trie(layers), vocabulary)

    @staticmethod
    def from_arrays(arrays: Mapping[str, np.ndarray], vocabulary: Sequence[str]) -> "NGram":
        """The model whose `arrays` these are."""
        missing = {"nodes", "slots", "borders"} - arrays.keys()
        if missing:
            raise ModelError(f"not the arrays of an n-gram model: {', '.join(sorted(missing))} missing")
        nodes, slots, borders = (np.asarray(arrays[name]) for name in ("nodes", "slots", "borders"))
        kinds = [str(array.dtype) for array in (nodes, slots, borders)]
        is_plain = kinds == ["int32", "int64", "int64"] and slots.ndim == 1 and borders.ndim == 1 and len(slots) > 0
        if not is_plain or not 2 <= len(borders) <= LONGEST + 1 or borders[0] != 0 or (np.diff(borders) < 0).any():
            raise ModelError(f"not the arrays of an n-gram model: {', '.join(kinds)}, borders {borders}")
        fits = nodes.ndim == 2 and nodes.shape[1] * 4 == NODE.itemsize and len(nodes) == borders[-1] + 1
        if not fits or borders[1] != len(vocabulary):
            raise ModelError(
                f"an n-gram model with {borders[1]:,} words and nodes of shape {list(nodes.shape)} does not fit a "
                f"vocabulary of {len(vocabulary):,}; the files belong to different models"
            )
        trie = Trie(nodes.view(NODE)[:, 0], slots)
        require_sound(trie, symbols=len(vocabulary))
        return NGram(trie, borders, vocabulary)

    def __repr__(self) -> str:
        return f"NGram(order {self.order}, {self.symbols:,} symbols, {int(self.borders[-1]):,} n-grams)"

    def reader(self) -> TextReader:
        """This model as texts are measured with it."""
        from seqloom.classical.steppers import NGramReader  # with torch

        return NGramReader(self)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that the model knows but its vocabulary, as arrays to be kept in a file."""
        nodes = self.trie.nodes.view(np.int32).reshape(-1, NODE.itemsize // 4)
        return {"nodes": nodes, "slots": self.trie.slots, "borders": self.borders}

    @property
    def order(self) -> int:
        """The length of the longest n-grams."""
        return len(self.borders) - 1

    @property
    def symbols(self) -> int:
        """The size of the vocabulary."""
        return len(self.vocabulary)

    def sizes(self) -> list[int]:
        """The number of n-grams of each length."""
        return [int(size) for size in np.diff(self.borders)]

    def log_probs(self, ids: Integer[np.ndarray, " tokens"], *, threads: int = 1) -> Float64[np.ndarray, " tokens"]:
        """log P of each id given its sentence so far, for sentences that each end with END; the first is a new one."""
        result = np.empty(len(ids))
        cuts = _cuts(ids, threads)
        parts = [(ids[begin:end], result[begin:end]) for begin, end in pairwise(cuts)]
        if len(parts) == 1:
            self._score(*parts[0])
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda part: self._score(*part), parts))
        result *= _LN10
        return result

    def matched(self, ids: Integer[np.ndarray, " tokens"]) -> Int64[np.ndarray, " tokens"]:
        """The length of the n-gram that explains each id: 1 where only the word itself was known."""
        matches = np.empty(len(ids), np.int64)
        self._score(ids, np.empty(len(ids)), matches)
        return matches

    def score_lines(self, lines: Sequence[str]) -> Float64[np.ndarray, " lines"]:
        """log P of each line, its end included. Words are separated by spaces or tabs and looked up unchanged."""
        ids, starts = self.words.encode(lines)
        scores: np.ndarray = np.add.reduceat(self.log_probs(ids), starts) if len(lines) else np.empty(0)
        return scores

    def perplexity(self, ids: Integer[np.ndarray, " tokens"]) -> float:
        """exp(−mean log P) over all ids, END included."""
        if not len(ids):
            raise DataError("a text without tokens has no perplexity; give some lines")
        return float(np.exp(-self.log_probs(ids).mean()))

    def distribution(
        self, contexts: Iterable[Sequence[int] | Integer[np.ndarray, " _"]]
    ) -> Float64[np.ndarray, "contexts symbols"]:
        """P of every symbol after each context. A context that begins its sentence begins with BEGIN."""
        probabilities: np.ndarray = np.exp(self.log_distributions(self.states(contexts)))
        return probabilities

    def states(
        self, contexts: Iterable[Sequence[int] | Integer[np.ndarray, " _"]]
    ) -> Int64[np.ndarray, "contexts lengths"]:
        """All that the model needs to know of each context: the nodes of the n-grams that end it, −1 for none."""
        rows = [np.asarray(context, np.int64)[max(0, len(context) - self.order + 1) :] for context in contexts]
        ids = np.concatenate([*rows, np.empty(0, np.int64)])
        self._require_known(ids)
        states = np.empty((len(rows), self.order - 1), np.int64)
        kernels.read_contexts(self.trie, ids, np.cumsum([0, *map(len, rows)]), self.order, states)
        return states

    def log_distributions(self, states: Int64[np.ndarray, "rows lengths"]) -> Float64[np.ndarray, "rows symbols"]:
        """log P of every symbol after each state."""
        result = np.empty((len(states), self.symbols))
        kernels.fill_distributions(self.trie, states, result)
        result *= _LN10
        return result

    @cached_property
    def words(self) -> WordFinder:
        """From the text of words to their ids."""
        return WordFinder(self.vocabulary)

    def _score(
        self,
        ids: Integer[np.ndarray, " tokens"],
        log_probs: Float64[np.ndarray, " tokens"],
        matches: Int64[np.ndarray, " room"] | None = None,
    ) -> None:
        self._require_known(ids)
        tokens = np.empty(len(ids) + np.count_nonzero(ids == END) + 1, np.int32)
        size = kernels.add_begins(ids, tokens, BEGIN, END)
        matches = np.empty(0, np.int64) if matches is None else matches
        kernels.score_stream(self.trie, tokens[:size], self.order, log_probs, matches, BEGIN)

    def _require_known(self, ids: Integer[np.ndarray, " tokens"]) -> None:
        if len(ids) and (ids.min() < 0 or ids.max() >= self.symbols):
            raise UsageError(
                f"ids run from {ids.min()} to {ids.max()}, but the model knows 0 to {self.symbols - 1}; "
                "encode the text with the vocabulary of the model"
            )


def _cuts(ids: Integer[np.ndarray, " tokens"], parts: int) -> list[int]:
    """Borders of about equal parts, each of whole sentences."""
    if parts < 1:
        raise UsageError(f"threads={parts}: at least one is needed")
    cuts = [0]
    for part in range(1, parts):
        ends = np.flatnonzero(ids[len(ids) * part // parts :] == END)
        cut = len(ids) * part // parts + int(ends[0]) + 1 if len(ends) else len(ids)
        if cuts[-1] < cut < len(ids):
            cuts.append(cut)
    return [*cuts, len(ids)]
