"""Word vectors learned from the company that words keep: word2vec (Mikolov et al., 2013) in all its forms.

    skip-gram   Σ over words x of the window of y    log σ(x · y) + Σ_{k=1…K} log σ(−x · n_k),   n_k ~ count^0.75
    notes       the same for R words of the window, and R random words in place of K for each
    CBOW        the window is pooled into one h:     log σ(h · y) + Σ_{k=1…K} log σ(−h · n_k)
                mean h = Σ x / n, sum h = Σ x;  product (notes): P(y ∣ window) = Π_x σ(x · y), no h at all
    tree        in place of negatives, the hierarchical softmax: log P(y) = Σ_nodes log σ(± h · v_node)

Each word has two vectors, x where it is given and y where it is predicted; the x are the result. The rate falls in a
straight line. With several threads, all of them write into the same vectors without waiting (Hogwild, Recht et al.,
2011): the result is as good but never the same. One thread gives the same bytes for the same seed.
"""

import heapq
import math
import os
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float32, Float64, Int8, Int32, Int64, Integer
from pydantic import Field, model_validator

from seqloom.classical import word2vec_kernels as kernels
from seqloom.classical.vectors import SubwordConfig, Subwords, WordVectors, parts_of_words, pooled_vectors
from seqloom.classical.word2vec_kernels import (
    CBOW,
    HIERARCHICAL,
    LANES,
    LEFT_OUT,
    MEAN,
    NEGATIVE,
    PRODUCT,
    SAMPLED,
    SENTENCE_END,
    SKIPGRAM,
    SUM,
    Lists,
    Noise,
    Plan,
    Tables,
    Text,
)
from seqloom.core.declaration import ModelSettings, ModelSizes, Pieces, Purpose, Reason, TaskKind, TextFacts
from seqloom.core.errors import DataError, ModelError
from seqloom.core.events import Event, Listener, ignore, notice
from seqloom.core.seeds import seed_for
from seqloom.core.symbols import END, RESERVED
from seqloom.text.tokenizer import EncodedText

# Drawing words from a distribution in constant time, by the alias method (Walker, 1977; Vose, 1991).
#
# The distribution is cut into as many equal columns as there are words, each filled by at most two of them. To draw,
# take a column at random and then one of its two words: two random halves of one number, whatever the vocabulary.

ONE = 1 << 32
"""A chance of 1, in the units of the thresholds."""


def noise_distribution(counts: Integer[np.ndarray, " words"], power: float) -> Float64[np.ndarray, " words"]:
    """q(w) ∝ count(w)^power: 0 is uniform, 1 the unigram distribution, 0.75 lifts rare words (Mikolov et al., 2013)."""
    weights = np.asarray(counts, np.float64) ** power
    shares: Float64[np.ndarray, " words"] = weights / weights.sum()
    return shares


def alias_table(probabilities: Float64[np.ndarray, " words"]) -> Noise:
    """The columns: column e holds word e up to its threshold and its alias above."""
    words = len(probabilities)
    heights = np.asarray(probabilities, np.float64) * words
    thresholds: Int64[np.ndarray, " words"] = np.full(words, ONE, np.int64)
    aliases: Int32[np.ndarray, " words"] = np.arange(words, dtype=np.int32)
    short = [word for word in range(words) if heights[word] < 1]
    tall = [word for word in range(words) if heights[word] >= 1]
    while short and tall:
        small, large = short.pop(), tall[-1]
        thresholds[small], aliases[small] = round(heights[small] * ONE), large
        heights[large] -= 1 - heights[small]
        if heights[large] < 1:
            short.append(tall.pop())
    return Noise(thresholds, aliases)


# Huffman codes: a binary tree in which frequent words are near the root, for the hierarchical softmax.
#
#     P(w) = Π over the inner nodes n on the way to w  σ(±h · v_n)        + where the way goes to the left (code 0)
#
# The probabilities of all words add up to 1, and one word costs about log₂ V products instead of V.


@dataclass(frozen=True, eq=False)
class HuffmanCodes:
    """The way to each word from the root: that of word w lies from `starts[w]` up to `starts[w + 1]`."""

    starts: Int64[np.ndarray, " words_and_one"]
    nodes: Int32[np.ndarray, " steps"]
    """The inner nodes passed, the root first; there is one node less than there are words."""
    turns: Int8[np.ndarray, " steps"]
    """0 to the left, 1 to the right."""

    @property
    def longest(self) -> int:
        """The steps to the rarest word."""
        return int(np.diff(self.starts).max())

    def as_lists(self) -> Lists:
        """For the compiled loops."""
        return Lists(self.starts, self.nodes, self.turns)


def huffman_codes(counts: Integer[np.ndarray, " words"]) -> HuffmanCodes:
    """Join the two rarest until one is left; of equal counts the one that came first."""
    words = len(counts)
    if words < 2:
        raise DataError(f"a tree of codes needs at least 2 words, and there is {words}; give more text")
    heap = [(int(count), word) for word, count in enumerate(counts)]
    heapq.heapify(heap)
    parent, turn = np.zeros(2 * words - 1, np.int64), np.zeros(2 * words - 1, np.int8)
    for node in range(words, 2 * words - 1):
        left, right = heapq.heappop(heap), heapq.heappop(heap)
        parent[left[1]] = parent[right[1]] = node
        turn[right[1]] = 1
        heapq.heappush(heap, (left[0] + right[0], node))
    root = 2 * words - 2
    # Parents have higher numbers than their children, so from the root down each parent is ready before them.
    paths: list[tuple[int, ...]] = [()] * (2 * words - 1)
    turns: list[tuple[int, ...]] = [()] * (2 * words - 1)
    for node in range(root - 1, -1, -1):
        above = int(parent[node])
        paths[node] = (*paths[above], root - above)  # the root is inner node 0
        turns[node] = (*turns[above], int(turn[node]))
    lengths = np.array([len(path) for path in paths[:words]], np.int64)
    return HuffmanCodes(
        np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]),
        np.array([node for path in paths[:words] for node in path], np.int32),
        np.array([code for path in turns[:words] for code in path], np.int8),
    )


_KEPT = {
    **dict.fromkeys(("vectors", "outputs", "buckets"), ("float32", 2)),
    **dict.fromkeys(("counts", "symbols"), ("int64", 1)),
    "losses": ("float64", 1),
}
"""The arrays that a model directory keeps: the type of their numbers, and how many axes they have."""


class Word2VecConfig(ModelSettings):
    """Word vectors by word2vec."""

    purpose: ClassVar[Purpose] = "word vectors"
    task_kind: ClassVar[TaskKind] = "fitting"
    pieces: ClassVar[Pieces] = "word"

    kind: Literal["word2vec"] = "word2vec"
    """Which model this is."""
    architecture: Literal["skipgram", "cbow"] = "skipgram"
    """`skipgram`: each word of a window predicts the one in its middle; `cbow`: all of them together do, which is
    faster and less good with rare words."""
    pooling: Literal["mean", "sum", "product"] = "mean"
    """How CBOW joins a window: `mean` or `sum` of its vectors, or the `product` of the probabilities that each word
    gives by itself."""
    context: Literal["shrunk", "sampled"] = "shrunk"
    """The pairs of skip-gram: all words of a window whose reach is drawn from 1 to `window`, with `negatives` for each
    (`shrunk`); or `contexts` words of the full window, with as many random words in all (`sampled`)."""
    contexts: int = Field(default=5, ge=1, le=1000)
    """Words of a window taken with `context: sampled`."""
    width: int = Field(default=100, ge=1, le=4096)
    """Numbers in a vector."""
    window: int = Field(default=5, ge=1, le=1000)
    """Words to each side that count as company, at most."""
    output: Literal["negative", "hierarchical"] = "negative"
    """What replaces a softmax over all words: `negative` sampling, or the `hierarchical` softmax over a tree."""
    negatives: int = Field(default=5, ge=0, le=1000)
    """Random words that each word is contrasted with. Without any, all vectors become equal."""
    shared_negatives: bool = True
    """Draw the negatives of skip-gram once per window: several times as fast, and as good. Off: once per pair."""
    noise_power: float = Field(default=0.75, ge=0, le=1)
    """Negatives are drawn by count to this power: 0 uniformly, 1 as frequent as in the text."""
    subsampling: float = Field(default=1e-3, ge=0)
    """Words whose share of the text is above this are left out at random, the more the more frequent; 0 keeps all."""
    minimum_count: int = Field(default=5, ge=1)
    """Words that come less often are passed over."""
    epochs: int = Field(default=5, ge=1)
    """How often the text is gone through."""
    learning_rate: float = Field(default=0.025, gt=0)
    """The rate at the beginning; it falls in a straight line."""
    final_rate: float = Field(default=1e-4, ge=0)
    """The rate at the end."""
    threads: int | None = Field(default=None, ge=1, le=1000)
    """All cores without it. More than one are fast and never give the same vectors twice; 1 does."""
    subwords: SubwordConfig | None = None
    """Character n-grams as parts of words, so that words which were never seen have vectors too."""

    @model_validator(mode="after")
    def _check(self) -> "Word2VecConfig":
        if self.final_rate > self.learning_rate:
            raise ValueError(f"final_rate {self.final_rate} is above learning_rate {self.learning_rate}; lower it")
        if self.context == "sampled" and (self.architecture != "skipgram" or self.output != "negative"):
            raise ValueError("context: sampled is a form of skip-gram with negative sampling; set context: shrunk")
        if self.pooling != "mean" and self.architecture != "cbow":
            raise ValueError(f"pooling: {self.pooling} is for architecture: cbow; skip-gram pools nothing")
        if self.pooling == "product" and self.subwords is not None:
            raise ValueError("pooling: product takes words one by one, so it has no subwords; set pooling: mean")
        return self

    def sizes_for_text(self, facts: TextFacts, pieces: Pieces) -> ModelSizes:  # noqa: ARG002
        minimum = 5 if facts.words > 200_000 else 2 if facts.words > 20_000 else 1
        width, epochs = (100, 5) if facts.words > 1_000_000 else (50, 20)
        times = "once" if minimum == 1 else f"{minimum} times"
        reasons = (
            Reason(("model.kind", "model.minimum_count"), f"vectors for words seen at least {times}"),
            Reason(("model.kind", "model.width"), f"vectors of width {width}: less text teaches fewer numbers"),
            Reason(("model.kind", "model.epochs"), f"{epochs} passes over the text"),
        )
        return ModelSizes({"width": width, "epochs": epochs, "minimum_count": minimum}, reasons)

    def fit(self, text: EncodedText, *, seed: int, listener: Listener = ignore) -> WordVectors:
        """Learn the vectors of a text."""
        # The loops come in when they are wanted: their compiler takes a second to load.

        learner = Learner.begin(text, self, seed=seed)
        if learner.threads > 1:
            notice(
                listener,
                f"{learner.threads} threads write into the same vectors without waiting for each other: fast, and "
                "different each time; model.threads=1 gives the same vectors for the same seed",
            )
        if self.output == "negative" and self.negatives == 0:
            notice(listener, "without negatives nothing keeps words apart: all vectors become equal")
        listener(Event("phase", {"what": "compiling the loops of word2vec, if this is their first use"}))
        losses = [learner.learn(epoch, listener=listener) for epoch in range(self.epochs)]
        learner.require_learned()
        return learner.vectors(losses)

    def describe(self, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:  # noqa: ARG002
        """Nothing that its settings do not say."""
        return {}

    def restore(self, arrays: Mapping[str, np.ndarray], vocabulary: Sequence[str]) -> WordVectors:
        """The vectors that a model directory keeps."""
        missing = {"vectors", "counts", "symbols"} - set(arrays)
        if missing:
            raise ModelError(f"not the arrays of word vectors: {', '.join(sorted(missing))} missing")
        for name, (kind, axes) in _KEPT.items():
            if name in arrays and (str(arrays[name].dtype), arrays[name].ndim) != (kind, axes):
                shape = list(arrays[name].shape)
                raise ModelError(
                    f"not the arrays of word vectors: {name} has type {arrays[name].dtype} and shape {shape}"
                )
        symbols = arrays["symbols"]
        if len(symbols) and not 0 <= int(symbols.min()) <= int(symbols.max()) < len(vocabulary):
            raise ModelError(
                f"symbols run from {symbols.min()} to {symbols.max()}, but the vocabulary has {len(vocabulary)} symbols"
            )
        subwords = None
        if self.subwords is not None:
            wanted = [self.subwords.buckets, *arrays["vectors"].shape[1:]]
            if "buckets" not in arrays or list(arrays["buckets"].shape) != wanted:
                raise ModelError(f"these vectors have no buckets of shape {wanted}, which the settings ask for")
            subwords = Subwords(self.subwords, arrays["buckets"])
        return WordVectors(
            tuple(vocabulary[symbol] for symbol in symbols.tolist()),
            arrays["vectors"],
            arrays["counts"],
            symbols,
            arrays.get("outputs"),
            subwords,
            tuple(float(loss) for loss in arrays.get("losses", ())),
        )


# The loop of word2vec: chunks of a text for the threads, a falling rate, and the vectors that come of it.

CHUNK = 10_000
"""Tokens that a thread takes at a time; a sentence that is longer is cut, as in other programs."""

_ARCHITECTURES = {"skipgram": SKIPGRAM, "cbow": CBOW}
_POOLINGS = {"mean": MEAN, "sum": SUM, "product": PRODUCT}
_OUTPUTS = {"negative": NEGATIVE, "hierarchical": HIERARCHICAL}


@dataclass(frozen=True, eq=False)
class Learner:
    """A text that is being learned from: which words there are, and their vectors, which change from epoch to epoch."""

    config: Word2VecConfig
    seed: int
    words: tuple[str, ...]
    counts: Int64[np.ndarray, " words"]
    symbols: Int64[np.ndarray, " words"]
    text: Text
    plan: Plan
    tables: Tables
    noise: Noise
    paths: Lists
    parts: Lists
    borders: tuple[int, ...]
    """Where the chunks of the text begin, and where the last one ends."""

    @staticmethod
    def begin(text: EncodedText, config: Word2VecConfig, *, seed: int) -> "Learner":
        """Choose the words and give them random vectors."""
        symbols, counts = _choose_words(text, config)
        words = tuple(text.vocabulary[symbol] for symbol in symbols.tolist())
        paths, parts = _NO_LISTS, _NO_LISTS
        if config.output == "hierarchical":
            paths = huffman_codes(counts).as_lists()
        if config.subwords is not None:
            parts = parts_of_words(words, config.subwords)
        buckets = config.subwords.buckets if config.subwords is not None else 0
        outputs = len(words) - 1 if config.output == "hierarchical" else len(words)
        tables = _random_tables(len(words) + buckets, outputs, config.width, seed=seed)
        row_of: Int32[np.ndarray, " symbols"] = np.full(text.symbols, LEFT_OUT, np.int32)
        row_of[symbols] = np.arange(len(symbols), dtype=np.int32)
        row_of[END] = SENTENCE_END
        noise = alias_table(noise_distribution(counts, config.noise_power))
        kept = Text(text.ids, row_of, _chances(counts, config.subsampling))
        return Learner(
            config, seed, words, counts, symbols, kept, _plan(config), tables, noise, paths, parts, _borders(text)
        )

    @property
    def threads(self) -> int:
        """How many are used."""
        return min(self.config.threads or _cores(), len(self.borders) - 1)

    def learn(self, epoch: int, *, listener: Listener = ignore) -> float:
        """Go through the text once; the mean loss per prediction, in nats."""
        chunks, tokens = len(self.borders) - 1, self.borders[-1]
        told: list[tuple[float, float]] = []
        numbers, lock, is_stopped = iter(range(chunks)), threading.Lock(), threading.Event()
        done = [0]

        def work() -> None:
            while not is_stopped.is_set():
                with lock:
                    chunk = next(numbers, None)
                if chunk is None:
                    return
                loss = self._learn_chunk(epoch, chunk)
                with lock:
                    told.append(loss)
                    done[0] += self.borders[chunk + 1] - self.borders[chunk]

        with ThreadPoolExecutor(self.threads) as pool:
            try:
                waiting = {pool.submit(work) for _ in range(self.threads)}
                while waiting:
                    finished, waiting = wait(waiting, timeout=0.5)
                    for each in finished:
                        each.result()
                    values = {"done": epoch * tokens + done[0], "all": self.config.epochs * tokens}
                    listener(Event("progress", {"what": "tokens learned from", "by_tenths": True, **values}))
            finally:
                is_stopped.set()
        # In a fixed order, since sums of floats depend on it: one thread gives the same bytes.
        terms = math.fsum(count for _, count in told)
        loss = math.fsum(loss for loss, _ in told) / max(1.0, terms)
        listener(Event("epoch", {"epoch": epoch + 1, "epochs": self.config.epochs, "loss": loss}))
        return loss

    def require_learned(self) -> None:
        """Refuse vectors that are as random as at the start: no word was ever near another."""
        if not self.tables.outputs.any():  # they begin as zeros, and every prediction moves them
            raise DataError(
                f"nothing was learned from {self.borders[-1]:,} tokens in {self.config.epochs} epochs: no two words "
                f"stood beside each other with model.subsampling={self.config.subsampling:g} and "
                f"model.minimum_count={self.config.minimum_count}; set model.subsampling=0, or give more text"
            )

    def vectors(self, losses: Sequence[float] = ()) -> WordVectors:
        """The vectors as they are now."""
        width, words = self.config.width, len(self.words)
        inputs = self.tables.inputs[:, :width].copy()  # learning may continue
        subwords = None
        vectors = inputs
        if self.config.subwords is not None:
            vectors = pooled_vectors(inputs, self.parts)
            subwords = Subwords(self.config.subwords, inputs[words:])
        outputs = self.tables.outputs[:, :width].copy()
        return WordVectors(self.words, vectors, self.counts, self.symbols, outputs, subwords, tuple(losses))

    def _learn_chunk(self, epoch: int, chunk: int) -> tuple[float, float]:
        first, last = self.borders[chunk], self.borders[chunk + 1]
        share = (epoch + first / self.borders[-1]) / self.config.epochs
        rate = self.config.learning_rate + (self.config.final_rate - self.config.learning_rate) * share
        seed = seed_for(self.seed, "word2vec", epoch, chunk)
        blocks = ((),) * (self.tables.inputs.shape[1] // LANES)
        found = kernels.learn(
            self.text, first, last, self.plan, self.tables, self.noise, self.paths, self.parts,
            self._sizes, float(rate), seed, blocks,
        )  # fmt: skip
        return float(found[0]), float(found[1])

    @property
    def _sizes(self) -> tuple[int, int, int]:
        """The most inputs, outputs and members that a block can have."""
        reach = 2 * self.config.window
        longest_path = int(np.diff(self.paths.starts).max(initial=0))
        longest_parts = int(np.diff(self.parts.starts).max(initial=1))
        outputs = max(1 + self.config.negatives, longest_path, 2 * self.config.contexts)
        return reach, outputs, reach * longest_parts


_NO_LISTS = Lists(np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int8))


def _choose_words(
    text: EncodedText, config: Word2VecConfig
) -> tuple[Int64[np.ndarray, " words"], Int64[np.ndarray, " words"]]:
    """The symbols of words that are frequent enough, by falling count, and their counts."""
    counts = text.counts()
    counts[: len(RESERVED)] = 0
    order = np.argsort(-counts, kind="stable").astype(np.int64)
    symbols = order[counts[order] >= config.minimum_count]
    if not len(symbols):
        most = int(order[0]) if len(order) else 0
        if not counts.any():
            raise DataError(f"there are no words to learn: {len(text.ids):,} tokens, all of them ends or unknown")
        raise DataError(
            f"no word comes {config.minimum_count} times; the most frequent one, {text.vocabulary[most]!r}, comes "
            f"{counts[most]} times; give more text, or set model.minimum_count={counts[most]}"
        )
    if len(symbols) == 1:
        only = int(symbols[0])
        raise DataError(
            f"there is only one word, {text.vocabulary[only]!r}, that comes {config.minimum_count} times or more, and "
            "a word by itself has no company to be known by; give more text, or lower model.minimum_count"
        )
    return symbols, counts[symbols]


def _plan(config: Word2VecConfig) -> Plan:
    architecture = SAMPLED if config.context == "sampled" else _ARCHITECTURES[config.architecture]
    return Plan(
        architecture,
        _POOLINGS[config.pooling],
        _OUTPUTS[config.output],
        config.window,
        config.negatives,
        config.contexts,
        # A tree gives the same nodes to all words of a window, so there is nothing to draw and all to share.
        config.shared_negatives or config.output == "hierarchical",
        config.subwords is not None,
    )


def _random_tables(rows: int, outputs: int, width: int, *, seed: int) -> Tables:
    """Inputs uniform on ±1 / width, as gensim has them, and outputs 0; rows padded to whole blocks."""
    padded = -(-width // LANES) * LANES
    inputs: Float32[np.ndarray, "rows padded"] = np.zeros((rows, padded), np.float32)
    generator = np.random.default_rng(seed_for(seed, "word2vec vectors"))
    inputs[:, :width] = (np.float32(2.0) * generator.random((rows, width), np.float32) - np.float32(1.0)) / np.float32(
        width
    )
    return Tables(inputs, np.zeros((outputs, padded), np.float32))


def _chances(counts: Int64[np.ndarray, " words"], subsampling: float) -> Int64[np.ndarray, " words"]:
    """P(keep w) = √(t / f) + t / f for words with a share f of the text above t, in units of 2⁻³²."""
    if subsampling == 0:
        return np.full(len(counts), ONE, np.int64)
    ratio = subsampling * counts.sum() / counts
    chances: Int64[np.ndarray, " words"] = (np.minimum(1.0, np.sqrt(ratio) + ratio) * ONE).astype(np.int64)
    return chances


def _borders(text: EncodedText) -> tuple[int, ...]:
    """Chunks that end where a sentence ends, unless it is longer than a chunk."""
    borders, tokens = [0], len(text.ids)
    while borders[-1] < tokens:
        begin = borders[-1]
        end = min(begin + CHUNK, tokens)
        if end < tokens:
            ends = np.flatnonzero(text.ids[begin:end] == END)
            end = begin + int(ends[-1]) + 1 if len(ends) else end
        borders.append(end)
    return tuple(borders)


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
